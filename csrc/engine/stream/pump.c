// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pump moves bytes between a carrier and a stream socket of the stack.
 *
 * Theory of operation
 *
 * Both sides report edges, stored in C_IN, C_OUT, S_IN and S_OUT. A direction
 * continues while its source has data and its destination accepts them, at most
 * ROUNDS times. The connection then joins the ready list, so that it does not
 * starve the others. After a short read the source is empty, so its flag is
 * cleared without waiting for EAGAIN. There are two exceptions: the end of the
 * stream was announced, or there are urgent data, before which a read stops.
 * Data that the destination does not accept are kept in a chunk, and nothing is
 * read from the source until the chunk is sent.
 *
 * This file contains the direction to the stack, and pump_in.c the direction to
 * the target. shutdown.c passes the end of one side to the other side.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/stream/pump.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

#define FLUSH_TURNS	16	/* of ROUNDS each */

static char pump_buf[PUMP_SIZE] __attribute__((aligned(4096)));

/**
 * stack_put - send to the stack; returns the bytes accepted, or a negative
 * errno
 *
 * If the target has ended its stream, the last bytes wait for the FIN, so that
 * both go in one packet: see shutdown_pass().
 */
static long stack_put(struct stream *s, const char *buf, size_t len)
{
	struct conn *conn = &s->conn;
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL |
		    (conn->carrier & C_EOF ? MSG_MORE : 0);
	long n = st_sendto(conn->sfd, buf, len, flags, NULL, 0);

	if (n == -EINPROGRESS)	/* TCP_FASTOPEN_CONNECT without a cookie */
		n = -EAGAIN;
	if (n < (long)len)
		conn->stack &= ~S_OUT;
	if (n > 0)
		conn->bytes_out += (uint64_t)n;
	return n;
}

/**
 * carrier_read - read data of the target into the buffer, which has PUMP_SIZE bytes
 *
 * Returns the bytes read, or 0 if there are no data now or the stream has
 * ended. Updates C_IN and C_EOF.
 */
static size_t carrier_read(struct stream *s)
{
	struct conn *conn = &s->conn;
	size_t most = pump_most();
	ssize_t n;

	if (s->last != LAST_NONE)
		return last_read(s, pump_buf, most);
	n = recv(conn->csrc.fd, pump_buf, most, MSG_DONTWAIT);
	if (n > 0) {
		if ((size_t)n < most && !(conn->carrier & C_PRI)) {
			/* Nothing can follow the announced end. */
			flag_set(&conn->carrier, C_EOF,
				 (conn->carrier & (C_RDHUP | C_ERR)) == C_RDHUP);
			flag_set(&conn->carrier, C_IN, conn->carrier & C_ERR);
		}
		return (size_t)n;
	}
	conn->carrier &= ~C_IN;
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0)		/* closed with unread data */
		conn->facts |= F_RESET;
	/* Otherwise the event follows that tells close() from shutdown(). */
	if (conn->carrier & C_RDHUP)
		conn->carrier |= C_EOF;
	return 0;
}

/**
 * push_stack - move data to the stack
 *
 * Returns true if there is more to do.
 */
static bool push_stack(struct stream *s)
{
	struct conn *conn = &s->conn;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		struct chunk *ch = &conn->to_stack;
		size_t n;
		long sent;

		if (conn->stack & S_BROKEN)
			return false;
		if (ch->len) {
			if (!(conn->stack & S_OUT))
				return false;
			sent = stack_put(s, ch->buf + ch->off, ch->len);
			if (sent < 0 && sent != -EAGAIN)
				stack_error(s, (int)-sent);
			if (sent > 0)
				chunk_sent(ch, (size_t)sent);
			continue;
		}
		if (!(conn->carrier & C_IN))
			return false;
		/*
		 * If the urgent byte is not read first, less data can be read
		 * than was announced.
		 */
		if ((conn->carrier & C_PRI) && urgent_out(s))
			continue;
		n = carrier_read(s);
		if (!n)
			return false;
		sent = stack_put(s, pump_buf, n);
		if (sent < 0 && sent != -EAGAIN) {
			stack_error(s, (int)-sent);
			return false;
		}
		if (sent < 0)
			sent = 0;
		if ((size_t)sent < n &&
		    chunk_keep(ch, pump_buf + sent, n - (size_t)sent))
			stack_error(s, ENOMEM);
	}
	return true;
}

