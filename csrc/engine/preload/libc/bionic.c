// SPDX-License-Identifier: GPL-2.0-only
/*
 * bionic, the C library of Android, see libc.h.
 *
 * The engine and the stack library are compiled with musl's headers. This file
 * adapts what bionic names or arranges differently. The stack library finds the
 * exported functions here, because both libraries are loaded with the program.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>

#include "engine/preload/libc.h"

#define EXPORTED	__attribute__((visibility("default")))
#define SIG_FIRST	32	/* the kernel's first real-time signal */

/* bionic has one stub for each system call: 43 of interest in Android 11. */
const int libc_calls = 30;

extern int *__errno(void);
extern int __libc_current_sigrtmin(void);

/* bionic's struct sigaction for 64-bit CPUs */
struct bionic_action {
	int flags;
	void (*handler)(int sig, siginfo_t *si, void *ctx);
	uint64_t mask;
	void (*restorer)(void);
};

extern int bionic_sigaction(int sig, const struct bionic_action *act,
			    struct bionic_action *old) __asm__("sigaction");

int *__errno_location(void) EXPORTED;
int lkl_host_sigaction(int sig, const struct sigaction *act,
		       struct sigaction *old) EXPORTED;

/** __errno_location - musl's and glibc's name of __errno() */
int *__errno_location(void)
{
	return __errno();
}

/** lkl_host_sigaction - sigaction() for the stack library (third_party/lkl/lib/fault.c) */
int lkl_host_sigaction(int sig, const struct sigaction *act,
		       struct sigaction *old)
{
	struct bionic_action new, was;
	int ret;

	if (act) {
		new = (struct bionic_action){ .flags = act->sa_flags,
					      .handler = act->sa_sigaction,
					      .restorer = act->sa_restorer };
		memcpy(&new.mask, &act->sa_mask, sizeof(new.mask));
	}
	ret = bionic_sigaction(sig, act ? &new : NULL, &was);
	if (!ret && old) {
		memset(old, 0, sizeof(*old));
		old->sa_flags = was.flags;
		old->sa_sigaction = was.handler;
		old->sa_restorer = was.restorer;
		memcpy(&old->sa_mask, &was.mask, sizeof(was.mask));
	}
	return ret;
}

/*
 * POSIX timers, debuggerd, the profilers of ART and the heap: how many signals
 * these are depends on the version of Android.
 */
uint64_t libc_signals(void)
{
	return (1UL << (__libc_current_sigrtmin() - 1)) - (1UL << (SIG_FIRST - 1));
}

/* bionic has no pthread_cancel(). */
bool libc_cancels(int sig)
{
	(void)sig;
	return false;
}
