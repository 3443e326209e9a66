// SPDX-License-Identifier: GPL-2.0-only
/*
 * Datagrams: UDP, ICMP and raw sockets. Netlink sockets use the same code
 * paths.
 *
 * Theory of operation
 *
 * The target holds a datagram carrier. A send with an address is a notified
 * call, and the engine sends the datagram in the stack at once. When the stack
 * receives a datagram, the engine sends it to the carrier from a socket whose
 * name represents the datagram's origin (peer.c). The kernel itself thus
 * handles read and poll, and recvfrom finds the address by that name.
 *
 * The carrier of a connected socket is connected to our end. The socket's
 * datagrams come from our end, and a plain send() of the target goes to it. All
 * of these datagrams share one name, so such a carrier holds only datagrams of
 * one origin at a time. The origin mostly changes with the ancillary data,
 * which most programs do not request.
 *
 * If the queue of a carrier is full, the datagrams wait in a chunk, and no more
 * are received from the stack. The stack then drops datagrams as for any slow
 * reader. Our end, connected to the carrier, reports EPOLLOUT when there is room
 * again, as does the socket of a peer (peer.c) whose send buffer was full. Only
 * if all sockets of peers are in use does a timer trigger the retry.
 *
 * Datagrams are moved in batches: those of one size from the same origin with
 * one call into the stack (dgram_run.c), and a batch with one call of the host
 * (recvmmsg, sendmmsg). A batch keeps its order, and what does not fit waits as
 * a whole, so that nothing overtakes it.
 *
 * A netlink carrier is a connected SOCK_SEQPACKET pair. Its messages have one
 * origin at a time: the kernel, and the multicast group of the message.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/rights.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/space.h"
#include "engine/dgram/dgram.h"
#include "engine/dgram/dgram_carrier.h"
#include "engine/dgram/peer.h"
#include "stack/stack.h"

#define DGRAMS_IN	256	/* the same, to the target: as many as the stack
				 * receives in one turn of the loop */
#define MANY		32	/* datagrams in one turn that are worth merging */
#define RETRY_NS	1000000ull
#define FLUSH_ROOM	(8 << 20)	/* more than a carrier holds */

static void retry_due(struct timer *t);

/* The message that is being moved. */
static char msg_buf[DGRAM_MAX] __attribute__((aligned(4096)));
static struct timer retry_timer = TIMER_INIT(retry_timer, retry_due);

/** retry_due - retry when a socket of a peer may be free */
static void retry_due(struct timer *t)
{
	(void)t;
	dgram_retry();
}

/**
 * keep - store @buf, after its origin, because the carrier is full
 *
 * If much is stored already, the datagrams are lost, as from a full buffer.
 */
static void keep(struct dgram *d, const char *buf, size_t len, size_t size,
		 const struct origin *o)
{
	struct conn *conn = &d->conn;
	struct chunk *ch = &conn->to_target;

	if (conn_stats.kept >= KEPT_MAX || !chunk_add(ch, sizeof(*o) + len)) {
		conn_stats.dgrams_dropped++;
		return;
	}
	memcpy(ch->buf, o, sizeof(*o));
	memcpy(ch->buf + sizeof(*o), buf, len);
	d->kept_size = size;
	dgram_our_end(d);
	dgram_want_room(conn, true);
}

/**
 * put - send datagrams to the target, or store them
 * @len: length of @buf
 * @size: size of a datagram; the last one may be shorter
 *
 * Returns false if no more messages should be received: the carrier is full, or
 * @conn is gone.
 */
static bool put(struct dgram *d, const char *buf, size_t len, size_t size,
		const struct origin *o)
{
	struct conn *conn = &d->conn;
	size_t at = 0;

	do {
		ssize_t n = dgram_put(d, buf + at, len - at, size, o);

		switch (n) {
		case -ENOBUFS:
			timer_arm(&retry_timer, now_ns() + RETRY_NS);
			/* fall through */
		case -EAGAIN:
			keep(d, buf + at, len - at, size, o);
			return false;
		case -ECONNREFUSED:
			if (conn->kind == KIND_DGRAM && carrier_gone(conn)) {
				dgram_gone(d);
				return false;
			}
			break;
		}
		if (n < 0) {
			conn_stats.dgrams_dropped++;
			n = (ssize_t)(len - at < size ? len - at : size);
		} else {
			conn_stats.dgrams_in += size ? ((size_t)n + size - 1) / size : 1;
		}
		at += (size_t)n;
	} while (at < len);
	return true;
}

