// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stop all other threads that share a thread's descriptors.
 *
 * Theory of operation
 *
 * A thread receives a descriptor from lklhost with recvmsg(2) on a socket that
 * it has made for this. Another thread could exchange that socket. A process
 * outside the run could then send it a socket of the host, and the other thread
 * could use this at once. Therefore all threads with the same descriptors stop
 * before (PTRACE_INTERRUPT). Each of them stays in its stop until trace_wait()
 * handles it, which is after the answer.
 *
 * A thread that sleeps where no signal wakes it, for example in vfork(2), stops
 * later. It finishes its system call before, but executes no other. This is
 * harmless unless the call closes or replaces descriptors by number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/internal.h"
#include "trace/trace.h"

#define TICKS_MAX	100	/* of limit.c */

#ifndef SYS_close_range
#define SYS_close_range	436
#endif

/** is_stopped - whether a thread executes nothing until trace_wait() or an answer */
static bool is_stopped(const struct tracee *t)
{
	return (t->at != RUNS && t->at != BLOCKED) || t->is_kept;
}

/**
 * trace_interrupt_others - let each other thread that has the descriptors of @tid
 * stop soon; or @all other threads
 *
 * If this comes some time before trace_alone(), they stop meanwhile.
 */
void trace_interrupt_others(pid_t tid, bool all)
{
	const struct tracee *self = tracee_find(tid);
	struct tracee *t = NULL;

	while (self && (t = tracee_next(t))) {
		t->awaited = t != self && !is_stopped(t) &&
			     (all || !t->files || !self->files ||
			      t->files == self->files);
		if (t->awaited && !t->interrupted)
			t->interrupted = !ptrace(PTRACE_INTERRUPT, t->tid, 0, 0);
	}
}

/** in_call - the system call in which a thread sleeps, or -1; -2 if it runs */
static long in_call(pid_t tid)
{
	char path[40], text[32] = "";
	long nr = -2;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", tid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return nr;
	if (read(fd, text, sizeof(text) - 1) > 0 && sscanf(text, "%ld", &nr) != 1)
		nr = -2;
	close(fd);
	return nr;
}

/** is_harmless - whether a thread that has not stopped yet can stop later */
static bool is_harmless(pid_t tid)
{
	char state;
	long nr;

	limit_usage(tid, &state);
	if (state == 'Z' || state == 'X')
		return true;
	nr = state == 'D' ? in_call(tid) : -2;
#ifdef SYS_dup2
	if (nr == SYS_dup2)
		return false;
#endif
	return nr != -2 && nr != SYS_dup3 && nr != SYS_close_range;
}

/** count_running - count the threads that have not stopped; @excuse the harmless ones */
static unsigned int count_running(bool excuse)
{
	struct tracee *t = NULL;
	unsigned int n = 0;

	while ((t = tracee_next(t))) {
		t->awaited = t->awaited && t->interrupted &&
			   !(excuse && is_harmless(t->tid));
		n += t->awaited;
	}
	return n;
}

/**
 * trace_alone - stop all other threads with the descriptors of @tid, or @all
 * others, between trace_begin() and the answer
 *
 * Returns 0, or a negative errno if @tid has ended or a thread does not stop.
 */
int trace_alone(pid_t tid, bool all)
{
	unsigned int ticks = 0;
	int status;
	pid_t pid;

	trace_interrupt_others(tid, all);
	while (count_running(ticks)) {
		pid = waitpid(-1, &status, __WALL);
		if (pid > 0)
			tracee_keep(pid, status);
		if (pid == tid || (pid < 0 && errno != EINTR))
			return -ESRCH;
		if (pid < 0 && ++ticks == TICKS_MAX)
			return -ENOBUFS;
	}
	return 0;
}
