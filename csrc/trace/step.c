// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answer a caught call, and execute other calls in the thread that made it.
 *
 * Theory of operation
 *
 * ptrace(2) cannot add a descriptor to another process. The thread itself can
 * receive one. While it waits for an answer, lklhost therefore makes it execute
 * calls:
 *
 *	trace_begin()	block the thread's signals
 *	trace_step()	execute one call, any number of times
 *	trace_end()	restore the signal mask
 *
 * The first call takes the place of the thread's own call, which is not
 * executed yet. For each further call, the thread goes back to the instruction
 * that made its own. All registers are restored with the answer. The program
 * notices nothing, except that its own call may be made again (trace_native()).
 *
 * The calls must not block. trace_step() waits for the thread, so the caller
 * sets a time limit (engine/supervise/watchdog.c), after which the process is
 * killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/internal.h"
#include "trace/trace.h"

#ifndef PTRACE_GETSIGMASK
#define PTRACE_GETSIGMASK	0x420a
#define PTRACE_SETSIGMASK	0x420b
#endif
#define ERESTARTSYS	512	/* include/linux/errno.h */
#define SYSCALL_STOP	(SIGTRAP | 0x80)

/**
 * trace_waits - whether a thread still waits for the answer to call @id
 *
 * A request fails if the thread was killed. Another thread of its process may
 * have executed a program, which then has the same number and waits in another
 * stop.
 */
bool trace_waits(pid_t tid, uint64_t id)
{
	const struct tracee *t = tracee_find(tid);
	siginfo_t info;

	if (!t || t->at == RUNS || t->id != id ||
	    ptrace(PTRACE_GETSIGINFO, tid, 0, &info))
		return false;
	return t->at == WAITS_EXIT ? info.si_code == SYSCALL_STOP :
	       info.si_code == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8);
}

/** waiting - find a thread that waits for the answer to call @id */
static struct tracee *waiting(pid_t tid, uint64_t id)
{
	return trace_waits(tid, id) ? tracee_find(tid) : NULL;
}

/**
 * next_stop - wait for the next stop
 *
 * Returns the status, without its lowest byte, or a negative errno if the thread
 * has ended. Another thread that has executed a program may have its number now.
 */
static int next_stop(const struct tracee *t)
{
	int status;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, &status, __WALL);
		if (pid < 0 && errno != EINTR)
			return -ESRCH;
		if (pid == t->tid && WIFSTOPPED(status) &&
		    status >> 16 != PTRACE_EVENT_EXEC)
			return status >> 8;
		if (pid > 0)
			tracee_keep(pid, status);
		if (pid == t->tid)
			return -ESRCH;
	}
}

/**
 * run_to - let a thread run to the stop @want
 * @request: PTRACE_CONT or PTRACE_SYSCALL
 *
 * If SIGSTOP arrives meanwhile, trace_end() sends it again, unless SIGCONT has
 * followed. All other signals are blocked.
 */
static int run_to(struct tracee *t, int request, int want)
{
	int stop;

	do {
		if (ptrace(request, t->tid, 0, 0))
			return -ESRCH;
		stop = next_stop(t);
		if (stop < 0)
			return stop;
		if (stop == SIGSTOP)
			t->stop_sig = true;
		else if (stop >> 8 == PTRACE_EVENT_STOP)	/* SIGTRAP: SIGCONT */
			t->stop_sig = (stop & 0xff) != SIGTRAP;
	} while (stop != want);
	return 0;
}

/** trace_begin - prepare a thread that waits in call @id for trace_step() */
int trace_begin(pid_t tid, uint64_t id)
{
	struct tracee *t = waiting(tid, id);
	uint64_t all = ~0ull;

	if (!t || ptrace(PTRACE_GETSIGMASK, tid, sizeof(t->mask), &t->mask) ||
	    ptrace(PTRACE_SETSIGMASK, tid, sizeof(all), &all))
		return -ESRCH;
	return 0;
}