/** put_kept - retry the stored datagrams; false if some could not be sent */
static bool put_kept(struct dgram *d)
{
	struct conn *conn = &d->conn;
	size_t len = conn->to_target.len - sizeof(struct origin);
	char *buf = chunk_take(&conn->to_target);
	struct origin o;
	bool ok;

	memcpy(&o, buf, sizeof(o));
	ok = put(d, buf + sizeof(o), len, d->kept_size, &o);
	free(buf);
	if (ok)
		dgram_want_room(conn, false);
	return ok;
}

/** dgram_kick - send the stored message, because the target has made room */
void dgram_kick(struct dgram *d)
{
	struct conn *conn = &d->conn;

	if (conn->to_target.len && put_kept(d))
		work_queue(&conn->work);
}

/**
 * room - buffer size for receiving the next message
 *
 * A netlink dump arrives in messages as large as the largest buffer ever passed
 * to a receive call (max_recvmsg_len, net/netlink/af_netlink.c). Many programs
 * have only a buffer of one page, so our buffer must not be larger than the
 * next message.
 */
static size_t room(struct dgram *d)
{
	struct conn *conn = &d->conn;
	long n;

	if (conn->kind != KIND_NETLINK)
		return DGRAM_MAX;
	n = st_recvfrom(conn->sfd, msg_buf, 0,
			MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC, NULL, NULL);
	return n < 0 ? 0 : n > DGRAM_MAX ? DGRAM_MAX : (size_t)n;
}

/**
 * pull_one - move one message from the stack to the carrier
 *
 * Returns the number of datagrams in it, 0 if not all of them could be sent, or
 * a negative errno of the stack.
 */
static long pull_one(struct dgram *d)
{
	struct conn *conn = &d->conn;
	union {
		struct cmsghdr align;
		char buf[512];
	} ctl;
	struct sockaddr_storage ss;
	struct iovec iov = { msg_buf, room(d) };
	struct msghdr mh = {
		.msg_name = &ss, .msg_namelen = sizeof(ss),
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf),
	};
	struct origin o;
	size_t size;
	long n = st_recvmsg(conn->sfd, &mh, MSG_DONTWAIT), count;
	bool all;

	if (n < 0)
		return n;
	conn->bytes_in += (uint64_t)n;
	inode_map_translate(conn, msg_buf, (size_t)n);
	size = dgram_run_split(d, &mh, (size_t)n);
	count = size ? (long)(((size_t)n + size - 1) / size) : 1;
	origin_set(&o, &mh);
	all = put(d, msg_buf, (size_t)n, size, &o);
	if (conn->kind == KIND_DGRAM && !(conn->facts & F_DEAD))
		dgram_run_received(d, size, (unsigned int)count);
	return all ? count : 0;
}

/**
 * dgram_fetch - move a message of the stack to the carrier, for a call that
 * found the carrier empty
 *
 * Returns a negative errno of the stack.
 */
int dgram_fetch(struct dgram *d)
{
	long n = pull_one(d);

	return n < 0 ? (int)n : 0;
}

/**
 * pull - move messages from the stack to the carrier; true if there may be more
 */
static bool pull(struct dgram *d)
{
	struct conn *conn = &d->conn;
	long i = 0, n;

	while (i < DGRAMS_IN && (conn->stack & S_IN)) {
		if (conn->to_target.len && !put_kept(d))
			return false;
		n = pull_one(d);
		if (!n)
			return false;
		if (n == -EAGAIN)
			conn->stack &= ~S_IN;
		else if (n < 0)
			dgram_failed(d, (int)-n);
		i += n > 0 ? n : 1;
	}
	if (i > MANY)
		dgram_run_many(d);
	return conn->stack & S_IN;
}

