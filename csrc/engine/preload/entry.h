/* SPDX-License-Identifier: GPL-2.0-only */
/* Constants shared by entry.S and the C files. */
#ifndef PRELOAD_ENTRY_H
#define PRELOAD_ENTRY_H

/* Intercepted system calls have numbers below this. */
#define ENTRY_CALLS_SHIFT	9
#define ENTRY_CALLS	(1 << ENTRY_CALLS_SHIFT)
/* Descriptors of the stack are below this. */
#define ENTRY_FDS_SHIFT	20
#define ENTRY_FDS	(1 << ENTRY_FDS_SHIFT)

/* preload_class[]: how entry.S handles a call */
#define CLASS_HOST	0	/* pass to the host */
#define CLASS_FD	1	/* pass to the host unless preload_kind[argument 0] is set */
#define CLASS_LOOK	2	/* always pass to C */

/* preload_kind[]: bits */
#define KIND_SOCK	1	/* a socket of the stack */
#define KIND_EPOLL	2	/* an epoll of the host with a shadow in the stack */
#define KIND_OWN	4	/* belongs to the library: the program cannot close it */
#define KIND_EPFD	8	/* an epoll of the host */
#define KIND_PARKED	16	/* the host's, in place of a socket: dup.c */
#define KIND_MASK	(KIND_SOCK | KIND_EPOLL)

#endif
