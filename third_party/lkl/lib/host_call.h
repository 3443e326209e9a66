/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System calls of the host on the paths of packets and waits.
 *
 * The C library's functions are not used, for three reasons:
 *
 * - They are cancellation points: a cancelled thread would keep the kernel's
 *   CPU.
 * - They write the program's errno.
 * - With engine preload the C library is patched, and each call takes a detour.
 */
#ifndef LKL_HOST_CALL_H
#define LKL_HOST_CALL_H

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/**
 * host_call - make a system call; returns a negative errno on failure
 */
static inline long host_call(long nr, long a, long b, long c, long d, long e,
			     long f)
{
#ifdef __x86_64__
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
#elif defined(__aarch64__)
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
#elif defined(__arm__)
	/* r7 may be the frame pointer, so it is saved instead of named. */
	register long r0 __asm__("r0") = a;
	register long r1 __asm__("r1") = b;
	register long r2 __asm__("r2") = c;
	register long r3 __asm__("r3") = d;
	register long r4 __asm__("r4") = e;
	register long r5 __asm__("r5") = f;

	__asm__ __volatile__("mov r12, r7\n\t"
			     "mov r7, %[nr]\n\t"
			     "svc #0\n\t"
			     "mov r7, r12"
			     : "+r"(r0)
			     : [nr] "r"(nr), "r"(r1), "r"(r2), "r"(r3), "r"(r4),
			       "r"(r5)
			     : "r12", "memory");
	return r0;
#else
#error "host_call() for this CPU"
#endif
}

/**
 * host_pages - allocate anonymous memory; NULL on failure
 *
 * Does not use mmap(): 32-bit C libraries disagree on the width of its offset.
 */
static inline void *host_pages(unsigned long size)
{
#ifdef SYS_mmap2
	const long nr = SYS_mmap2;
#else
	const long nr = SYS_mmap;
#endif
	long p = host_call(nr, 0, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

#endif
