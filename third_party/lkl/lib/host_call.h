/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * System calls of the host on the paths of packets and waits.
 *
 * Not the C library's functions: those are points where a thread can be
 * cancelled, which would leave the kernel's CPU with a thread that is gone; they
 * write the program's errno; and where the C library is patched (the engine
 * preload) each is a detour.
 */
#ifndef LKL_HOST_CALL_H
#define LKL_HOST_CALL_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/**
 * host_call - a system call; a negative errno when it fails
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
#else
	long ret = syscall(nr, a, b, c, d, e, f);

	return ret < 0 ? -errno : ret;
#endif
}

#endif
