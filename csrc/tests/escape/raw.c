// SPDX-License-Identifier: GPL-2.0-only
/*
 * System calls by an instruction in this program. A preloaded library patches
 * only the C library, so it does not intercept these.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "escape.h"

/** instruct - execute the instruction; returns a negative errno on failure, as the kernel does */
static long instruct(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret = nr;

	__asm__ volatile("syscall" : "+a"(ret)
			 : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
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

	__asm__ volatile("svc 0" : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
	long ret = syscall(nr, a, b, c, d, e, f);

	return ret < 0 ? -errno : ret;
#endif
}

/** raw - like syscall(2): returns -1 with errno on failure */
long raw(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret = instruct(nr, a, b, c, d, e, f);

	if (ret > -4096 && ret < 0) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}