/**
 * plain_send - send a message of an unknown sender to the stack, see rights.c
 */
static long plain_send(const struct conn *conn, const struct iovec *v)
{
	uint64_t caps = conn->facts & F_SERVED ? 0 : RIGHTS_ALL, had;
	long n = rights_set(caps, &had);

	space_references(NULL, conn, v->iov_base, v->iov_len);
	if (!n)
		n = st_sendto(conn->sfd, v->iov_base, v->iov_len,
			      MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	rights_set(had, NULL);
	return n;
}

/**
 * netlink_refuse - answer a request that did not reach the stack
 * @err: a negative errno
 *
 * Otherwise a program that has sent it by write() waits for the answer forever.
 */
static void netlink_refuse(struct dgram *d, const struct iovec *v, int err)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK };
	struct origin kernel = { .namelen = sizeof(nl) };
	socklen_t len = sizeof(nl);
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
	} answer = { .h = { .nlmsg_len = sizeof(answer), .nlmsg_type = NLMSG_ERROR } };

	if (v->iov_len < sizeof(answer.e.msg) || d->conn.to_target.len)
		return;
	memcpy(kernel.name, &nl, sizeof(nl));
	st_getsockname(d->conn.sfd, (struct sockaddr *)&nl, &len);
	memcpy(&answer.e.msg, v->iov_base, sizeof(answer.e.msg));
	answer.e.error = err;
	answer.h.nlmsg_seq = answer.e.msg.nlmsg_seq;
	answer.h.nlmsg_pid = nl.nl_pid;
	put(d, (char *)&answer, sizeof(answer), sizeof(answer), &kernel);
}

/**
 * forward - send a message of a plain send() to the stack
 * @err: set if the stack reports an error
 *
 * Returns false if the message must wait.
 */
static bool forward(struct dgram *d, const struct iovec *v, int *err)
{
	struct conn *conn = &d->conn;
	bool netlink = conn->kind == KIND_NETLINK;
	long n = netlink && memory_full() ? -ENOBUFS : plain_send(conn, v);

	if (n == -EAGAIN)
		return false;
	if (n < 0 && netlink)
		netlink_refuse(d, v, (int)n);
	if (n < 0 && conn->kind == KIND_DGRAM) {
		/*
		 * This may be the error of an earlier datagram, which is
		 * reported only once.
		 */
		*err = (int)-n;
		n = plain_send(conn, v);
	}
	if (n < 0) {
		conn_stats.dgrams_dropped++;
	} else {
		conn_stats.dgrams_out++;
		conn->bytes_out += (uint64_t)n;
	}
	return true;
}

/**
 * forward_run - send as many messages as possible with one call to the stack
 * @n: number of messages in @v; set to the number of those sent
 * @err: set if the stack reports an error
 *
 * Returns false if the messages must wait.
 */
static bool forward_run(struct dgram *d, struct iovec *v, size_t *n, int *err)
{
	size_t run = dgram_run_length(d, v, *n), i;
	int ret = run > 1 ? dgram_run_send(d, v, run) : -EINVAL;

	if (ret == -EAGAIN)
		return false;
	*n = 1;
	if (ret) {
		/* An error of an earlier datagram was reported, see forward(). */
		if (run > 1 && !(d->runs & D_NO_GSO))
			*err = -ret;
		return forward(d, v, err);
	}
	for (i = 0; i < run; i++)
		d->conn.bytes_out += v[i].iov_len;
	conn_stats.dgrams_out += run;
	*n = run;
	return true;
}

/**
 * forward_all - send messages to the stack, and store those that must wait
 * @kept: the messages are the first of those that are stored
 *
 * Returns false if some must wait, or the connection is gone.
 */
