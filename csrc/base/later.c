// SPDX-License-Identifier: GPL-2.0-only
/*
 * Deferred actions of a loop: timers, and memory that events of the current
 * turn may still refer to.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "base/loop.h"

static struct list timers = LIST_INIT(timers);
static struct list due = LIST_INIT(due);	/* timers due in this turn */
static void **grave;
static size_t deferred, deferred_room;

/** now_ns - CLOCK_MONOTONIC in nanoseconds */
uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/** loop_free_later - free @p at the end of this turn of the loop */
void loop_free_later(void *p)
{
	if (deferred == deferred_room) {
		size_t n = deferred_room ? 2 * deferred_room : 64;
		void **g = realloc(grave, n * sizeof(*g));

		if (!g)
			return;	/* a leak is better than a dangling pointer */
		grave = g;
		deferred_room = n;
	}
	grave[deferred++] = p;
}

/** deferred_free_run - free what loop_free_later() collected */
void deferred_free_run(void)
{
	while (deferred)
		free(grave[--deferred]);
}

/** deferred_free_end - also free the list itself */
void deferred_free_end(void)
{
	deferred_free_run();
	free(grave);
	grave = NULL;
	deferred_room = 0;
}

/** timer_init - make @t ready for use */
void timer_init(struct timer *t, void (*fn)(struct timer *t))
{
	list_init(&t->link);
	t->fn = fn;
	t->at = 0;
}

/** timer_arm - call @t at the time @at; replaces an earlier time */
void timer_arm(struct timer *t, uint64_t at)
{
	t->at = at;
	if (list_empty(&t->link))
		list_add_tail(&t->link, &timers);
}

/** timer_cancel - disarm @t */
void timer_cancel(struct timer *t)
{
	list_del(&t->link);
}

/**
 * timers_run - call the timers that are due; whether there were any
 *
 * There are only a few timers, so a list is enough. A timer may cancel or
 * postpone any other. Due timers are therefore moved to a second list and taken
 * off it one by one.
 */
bool timers_run(void)
{
	struct list *pos, *tmp;
	bool ran = false;
	uint64_t now;

	if (list_empty(&timers))
		return false;
	now = now_ns();
	list_for_each_safe(pos, tmp, &timers) {
		if (container_of(pos, struct timer, link)->at > now)
			continue;
		list_del(pos);
		list_add_tail(pos, &due);
	}
	while (!list_empty(&due)) {
		struct timer *t = container_of(due.next, struct timer, link);

		list_del(&t->link);
		if (t->at > now) {
			list_add_tail(&t->link, &timers);
			continue;
		}
		t->fn(t);
		ran = true;
	}
	return ran;
}

/** timers_next - nanoseconds to the next timer */
int64_t timers_next(void)
{
	int64_t next = TIMER_NEVER;
	struct list *pos;
	uint64_t now;

	if (list_empty(&timers))
		return TIMER_NEVER;
	now = now_ns();
	list_for_each(pos, &timers) {
		struct timer *t = container_of(pos, struct timer, link);
		int64_t ns = t->at > now ? (int64_t)(t->at - now) : 0;

		if (ns < next)
			next = ns;
	}
	return next;
}
