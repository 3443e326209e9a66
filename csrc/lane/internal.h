/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the files of the library that puts large writes of a program into memory
 * shared with lklhost. See ../include/lane.h for the rules of order.
 *
 * Theory of operation
 *
 * The library stands in front of the C library's write and its kind (calls.c).
 * What is small, and whatever is no large write to a carrier with a lane, goes on
 * to the next definition, which is a cancellation point and sets errno as ever; so
 * does the rest of what the ring does not take. So all errors come from the
 * carrier, and the library itself has none to report: its own calls are raw ones,
 * which do not touch errno.
 *
 * Everything may be called in a signal handler: nothing is allocated but pages,
 * nobody waits for a lock. The memory is shared by fork, as the socket is.
 */
#ifndef LANE_INTERNAL_H
#define LANE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "arch.h"
#include "lane.h"

#define HIDDEN		__attribute__((visibility("hidden")))
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

#define load(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define store(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)
#define fence()		__atomic_thread_fence(__ATOMIC_SEQ_CST)

/** swap - compare-and-swap of a word */
static inline bool swap(uint32_t *p, uint32_t old, uint32_t new)
{
	return __atomic_compare_exchange_n(p, &old, new, false,
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

#define RAW(nr, ...)	RAW_(nr, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define RAW_(nr, a, b, c, d, e, f, ...)	\
	raw6(SYS_##nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/** cpu_relax - let the other thread of this core have it */
static inline void cpu_relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#else
	__asm__ __volatile__("yield");
#endif
}

/**
 * struct op - a call of the program's
 * @call: which
 * @flags: of send
 * @iov: where the bytes are, @cnt of them, @len bytes in all
 */
struct op {
	enum {
		OP_WRITE, OP_WRITEV, OP_SEND, OP_SENDTO,
	} call;
	int fd;
	int flags;
	const struct iovec *iov;
	int cnt;
	size_t len;
};

/* States of an entry. */
#define E_FREE	0
#define E_SEEN	1	/* large writes are counted */
#define E_BUSY	2	/* somebody changes it */
#define E_LANE	3	/* it has a lane */
#define E_NEVER	4	/* it will have none */

/**
 * struct entry - what is known of a socket
 * @ino: its inode number
 * @state: E_*
 * @seen: large writes so far
 * @users: threads that use @lane now
 * @vain: times in succession that looking for room was in vain
 */
struct entry {
	uint64_t ino;
	uint32_t state;
	uint32_t seen;
	uint32_t users;
	uint32_t vain;
	struct lane *lane;
} __attribute__((aligned(64)));

/* calls.c */
ssize_t op_native(const struct op *op) HIDDEN;
ssize_t op_rest(const struct op *op, size_t off, size_t max) HIDDEN;

/* table.c */
extern uint32_t lanes HIDDEN;		/* entries with a lane */
extern uint32_t bell_weight HIDDEN;	/* what SIOCOUTQ says of one byte, 0: not known */
extern bool many_cpus HIDDEN;		/* this process may run on several */
uint64_t sock_ino(int fd) HIDDEN;
struct entry *lane_get(uint64_t ino) HIDDEN;
void lane_put(struct entry *e) HIDDEN;
void lane_note(int fd, uint64_t ino) HIDDEN;

/* tools.c */
int carrier_left(int fd) HIDDEN;
uint64_t now_ns(void) HIDDEN;
void signals_off(uint64_t *old) HIDDEN;
void signals_on(const uint64_t *old) HIDDEN;
void op_gather(const struct op *op, size_t off, char *to, size_t n) HIDDEN;
void lane_kick(int fd) HIDDEN;

/* tx.c */
ssize_t lane_write(const struct op *op) HIDDEN;

#endif
