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
 * The program's own instruction makes these calls, and another thread can
 * change or unmap it at any time, or a signal, rseq(2) or syscall user dispatch
 * can lead the thread elsewhere. It then executes code of the program's choice.
 * So it runs from stop to stop (PTRACE_SYSCALL), and before each call that it
 * enters, lklhost compares the number, the arguments and the program counter
 * with those that it has set (run_to()). No call of its own is ever executed:
 * if anything differs, SIGKILL arrives while it is in the stop, and the kernel
 * skips the call.
 *
 * - From the entry of a call to its exit, the thread executes no code of the
 *   program. Only lklhost can change its registers there.
 * - "int 0x80" has the same length as "syscall" on x86-64 and looks the same in
 *   the registers. The target's filter kills the process: no action has priority
 *   over SECCOMP_RET_KILL_PROCESS.
 * - Syscall user dispatch acts before the entry of a call. Its SIGSYS is blocked,
 *   as is the SIGSEGV of a page that is gone. The kernel delivers both
 *   nevertheless, which is a stop that lklhost does not expect.
 * - On x86-64, the thread executes one instruction outside the kernel and then
 *   gets SIGTRAP, so it cannot loop (regs_repeat()).
 * - A seccomp filter that another thread installs meanwhile can only refuse the
 *   call.
 *
 * The registers are the only thing that is compared. Memory that a call reads
 * can always change.
 *
 * The calls must not block. trace_step() waits for the thread, so it has a limit
 * (limit.c), and the caller sets another one (engine/call/watchdog.c).
 *
 * A thread that a cgroup has frozen does not leave the kernel to make its next
 * call, nor does one that waits for the page of its instruction. trace_step()
 * then returns TRACE_BLOCKED. When the thread arrives at the call, lklhost checks
 * it as usual, lets it close its descriptors in place of this call, and reports
 * that it waits for an answer as before (step_unblocked()).
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
#define SECCOMP_STOP	(SIGTRAP | PTRACE_EVENT_SECCOMP << 8)

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

	if (t && t->at == BLOCKED)
		return t->id == id;
	if (!t || t->at == RUNS || t->id != id ||
	    ptrace(PTRACE_GETSIGINFO, tid, 0, &info))
		return false;
	return t->at == WAITS_EXIT ? info.si_code == SYSCALL_STOP :
	       info.si_code == SECCOMP_STOP;
}

/** waiting - find a thread that waits for the answer to call @id */
static struct tracee *waiting(pid_t tid, uint64_t id)
{
	return trace_waits(tid, id) ? tracee_find(tid) : NULL;
}

/**
 * blocked - get the result of a call that a thread cannot make
 *
 * If the thread is blocked, it closes the descriptor when it runs again.
 */
static int64_t blocked(struct tracee *t, long nr, const uint64_t args[6])
{
	if (!t || t->at != BLOCKED)
		return TRACE_GONE;
	if (nr == SYS_close && t->n_left < sizeof(t->left) / sizeof(t->left[0]))
		t->left[t->n_left++] = args[0];
	return TRACE_BLOCKED;
}

/** answer_later - keep the answer for a blocked thread; false if it has ended */
static bool answer_later(struct tracee *t, bool native, int64_t ret)
{
	if (!t || t->at != BLOCKED)
		return false;
	t->answered = true;
	t->native = native;
	t->answer = ret;
	return true;
}

/**
 * next_stop - wait for the next stop
 * @before: the thread has not begun its call yet
 *
 * Returns the status, without its lowest byte, or a negative errno: -EAGAIN if
 * the thread is blocked before its call, and otherwise it has ended. Another
 * thread that has executed a program may have its number now.
 */
