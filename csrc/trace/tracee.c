// SPDX-License-Identifier: GPL-2.0-only
/*
 * Traced threads: their stops, and the end of each.
 *
 * Theory of operation
 *
 * With the engine trace, the target's seccomp filter returns SECCOMP_RET_TRACE
 * for the calls that it would otherwise notify. The kernel then stops the
 * calling thread and reports this to its tracer. The tracer is lklhost's main
 * thread, which runs the event loop: all ptrace(2) requests must come from one
 * thread, and no messages between threads are needed this way. SIGCHLD reports
 * stops, as it does ends of children. trace_wait() replaces waitpid(2): it
 * handles the stops and returns only the ends.
 *
 * lklhost seizes the target before its exec. All descendants are traced as
 * well, and the kernel kills them if lklhost ends (PTRACE_O_EXITKILL). A thread
 * that is not traced nevertheless has the filter. Its calls fail with ENOSYS,
 * so it has no network.
 *
 * A thread in a stop for a call leaves this state only by an answer, by
 * SIGKILL, or because another thread of its process executes a program. Its
 * number belongs to no other thread until lklhost has waited for its end.
 *
 * trace_step() also waits, for a thread that executes calls for lklhost. It must
 * wait for all threads: the kernel reports the end of a process's first thread,
 * and lets another thread execute a program, only after the ends of all other
 * threads have been waited for. It cannot handle their stops and ends, because
 * lklhost is in the middle of a call. It keeps them for trace_wait().
 *
 * A traced process stops and continues as usual (PTRACE_LISTEN), and its
 * parent's waitpid(2) works as usual. The target itself cannot use ptrace(2),
 * because a thread has only one tracer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "trace/internal.h"
#include "trace/trace.h"

#define HASH		1024
#define STOPS_MAX	64	/* other stops handled before the loop continues */
#define SYSCALL_STOP	(SIGTRAP | 0x80)
#define OPTIONS (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | \
		 PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | \
		 PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | \
		 PTRACE_O_EXITKILL)

static struct tracee *table[HASH];
static const struct trace_ops *trace_ops;
static uint64_t last_id, last_files;
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
static struct tracee *tracee_get(pid_t tid)
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
static void tracee_drop(pid_t tid)
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

/** kept_take - take the thread whose status was kept first, or NULL */
static struct tracee *kept_take(void)
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

/** tell - pass a caught call to the engine */
static void tell(struct tracee *t)
{
	struct trace_call call = { .id = t->id, .tid = t->tid,
				   .nr = (int)t->regs.nr };
	int i;

	for (i = 0; i < 6; i++)
		call.args[i] = regs_arg(&t->regs, i);
	trace_ops->called(&call);
}

/** called - handle a stop for a call */
static void called(struct tracee *t)
{
	t->at = WAITS_ENTRY;
	t->id = ++last_id;
	if (regs_read(t->tid, &t->regs) || !trace_waits(t->tid, t->id))
		t->at = RUNS;	/* killed */
	else if (trace_ops)
		tell(t);
	else
		trace_answer(t->tid, t->id, -ENOSYS);
}

/**
 * forked - handle a new thread or process, which has the same pages
 *
 * The flags of clone(2) are in a register, and clone3(2) is refused.
 */
static void forked(const struct tracee *t)
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
 * executed - handle exec, after which the process has one thread and new
 * memory
 *
 * If another thread than the first has called exec, it now has the number of
 * the first one. A stop of the first one that was kept is over: the program
 * that runs now may be in a stop for a call, which nothing else may end.
 */
static void executed(struct tracee *t)
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
		executed(t);
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

/** stopped - handle a stop */
static void stopped(struct tracee *t, int status)
{
	int sig = WSTOPSIG(status);

	t->interrupted = false;
	if (t->at == BLOCKED) {
		step_unblocked(t, status >> 8);
		return;
	}
	switch (status >> 16) {
	case PTRACE_EVENT_SECCOMP:
		called(t);
		return;
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		forked(t);
		break;
	case PTRACE_EVENT_EXEC:
		executed(t);
		return;
	case PTRACE_EVENT_STOP:
		if (sig == SIGTRAP) {
			regs_restart(t->tid);
			break;
		}
		ptrace(PTRACE_LISTEN, t->tid, 0, 0);
		return;
	case 0:
		if (sig == SYSCALL_STOP)
			break;
		ptrace(PTRACE_CONT, t->tid, 0, sig);
		return;
	}
	ptrace(PTRACE_CONT, t->tid, 0, 0);
}

/**
 * next - get the next status that trace_wait() must handle
 *
 * waitpid(2) searches the threads in the same order each time. So all threads
 * that have stopped are kept before one of them continues: otherwise some that
 * make calls without end would starve the others.
 *
 * Returns as waitpid(2).
 */
static pid_t next(int *status)
{
	struct tracee *t;
	pid_t pid = 0;

	if (!host.trace)
		return waitpid(-1, status, WNOHANG);
	do {
		while (!kept_first || pid > 0) {
			pid = waitpid(-1, status, WNOHANG | __WALL);
			if (pid <= 0)
				break;
			tracee_keep(pid, *status);
		}
		t = kept_take();
		if (!t)
			return pid;
		pid = 0;
	} while (t->status == TRACEE_EXECUTED);
	*status = t->status;
	return t->tid;
}

/** is_stop - whether this is the status of a traced thread that has stopped */
static bool is_stop(int status)
{
	return status != TRACEE_REPLACED && WIFSTOPPED(status);
}

/** is_call - whether it has stopped for a call */
static bool is_call(int status)
{
	return status >> 16 == PTRACE_EVENT_SECCOMP;
}

/**
 * trace_wait - reap one child or traced thread, and handle stops
 * @status: set to its wait status
 *
 * Returns its number; 0 or a negative number if there is none at the moment.
 *
 * After a call or STOPS_MAX other stops, this returns 0, and another SIGCHLD
 * makes the loop call it again. Meanwhile the loop handles the events that the
 * call has caused in the stack. Otherwise the next call could overtake them: a
 * connection would be accepted whose client is not connected yet.
 */
pid_t trace_wait(int *status)
{
	unsigned int stops = 0;
	struct tracee *t;
	pid_t pid;

	while ((pid = next(status)) > 0) {
		if (!is_stop(*status)) {
			tracee_drop(pid);
			if (*status != TRACEE_REPLACED)
				return pid;
			continue;
		}
		t = tracee_get(pid);
		if (t)
			stopped(t, *status);
		else
			kill(pid, SIGKILL);
		if (!is_call(*status) && ++stops < STOPS_MAX)
			continue;
		kill(getpid(), SIGCHLD);
		return 0;
	}
	return pid;
}

/** trace_reap - reap what has ended; called after all have been killed */
void trace_reap(void)
{
	int status;
	pid_t pid;

	while ((pid = next(&status)) > 0)
		if (!is_stop(status))
			tracee_drop(pid);
}

/** trace_start - from now on, pass calls to the engine */
void trace_start(const struct trace_ops *ops)
{
	trace_ops = ops;
}

/** trace_stop - from now on, all calls fail with ENOSYS */
void trace_stop(void)
{
	struct tracee *t;
	size_t i;

	trace_ops = NULL;
	for (i = 0; i < HASH; i++)
		for (t = table[i]; t; t = t->next)
			if (t->at != RUNS)
				trace_answer(t->tid, t->id, -ENOSYS);
}
