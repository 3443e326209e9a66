// SPDX-License-Identifier: GPL-2.0-only
/*
 * SIGSEGV and SIGBUS while this thread runs the kernel: caused by a bad user
 * pointer or by an error in the kernel. All others go to the previous handler.
 */
#include "internal.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

static struct sigaction old_segv, old_bus;
static int installed;

/*
 * If the C library has another struct sigaction (bionic), the library that
 * loads this one into a program provides this function.
 */
extern int lkl_host_sigaction(int sig, const struct sigaction *act,
			      struct sigaction *old) __attribute__((weak));

static int set_action(int sig, const struct sigaction *act,
		      struct sigaction *old)
{
	if (lkl_host_sigaction)
		return lkl_host_sigaction(sig, act, old);
	return sigaction(sig, act, old);
}

#if defined(__x86_64__)
static void regs_get(ucontext_t *uc, unsigned long *pc, unsigned long *sp)
{
	*pc = uc->uc_mcontext.gregs[REG_RIP];
	*sp = uc->uc_mcontext.gregs[REG_RSP];
}

static void regs_set(ucontext_t *uc, unsigned long pc, unsigned long sp,
		     const unsigned long *args)
{
	uc->uc_mcontext.gregs[REG_RIP] = pc;
	if ((unsigned long)uc->uc_mcontext.gregs[REG_RSP] != sp) {
		uc->uc_mcontext.gregs[REG_RSP] = sp;
		uc->uc_mcontext.gregs[REG_RDI] = args[0];
		uc->uc_mcontext.gregs[REG_RSI] = args[1];
	}
	/* the library's code needs a clear direction flag */
	uc->uc_mcontext.gregs[REG_EFL] &= ~0x400L;
}
#elif defined(__aarch64__)
static void regs_get(ucontext_t *uc, unsigned long *pc, unsigned long *sp)
{
	*pc = uc->uc_mcontext.pc;
	*sp = uc->uc_mcontext.sp;
}

static void regs_set(ucontext_t *uc, unsigned long pc, unsigned long sp,
		     const unsigned long *args)
{
	uc->uc_mcontext.pc = pc;
	if (uc->uc_mcontext.sp != sp) {
		uc->uc_mcontext.sp = sp;
		uc->uc_mcontext.regs[0] = args[0];
		uc->uc_mcontext.regs[1] = args[1];
	}
}
#elif defined(__arm__)
#define PSR_T		0x20u		/* Thumb */
#define PSR_IT		0x0600fc00u	/* in an if-then block of Thumb */

static void regs_get(ucontext_t *uc, unsigned long *pc, unsigned long *sp)
{
	*pc = uc->uc_mcontext.arm_pc;
	*sp = uc->uc_mcontext.arm_sp;
}

/*
 * The kernel is ARM code, but the C library's code that faulted may be Thumb.
 */
static void regs_set(ucontext_t *uc, unsigned long pc, unsigned long sp,
		     const unsigned long *args)
{
	uc->uc_mcontext.arm_pc = pc;
	uc->uc_mcontext.arm_cpsr &= ~(PSR_T | PSR_IT);
	if (uc->uc_mcontext.arm_sp != sp) {
		uc->uc_mcontext.arm_sp = sp;
		uc->uc_mcontext.arm_r0 = args[0];
		uc->uc_mcontext.arm_r1 = args[1];
	}
}
#else
#error "regs_get() and regs_set() for this CPU"
#endif

static void chain(int sig, siginfo_t *si, void *ctx)
{
	struct sigaction *old = sig == SIGSEGV ? &old_segv : &old_bus;

	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, si, ctx);
	} else if (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN) {
		/* the instruction faults again and ends the process */
		signal(sig, SIG_DFL);
	} else {
		old->sa_handler(sig);
	}
}

static void on_fault(int sig, siginfo_t *si, void *ctx)
{
	unsigned long pc, sp, args[2] = { 0, 0 };
	struct thread *t = self;

	if (virtual_now && sig == SIGSEGV &&
	    virtual_rdtsc(ctx, t && t->busy == IN_KERNEL))
		return;
	if (!t || t->busy != IN_KERNEL || lkl_dead || si->si_code <= 0) {
		chain(sig, si, ctx);
		return;
	}
	if (sig == SIGBUS && si->si_code == BUS_ADRALN && fault_unaligned(ctx))
		return;
	regs_get(ctx, &pc, &sp);
	lklk_fault((unsigned long)si->si_addr, &pc, &sp, args);
	regs_set(ctx, pc, sp, args);
}

int fault_init(void)
{
	struct sigaction sa = {
		.sa_sigaction = on_fault,
		.sa_flags = SA_SIGINFO | SA_ONSTACK,
	};

	sigemptyset(&sa.sa_mask);
	if (set_action(SIGSEGV, &sa, &old_segv) || set_action(SIGBUS, &sa, &old_bus))
		return -1;
	installed = 1;
	return 0;
}

static void put_back(int sig, const struct sigaction *old)
{
	struct sigaction now;

	/* unless another handler has been installed since */
	if (!set_action(sig, NULL, &now) && now.sa_sigaction == on_fault)
		set_action(sig, old, NULL);
}

void fault_exit(void)
{
	if (!installed)
		return;
	installed = 0;
	put_back(SIGSEGV, &old_segv);
	put_back(SIGBUS, &old_bus);
}
