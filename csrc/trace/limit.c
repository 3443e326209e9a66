// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time limit for a thread that executes a call for lklhost.
 *
 * Such a thread has one instruction to execute, and its call does not block.
 * lklhost waits for it, and the whole stack with lklhost. Code that another
 * thread has changed can make it sleep in a page fault. On arm64, which has no
 * flag for one instruction (regs_repeat()), the code can also run for ever.
 *
 * A timer interrupts the wait every TICK_MS. The limit depends on what the
 * thread does, because a thread that waits for a CPU or a disk is not to blame.
 * A slow or busy machine must not make a program pass it:
 *
 *	it used CPU time	RUN_MS of it
 *	it sleeps in a call	SLEEP_TICKS in a row
 *	it sleeps before it	BLOCKED_TICKS in a row, see step_unblocked()
 *	anything else		no limit here, see engine/call/watchdog.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trace/internal.h"

#ifndef sigev_notify_thread_id		/* musl has it */
#define sigev_notify_thread_id	_sigev_un._tid
#endif

#define TICK_MS		10
#define RUN_MS		1000
#define SLEEP_TICKS	100
#define BLOCKED_TICKS	2

static timer_t timer;
static bool created;
static long ran_before;		/* CPU time at the first tick, -1 before it */
static unsigned int sleeps, waits;

/** on_tick - interrupt waitpid(2) */
static void on_tick(int sig)
{
	(void)sig;
}

/** create - create the timer, which signals the calling thread */
static bool create(void)
{
	struct sigaction sa = { .sa_handler = on_tick };
	struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID,
			       .sigev_signo = SIGALRM };

	ev.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	return !sigaction(SIGALRM, &sa, NULL) &&
	       !timer_create(CLOCK_MONOTONIC, &ev, &timer);
}

/** set - let the timer expire every @ms, or never if that is 0 */
static void set(long ms)
{
	const struct timespec period = { 0, ms * 1000000 };
	const struct itimerspec its = { period, period };

	if (created)
		timer_settime(timer, 0, &its, NULL);
}

/** limit_start - start the limit */
void limit_start(void)
{
	if (!created)
		created = create();
	ran_before = -1;
	sleeps = waits = 0;
	set(TICK_MS);
}

/** limit_stop - stop it, so that no other call is interrupted */
void limit_stop(void)
{
	set(0);
}

/**
 * limit_usage - read what a thread does
 * @state: set to its state, as in /proc/PID/stat
 *
 * Returns the CPU time that it has used, in milliseconds.
 */
long limit_usage(pid_t tid, char *state)
{
	unsigned long user = 0, kernel = 0;
	char path[40], text[512];
	const char *end;
	ssize_t n;
	int fd;

	*state = '?';
	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", tid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	end = strrchr(text, ')');
	if (end)
		sscanf(end, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
		       state, &user, &kernel);
	return (long)(user + kernel) * 1000 / sysconf(_SC_CLK_TCK);
}

/** limit_passed - whether a thread has passed the limit, asked after each tick */
bool limit_passed(pid_t tid)
{
	char state;
	long ran = limit_usage(tid, &state);

	if (ran_before < 0)
		ran_before = ran;
	sleeps = state == 'S' ? sleeps + 1 : 0;
	waits = state == 'S' || state == 'D' ? waits + 1 : 0;
	return ran - ran_before >= RUN_MS || sleeps >= SLEEP_TICKS;
}

/** limit_blocked - whether the thread of limit_passed() does not run at all */
bool limit_blocked(void)
{
	return waits >= BLOCKED_TICKS;
}
