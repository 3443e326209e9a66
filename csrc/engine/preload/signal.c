// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals: the program's handlers, and the library's SIGSEGV.
 *
 * Theory of operation
 *
 * The engine records the handlers that the program installs with sigaction(),
 * and installs on_signal() in the kernel instead. If on_signal() finds its
 * thread inside (internal.h), the program's handler must not run: it could call
 * a socket function or jump away while the library's state is inconsistent. The
 * signal is then deferred: it is stored, the mask that applies after the
 * handler blocks further signals, and the library's wait is interrupted.
 * leave() runs the program's handler with its normal mask and arguments, and
 * reports whether the call may be restarted.
 *
 * The engine also handles signals that end the program by default, if they are
 * commonly used for that: it first delivers sent data, then lets the signal
 * take effect. A second such signal ends the wait.
 *
 * SIGSEGV and SIGBUS are always handled by on_signal(). Inside, they go to the
 * library, which turns them into EFAULT. In preload_copy() they are handled
 * here. Otherwise they go to the program.
 *
 * SIGSYS too: the library makes calls that a seccomp filter may trap. Traps of
 * its own calls, and those of a program without a handler, are answered here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/trap.h"
#include "engine/preload/internal.h"
#include "engine/preload/libc.h"
#include "engine/preload/signal.h"

#define SIG_LAST	64
#define BIT(sig)	(1UL << ((sig) - 1))
#define SA_RESTORER	0x04000000
/* Caused by an instruction, so they cannot be deferred. */
#define SYNCHRONOUS	(BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | \
			 BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS))

/* They end the process by default and can be delayed for a moment. */
#define FATAL		(BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGPIPE) | \
			 BIT(SIGALRM) | BIT(SIGTERM) | BIT(SIGUSR1) | BIT(SIGUSR2))

/* The struct kernel_sigaction of rt_sigaction(2) on x86-64 and arm64 */
struct action {
	union {
		void (*handler)(int sig);
		void (*info)(int sig, siginfo_t *si, void *ctx);
	};
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

static struct action acts[SIG_LAST + 1];
static struct action lib_segv, lib_bus;	/* the library's */
static void (*ends)(int status, int sig);	/* delivers sent data before the process ends */
static const char *native_call;		/* where entry.S makes calls of the host */
static void (*restorer)(void);		/* the C library's; NULL if the kernel's vDSO has it */

/** restoring - the flags of a handler that concern the restorer */
static unsigned long restoring(void)
{
	return restorer ? SA_RESTORER : 0;
}

/** is_theirs - whether a signal is left to the C library */
static bool is_theirs(int sig)
{
	return (libc_signals() & BIT(sig)) && !libc_cancels(sig);
}

static long sigaction_raw(int sig, const struct action *act, struct action *old)
{
	return RAW4(rt_sigaction, sig, act, old, sizeof(uint64_t));
}

static bool is_handler(const struct action *act)
{
	return act->handler != SIG_DFL && act->handler != SIG_IGN;
}

/** ours_forever - whether the signal's handler in the kernel is always on_signal() */
static bool ours_forever(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGSYS;
}

/** call_handler - call the handler that the signal belongs to */
static void call_handler(int sig, struct action *act, siginfo_t *si, void *ctx)
{
	if (act->flags & SA_RESETHAND)
		acts[sig].handler = SIG_DFL;
	if (act->flags & SA_SIGINFO)
		act->info(sig, si, ctx);
	else
		act->handler(sig);
}

/** signal_kill - apply the default action of @sig now */
void signal_kill(int sig)
{
	struct action dfl = { .handler = SIG_DFL };
	uint64_t mask = BIT(sig);

	sigaction_raw(sig, &dfl, NULL);
	RAW4(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, sizeof(mask));
	RAW3(tgkill, RAW0(getpid), RAW0(gettid), sig);
}

/** die_of - a fatal signal without a handler: let the host apply the default action */
static void die_of(int sig, const siginfo_t *si)
{
	struct action dfl = { .handler = SIG_DFL };

	sigaction_raw(sig, &dfl, NULL);
	if (FATAL & BIT(sig))
		ends(0, sig);
	if (si->si_code <= 0 || (FATAL & BIT(sig)))	/* it will not be raised again */
		signal_kill(sig);
}

/** defer_signal - store a signal until leave() */
static void defer_signal(int sig, const siginfo_t *si, ucontext_t *uc)
{
	uint64_t all = ~(SYNCHRONOUS | libc_signals());

	me.si = *si;
	memcpy(&me.mask, &uc->uc_sigmask, sizeof(me.mask));
	memcpy(&uc->uc_sigmask, &all, sizeof(all));
	me.pending = sig;
	if (me.lkl)
		lkl.interrupt(me.lkl);
}

/** on_signal - the only handler that the kernel knows */
static void on_signal(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;
	struct action act;

	if (sig == SIGSYS && (me.depth || me.own || !is_handler(&acts[sig])) &&
	    trap_answer(si, ctx))
		return;
	if (ours_forever(sig) && si->si_code > 0) {
		const char *ip = arch_pc(uc);
		struct action *lib = sig == SIGSEGV ? &lib_segv : &lib_bus;

		if (ip >= preload_copy_begin && ip < preload_copy_end) {
			arch_go_on(uc, preload_copy_fault);
			return;
		}
		if ((me.depth || me.own) && is_handler(lib)) {
			lib->info(sig, si, ctx);
			return;
		}
	}
	if (me.depth && !((SYNCHRONOUS & BIT(sig)) && si->si_code > 0)) {
		defer_signal(sig, si, uc);
		return;
	}
	if (libc_cancels(sig) && arch_pc(uc) == native_call) {
		arch_interrupted(uc);
		return;
	}
	act = acts[sig];
	if (is_handler(&act))
		call_handler(sig, &act, si, ctx);
	else if (act.handler == SIG_DFL || si->si_code > 0)
		die_of(sig, si);
}

/** set_mask - set the signal mask of the thread */
static void set_mask(uint64_t mask)
{
	RAW4(rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof(mask));
}

/** signal_run - run the handler of the deferred signal */
int signal_run(void)
{
	int sig = me.pending, ret = HAD_SIGNAL;
	struct action act = acts[sig];
	siginfo_t si = me.si;
	uint64_t mask = me.mask;
	ucontext_t uc;

	/*
	 * An interruption was requested; consume it so that the next wait is
	 * not affected.
	 */
	me.depth++;
	if (me.top) {
		preload_on_stack(SYS_getppid, (long[6]){ 0 }, lkl.syscall, me.top);
		preload_on_stack(SYS_getppid, (long[6]){ 0 }, lkl.syscall, me.top);
	}
	me.depth--;
	me.pending = 0;
	if (libc_cancels(sig)) {
		/* The interrupted call returns EINTR. */
	} else if (is_handler(&act)) {
		memset(&uc, 0, sizeof(uc));
		memcpy(&uc.uc_sigmask, &mask, sizeof(mask));
		set_mask(mask | act.mask |
			 (act.flags & SA_NODEFER ? 0 : BIT(sig)));
		call_handler(sig, &act, &si, &uc);
		if (act.flags & SA_RESTART)
			ret |= MAY_RESTART;
	} else if (act.handler == SIG_DFL) {
		die_of(sig, &si);
	}
	set_mask(mask);
	return ret;
}

/** wrap - the action for the kernel that corresponds to one of the program's */
static struct action wrap(int sig, const struct action *act)
{
	struct action k = *act;

