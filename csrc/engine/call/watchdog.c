// SPDX-License-Identifier: GPL-2.0-only
/*
 * The watchdog for the loop's accesses to a target's memory.
 *
 * Theory of operation
 *
 * The loop accesses only pages that are present (paged_access.c). A target can
 * replace a page between the check and the access with a userfaultfd or a file
 * system that does not answer. It can also hold the lock of its address space.
 * The loop then sleeps in the host's kernel, and the stack stops for all
 * processes.
 *
 * A thread detects this. After KILL_MS, it kills the process. This closes the
 * process's userfaultfd, and the loop continues. If a userfaultfd or file
 * system outside the process blocks the access, the loop cannot continue. After
 * END_MS more, the run then ends with an error message. After the first such
 * access, the loop leaves all accesses to threads (watchdog_has_killed()).
 *
 * With the engine trace, the loop also waits while a thread of the target
 * executes calls for it. On a busy host the thread may wait for a CPU, so that
 * limit is longer, KILL_RUN_MS.
 *
 * The variable "state" controls whether the loop or the thread may act. The
 * loop changes it from IDLE to BUSY and back, the thread from BUSY to ACTING
 * and back. The call that the thread examines thus remains valid. The thread
 * sleeps while the loop accesses no memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/features.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/thread.h"
#include "control/control.h"
#include "engine/call/call.h"
#include "engine/call/watchdog.h"

#define TICK_MS		250
#define KILL_MS		1000u
#define END_MS		4000u	/* after that */
#define KILL_RUN_MS	10000u	/* for a thread that must run */
#define QUIET_TICKS	4

enum { IDLE, BUSY, ACTING };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static bool asleep, started, has_killed;
static int state;
static uint64_t since, accesses;
static unsigned int kill_ms = KILL_MS;
static const struct call *now;
static const char *doing;	/* the loop's own call */
static char victim[256];	/* message that the loop prints */

/**
 * act - kill the process or end the run if an access takes too long
 *
 * Returns whether the process was killed.
 */
static bool act(bool killed)
{
	uint64_t ms = (now_ns() - since) / 1000000;

	if (ms < kill_ms || (killed && ms < kill_ms + END_MS))
		return killed;
	snprintf(victim, sizeof(victim),
		 kill_ms == KILL_MS ?
		 "%s (pid %d): killed, because a page of its memory was not available within %u ms for %s of lklhost, in %s; its file system or userfaultfd does not answer" :
		 "%s (pid %d): killed, because it did not continue within %u ms in %s of lklhost, in %s; it gets no CPU, or its file system does not answer",
		 task_comm(now->task), task_tgid(now->task), kill_ms, doing,
		 call_name(now->nr));
	if (!killed) {
		task_signal(now, SIGKILL);
		return true;
	}
	log_line("%s; the run ends", victim);
	(void)ctl_fatal(host.ctl_fd, victim);
	_exit(HOST_EXIT_STALLED);
}

/** look - if the loop accesses memory now, check for how long */
static bool look(bool killed)
{
	int busy = BUSY;

	if (!__atomic_compare_exchange_n(&state, &busy, ACTING, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return false;
	killed = act(killed);
	__atomic_store_n(&state, BUSY, __ATOMIC_SEQ_CST);
	return killed;
}

/** watchdog_rest - sleep until the loop accesses memory again */
static void watchdog_rest(void)
{
	pthread_mutex_lock(&lock);
	(void)__atomic_exchange_n(&asleep, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) &&
	       __atomic_load_n(&state, __ATOMIC_SEQ_CST) == IDLE)
		pthread_cond_wait(&woken, &lock);
	__atomic_store_n(&asleep, false, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&lock);
}

/** watchdog_loop - main function of the thread */
static void *watchdog_loop(void *arg)
{
	const struct timespec tick = { 0, TICK_MS * 1000000L };
	uint64_t last = 0, seen;
	unsigned int quiet = 0;
	bool killed = false;

	(void)arg;
	for (;;) {
		nanosleep(&tick, NULL);
		seen = __atomic_load_n(&accesses, __ATOMIC_RELAXED);
		if (seen != last)
			killed = false;
		quiet = seen == last ? quiet + 1 : 0;
		last = seen;
		if (__atomic_load_n(&state, __ATOMIC_SEQ_CST) != IDLE)
			killed = look(killed);
		else if (quiet >= QUIET_TICKS)
			watchdog_rest();
	}
	return NULL;
}

/** start - start the thread */
static void start(void)
{
	started = true;
	has_killed = feature_hidden("own-access");
	thread_start(NULL, "watchdog", watchdog_loop, NULL);
}

/** enter - start the time limit */
static void enter(const struct call *c, unsigned int limit, const char *host_call)
{
	if (!started)
		start();
	now = c;
	doing = host_call;
	kill_ms = limit;
	since = now_ns();
	__atomic_fetch_add(&accesses, 1, __ATOMIC_RELAXED);
	/* Exchanges here and in watchdog_rest(), see publish() of the stack's library. */
	(void)__atomic_exchange_n(&state, BUSY, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&asleep, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&lock);
	asleep = false;
	pthread_cond_signal(&woken);
	pthread_mutex_unlock(&lock);
}

/**
 * watchdog_enter - start the time limit before the loop accesses memory
 * @host_call: the call that the loop makes, for the message
 */
void watchdog_enter(const struct call *c, const char *host_call)
{
	enter(c, KILL_MS, host_call);
}

/** watchdog_enter_run - start the time limit before the caller of @c runs */
void watchdog_enter_run(const struct call *c)
{
	enter(c, KILL_RUN_MS, "waitpid()");
}

/** watchdog_leave - end the time limit after the access */
void watchdog_leave(void)
{
	int busy = BUSY;

	while (!__atomic_compare_exchange_n(&state, &busy, IDLE, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		busy = BUSY;
		sched_yield();	/* the thread is in state ACTING only briefly */
	}
	if (!*victim)
		return;
	warn_user("%s", victim);
	has_killed = true;
	*victim = '\0';
}

/** watchdog_has_killed - whether an access to a target's memory took too long */
bool watchdog_has_killed(void)
{
	return has_killed;
}
