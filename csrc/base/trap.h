/* SPDX-License-Identifier: GPL-2.0-only */
/* System calls that a seccomp filter of this process traps: trap.c. */
#ifndef LKLHOST_TRAP_H
#define LKLHOST_TRAP_H

#include <signal.h>
#include <stdbool.h>

/*
 * trap_init - make trapped calls fail with ENOSYS, or make them by a newer call
 *
 * @call makes a system call of the host, and returns a negative errno on
 * failure. It must work in a signal handler.
 */
void trap_init(long (*call)(long nr, const long *args));

/* trap_answer - handle a SIGSYS; false if no seccomp filter has sent it */
bool trap_answer(const siginfo_t *si, void *ctx);

#endif