	k.info = on_signal;
	k.flags |= SA_SIGINFO;
	if (ours_forever(sig)) {
		k.flags |= SA_ONSTACK;
		k.flags &= ~(unsigned long)SA_RESETHAND;
	}
	return k;
}

/** wrap_default - the action for the kernel that corresponds to SIG_DFL */
static struct action wrap_default(int sig, const struct action *act)
{
	struct action k = *act;

	if (FATAL & BIT(sig)) {
		k.info = on_signal;
		k.flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | restoring();
		k.restorer = restorer;
	}
	return k;
}

/** call_sigaction - rt_sigaction(2) */
long call_sigaction(long nr, const long *a)
{
	int sig = (int)a[0];
	struct action new, old, k;
	long ret = 0;

	if (sig < 1 || sig > SIG_LAST || sig == SIGKILL || sig == SIGSTOP ||
	    is_theirs(sig) || a[3] != sizeof(uint64_t) || borrowed())
		return native(nr, a);
	if (a[1] && preload_copy(&new, (void *)a[1], sizeof(new)))
		return -EFAULT;
	enter();
	old = acts[sig];
	if (a[1]) {
		acts[sig] = new;
		if (is_handler(&new)) {
			k = wrap(sig, &new);
			ret = sigaction_raw(sig, &k, NULL);
		} else if (!ours_forever(sig)) {
			k = new.handler == SIG_DFL ? wrap_default(sig, &new) : new;
			ret = sigaction_raw(sig, &k, NULL);
		}
		if (ret)
			acts[sig] = old;
	}
	leave();
	if (!ret && a[2])
		ret = preload_copy((void *)a[2], &old, sizeof(old));
	return ret;
}

/** signal_own - install a handler of our own, bypassing the program's */
void signal_own(int sig, void (*fn)(int sig))
{
	struct action k = { .handler = fn, .flags = restoring() | SA_ONSTACK,
			    .restorer = restorer };

	sigaction_raw(sig, &k, NULL);
}

/** signal_own_ending - the same for signals that end programs, unless ignored */
void signal_own_ending(void (*fn)(int sig))
{
	static const int ending[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
	uint64_t mask = 0;
	struct action now;
	size_t i;

	for (i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
		if (sigaction_raw(ending[i], NULL, &now) || now.handler == SIG_IGN)
			continue;
		signal_own(ending[i], fn);
		mask |= BIT(ending[i]);
	}
	RAW4(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, sizeof(mask));
}

/**
 * signal_init - take over the existing handlers, after the library has booted
 * @on_end: called before a signal ends the process
 * @call: the instruction in entry.S that makes calls of the host
 */
int signal_init(void (*on_end)(int status, int sig), const char *call)
{
	struct action now, k;
	int sig;

	ends = on_end;
	native_call = call;
	/* The library has a handler, so this reveals the restorer. */
	if (!sigaction_raw(SIGSEGV, NULL, &now))
		restorer = now.restorer;
	for (sig = 1; sig <= SIG_LAST; sig++) {
		if (is_theirs(sig) || sigaction_raw(sig, NULL, &now))
			continue;
		if (!is_handler(&now)) {
			acts[sig] = now;
			if (now.handler == SIG_DFL && (FATAL & BIT(sig))) {
				k = wrap_default(sig, &now);
				sigaction_raw(sig, &k, NULL);
			}
			continue;
		}
		k = wrap(sig, &now);
		if (ours_forever(sig)) {
			if (sig != SIGSYS)
				*(sig == SIGSEGV ? &lib_segv : &lib_bus) = now;
			memset(&acts[sig], 0, sizeof(acts[sig]));
		} else {
			acts[sig] = now;
		}
		sigaction_raw(sig, &k, NULL);
	}
	return 0;
}
