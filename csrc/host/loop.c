// SPDX-License-Identifier: GPL-2.0-only
/*
 * The loop.
 *
 * Theory of operation
 *
 * One thread, run to completion (two that make only host calls help it: see
 * supervise/ahead.c, and lib/writer.c of the stack). A turn: wait on the host epoll until the
 * stack's next timer, let the stack catch up with the clock, handle the host's
 * events (seccomp notifications, carriers, control connections, timers), let
 * the stack run until it is idle and hand out its events, then what was put on
 * the ready list. Nothing that is called from here may block.
 *
 * Waiting: waking a halted virtual CPU costs tens of microseconds, so when
 * traffic flows (the last wait was short) the loop polls for a while before it
 * sleeps. While it polls it yields, so that a target on the same CPU runs.
 *
 * Removing: events of one epoll_pwait2() may name a source that an earlier one
 * of them removed. loop_del() clears its fn, and memory goes back only at the
 * end of the turn (loop_free_later()).
 *
 * A panic of the stack jumps back here out of whatever called the library
 * (loop_panic()); from then on nobody enters it again. What is half done then
 * must not lie on the stack of this thread: lists have static heads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "loop.h"
#include "stack.h"

#define LOOP_EVENTS	64
#define SHORT_WAIT_NS	500000		/* a wait below this means traffic */
#define LOAD_WINDOW_NS	2000000

struct loop_stats loop_stats;

static int epfd = -1;
static bool quit;
static bool rush;
static uint64_t spin_ns;
static bool (*look)(bool sleeps);
static struct list works = LIST_INIT(works);
static struct list running = LIST_INIT(running);	/* works of this turn */

