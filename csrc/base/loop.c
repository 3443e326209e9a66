// SPDX-License-Identifier: GPL-2.0-only
/*
 * Event sources of the loop: descriptors in its epoll, and work for the next
 * turn. stack/run.c runs the loop.
 *
 * Removing: an event of one epoll_pwait2() may refer to a source that an
 * earlier event removed. loop_del() therefore clears its fn, and memory is
 * freed only at the end of the turn (loop_free_later()).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include "base/loop.h"

static int epfd = -1;
static struct list works = LIST_INIT(works);
static struct list running = LIST_INIT(running);	/* work of this turn */

/** loop_init - create the epoll */
int loop_init(void)
{
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd < 0)
		return -errno;
	/* The default timer slack of 50 us is as long as a round trip. */
	prctl(PR_SET_TIMERSLACK, 1);
	return 0;
}

/** loop_epfd - the epoll descriptor, for the stack library's own devices */
int loop_epfd(void)
{
	return epfd;
}

/**
 * loop_add - watch a descriptor
 * @src: its fn and fd are set
 * @events: epoll events
 */
int loop_add(struct source *src, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = src };

	return epoll_ctl(epfd, EPOLL_CTL_ADD, src->fd, &ev) ? -errno : 0;
}

/** loop_mod - change the events of @src; also re-arms edge-triggered events */
int loop_mod(struct source *src, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = src };

	return epoll_ctl(epfd, EPOLL_CTL_MOD, src->fd, &ev) ? -errno : 0;
}

/** loop_del - stop watching, before the descriptor is closed */
void loop_del(struct source *src)
{
	if (src->fd >= 0)
		epoll_ctl(epfd, EPOLL_CTL_DEL, src->fd, NULL);
	src->fn = NULL;
	src->fd = -1;
}

/**
 * loop_forget - like loop_del(), for a descriptor about to be closed
 *
 * Closing removes it from the epoll, provided that it has no duplicate.
 */
void loop_forget(struct source *src)
{
	src->fn = NULL;
	src->fd = -1;
}

/** work_init - make @w ready for use */
void work_init(struct work *w, void (*fn)(struct work *w))
{
	list_init(&w->link);
	w->fn = fn;
}

/** work_queue - run @w once in the next turn, however often it is queued */
void work_queue(struct work *w)
{
	if (list_empty(&w->link))
		list_add_tail(&w->link, &works);
}

/** work_cancel - remove @w from the ready list */
void work_cancel(struct work *w)
{
	list_del(&w->link);
}

/** works_any - whether work is queued */
bool works_any(void)
{
	return !list_empty(&works);
}

/**
 * works_run - run the queued work; whether there was any
 *
 * Work queued meanwhile waits for the next turn.
 */
bool works_run(void)
{
	if (list_empty(&works))
		return false;
	while (!list_empty(&works)) {
		struct list *l = works.next;

		list_del(l);
		list_add_tail(l, &running);
	}
	while (!list_empty(&running)) {
		struct work *w = container_of(running.next, struct work, link);

		list_del(&w->link);
		w->fn(w);
	}
	return true;
}
