/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The arm64 parts of the C code: host system calls, and the registers of a
 * signal context.
 */
#ifndef PRELOAD_ARCH_H
#define PRELOAD_ARCH_H

#include <errno.h>
#include <stdint.h>
#include <ucontext.h>

/** raw6 - make a system call of the host */
static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ __volatile__("svc #0"
			     : "+r"(x0)
			     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4),
			       "r"(x5)
			     : "memory");
	return x0;
}

/** arch_pc - the address of the instruction that the signal interrupted */
static inline const char *arch_pc(const ucontext_t *uc)
{
	return (const char *)(uintptr_t)uc->uc_mcontext.pc;
}

/** arch_go_on - let the interrupted thread continue at @pc */
static inline void arch_go_on(ucontext_t *uc, const char *pc)
{
	uc->uc_mcontext.pc = (uintptr_t)pc;
}

/** arch_interrupted - return EINTR if the kernel is about to restart a system call */
static inline void arch_interrupted(ucontext_t *uc)
{
	uc->uc_mcontext.regs[0] = (uint64_t)-EINTR;
	uc->uc_mcontext.pc += 4;
}

#endif
