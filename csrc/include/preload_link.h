/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The link between lklhost and the kernel inside the target, with the engine
 * "preload".
 *
 * Theory of operation
 *
 * lklhost stays the control server. Requests that only the kernel can answer go
 * on to the library in the target's process, over a socket of which the target
 * has the other end:
 *
 *	lklctl, lklrun <- ctl_proto.h -> lklhost <- this -> liblklpreload.so
 *
 * Frames are those of ctl_proto.h. hdr.flags is the number of the client that
 * asks, so that descriptors and waiting calls are kept apart; hdr.id is
 * lklhost's own. The library's first frame is LINK_READY.
 *
 * The environment variable LINK_ENV holds two descriptors, of the socket and of
 * a memfd with struct link_shared in it, as "SOCKET:MEMFD". The library takes it
 * out of the environment, and itself out of LD_PRELOAD, before main().
 *
 * What must be known when the target is dead already lies in the memfd: the
 * kernel's log, and the account that the library writes as the process ends.
 * There, too, lklhost says whether lklrun wants to know of that end while the
 * kernel is still there (CTL_GOF_ASK_END), and then, when it has taken leave.
 */
#ifndef LKLRUN_PRELOAD_LINK_H
#define LKLRUN_PRELOAD_LINK_H

#include <stdint.h>

#define LINK_ENV	"LKLRUN_PRELOAD_LINK"
#define LINK_MAGIC	0x4b4e494e	/* changes with the layout below */

/* Types of frames beside those of ctl_proto.h. */
#define LINK_READY	0x4001	/* to lklhost: status 0, or text says why not */
#define LINK_GONE	0x4002	/* to the library: client hdr.flags has gone */
#define LINK_PANIC	0x4003	/* to lklhost: the kernel panicked, see the log */
#define LINK_WARN	0x4004	/* to lklhost: a line for the user */
#define LINK_ENDING	0x4005	/* to lklhost: the program is about to end */

#define LINK_RING	(64 * 1024)
#define LINK_ACCOUNT	(64 * 1024)
#define LINK_PATH	4096
#define LINK_PRELOAD	(2 * LINK_PATH)

/**
 * struct link_shared - what both map
 * @magic: LINK_MAGIC
 * @account_len: bytes of @account that count; 0: none was written
 * @ask_end: before it ends the process says LINK_ENDING and waits
 * @farewell: for no longer than until this is set
 * @ring_end: bytes ever written to @ring, which is the kernel's log
 * @stack: path of the stack library
 * @preload: paths of this library and of the stack's, as they stand in LD_PRELOAD
 */
struct link_shared {
	uint32_t magic;
	uint32_t account_len;
	uint32_t ask_end;
	uint32_t farewell;
	uint64_t ring_end;
	char stack[LINK_PATH];
	char preload[LINK_PRELOAD];
	char ring[LINK_RING];
	char account[LINK_ACCOUNT];
};

#endif
