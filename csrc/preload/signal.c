// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals: the program's handlers, and the library's SIGSEGV.
 *
 * Theory of operation
 *
 * What the program installs with sigaction() we keep, and give the kernel
 * on_signal() instead. When that finds its thread inside (internal.h), the
 * program's handler may not run: the library's state would be torn if it called
 * a socket or jumped away. The signal is put off: it is stored, further ones are
 * blocked until then in the mask to which the handler returns, and the wait of
 * the library is ended. leave() runs the program's handler, with the mask
 * and the arguments it would have had, and says whether the call may be made again.
 *
 * A signal that would end the program, because nobody handles it, is ours too,
 * as far as people use such to end programs: what was sent gets out, then it
 * does what it does. A second one ends the wait for that.
 *
 * SIGSEGV and SIGBUS stay ours for good. Inside they are the library's, which
 * makes EFAULT of them; in preload_copy() they are ours; else the program's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "internal.h"

#define SIG_LAST	64
#define SIG_OWN		33	/* the C library's own, see is_cancel() */
#define BIT(sig)	(1UL << ((sig) - 1))
#define SA_RESTORER	0x04000000
/* Of an instruction: putting these off makes no sense */
#define SYNCHRONOUS	(BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGFPE) | \
			 BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGSYS))

/* By default the end, and one that can be put off for a moment */
#define FATAL		(BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGPIPE) | \
			 BIT(SIGALRM) | BIT(SIGTERM) | BIT(SIGUSR1) | BIT(SIGUSR2))

/* struct kernel_sigaction: what rt_sigaction(2) takes on x86-64 and arm64 */
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
static void (*restorer)(void);		/* the C library's; NULL: the kernel's vDSO has it */

/** restoring - what a handler's flags say of it */
static unsigned long restoring(void)
{
	return restorer ? SA_RESTORER : 0;
}

/* glibc has it, no other does; bionic is not musl by what proc.c knows it by. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
			     void (*child)(void), void *dso) __attribute__((weak));

/**
 * is_cancel - whether a signal is pthread_cancel()'s of musl
 *
 * The same number is glibc's for setuid() in all threads, whose handler must run at
 * once. musl's handler looks whether its thread waits in one certain piece of musl's
 * code, which it now never does. But what musl does with a call that says EINTR is
 * to see whether the thread is cancelled: so such a wait is ended, and that is all.
 */
static bool is_cancel(int sig)
{
	return sig == SIG_OWN && !gnu_get_libc_version && !__register_atfork;
}

/** is_theirs - whether a signal is left to the C library */
static bool is_theirs(int sig)
{
	return sig == SIG_OWN && !is_cancel(sig);
}

static long sigaction_raw(int sig, const struct action *act, struct action *old)
{
	return RAW4(rt_sigaction, sig, act, old, sizeof(uint64_t));
}

static bool is_handler(const struct action *act)
{
	return act->handler != SIG_DFL && act->handler != SIG_IGN;
}

/** ours_forever - signals whose handler in the kernel is always on_signal() */
static bool ours_forever(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS;
}

/** call_handler - the program's, wherever it belongs */
static void call_handler(int sig, struct action *act, siginfo_t *si, void *ctx)
{
	if (act->flags & SA_RESETHAND)
		acts[sig].handler = SIG_DFL;
	if (act->flags & SA_SIGINFO)
		act->info(sig, si, ctx);
	else
		act->handler(sig);
}

/** signal_kill - what @sig does by default, now */
void signal_kill(int sig)
{
	struct action dfl = { .handler = SIG_DFL };
	uint64_t mask = BIT(sig);

	sigaction_raw(sig, &dfl, NULL);
	RAW4(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, sizeof(mask));
	RAW3(tgkill, RAW0(getpid), RAW0(gettid), sig);
}

/** die_of - nobody handles it: let the host do what it does then */
static void die_of(int sig, const siginfo_t *si)
{
	struct action dfl = { .handler = SIG_DFL };

	sigaction_raw(sig, &dfl, NULL);
	if (FATAL & BIT(sig))
		proc_ends(0, sig);
	if (si->si_code <= 0 || (FATAL & BIT(sig)))	/* it will not come again */
		signal_kill(sig);
}

/** put_off - store a signal until leave() */
static void put_off(int sig, const siginfo_t *si, ucontext_t *uc)
{
	uint64_t all = ~(SYNCHRONOUS | BIT(SIG_OWN));

	me.si = *si;
	memcpy(&me.mask, &uc->uc_sigmask, sizeof(me.mask));
	memcpy(&uc->uc_sigmask, &all, sizeof(all));
	me.pending = sig;
	if (me.lkl)
		lkl.interrupt(me.lkl);
}

/** on_signal - every handler the kernel knows of */
static void on_signal(int sig, siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;
	struct action act;

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
		put_off(sig, si, uc);
		return;
	}
	if (is_cancel(sig) && arch_pc(uc) == preload_native) {
		arch_interrupted(uc);
		return;
	}
	act = acts[sig];
	if (is_handler(&act))
		call_handler(sig, &act, si, ctx);
	else if (act.handler == SIG_DFL || si->si_code > 0)
		die_of(sig, si);
}

/** set_mask - of the thread */
static void set_mask(uint64_t mask)
{
	RAW4(rt_sigprocmask, SIG_SETMASK, &mask, 0, sizeof(mask));
}

/** signal_run - run the handler of the signal that was put off */
int signal_run(void)
{
	int sig = me.pending, ret = HAD_SIGNAL;
	struct action act = acts[sig];
	siginfo_t si = me.si;
	uint64_t mask = me.mask;
	ucontext_t uc;
	static const long none[6];

	/* The end of a wait was asked for; the next one shall not see it. */
	me.depth++;
	if (me.top) {
		stack_raw(SYS_getppid, none);
		stack_raw(SYS_getppid, none);
	}
	me.depth--;
	me.pending = 0;
	if (is_cancel(sig)) {
		/* What waited says EINTR. */
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

/** wrap - the kernel's action for one of the program's */
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

/** wrap_default - the kernel's action for SIG_DFL */
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

/** signal_own - a handler of ours, past the program's */
void signal_own(int sig, void (*fn)(int sig))
{
	struct action k = { .handler = fn, .flags = restoring() | SA_ONSTACK,
			    .restorer = restorer };

	sigaction_raw(sig, &k, NULL);
}

/** signal_own_ending - the same for those that people end programs with, unless ignored */
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

/** signal_init - take over what is there; the library has booted */
int signal_init(void)
{
	struct action now, k;
	int sig;

	/* The library has a handler, so the restorer is known. */
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
			*(sig == SIGSEGV ? &lib_segv : &lib_bus) = now;
			memset(&acts[sig], 0, sizeof(acts[sig]));
		} else {
			acts[sig] = now;
		}
		sigaction_raw(sig, &k, NULL);
	}
	return 0;
}
