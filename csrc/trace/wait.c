// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stops and the ends of traced threads.
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
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "trace/internal.h"
#include "trace/trace.h"

#define STOPS_MAX	64	/* other stops handled before the loop continues */
#define SYSCALL_STOP	(SIGTRAP | 0x80)

static uint64_t last_id;

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
		tracee_forked(t);
		break;
	case PTRACE_EVENT_EXEC:
		tracee_executed(t);
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
		while (!tracee_kept() || pid > 0) {
			pid = waitpid(-1, status, WNOHANG | __WALL);
			if (pid <= 0)
				break;
			tracee_keep(pid, *status);
		}
		t = tracee_take_kept();
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
		if (!host.trace && is_stop(*status)) {
			exit_stop_reached(pid);
			continue;
		}
		if (!is_stop(*status)) {
			exit_stop_end(pid);
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
	struct tracee *t = NULL;

	trace_ops = NULL;
	while ((t = tracee_next(t)))
		if (t->at != RUNS)
			trace_answer(t->tid, t->id, -ENOSYS);
}
