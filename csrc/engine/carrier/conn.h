/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Connections: a socket of the stack, and the carrier that represents it in the
 * target.
 */
#ifndef LKLHOST_CONN_H
#define LKLHOST_CONN_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/common/account.h"
#include "stack/stack.h"

enum conn_kind {
	KIND_STREAM,	/* TCP, MPTCP */
	KIND_DGRAM,	/* UDP, ICMP, raw: messages with addresses */
	KIND_NETLINK,
};

struct call;
struct sockopt_note;
struct dgram;
struct stream;
struct task;

/**
 * @buf: buffer, allocated only while it holds bytes
 * @off: offset of the first byte
 * @len: number of bytes
 * @len: number of bytes
 */
struct chunk {
	char *buf;
	size_t off, len;
};

#define KEPT_MAX	(16 << 20)	/* bytes in all chunks, see pump_most() */

char *chunk_add(struct chunk *ch, size_t len);
int chunk_keep(struct chunk *ch, const char *data, size_t len);
void chunk_sent(struct chunk *ch, size_t n);
char *chunk_take(struct chunk *ch);

/*
 * Bits of the two ends, and facts of a connection. The C_* bits describe the
 * carrier, the end in the target; the S_* bits describe the other end, the
 * stack's socket. Both ends report edges, so the IN and OUT bits store the last
 * known state.
 *
 * Datagram and netlink sockets use only the bits marked with a "d". stream.h
 * lists the bits that a stream may have in each state.
 */
enum carrier_bits {
	C_IN = 1 << 0,		/* d: has data for us */
	C_OUT = 1 << 1,		/* accepts data */
	C_WANT_OUT = 1 << 2,	/* the loop reports when it accepts data */
	C_PRI = 1 << 3,		/* has urgent data */
	C_RDHUP = 1 << 4,	/* announced its end; unread data may remain */
	C_EOF = 1 << 5,		/* the target sends no more */
	C_SHUT = 1 << 6,	/* we passed S_END to the target */
	C_ERR = 1 << 7,		/* has an error: closed with unread data */
	C_NO_READER = 1 << 8,	/* the target accepts no more data */
	C_HUNG_UP = 1 << 9,	/* our end accepts no more data, see shutdown_reset() */
	C_HUP = 1 << 10,	/* d: closed, or shut down in both directions */
	C_GONE = 1 << 11,	/* d: found to be closed, see carrier_gone() */
	C_FAILED = 1 << 12,	/* d: has an error that we set because of so_error
				 * or the stack's error queue */
	C_CONNECTED = 1 << 13,	/* d, datagrams only: connected to our end */
	C_BIGBUF = 1 << 14,	/* has a larger buffer, see pump_in.c */
};

enum stack_bits {
	S_IN = 1 << 0,		/* d: has data, an error or end-of-file to read */
	S_OUT = 1 << 1,		/* d: accepts data */
	S_BULK = 1 << 2,	/* the last read returned much data */
	S_PRI = 1 << 3,		/* has urgent data */
	S_URGENT = 1 << 4,	/* had urgent data */
	S_RDHUP = 1 << 5,	/* announced its end; unread data may remain */
	S_EOF = 1 << 6,		/* the peer sends no more */
	S_SHUT = 1 << 7,	/* we passed C_EOF to the stack */
	S_ERR = 1 << 8,		/* announced an error */
	S_BROKEN = 1 << 9,	/* returned that error */
	S_END = 1 << 10,	/* delivers no more data */
	S_WATCHED = 1 << 11,	/* d: in the stack's epoll */
};

enum facts {
	F_STARTED = 1 << 0,	/* it belongs to a process, see carrier_pool.c */
	F_DEAD = 1 << 1,	/* freed, but the memory stays for this turn */
	F_REACHABLE = 1 << 2,	/* is a listening or a bound datagram socket, and
				 * is in the probe list */
	F_HOSTED = 1 << 3,	/* sfd is a socket of the host, see hostnet.c */
	F_LINGER = 1 << 4,	/* SO_LINGER is set: close() would wait */
	F_ABORTIVE = 1 << 5,	/* SO_LINGER is 0: close() sends a RST */
	F_RESET = 1 << 6,	/* must be reset: the target left data unread, or
				 * the run ends too soon */
	F_MPTCP = 1 << 7,	/* sfd is MPTCP; the target requested TCP */
	F_MPTCP_ASKED = 1 << 8,	/* MPTCP was requested for it */
	F_TCP_BY_OPTION = 1 << 9, /* it became TCP because of a socket option */
	F_ACCEPTED = 1 << 10,	/* it comes from accept() */
	F_WAS_OPEN = 1 << 11,	/* data may have been transferred */
	F_REPORTED = 1 << 12,	/* a connect has reported that an earlier one
				 * failed */
	F_SERVED = 1 << 13,	/* is a netlink socket of a served process */
	F_SPACE = 1 << 14,	/* is not in the run's network namespace, see space.c */
};

/** flag_set - set or clear @bits in @word */
static inline void flag_set(uint16_t *word, unsigned int bits, bool on)
{
	*word = (uint16_t)(on ? *word | bits : *word & ~bits);
}