static int next_stop(const struct tracee *t, bool before)
{
	int status;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, &status, __WALL);
		if (pid < 0 && errno != EINTR)
			return -ESRCH;
		if (pid < 0 && limit_passed(t->tid))
			tracee_strayed(t->tid, "ran too long");
		else if (pid < 0 && before && limit_blocked())
			return -EAGAIN;
		if (pid == t->tid && WIFSTOPPED(status) &&
		    status >> 16 != PTRACE_EVENT_EXEC)
			return status >> 8;
		if (pid > 0)
			tracee_keep(pid, status);
		if (pid == t->tid)
			return -ESRCH;
	}
}

/** stops_only - whether a stop belongs to SIGSTOP or SIGCONT, and note it */
static bool stops_only(struct tracee *t, int stop)
{
	if (stop < 0 || (stop != SIGSTOP && stop >> 8 != PTRACE_EVENT_STOP))
		return false;
	t->stop_sig = (stop & 0xff) != SIGTRAP;	/* SIGCONT */
	return true;
}

/**
 * run - let a thread run to its next stop for a call or an event
 *
 * If SIGSTOP arrives meanwhile, trace_end() sends it again, unless SIGCONT has
 * followed. All other signals are blocked.
 *
 * Returns the stop as next_stop().
 */
static int run(struct tracee *t, bool before)
{
	int stop;

	for (;;) {
		if (ptrace(PTRACE_SYSCALL, t->tid, 0, 0))
			return -ESRCH;
		stop = next_stop(t, before);
		if (!stops_only(t, stop))
			return stop;
	}
}

/**
 * run_to - let a thread run to the stop @want of a call, or kill its process
 * @call: the registers that it must have there
 * @done: the stop is the exit of the call
 *
 * The kernel's stop for the filter may come before the exit. This is the same
 * call.
 *
 * Returns 0, -EAGAIN if the thread is blocked, or another negative errno if it
 * has ended.
 */
static int run_to(struct tracee *t, int want, const struct regs *call, bool done)
{
	int stop = run(t, !done);
	struct regs r;

	if (stop == -EAGAIN) {
		t->at = BLOCKED;
		t->step = *call;
		return stop;
	}
	if (stop < 0 || regs_read(t->tid, &r))
		return -ESRCH;
	if ((stop == want || (done && stop == SECCOMP_STOP)) &&
	    regs_same(&r, call, stop == want && done)) {
		t->result = regs_result(&r);
		return stop == want ? 0 : run_to(t, want, call, done);
	}
	tracee_strayed(t->tid, stop == SIGTRAP ? "executed another instruction" :
			       stop >> 8 || stop == SYSCALL_STOP ?
			       "made another system call" : "got a signal");
	return -ESRCH;
}

/**
 * write_regs - write the registers of a thread that waits for an answer
 *
 * Another thread may execute a program meanwhile, which then has the number and
 * gets the registers. It is killed.
 */
static bool write_regs(const struct tracee *t, const struct regs *r)
{
	siginfo_t info;

	if (regs_write(t->tid, r))
		return false;
	if (trace_waits(t->tid, t->id))
		return true;
	if (!ptrace(PTRACE_GETSIGINFO, t->tid, 0, &info))
		tracee_strayed(t->tid, "executed a program");
	return false;
}

/** trace_begin - prepare a thread that waits in call @id for trace_step() */
int trace_begin(pid_t tid, uint64_t id)
{
	struct tracee *t = waiting(tid, id);
	uint64_t all = ~0ull;

	if (t && t->at == BLOCKED)
		return -EINPROGRESS;
	if (!t || ptrace(PTRACE_GETSIGMASK, tid, sizeof(t->mask), &t->mask) ||
	    ptrace(PTRACE_SETSIGMASK, tid, sizeof(all), &all))
		return -ESRCH;
	limit_start();
	return 0;
}

/**
 * trace_step - execute a call in a thread, between trace_begin() and trace_end()
 *
 * Returns the result of the call, TRACE_GONE, or TRACE_BLOCKED. A blocked thread
 * makes up only for close(2).
 */
