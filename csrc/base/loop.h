/* SPDX-License-Identifier: GPL-2.0-only */
/* Event sources of the loop: host descriptors, work and timers. */
#ifndef LKLHOST_LOOP_H
#define LKLHOST_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

/**
 * struct source - a host descriptor that the loop watches
 * @fn: called with the epoll events; NULL after removal, so that events already
 *	fetched are ignored
 * @fd: the descriptor
 */
struct source {
	void (*fn)(struct source *src, uint32_t events);
	int fd;
};

/**
 * struct work - a function to call in the next turn of the loop
 * @link: in the ready list
 * @fn: called once each time the work is queued
 */
struct work {
	struct list link;
	void (*fn)(struct work *w);
};

/**
 * struct timer - a function to call at a given time
 * @link: in the timer list while armed
 * @at: CLOCK_MONOTONIC nanoseconds
 * @fn: called once, after the timer is disarmed
 */
struct timer {
	struct list link;
	uint64_t at;
	void (*fn)(struct timer *t);
};

#define TIMER_INIT(name, func) { LIST_INIT((name).link), 0, func }

/* A relative time that means that no timer is armed. */
#define TIMER_NEVER	INT64_MAX

int loop_init(void);
int loop_epfd(void);
int loop_add(struct source *src, uint32_t events);
int loop_mod(struct source *src, uint32_t events);
void loop_del(struct source *src);
void loop_forget(struct source *src);
void loop_free_later(void *p);

void work_init(struct work *w, void (*fn)(struct work *w));
void work_queue(struct work *w);
void work_cancel(struct work *w);
bool works_any(void);
bool works_run(void);

void timer_init(struct timer *t, void (*fn)(struct timer *t));
void timer_arm(struct timer *t, uint64_t at);
void timer_cancel(struct timer *t);
bool timers_run(void);
int64_t timers_next(void);
void deferred_free_run(void);
void deferred_free_end(void);

uint64_t now_ns(void);

#endif
