/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The link between lklhost and the kernel inside the target, with the engine
 * "preload".
 *
 * Theory of operation
 *
 * lklhost remains the control server. It forwards requests that only the kernel
 * can answer to the library in the target's process, over a socket. The target
 * holds the other end:
 *
 *	lklctl, lklrun <- ctl_proto.h -> lklhost <- this -> liblklpreload.so
 *
 * Frames have the format of ctl_proto.h. hdr.flags is the number of the
 * requesting client, which keeps descriptors and waiting calls of clients
 * apart. lklhost chooses hdr.id. The library's first frame is LINK_READY.
 *
 * The environment variable LINK_ENV holds two descriptors as "SOCKET:MEMFD":
 * the socket and a memfd with a struct link_shared. Before main(), the library
 * removes this variable from the environment, and itself from LD_PRELOAD.
 *
 * The memfd holds everything that lklhost needs after the target's death: the
 * kernel's log, and the account that the library writes when the process ends.
 * In addition, lklhost sets two flags there. The first requests a report to
 * lklrun of the end while the kernel still runs (CTL_GOF_ASK_END). The second
 * means that lklrun has signed off.
 */
#ifndef LKLRUN_PRELOAD_LINK_H
#define LKLRUN_PRELOAD_LINK_H

#include <stdint.h>

#define LINK_ENV	"LKLRUN_PRELOAD_LINK"
#define LINK_MAGIC	0x4b4e494e	/* version of the layout below */

/* Frame types in addition to those of ctl_proto.h. */
#define LINK_READY	0x4001	/* to lklhost: status 0 or an error text */
#define LINK_GONE	0x4002	/* to the library: client hdr.flags is gone */
#define LINK_PANIC	0x4003	/* to lklhost: kernel panic, see the log */
#define LINK_WARN	0x4004	/* to lklhost: a line for the user */
#define LINK_ENDING	0x4005	/* to lklhost: the program is about to end */
#define LINK_REFUSED	0x4006	/* to lklhost: text of CTL_EV_REFUSED */

#define LINK_RING	(64 * 1024)
#define LINK_ACCOUNT	(64 * 1024)
#define LINK_PATH	4096
#define LINK_PRELOAD	(2 * LINK_PATH)

/**
 * struct link_shared - the memory that lklhost and the library share
 * @magic: LINK_MAGIC
 * @account_len: valid bytes of @account; 0: none was written
 * @ask_end: the process must send LINK_ENDING before it ends, and wait
 * @farewell: ends that wait
 * @ring_end: bytes ever written to @ring, which holds the kernel's log
 * @stack: path of the stack library
 * @preload: paths of this library and of the stack's, as in LD_PRELOAD
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
