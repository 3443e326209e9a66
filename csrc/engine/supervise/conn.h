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
#include "engine/common/account.h"
#include "stack/stack.h"

enum conn_kind {
	KIND_STREAM,	/* TCP, MPTCP */
	KIND_DGRAM,	/* UDP, ICMP, raw: messages with addresses */
	KIND_NETLINK,
};

struct call;
struct opt_note;
struct dgram;
struct task;

/**
 * struct chunk - bytes that the destination has not accepted yet
 * @buf: allocated while there are any
 * @off: first byte
 * @len: number of bytes
 */
struct chunk {
	char *buf;
	size_t off, len;
};

/**
 * struct conn - what all connections have: the head of struct stream and of
 *	struct dgram
 * @csrc: our end of the carrier in the loop; fd -1: none
 * @ssrc: @sfd in the stack's epoll
 * @work: continues pumping
 * @link: in the table of all connections
 * @probe: in the list of those whose closing causes no event
 * @held: calls that wait for this connection
 * @hash_next: the next one with the same hash of @id
 * @id: number, part of the carrier's name
 * @begun: it belongs to a process, see ahead.c
 * @kind: see above; it decides which structure this one is part of
 * @sfd: the stack's socket
 * @domain, @type, @proto: as requested by the target
 * @c_in, @c_out, @s_in, @s_out: the carrier (c) or the stack (s) is known to
 *	have data (in) or to accept data (out)
 * @s_many: the last read from the stack returned much data
 * @c_eof: the target sends no more
 * @s_eof: the peer sends no more
 * @c_shut: we passed @s_eof to the target
 * @s_shut: we passed @c_eof to the stack
 * @c_rdhup, @s_rdhup: the end of that stream was announced: read up to it
 * @c_err: the carrier reports an error: closed with unread data
 * @c_deaf: the target accepts no more data
 * @c_hung_up: our end accepts no more data, since the stack's connection is
 *	broken
 * @s_err: the stack announced an error
 * @s_broken: the stack reported that error
 * @s_end: the stack delivers no more data
 * @c_want_out: the loop reports when the carrier accepts data
 * @native_err: the carrier has an error, which represents @so_error or, for
 *	datagrams, the stack's error queue
 * @hup: the target's end is closed or shut down in both directions
 * @gone: found closed, see carrier_gone()
 * @watched: @sfd is in the stack's epoll
 * @reset_out: reset the connection: the target closed it with unread data, or
 *	the run ends too soon
 * @linger: SO_LINGER is set, so that close() would wait
 * @abortive: SO_LINGER is set to 0, so that closing resets the connection
 * @dead: freed, but the memory stays until the end of the turn
 * @natively_connected: the datagram carrier is connected to our end
 * @c_pri, @s_pri: the carrier or the stack has urgent data
 * @s_urgent: the stack had urgent data
 * @so_error: error that SO_ERROR must report once
 * @pid, @tfd: process and descriptor in which the carrier was last seen
 * @maker, @comm: the process that created it, and its name at that time
 * @is_mptcp: @sfd is an MPTCP socket although the target requested TCP
 * @was_open: data may have been transferred
 * @hosted: @sfd is a socket of the host's network, see hostnet.c
 * @told: a connect has reported that an earlier one failed
 * @notes: options set on it, newest first; @n_notes of them
 * @to_stack, @to_target: bytes that the destination has not accepted yet
 * @bytes_in, @bytes_out: received and sent by the target
 * @carrier_ino: inode of the target's end
 * @stack_ino, @ino_fd: cached inode in the stack, and the descriptor it belongs
 *	to
 * @reachable: it listens or is a bound datagram socket, and is in @probe
 * @acct: account of its creator; already added to it: @told_in and @told_out
 *	bytes, @told_kind
 * @peer: the peer's address; AF_UNSPEC: none
 * @accepted: it comes from accept()
 * @mptcp_asked: it should have become MPTCP
 * @tcp_by_option: it became TCP because of an option
 * @roomy: its carrier holds more than others, see pump_in.c
 */
struct conn {
	struct source csrc;
	struct stack_src ssrc;
	struct work work;
	struct list link;
	struct list probe;
	struct list held;
	struct conn *hash_next;
	uint32_t id;
	bool begun;
	enum conn_kind kind;
	int sfd;
	int domain, type, proto;
	bool c_in, c_out, s_in, s_out, s_many;
	bool c_eof, s_eof, c_shut, s_shut;
	bool c_want_out;
	bool c_pri, s_pri, s_urgent;
	bool c_rdhup, c_err, c_deaf, c_hung_up, s_rdhup, s_err, s_broken, s_end;
	bool native_err;
	bool hup, gone, watched, reset_out, linger, abortive, dead;
	bool natively_connected;
	bool roomy;
	bool reachable;
	int so_error;
	pid_t pid, maker;
	int tfd;
	char comm[16];
	uint64_t carrier_ino, stack_ino;
	int ino_fd;
	bool is_mptcp, was_open, told, hosted;
	struct opt_note *notes;
	unsigned int n_notes;
	struct chunk to_stack, to_target;
	uint64_t bytes_in, bytes_out;
	struct account *acct;
	struct sockaddr_in6 peer;
	uint64_t told_in, told_out;
	enum account_kind told_kind;
	bool accepted, mptcp_asked, tcp_by_option;
};

/**
 * struct engine_ops - what files below call of those above; engine_init() sets it
 * @carrier_event: an event of a stream's carrier
 * @pump: continue pumping a connection
 * @dgram_gone: the carrier of a datagram socket is closed
 * @task_gone: a thread of the target is forgotten
 * @task_ended: a process or thread has ended: its descriptors may be closed now
 */
struct engine_ops {
	void (*carrier_event)(struct source *src, uint32_t events);
	void (*pump)(struct work *w);
	void (*dgram_gone)(struct dgram *d);
	void (*task_gone)(const struct task *t);
	void (*task_ended)(void);
};

extern const struct engine_ops *engine_ops;

/* conns.c */
extern struct list conns;

struct conn *conn_make(enum conn_kind kind);
void conn_unmake(struct conn *conn);
void conn_unhash(struct conn *conn);
struct conn *conn_find(uint32_t id);
uint32_t conn_renumber(struct conn *conn);
uint64_t conn_stack_ino(struct conn *conn);

/* conn.c */
void conn_begin(struct conn *conn, struct call *c, int sfd, int domain,
		int type, int proto);
struct conn *conn_new(struct call *c, enum conn_kind kind, int sfd, int domain,
		      int type, int proto);
void conn_free(struct conn *conn);
void conn_probe_add(struct conn *conn);
int conn_watch(struct conn *conn, uint32_t events);
void conn_event(const struct conn *conn, const char *what);
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

/* notes.c */
void notes_add(struct conn *conn, int level, int name, const void *value,
	       int len);
void notes_drop(struct conn *conn);
void notes_replay(const struct conn *conn, int sfd);

/* Counters of connections and their data. */
struct conn_stats {
	uint64_t made, refused, open, accepted, connected, resets, fallbacks, bytes_in,
		 strays, bytes_out, dgrams_in, dgrams_out, dgrams_dropped, swept;
};

extern struct conn_stats conn_stats;

#endif