/**
 * trace_step - execute a call in a thread, between trace_begin() and trace_end()
 *
 * Returns the result of the call, or TRACE_GONE.
 */
int64_t trace_step(pid_t tid, long nr, const uint64_t args[6])
{
	struct tracee *t = tracee_find(tid);
	struct regs r;

	if (!t || !trace_waits(tid, t->id))
		return TRACE_GONE;
	r = t->regs;
	regs_set_call(&r, nr, args);
	if (t->at == WAITS_EXIT)
		regs_repeat(&r);
	if (regs_write(tid, &r) ||
	    (t->at == WAITS_EXIT && run_to(t, PTRACE_SYSCALL, SYSCALL_STOP)) ||
	    run_to(t, PTRACE_SYSCALL, SYSCALL_STOP) || regs_read(tid, &r)) {
		t->at = RUNS;
		return TRACE_GONE;
	}
	t->at = WAITS_EXIT;
	return regs_result(&r);
}

/** trace_end - restore the thread's signals */
void trace_end(pid_t tid)
{
	struct tracee *t = tracee_find(tid);

	if (!t || t->at == RUNS)
		return;
	ptrace(PTRACE_SETSIGMASK, tid, sizeof(t->mask), &t->mask);
	if (t->stop_sig)
		syscall(SYS_tkill, tid, SIGSTOP);
	t->stop_sig = false;
}

/** rewind_call - go back to before the thread's own call */
static int rewind_call(struct tracee *t)
{
	struct regs r = t->regs;
	int ret = trace_begin(t->tid, t->id);

	if (ret)
		return ret;
	regs_repeat(&r);
	ret = regs_write(t->tid, &r);
	if (!ret)
		ret = run_to(t, PTRACE_CONT,
			     SIGTRAP | PTRACE_EVENT_SECCOMP << 8);
	t->at = ret ? RUNS : WAITS_ENTRY;
	trace_end(t->tid);
	return ret;
}

/**
 * skip - go past the thread's own call without executing it
 *
 * The kernel restarts a call only if it has a number, and a call that is skipped
 * has none. At the exit of the call, the answer gives it its number back. On
 * arm64, the kernel also restores the first argument. It must therefore be the
 * last call that the thread has made.
 *
 * Returns false if the thread has ended.
 */
static bool skip(struct tracee *t)
{
	static const uint64_t none[6];
	bool ok;

	if ((t->at == WAITS_EXIT && rewind_call(t)) || trace_begin(t->tid, t->id))
		return false;
	ok = trace_step(t->tid, -1, none) != TRACE_GONE;
	trace_end(t->tid);
	return ok;
}

/**
 * trace_answer - answer a call with a result
 *
 * Returns false if the thread no longer waits for it.
 */
bool trace_answer(pid_t tid, uint64_t id, int64_t ret)
{
	struct tracee *t = waiting(tid, id);
	struct regs r;

	if (!t || (ret == -ERESTARTSYS && !skip(t)))
		return false;
	r = t->regs;
	regs_set_result(&r, ret);
	if (t->at == WAITS_ENTRY)
		r.nr = -1;
	t->at = RUNS;
	return !regs_write(tid, &r) && !ptrace(PTRACE_CONT, tid, 0, 0);
}

/** trace_native - let the host's kernel execute the call */
bool trace_native(pid_t tid, uint64_t id)
{
	struct tracee *t = waiting(tid, id);

	if (!t || (t->at == WAITS_EXIT && rewind_call(t)))
		return false;
	t->at = RUNS;
	return !ptrace(PTRACE_CONT, tid, 0, 0);
}

/** trace_page - get the address of lklhost's page; 0 if there is none */
uint64_t trace_page(pid_t tid)
{
	const struct tracee *t = tracee_find(tid);

	return t ? t->page : 0;
}

/** trace_set_page - set the address of lklhost's page */
void trace_set_page(pid_t tid, uint64_t page)
{
	struct tracee *t = tracee_find(tid);

	if (t)
		t->page = page;
}
