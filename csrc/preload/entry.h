/* SPDX-License-Identifier: GPL-2.0-only */
/* What each entry.S and the C files both know. */
#ifndef PRELOAD_ENTRY_H
#define PRELOAD_ENTRY_H

/* Numbers of system calls that can be of interest: below this */
#define ENTRY_CALLS_SHIFT	9
#define ENTRY_CALLS	(1 << ENTRY_CALLS_SHIFT)
/* Descriptors that can be the stack's: below this */
#define ENTRY_FDS_SHIFT	20
#define ENTRY_FDS	(1 << ENTRY_FDS_SHIFT)

/* preload_class[]: what is done with a call before C sees it */
#define CLASS_HOST	0	/* the host's */
#define CLASS_FD	1	/* the host's unless preload_kind[argument 0] says more */
#define CLASS_LOOK	2	/* always a matter for C */

/* preload_kind[]: bits */
#define KIND_SOCK	1	/* a socket of the stack */
#define KIND_EPOLL	2	/* an epoll of the host with one of the stack behind it */
#define KIND_OWN	4	/* the library's: the program may not close it */
#define KIND_EPFD	8	/* an epoll of the host */
#define KIND_PARKED	16	/* the host's, where a socket was: dup.c */
#define KIND_MASK	(KIND_SOCK | KIND_EPOLL)

#endif