/**
 * struct conn - the common part of all connections: the first member of
 *	struct stream and of struct dgram
 * @csrc: our end of the carrier, in the loop; its fd is -1 if there is none
 * @ssrc: @sfd in the stack's epoll
 * @work: continues pumping
 * @link: entry in the list of all connections
 * @probe: entry in the list of connections whose close causes no event
 * @held: calls that wait for this connection
 * @hash_next, @ino_next: the next connection with the same hash of @id, of
 *	@carrier_ino
 * @id: number, part of the carrier's name
 * @kind: decides whether this is part of a struct stream or struct dgram
 * @carrier: C_*
 * @stack: S_*
 * @facts: F_*
 * @sfd: the stack's socket
 * @domain, @type, @proto: as requested by the target
 * @so_error: error that SO_ERROR must report once
 * @pid, @tfd: process and descriptor in which the carrier was last seen
 * @maker, @comm: the process that created it, and its name at that time
 * @carrier_ino, @carrier_cookie: inode number and SO_COOKIE of the target's end
 * @listed, @seen: see carriers_find_gone()
 * @stack_ino, @ino_fd: cached inode number in the stack, and the descriptor
 *	that it belongs to
 * @notes: socket options set on it, newest first; @n_notes is their number
 * @to_stack, @to_target: bytes that the destination has not accepted yet
 * @bytes_in, @bytes_out: received and sent by the target
 * @acct: account of its creator; it already includes @reported_in and @reported_out
 *	bytes and counts the connection as @told_kind
 * @peer: the peer's address; AF_UNSPEC if there is none
 */
struct conn {
	struct source csrc;
	struct stack_src ssrc;
	struct work work;
	struct list link;
	struct list probe;
	struct held_list held;
	struct conn *hash_next, *ino_next;
	uint32_t id;
	enum conn_kind kind;
	uint16_t carrier, stack, facts;
	int sfd;
	int domain, type, proto;
	int so_error;
	pid_t pid, maker;
	int tfd;
	char comm[16];
	uint64_t carrier_ino, carrier_cookie, stack_ino;
	bool listed, seen;
	int ino_fd;
	struct sockopt_note *notes;
	unsigned int n_notes;
	struct chunk to_stack, to_target;
	uint64_t bytes_in, bytes_out;
	struct account *acct;
	struct sockaddr_in6 peer;
	uint64_t reported_in, reported_out;
	enum account_kind told_kind;
};

/**
 * struct conn_ops - functions of higher folders, for streams and datagrams
 * @carrier_event: handles an event of a stream's carrier
 * @pump: continues pumping a connection
 * @outlives: takes over the stack's socket of a closed stream, if its peer may
 *	still send; returns whether it has
 * @fetch: moves a message of a datagram socket from the stack to its carrier
 * @failed: handles an error that the stack returned for a datagram socket
 * @closed: handles that the carrier of a datagram socket is closed
 * @netlink_closed: handles that a netlink socket of the stack is closed
 */
struct conn_ops {
	void (*carrier_event)(struct source *src, uint32_t events);
	void (*pump)(struct work *w);
	bool (*outlives)(const struct stream *s);
	int (*fetch)(struct dgram *d);
	void (*failed)(struct dgram *d, int err);
	void (*closed)(struct dgram *d);
	void (*netlink_closed)(const struct conn *conn);
};

extern const struct conn_ops *conn_ops;

/* conn_table.c */
extern struct list conns;

struct conn *conn_make(enum conn_kind kind);
void conn_unmake(struct conn *conn);
void conn_unhash(struct conn *conn);
struct conn *conn_by_ino(uint64_t ino);
struct conn *conn_of_carrier(int fd);
void conn_has_carrier(struct conn *conn);
uint32_t conn_free_number(void);
void conn_renumber(struct conn *conn, uint32_t id);
uint64_t conn_stack_ino(struct conn *conn);

/* conn.c */
long stack_socket(int domain, int type, int proto, bool *is_mptcp);
void conn_begin(struct conn *conn, struct call *c, int sfd, int domain,
		int type, int proto);
struct conn *conn_new(struct call *c, enum conn_kind kind, int sfd, int domain,
		      int type, int proto);
void conn_free(struct conn *conn);
void conn_probe_add(struct conn *conn);
int conn_watch(struct conn *conn, uint32_t events);
void conn_event(const struct conn *conn, const char *what);
void conn_listens(const struct conn *conn, bool start);
void conn_probe_del(struct conn *conn);
void conn_reachable(struct conn *conn);
void conn_sweep(void);
void conn_sweep_few(enum conn_kind kind);
void conn_sweep_many(void);
void conn_sweep_soon(void);
void conn_stop(void);

/* account.c */
void account_begin(struct conn *conn, struct account *a);
void account_peer(struct conn *conn);
void account_end(struct conn *conn);
void account_fold_all(void);

/* sockopt_log.c */
void sockopt_log_add(struct conn *conn, int level, int name, const void *value,
		     int len);
void sockopt_log_drop(struct conn *conn);
void sockopt_log_replay(const struct conn *conn, int sfd);

/* Counters of connections and their data. */
struct conn_stats {
	uint64_t made, refused, open, accepted, connected, resets, fallbacks, bytes_in,
		 strays, bytes_out, dgrams_in, dgrams_out, dgrams_dropped, swept,
		 kept;
};

extern struct conn_stats conn_stats;

#endif
