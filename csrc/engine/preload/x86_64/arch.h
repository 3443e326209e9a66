/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The x86-64 parts of the C code: host system calls, and the registers of a
 * signal context.
 */
#ifndef PRELOAD_ARCH_H
#define PRELOAD_ARCH_H

#include <errno.h>
#include <ucontext.h>

/** raw6 - make a system call of the host */
static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ __volatile__("syscall"
			     : "=a"(ret)
			     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10),
			       "r"(r8), "r"(r9)
			     : "rcx", "r11", "memory");
	return ret;
}

/** arch_pc - the address of the instruction that the signal interrupted */
static inline const char *arch_pc(const ucontext_t *uc)
{
	return (const char *)uc->uc_mcontext.gregs[REG_RIP];
}

/** arch_go_on - let the interrupted thread continue at @pc */
static inline void arch_go_on(ucontext_t *uc, const char *pc)
{
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
}

/** arch_interrupted - return EINTR if the kernel is about to restart a system call */
static inline void arch_interrupted(ucontext_t *uc)
{
	uc->uc_mcontext.gregs[REG_RAX] = -EINTR;
	uc->uc_mcontext.gregs[REG_RIP] += 2;
}

#endif
