// SPDX-License-Identifier: GPL-2.0-only
/* glibc and musl, see libc.h. */
#define _GNU_SOURCE
#include "engine/preload/libc.h"

#define SIG_OWN		33

/* Compiled code contains most system calls several times. */
const int libc_calls = 50;

/* Only glibc defines this function. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));

uint64_t libc_signals(void)
{
	return 1UL << (SIG_OWN - 1);
}

/*
 * glibc uses the same number for setuid() in all threads, and that handler must
 * run at once. musl's handler checks whether its thread waits at a certain
 * place in musl's code, which no longer happens. But when a call returns EINTR,
 * musl checks whether the thread is cancelled. So it is enough to interrupt the
 * wait.
 */
bool libc_cancels(int sig)
{
	return sig == SIG_OWN && !gnu_get_libc_version;
}
