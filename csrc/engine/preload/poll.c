// SPDX-License-Identifier: GPL-2.0-only
/*
 * poll() and ppoll() on descriptors of both kernels. An epoll that has a shadow
 * in the stack is polled on both sides.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"
#include "engine/preload/poller.h"

/** sets_init - allocate room for @n descriptors */
int sets_init(struct sets *s, int n)
{
	char *p;

	s->n = n;
	s->nst = s->nho = 0;
	s->mem = NULL;
	if (n <= FEW) {
		s->user = s->few;
		s->st_at = s->few_at;
	} else {
		s->mem_len = (size_t)n * (3 * sizeof(struct pollfd) + 2 * sizeof(int));
		s->mem = p = pages(s->mem_len);
		if (!p)
			return -ENOMEM;
		s->user = (struct pollfd *)p;
		s->st_at = (int *)(p + (size_t)n * 3 * sizeof(struct pollfd));
	}
	s->st = s->user + n;
	s->ho = s->st + n;
	s->ho_at = s->st_at + n;
	return 0;
}

void sets_free(struct sets *s)
{
	if (s->mem)
		RAW2(munmap, s->mem, s->mem_len);
}

/** sets_sort - sort the descriptors by kernel */
void sets_sort(struct sets *s)
{
	int i;

	s->nst = s->nho = 0;
	for (i = 0; i < s->n; i++) {
		struct pollfd *p = &s->user[i];
		unsigned char kind = kind_of(p->fd) & KIND_MASK;

		p->revents = 0;
		if (p->fd < 0)
			continue;
		if (kind) {
			s->st_at[s->nst] = i;
			s->st[s->nst++] = (struct pollfd){ .fd = entries[p->fd].sfd,
							   .events = p->events };
		}
		if (kind != KIND_SOCK) {
			s->ho_at[s->nho] = i;
			s->ho[s->nho++] = *p;
		}
	}
}

/** merge - copy the results to the program's array; returns how many have events */
static int merge(struct sets *s)
{
	int i, n = 0;

	for (i = 0; i < s->nst; i++)
		s->user[s->st_at[i]].revents |= s->st[i].revents;
	for (i = 0; i < s->nho; i++)
		s->user[s->ho_at[i]].revents |= s->ho[i].revents;
	for (i = 0; i < s->n; i++)
		n += s->user[i].revents != 0;
	return n;
}

/** ask_stack - poll the stack's descriptors. Inside. */
static long ask_stack(struct sets *s, int64_t deadline)
{
	struct timespec ts;

	if (!s->nst)
		return 0;
	return stack_raw(SYS_ppoll, (long[6]){ (long)s->st, s->nst,
					       (long)time_left(deadline, &ts), 0, 8 });
}

/** ask_host - poll the host's descriptors without waiting */
static long ask_host(struct sets *s)
{
	return s->nho ? poll_host(s->ho, s->nho) : 0;
}

/** watch_host - start or stop letting events of the host end our sleep */
static void watch_host(struct sets *s, struct poller *p, bool on)
{
	int i;

	for (i = 0; i < s->nho; i++) {
		if (on)
			poller_add(p, s->ho[i].fd, (uint16_t)s->ho[i].events);
		else
			poller_del(p, s->ho[i].fd);
	}
}

static bool over(int64_t deadline)
{
	return deadline == DEADLINE_NOW ||
	       (deadline != DEADLINE_NEVER && mono_ns() >= deadline);
}

/**
 * sets_wait - poll until a descriptor is ready
 *
 * Returns the number of ready descriptors, 0 on timeout, or a negative errno;
 * -EINTR only for a signal.
 */
long sets_wait(struct sets *s, int64_t deadline)
{
	struct poller *p = NULL;
	long st = thread_ready(), ho;
	int had;

	if (st)
		return st;
	for (;;) {
		enter();
		if (p)
			poller_arm(p);
		st = ask_stack(s, s->nho ? DEADLINE_NOW : deadline);
		ho = ask_host(s);
		if (p && !st && !ho && !me.pending && !poller_fired(p) &&
		    !over(deadline))
			st = ask_stack(s, deadline);
		if (p)
			poller_disarm(p);
		had = me.pending;
		leave();
		if (st > 0 || ho > 0)
			break;
		if (st < 0 && st != -EINTR)
			break;
		if (had)
			st = -EINTR;
		if (had || ho < 0 || over(deadline))
			break;
		if (s->nho && !p) {
			p = poller_take();
			if (!p) {
				st = -ENOMEM;
				break;
			}
			poller_arm(p);	/* otherwise an event at this moment would be lost */
			watch_host(s, p, true);
		}
	}
	if (p) {
		watch_host(s, p, false);
		poller_release(p);
	}
	if (st > 0 || ho > 0)
		return merge(s);
	return st < 0 ? (st == -EINTR && !had ? 0 : st) : ho < 0 ? ho : 0;
}

/** any_stack - whether any descriptor involves the stack */
static bool any_stack(const struct pollfd *fds, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (kind_of(fds[i].fd) & KIND_MASK && fds[i].fd >= 0)
			return true;
	return false;
}

/** call_poll - poll(2) and ppoll(2) */
long call_poll(long nr, const long *a)
{
	bool masked = nr == SYS_ppoll && a[3];
	long n = a[1], ret;
	int64_t ns, start = 0;
	uint64_t old;
	struct sets s;

	if (n <= 0 || n > ENTRY_FDS)
		return native(nr, a);
	ret = sets_init(&s, (int)n);
	if (ret)
		return ret;
	if (preload_copy(s.user, (void *)a[0], (size_t)n * sizeof(struct pollfd)) ||
	    !any_stack(s.user, s.n)) {
		sets_free(&s);
		return native(nr, a);
	}
	COUNT(calls, 1);
	if (nr != SYS_ppoll)
		ns = (int)a[2] < 0 ? -1 : (int)a[2] * 1000000LL;
	else
		ret = time_read((void *)a[2], &ns);
	if (!ret && masked) {
		enter();
		ret = mask_push((void *)a[3], &old);
		if (ret)
			leave();
	}
	if (!ret) {
		if (nr == SYS_ppoll && ns > 0)
			start = mono_ns();
		sets_sort(&s);
		ret = sets_wait(&s, deadline_in(ns));
		if (masked) {
			leave();
			mask_pop(&old);
		}
		if (nr == SYS_ppoll && a[2] && ns >= 0) {
			/* Like Linux, return the remaining time. */
			struct timespec ts, *left = time_left(start ? start + ns : DEADLINE_NOW, &ts);

			if (left)
				preload_copy((void *)a[2], left, sizeof(*left));
		}
	}
	if (ret >= 0 && preload_copy((void *)a[0], s.user, (size_t)n * sizeof(struct pollfd)))
		ret = -EFAULT;
	sets_free(&s);
	return ret;
}