static bool forward_all(struct dgram *d, struct iovec *v, size_t n, bool kept)
{
	struct conn *conn = &d->conn;
	size_t at, sent, len = 0;
	bool waits = false;
	int err = 0;

	for (at = 0; at < n && !waits; at += sent) {
		sent = n - at;
		if (!forward_run(d, v + at, &sent, &err)) {
			waits = true;
			sent = 0;
		}
	}
	if (kept) {
		while (at)
			len += sizeof(size_t) + v[--at].iov_len;
		chunk_sent(&conn->to_stack, len);
	} else if (waits) {
		dgram_store_sent(conn, v + at, n - at);
	}
	if (waits && conn->to_stack.buf)
		st_rewatch(conn->sfd, &conn->ssrc, EPOLLIN | EPOLLOUT);
	/* Last, because it can send further messages, or free the connection. */
	if (err)
		dgram_failed(d, err);
	return !(conn->facts & F_DEAD) && !(waits && conn->to_stack.buf);
}

/** push_netlink - push() for netlink, whose messages are larger */
static bool push_netlink(struct dgram *d)
{
	struct conn *conn = &d->conn;
	int i;

	for (i = 0; i < DGRAMS && (conn->carrier & C_IN); i++) {
		struct iovec v = { msg_buf, 0 };
		ssize_t n = recv(conn->csrc.fd, msg_buf, DGRAM_MAX,
				 MSG_DONTWAIT);

		if (n <= 0) {
			conn->carrier &= ~C_IN;
			return false;
		}
		v.iov_len = (size_t)n;
		if (!forward_all(d, &v, 1, false))
			return false;
	}
	return conn->carrier & C_IN;
}

/**
 * push - forward messages that the target sent natively
 *
 * Returns true if there may be more.
 */
static bool push(struct dgram *d)
{
	struct conn *conn = &d->conn;
	struct iovec v[DGRAMS];

	if (conn->to_stack.buf)
		return forward_all(d, v, dgram_stored_sent(&conn->to_stack, v), true);
	if (conn->kind == KIND_NETLINK)
		return push_netlink(d);
	if (!(conn->carrier & C_IN) || conn->csrc.fd < 0)
		return false;
	return forward_all(d, v, dgram_take(conn, v), false) &&
	       ((conn->carrier & C_IN) || conn->to_stack.buf);
}

/**
 * dgram_flush - forward natively sent messages before the current call
 *
 * An option such as IP_TTL applies to the datagrams that follow it.
 */
void dgram_flush(struct dgram *d)
{
	struct conn *conn = &d->conn;
	int i;

	if (conn->csrc.fd < 0)
		return;
	conn->carrier |= C_IN;
	/* The limit is twice the queue length: others may keep sending. */
	for (i = 0; i < 2 * QUEUE_MAX / DGRAMS; i++)
		if ((conn->facts & F_DEAD) || !push(d))
			break;
}

/**
 * dgram_flush_all - forward what the target has sent, even if the stack's
 * socket is full
 *
 * The stack then keeps more than the socket's buffer permits: at most what the
 * carrier holds. Datagrams that it refuses even then are lost.
 */
