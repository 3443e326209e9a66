// SPDX-License-Identifier: GPL-2.0-only
/*
 * The event loop: its turns. The event sources are in base/loop.c.
 *
 * Theory of operation
 *
 * The loop is one thread that runs each event to completion. Threads that make
 * only host calls help it; docs/explanation/internals.md lists them. One turn:
 *
 * 1. Wait on the host epoll, until the stack's next timer at most.
 * 2. Let the stack catch up with the clock.
 * 3. Handle the host's events: seccomp notifications, carriers, control
 *    connections, timers.
 * 4. Run the stack until it is idle, and dispatch its events.
 * 5. Run the work on the ready list.
 *
 * No function called from here may block.
 *
 * Waiting: waking a halted virtual CPU costs tens of microseconds. While
 * traffic flows (the last wait was short), the loop therefore polls for a while
 * before it sleeps. It yields while it polls, so that a target on the same CPU
 * runs. On a slow link, waits are short but longer than the polling: after each
 * failure, the number of waits without polling doubles, until polling succeeds.
 *
 * A panic of the stack jumps back here from whatever function called the
 * library (loop_panic()). From then on the library is never entered again.
 * State of an operation in progress must not be on the stack of this thread, so
 * lists have static heads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/loop.h"
#include "stack/backend.h"

#define LOOP_EVENTS	64
#define SHORT_WAIT_NS	500000		/* a shorter wait indicates traffic */
#define LOAD_WINDOW_NS	2000000
#define FAILS_MAX	5		/* at most 1 << FAILS_MAX waits until it polls again */

static bool quit;
static bool rush;
static bool traffic;			/* the last sleep was short */
static uint64_t spin_ns;
static struct {
	unsigned int fails;		/* since the last success */
	unsigned int skip;		/* waits without polling */
} spin;

/** loop_set_spin - poll for @us before sleeping while traffic flows */
void loop_set_spin(uint32_t us)
{
	spin_ns = (uint64_t)us * 1000;
}

/** loop_quit - return from loop_run() at the end of this turn */
void loop_quit(void)
{
	quit = true;
}

/**
 * wait_ns - epoll_pwait2(2), which some C libraries lack
 *
 * Before Linux 5.11 it waits whole milliseconds, rounded up: rounding down
 * would only repeat the wait for a timer that is not due yet.
 */
static int wait_ns(struct epoll_event *ev, int64_t ns)
{
	/* The kernel's struct has 64-bit fields on 32-bit machines too. */
	int64_t ts[2] = { ns / 1000000000, ns % 1000000000 };
	static bool missing;
	int n;

	if (!missing) {
		n = (int)syscall(SYS_epoll_pwait2, loop_epfd(), ev, LOOP_EVENTS,
				 ns == TIMER_NEVER ? NULL : ts, NULL, 0);
		if (n >= 0 || errno != ENOSYS)
			return n;
		missing = true;
	}
	ns = ns / 1000000 + (ns % 1000000 != 0);
	return epoll_wait(loop_epfd(), ev, LOOP_EVENTS,
			  ns < INT_MAX ? (int)ns : INT_MAX);
}

/**
 * loop_set_burst - report whether many short connections arrive
 * @on: many arrive. Writing a frame then often wakes another process, so it
 *	pays to let another thread write it. The stack then does not have to
 *	measure whether this pays
 */
void loop_set_burst(bool on)
{
	rush = on;
}

/** loop_processors - number of CPUs that this thread may use */
int loop_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

/**
 * load_account - tell the stack when the loop is saturated
 * @now: ns
 * @idle: ns that the loop waited since the last call
 *
 * The loop becomes saturated when it idles for less than half of
 * LOAD_WINDOW_NS. It stays saturated until it idles for more than four fifths:
 * the stack moves work away from a saturated loop, so it then idles more. In a
 * rush it stays saturated until the rush ends, since without that work it idles
 * in some windows.
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

/** should_spin - whether to poll before this sleep */
static bool should_spin(void)
{
	if (!traffic || !spin_ns || stack_holding())
		return false;
	if (!spin.skip)
		return true;
	spin.skip--;
	return false;
}

/** spin_failed - the loop polled in vain */
static void spin_failed(void)
{
	if (spin.fails < FAILS_MAX)
		spin.fails++;
	spin.skip = (1U << spin.fails) - 1;
}

/**
 * look_then_sleep - fetch events, for at most @ns
 * @start: current time
 */
static int look_then_sleep(struct epoll_event *ev, int64_t ns, uint64_t start)
{
	uint64_t now = start, end;
	int64_t t;
	int n;

	if (should_spin()) {
		end = start + ((uint64_t)ns < spin_ns ? (uint64_t)ns : spin_ns);
		do {
			n = epoll_wait(loop_epfd(), ev, LOOP_EVENTS, 0);
			loop_stats.spins++;
			if (n) {
				spin.fails = 0;
				return n;
			}
			sched_yield();
			now = now_ns();
		} while (now < end);
		if (ns != TIMER_NEVER) {
			ns -= (int64_t)(now - start);
			if (ns <= 0)
				return 0;
		}
		spin_failed();
	}
	/* During traffic, a frame is likely to come before the tick, except in a hold. */
	if (!traffic || stack_holding()) {
		ns = stack_rest(ns);
		if (ns < 0)
			ns = TIMER_NEVER;
		t = timers_next();
		if (t < ns)
			ns = t;
		if (ns == 0)
			return 0;
	}
	loop_stats.sleeps++;
	start = now_ns();
	n = wait_ns(ev, ns);
	traffic = n > 0 && now_ns() - start < SHORT_WAIT_NS;
	return n;
}

/**
 * wait_events - fetch events, for at most @ns
 * @ev: room for LOOP_EVENTS
 * @ns: 0: do not wait; TIMER_NEVER: no timeout
 */
static int wait_events(struct epoll_event *ev, int64_t ns)
{
	uint64_t start, now;
	int n;

	start = now_ns();
	if (ns == 0) {
		load_account(start, 0);
		return epoll_wait(loop_epfd(), ev, LOOP_EVENTS, 0);
	}
	n = look_then_sleep(ev, ns, start);
	now = now_ns();
	load_account(now, now - start);
	return n;
}

/** loop_turn - one turn of the loop */
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
	/*
	 * These calls may have armed timers in the stack or made sockets ready.
	 * If frames are left, the next burst waits for the host's events.
	 */
	if (called && ns)
		ns = stack_turn();
	if (ns < 0)
		ns = TIMER_NEVER;
	t = timers_next();
	if (t < ns)
		ns = t;
	if (works_any() || quit)
		ns = 0;
	deferred_free_run();

	n = wait_events(ev, ns);
	if (ns)
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

/** loop_panic - leave the library permanently; called on its panic */
void loop_panic(void)
{
	if (panic_armed)
		siglongjmp(panic_env, 1);
	_exit(HOST_EXIT_PANIC);
}

/** loop_run - run until loop_quit() */
void loop_run(void)
{
	if (sigsetjmp(panic_env, 1))
		stack_panicked();
	panic_armed = true;
	while (!quit)
		loop_turn();
	panic_armed = false;
	deferred_free_end();
}
