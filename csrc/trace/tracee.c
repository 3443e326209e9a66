// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of traced threads, and their statuses that trace_wait() must still
 * handle. wait.c explains why they are kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "trace/internal.h"
#include "trace/trace.h"

#define HASH		1024
#define OPTIONS (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | \
		 PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | \
		 PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | \
		 PTRACE_O_EXITKILL)

static struct tracee *table[HASH];
const struct trace_ops *trace_ops;
static uint64_t last_files;
static struct tracee *kept_first, **kept_last = &kept_first;

/** tracee_find - find a thread; NULL if it is not traced */
struct tracee *tracee_find(pid_t tid)
{
	struct tracee *t = table[(uint32_t)tid % HASH];

	while (t && t->tid != tid)
		t = t->next;
	return t;
}

/** tracee_next - get the thread after @t in the table; NULL: the first one */
struct tracee *tracee_next(const struct tracee *t)
{
	struct tracee *next = t ? t->next : NULL;
	size_t i = t ? (uint32_t)t->tid % HASH + 1 : 0;

	while (!next && i < HASH)
		next = table[i++];
	return next;
}

/** tracee_get - find a thread, or add it; NULL if memory is exhausted */
struct tracee *tracee_get(pid_t tid)
{
	struct tracee *t = tracee_find(tid);

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->tid = tid;
	t->next = table[(uint32_t)tid % HASH];
	table[(uint32_t)tid % HASH] = t;
	return t;
}

/** tracee_resumed - handle that a thread is no longer BLOCKED, or has ended */
void tracee_resumed(const struct tracee *t)
{
	if (trace_ops)
		trace_ops->resumed(t->tid, t->id);
}

/** end_blocked - handle that a thread makes its call no more, if it is BLOCKED */
static void end_blocked(struct tracee *t)
{
	bool was = t->at == BLOCKED;

	t->at = RUNS;
	t->answered = false;
	t->n_left = 0;
	if (was)
		tracee_resumed(t);
}

/** tracee_drop - forget a thread that has ended, and is not kept */
void tracee_drop(pid_t tid)
{
	struct tracee **pp = &table[(uint32_t)tid % HASH], *t;

	while (*pp && (*pp)->tid != tid)
		pp = &(*pp)->next;
	t = *pp;
	if (!t)
		return;
	*pp = t->next;
	end_blocked(t);
	free(t);
	if (trace_ops)
		trace_ops->ended(tid);
}

/** keep - let trace_wait() handle a status */
static void keep(struct tracee *t, int status)
{
	if (t->at != BLOCKED)
		t->at = RUNS;
	t->interrupted = false;	/* any stop ends this */
	t->status = status;	/* after a stop, only the end can follow */
	if (t->is_kept)
		return;
	t->is_kept = true;
	t->kept = NULL;
	*kept_last = t;
	kept_last = &t->kept;
}

/** tracee_kept - whether trace_wait() must handle a status that was kept */
bool tracee_kept(void)
{
	return kept_first;
}

/** tracee_take_kept - take the thread whose status was kept first, or NULL */
struct tracee *tracee_take_kept(void)
{
	struct tracee *t = kept_first;

	if (!t)
		return NULL;
	kept_first = t->kept;
	if (!kept_first)
		kept_last = &kept_first;
	t->is_kept = false;
	return t;
}

/** trace_seize - trace a process that waits before its exec */
int trace_seize(pid_t pid)
{
	struct tracee *t;

	if (ptrace(PTRACE_SEIZE, pid, 0, OPTIONS))
		return -errno;
	t = tracee_get(pid);
	if (!t)
		return -ENOMEM;
	t->files = ++last_files;
	return 0;
}

/** event_message - get the message of an event: a number */
static pid_t event_message(pid_t tid)
{
	unsigned long value = 0;

	ptrace(PTRACE_GETEVENTMSG, tid, 0, &value);
	return (pid_t)value;
}

/**
 * tracee_forked - handle a new thread or process, which has the same pages
 *
 * The flags of clone(2) are in a register, and clone3(2) is refused.
 */
void tracee_forked(const struct tracee *t)
{
	pid_t tid = event_message(t->tid);	/* 0: killed */
	struct tracee *new = tid ? tracee_get(tid) : NULL;
	struct regs r;

	if (!new)
		return;
	if (!new->page)
		new->page = t->page;
	if (!regs_read(t->tid, &r))
		new->files = r.nr == SYS_clone &&
			     (regs_arg(&r, 0) & CLONE_FILES) ?
			     t->files : ++last_files;
}

/**
 * tracee_executed - handle exec, after which the process has one thread and new
 * memory
 *
 * If another thread than the first has called exec, it now has the number of
 * the first one. A stop of the first one that was kept is over: the program
 * that runs now may be in a stop for a call, which nothing else may end.
 */
void tracee_executed(struct tracee *t)
{
	struct tracee *former = tracee_find(event_message(t->tid));

	t->page = 0;
	end_blocked(t);
	t->files = ++last_files;
	t->interrupted = false;
	t->status = TRACEE_EXECUTED;
	if (former && former != t)
		keep(former, TRACEE_REPLACED);
	ptrace(PTRACE_CONT, t->tid, 0, 0);
}

/**
 * tracee_keep - let trace_wait() handle the status of a thread
 *
 * Exec is handled at once, because the number of the thread before exec would
 * be lost if the thread was killed now.
 */
void tracee_keep(pid_t tid, int status)
{
	struct tracee *t = tracee_get(tid);

	if (!t)
		kill(tid, SIGKILL);
	else if (WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_EXEC)
		tracee_executed(t);
	else
		keep(t, status);
}

/**
 * tracee_strayed - kill the process of a thread that did not execute the call
 * that lklhost had set up
 *
 * If the signal cannot be sent to a thread in a stop, it stays there.
 */
void tracee_strayed(pid_t tid, const char *how)
{
	kill(tid, SIGKILL);
	limit_stop();
	if (trace_ops)
		trace_ops->strayed(tid, how);
}