void dgram_flush_all(struct dgram *d)
{
	struct conn *conn = &d->conn;
	int size = 0, more = FLUSH_ROOM;
	socklen_t len = sizeof(size);
	uint64_t had;

	dgram_flush(d);
	if ((conn->facts & F_DEAD) || !conn->to_stack.buf)
		return;
	rights_set(RIGHTS_ALL, &had);
	st_getsockopt(conn->sfd, SOL_SOCKET, SO_SNDBUF, &size, &len);
	size /= 2;		/* the kernel doubles it, socket(7) */
	st_setsockopt(conn->sfd, SOL_SOCKET, SO_SNDBUFFORCE, &more, sizeof(more));
	dgram_flush(d);
	if (conn->facts & F_DEAD)
		goto out;
	st_setsockopt(conn->sfd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	while (conn->to_stack.buf && !(conn->facts & F_DEAD)) {
		conn_stats.dgrams_dropped++;
		free(chunk_take(&conn->to_stack));
		dgram_flush(d);
	}
out:
	rights_set(had, NULL);
}

/** dgram_gone - free a closed connection, after sending its queued messages */
void dgram_gone(struct dgram *d)
{
	struct conn *conn = &d->conn;

	dgram_flush_all(d);
	conn_free(conn);
}

/** dgram_pump - move messages in both directions */
static void dgram_pump(struct work *w)
{
	struct conn *conn = container_of(w, struct conn, work);
	struct dgram *d = dgram_of(conn);
	bool more;

	if (conn->facts & F_DEAD)
		return;
	if (conn->to_target.len && put_kept(d))
		conn->stack |= S_IN;
	if (conn->facts & F_DEAD)
		return;
	if ((conn->stack & S_IN) && !list_empty(&conn->held.calls))
		held_wake(&conn->held);
	more = push(d);
	if (!conn->to_target.len)
		more |= pull(d);
	if (conn->facts & F_DEAD)
		return;
	if ((conn->carrier & C_HUP) && conn->kind == KIND_NETLINK) {
		conn_free(conn);
		return;
	}
	if (more)
		work_queue(w);
}

/** dgram_stack_event - handle an event of the stack's socket */
static void dgram_stack_event(struct stack_src *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, ssrc);
	struct dgram *d = dgram_of(conn);

	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		conn->stack |= S_IN;
	if (events & EPOLLOUT) {
		conn->stack |= S_OUT;
		dgram_flush(d);		/* before the sends that wait */
		if (!(conn->facts & F_DEAD) && !list_empty(&conn->held.calls))
			held_wake(&conn->held);
		if (conn->facts & F_DEAD)
			return;
		if (!conn->to_stack.buf && list_empty(&conn->held.calls))
			st_rewatch(conn->sfd, &conn->ssrc, EPOLLIN);
	}
	dgram_pump(&conn->work);
	/* If no call has reported the error, it is in the error queue. */
	if ((events & EPOLLERR) && !(conn->facts & F_DEAD) && !conn->so_error &&
	    !(conn->carrier & C_FAILED) && st_failed(conn->sfd))
		dgram_raise(d, -1);
}

/** dgram_carrier_event - handle that the target has sent or read a message */
static void dgram_carrier_event(struct source *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, csrc);

	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->carrier |= C_IN;
	if (events & EPOLLHUP && conn->kind == KIND_NETLINK)
		conn->carrier |= C_HUP;
	dgram_pump(&conn->work);
}

/** dgram_start - initialize a new socket */
int dgram_start(struct dgram *d)
{
	struct conn *conn = &d->conn;

	conn->work.fn = dgram_pump;
	conn->csrc.fn = dgram_carrier_event;
	conn->ssrc.fn = dgram_stack_event;
	dgram_run_start(d);
	return conn_watch(conn, EPOLLIN);
}

/**
 * netlink_start - initialize a new netlink socket; takes ownership of @cfd, our
 * end
 */
int netlink_start(struct dgram *d, int cfd)
{
	struct conn *conn = &d->conn;
	int ret = dgram_start(d);

	conn->csrc.fd = cfd;
	if (ret)
		return ret;
	return loop_add(&conn->csrc, DGRAM_EVENTS);
}

/** dgram_want_out - make the stack report when the socket can send again */
void dgram_want_out(struct conn *conn)
{
	st_rewatch(conn->sfd, &conn->ssrc, EPOLLIN | EPOLLOUT);
}

/** dgram_connect - handle connect(2) of a datagram or netlink socket */
int64_t dgram_connect(struct call *c, const struct sockaddr_storage *ss,
		      socklen_t len)
{
	struct conn *conn = c->conn;
	struct dgram *d = dgram_of(conn);
	long ret;

	conn_sweep_few(KIND_DGRAM);
	ret = st_connect(conn->sfd, ss, len);
	if (ret || conn->kind == KIND_NETLINK)
		return ret;
	dgram_run_again(d);
	if (ss->ss_family == AF_UNSPEC)
		return dgram_disconnect(d, c->dup);
	account_peer(conn);
	conn_event(conn, "connect");
	return dgram_attach(d, c->dup);
}
