/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lane: what a program sends, in memory that it shares with lklhost.
 *
 * Theory of operation
 *
 * The carrier, a unix socket, stays what the program has: it says when there is
 * something to read or room to write, it blocks, it ends. A library in the program
 * (lane/) puts large writes into a ring, which saves the carrier's copies and its
 * packets. Who does not use the library, or not always - a child without it, a
 * program that makes system calls itself - writes to the carrier as ever, in the right
 * order, because of the rules below. A lane is about a socket, not a descriptor: it
 * is found by the carrier's inode.
 *
 * From the program to the stack. A writer may put bytes into the ring only while
 * nothing that was written before is left in the carrier: SIOCOUTQ says 0, or what
 * one byte makes it say while a bell is out. A bell is one byte of the stream, written
 * to the carrier to wake lklhost, in between of the bytes that are in the ring:
 * @tx_bell says where. So lklhost takes the ring up to the bell, the bell, the rest of the
 * ring, and only then what else is in the carrier; and of that only what was there
 * before it found the ring empty (FIONREAD, then look, then read so many).
 * When the ring is full, the writer writes to the carrier, which blocks or says
 * EAGAIN as it should; lklhost leaves it there until the ring is empty.
 *
 * From the stack to the program all bytes go by the carrier: a second ring was tried,
 * and saved nothing there, for that way has as many copies.
 *
 * All positions are counts of bytes, from anywhere, that wrap at 2^32; the ring's
 * size is a power of two.
 * Whatever the program writes here, lklhost only loses this connection by it.
 */
#ifndef LKLHOST_LANE_H
#define LKLHOST_LANE_H

#include <stdint.h>

#define LANE_TX_SIZE	(512u << 10)
/* Writes of fewer bytes go by the carrier. */
#define LANE_MIN	(16u << 10)

/* What @tx_bell is while there is none. */
#define LANE_NO_BELL	(~UINT64_C(0))

/**
 * struct lane - the first page of the shared memory
 * @gone: the connection is closed: nobody uses this any more
 *
 * @tx_off: lklhost takes no more: write to the carrier, which says why
 * @tx_lock: 0, or the thread that writes to the ring; who finds it taken writes to
 *	the carrier. It is never waited for, so a writer may be killed at any time.
 * @tx_head: bytes ever put into the ring (writer)
 * @tx_tail: bytes ever taken (lklhost)
 * @tx_bell: LANE_NO_BELL, or @tx_head as it was when a bell was rung. The writer
 *	sets it, before it writes the byte; lklhost clears it when a byte is there, and
 *	then reads that. A writer asks first what is in the carrier (SIOCOUTQ) and looks
 *	here then: if it is still set, nothing had been read when it asked, so the one
 *	write that was left is the bell. A byte that another writer has put in front of
 *	the bell at that moment is read in its place and goes to its place; the bell's own
 *	is one of the carrier's then, and as @tx_bell is clear nothing goes into the ring
 *	before it is read. Either way all bytes go on, each writer's in order.
 * @tx_idle: lklhost has found the ring empty and looks no more: the next writer
 *	sets it to 0 and rings; who finds it set when all is in the ring already asks for
 *	a look (LANE_KICK). lklhost sets it, then looks once more.
 */
struct lane {
	uint32_t gone;

	uint32_t tx_off;
	uint32_t tx_lock __attribute__((aligned(64)));
	uint32_t tx_head;
	uint64_t tx_bell;
	uint32_t tx_tail __attribute__((aligned(64)));
	uint32_t tx_idle;
};

/* Where the ring is, from the beginning of the shared memory. */
#define LANE_TX_AT	4096u
#define LANE_SIZE	(LANE_TX_AT + LANE_TX_SIZE)

/*
 * Calls on the carrier: ioctl(fd, LANE_CALL(nr), 0). The upper half of the second
 * argument is nothing to the kernel and a matter for the filter and lklhost.
 */
#define LANE_MAGIC	UINT64_C(0x6c616e65)
#define LANE_CALL(nr)	(LANE_MAGIC << 32 | (nr))
#define LANE_ATTACH	0x89e9u	/* a descriptor of the shared memory, or -errno */
#define LANE_KICK	0x89eau	/* the ring wants a look */
/* And the carrier's own SIOCOUTQ, which the filter lets through in this form. */

#endif
