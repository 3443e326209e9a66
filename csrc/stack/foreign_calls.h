/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls of a stack library with the numbers and layouts of asm-generic. */
#ifndef LKLHOST_FOREIGN_CALLS_H
#define LKLHOST_FOREIGN_CALLS_H

/*
 * include/uapi/asm-generic/unistd.h; the calls that stack_foreign.c itself
 * makes.
 */
#define GENERIC_eventfd2	19
#define GENERIC_epoll_create1	20
#define GENERIC_epoll_ctl	21
#define GENERIC_epoll_pwait	22
#define GENERIC_close		57
#define GENERIC_write		64

typedef long (*foreign_raw)(long nr, long a, long b, long c, long d, long e,
			    long f);

long foreign_translate(long nr, const long args[6], foreign_raw raw);

#endif