/** loop_init - make the epoll */
int loop_init(void)
{
	epfd = epoll_create1(EPOLL_CLOEXEC);
	if (epfd < 0)
		return -errno;
	/* 50 us of slack, the default, is as much as a round trip. */
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

/** loop_mod - change the events of @src (also re-arms an edge) */
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
 * loop_forget - as loop_del(), but for a descriptor that is closed right now
 *
 * Closing takes it out of the epoll, given that there is no duplicate of it.
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

/** work_queue - run @w in the next turn, once however often queued */
void work_queue(struct work *w)
{
	if (list_empty(&w->link))
		list_add_tail(&w->link, &works);
}

/** work_cancel - take @w back */
void work_cancel(struct work *w)
{
	list_del(&w->link);
}

/** works_run - run what is queued now; what it queues waits for the next turn; whether there was any */
static bool works_run(void)
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

/** loop_set_spin - poll for @us before sleeping while traffic flows */
void loop_set_spin(uint32_t us)
{
	spin_ns = (uint64_t)us * 1000;
}

/**
 * loop_set_look - have memory looked at that others write to without a word
 * @fn: called once a turn and while polling; with @sleeps true before the loop
 *	sleeps. It returns true when it has put something on the ready list. NULL: none
 */
void loop_set_look(bool (*fn)(bool sleeps))
{
	look = fn;
}

/** loop_quit - return from loop_run() at the end of this turn */
void loop_quit(void)
{
	quit = true;
}

/**
 * wait_ns - epoll_pwait2(2), which some C libraries do not have
 *
 * Before Linux 5.11 in whole milliseconds, rounded up: what is not due yet would
 * only be asked for again.
 */
static int wait_ns(struct epoll_event *ev, int64_t ns)
{
	/* the kernel's struct, 64 bits wide on 32-bit machines too */
	int64_t ts[2] = { ns / 1000000000, ns % 1000000000 };
	static bool missing;
	int n;

	if (!missing) {
		n = (int)syscall(SYS_epoll_pwait2, epfd, ev, LOOP_EVENTS,
				 ns == TIMER_NEVER ? NULL : ts, NULL, 0);
		if (n >= 0 || errno != ENOSYS)
			return n;
		missing = true;
	}
	ns = ns / 1000000 + (ns % 1000000 != 0);
	return epoll_wait(epfd, ev, LOOP_EVENTS,
			  ns < INT_MAX ? (int)ns : INT_MAX);
}

/**
 * loop_set_rush - say whether many short connections come
 * @on: they do. To write a frame is then to wake somebody, so that it gains to have
 *	another thread do it, and the stack need not try whether it does
 */
void loop_set_rush(bool on)
{
	rush = on;
}

/** loop_processors - how many this thread may run on */
int loop_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/**
 * load_account - tell the stack when the loop has no time to spare any more
 * @now: ns
 * @idle: ns of the time since the last call that the loop waited
 *
 * Saturated is who idles for less than half of LOAD_WINDOW_NS, until he does
 * for more than four fifths: the stack takes work away from a saturated loop.
 * In a rush he is until its end: with the work taken away he idles in some windows.
 */
static void load_account(uint64_t now, uint64_t idle)
{
	static uint64_t since, idled;
	static bool saturated;

	if (!since)
		since = now;
	idled += idle;
	if (now - since < LOAD_WINDOW_NS)
		return;
	if (idled * 2 < now - since)
		saturated = saturated || loop_processors() > 1;
	else if (!rush && idled * 5 > (now - since) * 4)
		saturated = false;
	since = now;
	idled = 0;
	st_load(!saturated ? ST_LOAD_EASY : rush ? ST_LOAD_RUSH : ST_LOAD_FULL);
}

/**
 * look_then_sleep - fetch events, for at most @ns
 * @start: the time now
 */
static int look_then_sleep(struct epoll_event *ev, int64_t ns, uint64_t start)
{
	static bool traffic;
	uint64_t waited;
	int n;

	if (traffic && spin_ns) {
		uint64_t end = start + spin_ns;

		if ((uint64_t)ns < spin_ns)
			end = start + (uint64_t)ns;
		do {
			n = epoll_wait(epfd, ev, LOOP_EVENTS, 0);
			loop_stats.spins++;
			if (n || (look && look(false)))
				return n;
			sched_yield();
			waited = now_ns();
		} while (waited < end);
		if (ns != TIMER_NEVER) {
			ns -= (int64_t)(waited - start);
			if (ns <= 0)
				return 0;
		}
		start = waited;
	}
	if (look && look(true))
		return 0;
	loop_stats.sleeps++;
	n = wait_ns(ev, ns);
	waited = now_ns() - start;
	traffic = n > 0 && waited < SHORT_WAIT_NS;
	return n;
}

/**
 * wait_events - fetch events, for at most @ns
 * @ev: room for LOOP_EVENTS
 * @ns: 0: only ask; TIMER_NEVER: for ever
 */
static int wait_events(struct epoll_event *ev, int64_t ns)
{
	uint64_t start, now;
	int n;

	start = now_ns();
	if (ns == 0) {
		load_account(start, 0);
		return epoll_wait(epfd, ev, LOOP_EVENTS, 0);
	}
	n = look_then_sleep(ev, ns, start);
	now = now_ns();
	load_account(now, now - start);
	return n;
}

/** loop_turn - once round */
static void loop_turn(void)
{
	struct epoll_event ev[LOOP_EVENTS];
	int64_t ns, t;
	bool called;
	int i, n;

	loop_stats.turns++;
	ns = stack_turn();
	called = works_run();
	called |= timers_run();
	/* Their calls may have armed timers in the stack, or made sockets ready. */
	if (called)
		ns = stack_turn();
	if (ns < 0)
		ns = TIMER_NEVER;
	t = timers_next();
	if (t < ns)
		ns = t;
	if (look)
		look(false);
	if (!list_empty(&works) || quit)
		ns = 0;
	graves_empty();

	n = wait_events(ev, ns);
	stack_catch_up();
	for (i = 0; i < n; i++) {
		struct source *src = ev[i].data.ptr;

		if (ev[i].data.u64 & LOOP_STACK_TAG)
			stack_event(ev[i].data.u64, ev[i].events);
		else if (src->fn)
			src->fn(src, ev[i].events);
	}
}

static sigjmp_buf panic_env;
static bool panic_armed;

/** loop_panic - leave the library for good; called from its panic callback */
void loop_panic(void)
{
	if (panic_armed)
		siglongjmp(panic_env, 1);
	_exit(HOST_EXIT_PANIC);
}

/** loop_run - until loop_quit() */
void loop_run(void)
{
	if (sigsetjmp(panic_env, 1))
		host_panicked();
	panic_armed = true;
	while (!quit)
		loop_turn();
	panic_armed = false;
	graves_end();
}