/**
 * pump_flush - forward what the target has sent before the current call
 *
 * An option such as IP_TOS applies to the bytes that follow it. The limit is for
 * a thread that keeps sending.
 */
void pump_flush(struct stream *s)
{
	struct conn *conn = &s->conn;
	int i = 0;

	if (s->state != STREAM_OPEN || conn->csrc.fd < 0)
		return;
	conn->carrier |= C_IN;
	while (push_stack(s) && i < FLUSH_TURNS)
		i++;
	work_queue(&conn->work);
}

/** pump - move data of a connection in both directions */
void pump(struct work *w)
{
	struct conn *conn = container_of(w, struct conn, work);
	struct stream *s = stream_of(conn);
	bool more;

	if (s->state != STREAM_OPEN || conn->csrc.fd < 0)
		return;
	more = push_target(s, pump_buf);
	more |= push_stack(s);
	if (!shutdown_pass(s))
		return;
	if (!list_empty(&conn->held.calls))
		held_wake(&conn->held);
	if ((conn->stack & S_BROKEN) && !(conn->carrier & C_HUNG_UP) &&
	    (conn->to_target.len || !(conn->carrier & C_OUT)))
		shutdown_reset(s);
	stream_check(s);
	/* A full carrier causes an event when it has room; do not poll it. */
	if (more || ((conn->stack & (S_BROKEN | S_IN)) == (S_BROKEN | S_IN) &&
		     !conn->to_target.len && (conn->carrier & C_OUT)))
		work_queue(w);
}

/** pump_open - start pumping: the connection is established */
void pump_open(struct stream *s)
{
	struct conn *conn = &s->conn;

	conn->facts |= F_WAS_OPEN;
	sockopt_log_drop(conn);
	account_peer(conn);
	if (s->rcvbuf)
		setsockopt(conn->csrc.fd, SOL_SOCKET, SO_SNDBUF, &s->rcvbuf,
			   sizeof(s->rcvbuf));
	conn->carrier |= C_OUT;
	conn->stack |= S_OUT;
	conn_probe_del(conn);	/* EPOLLHUP reports a close from now on */
	work_queue(&conn->work);
}

/** tcp_carrier_event - handle an event of our end of a stream's carrier */
void tcp_carrier_event(struct source *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, csrc);
	struct stream *s = stream_of(conn);

	if (s->state == STREAM_CONNECTING) {
		if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
			if (carrier_gone(conn))
				conn_free(conn);
			else
				shutdown_connect(s);
		}
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->carrier |= C_IN;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->carrier |= C_RDHUP;
	if (events & EPOLLERR)
		conn->carrier |= C_ERR;
	if (events & EPOLLPRI)
		conn->carrier |= C_PRI | C_IN;
	if (events & EPOLLHUP)
		conn->carrier |= C_HUP;
	if (events & EPOLLOUT)
		conn->carrier |= C_OUT;
	pump(&conn->work);
}

/**
 * pump_unsent - count the bytes from the target that the stack does not have
 * yet
 */
size_t pump_unsent(const struct stream *s)
{
	const struct conn *conn = &s->conn;
	int n = 0;

	if (conn->csrc.fd >= 0 && !s->cork.bytes)
		ioctl(conn->csrc.fd, FIONREAD, &n);
	if (s->last == LAST_SENT)
		n--;
	return conn->to_stack.len + (n > 0 ? (size_t)n : 0);
}