int64_t trace_step(pid_t tid, long nr, const uint64_t args[6])
{
	struct tracee *t = tracee_find(tid);
	struct regs call, r;
	bool repeat;

	if (!t || t->at == RUNS || t->at == BLOCKED)
		return blocked(t, nr, args);
	call = r = t->regs;
	regs_set_call(&call, nr, args);
	regs_set_call(&r, nr, args);
	repeat = t->at == WAITS_EXIT;
	if (repeat)
		regs_repeat(&r);
	if (!write_regs(t, &r)) {
		t->at = RUNS;
		return TRACE_GONE;
	}
	t->at = RUNS;
	if (repeat && run_to(t, SYSCALL_STOP, &call, false))
		return blocked(t, nr, args);
	if (run_to(t, SYSCALL_STOP, &call, true))
		return TRACE_GONE;
	t->at = WAITS_EXIT;
	return t->result;
}

/** trace_end - restore the thread's signals */
void trace_end(pid_t tid)
{
	struct tracee *t = tracee_find(tid);

	limit_stop();
	if (!t || t->at == RUNS || t->at == BLOCKED)
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
	ret = write_regs(t, &r) ? 0 : -ESRCH;
	if (!ret)
		ret = run_to(t, SYSCALL_STOP, &t->regs, false);
	if (!ret)
		ret = run_to(t, SECCOMP_STOP, &t->regs, false);
	if (t->at != BLOCKED)
		t->at = ret ? RUNS : WAITS_ENTRY;
	if (!ret && !write_regs(t, &t->regs)) {
		t->at = RUNS;
		ret = -ESRCH;
	}
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

	if (!t || t->at == BLOCKED || (ret == -ERESTARTSYS && !skip(t)))
		return answer_later(t, false, ret);
	r = t->regs;
	regs_set_result(&r, ret);
	if (t->at == WAITS_ENTRY)
		r.nr = -1;
	if (!write_regs(t, &r))
		return false;
	t->at = RUNS;
	return !ptrace(PTRACE_CONT, tid, 0, 0);
}

/** trace_native - let the host's kernel execute the call */
bool trace_native(pid_t tid, uint64_t id)
{
	struct tracee *t = waiting(tid, id);

	if (!t || t->at == BLOCKED || (t->at == WAITS_EXIT && rewind_call(t)))
		return answer_later(t, true, 0);
	t->at = RUNS;
	return !ptrace(PTRACE_CONT, tid, 0, 0);
}

/**
 * close_left - let a blocked thread that has arrived at its call close its
 * descriptors instead
 *
 * Returns false if it has ended, or is blocked again.
 */
static bool close_left(struct tracee *t)
{
	uint64_t args[6] = { t->n_left ? t->left[--t->n_left] : ~0ull };

	regs_set_call(&t->step, SYS_close, args);
	t->at = WAITS_EXIT;
	if (!write_regs(t, &t->step) || run_to(t, SYSCALL_STOP, &t->step, true)) {
		t->at = RUNS;
		return false;
	}
	while (t->n_left) {
		args[0] = t->left[--t->n_left];
		if (trace_step(t->tid, SYS_close, args) < 0)
			return false;
	}
	return true;
}

/** step_unblocked - handle the stop of a thread that trace_step() left BLOCKED */
void step_unblocked(struct tracee *t, int stop)
{
	bool answered;
	struct regs r;

	if (stops_only(t, stop)) {
		ptrace(PTRACE_SYSCALL, t->tid, 0, 0);
		return;
	}
	if (stop != SYSCALL_STOP || regs_read(t->tid, &r) ||
	    !regs_same(&r, &t->step, false)) {
		tracee_strayed(t->tid, "did not continue with its system call");
		return;
	}
	limit_start();
	if (!close_left(t)) {
		limit_stop();
		return;
	}
	trace_end(t->tid);
	answered = t->answered;
	t->answered = false;
	if (!answered)
		tracee_resumed(t);
	else if (t->native)
		trace_native(t->tid, t->id);
	else
		trace_answer(t->tid, t->id, t->answer);
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
