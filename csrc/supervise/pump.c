// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pump: bytes between a carrier and a stream socket of the stack.
 *
 * Theory of operation
 *
 * Both sides report edges, kept as c_in, c_out, s_in, s_out. A direction goes on
 * while its source has data and its destination takes them, at most ROUNDS
 * times; then the connection joins the ready list, so that none starves the
 * others. A read that comes back short has emptied the source: the flag is
 * cleared without asking for EAGAIN, unless the end of the stream was announced
 * or urgent data are there, before which reading stops.
 * What the destination does not take lies in a chunk, and nothing is read from
 * the source until it is gone.
 *
 * This file has the direction to the stack, pump_in.c the other. What the end of
 * one side means for the other is in ends.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "conn.h"
#include "pump.h"

/** chunk_keep - @len bytes wait for the destination */
int chunk_keep(struct chunk *ch, const char *data, size_t len)
{
	ch->buf = malloc(len);
	if (!ch->buf)
		return -ENOMEM;
	memcpy(ch->buf, data, len);
	ch->off = 0;
	ch->len = len;
	return 0;
}

/** chunk_sent - @n bytes of it are gone */
void chunk_sent(struct chunk *ch, size_t n)
{
	ch->off += n;
	ch->len -= n;
	if (ch->len)
		return;
	free(ch->buf);
	ch->buf = NULL;
}

/** chunk_drop - forget it */
static void chunk_drop(struct chunk *ch)
{
	if (ch->len)
		chunk_sent(ch, ch->len);
}

/** stack_error - the stack refuses to send: what it received still counts */
void stack_error(struct conn *conn, int err)
{
	if (err != EPIPE && !conn->so_error)
		conn->so_error = err;
	conn->s_broken = true;
	conn->s_in = true;
	conn->s_err = true;
	chunk_drop(&conn->to_stack);
}

/**
 * stack_put - send to the stack; bytes taken, or a negative errno
 *
 * When the target's end of the stream is next, the last bytes wait for it, so
 * that both go in one packet: see ends_pass().
 */
static long stack_put(struct conn *conn, const char *buf, size_t len)
{
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (conn->c_eof ? MSG_MORE : 0);
	long n = st_sendto(conn->sfd, buf, len, flags, NULL, 0);

	if (n == -EINPROGRESS)	/* TCP_FASTOPEN_CONNECT, without a cookie */
		n = -EAGAIN;
	if (n < (long)len)
		conn->s_out = false;
	if (n > 0)
		conn->bytes_out += (uint64_t)n;
	return n;
}

/**
 * carrier_read - what the target wrote into shared_buf
 *
 * Returns bytes, 0 for nothing now or nothing ever; sets c_in, c_eof.
 */
static size_t carrier_read(struct conn *conn)
{
	ssize_t n = recv(conn->csrc.fd, shared_buf, SHARED_SIZE, MSG_DONTWAIT);

	if (n > 0) {
		if (n < SHARED_SIZE && !conn->c_pri) {
			/* After the announced end nothing can follow. */
			conn->c_eof = conn->c_rdhup && !conn->c_err;
			conn->c_in = conn->c_err;
		}
		return (size_t)n;
	}
	conn->c_in = false;
	if (n == 0) {
		conn->c_eof = true;
	} else if (errno != EAGAIN) {
		conn->c_eof = true;	/* closed with unread data */
		conn->reset_out = true;
	}
	return 0;
}

/** push_stack - target to stack; true: there is more to do */
static bool push_stack(struct conn *conn)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		struct chunk *ch = &conn->to_stack;
		size_t n;
		long sent;

		if (conn->s_broken)
			return false;
		if (ch->len) {
			if (!conn->s_out)
				return false;
			sent = stack_put(conn, ch->buf + ch->off, ch->len);
			if (sent < 0 && sent != -EAGAIN)
				stack_error(conn, (int)-sent);
			if (sent > 0)
				chunk_sent(ch, (size_t)sent);
			continue;
		}
		if (!conn->c_in)
			return false;
		/* Without that byte there is less to read than we were told. */
		if (conn->c_pri && urgent_out(conn))
			continue;
		n = carrier_read(conn);
		if (!n)
			return false;
		sent = stack_put(conn, shared_buf, n);
		if (sent < 0 && sent != -EAGAIN) {
			stack_error(conn, (int)-sent);
			return false;
		}
		if (sent < 0)
			sent = 0;
		if ((size_t)sent < n &&
		    chunk_keep(ch, shared_buf + sent, n - (size_t)sent))
			stack_error(conn, ENOMEM);
	}
	return true;
}

/** pump - both directions of one connection */
void pump(struct work *w)
{
	struct conn *conn = container_of(w, struct conn, work);
	bool more;

	if (conn->state != CONN_OPEN || conn->csrc.fd < 0)
		return;
	more = push_target(conn);
	more |= push_stack(conn);
	if (!ends_pass(conn))
		return;
	if (!list_empty(&conn->held))
		held_wake(&conn->held);
	if (conn->s_broken && (conn->to_target.len || !conn->c_out) &&
	    !conn->c_hung_up)
		ends_hang_up(conn);
	/* A full carrier says when it has room; asking again would be in vain. */
	if (more || (conn->s_broken && conn->s_in && !conn->to_target.len &&
		     conn->c_out))
		work_queue(w);
}

/** pump_open - the connection is there, both sides take data */
void pump_open(struct conn *conn)
{
	conn->state = CONN_OPEN;
	conn->was_open = true;
	fallback_forget(conn);
	account_peer(conn);
	if (conn->rcvbuf)
		setsockopt(conn->csrc.fd, SOL_SOCKET, SO_SNDBUF, &conn->rcvbuf,
			   sizeof(conn->rcvbuf));
	conn->c_out = true;
	conn->s_out = true;
	conn_probe_del(conn);	/* EPOLLHUP tells from now on */
	work_queue(&conn->work);
}

/** tcp_carrier_event - the target did something with its end */
void tcp_carrier_event(struct source *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, csrc);

	if (conn->state == CONN_CONNECTING) {
		if (events & (EPOLLHUP | EPOLLERR))
			conn_free(conn);	/* closed before the answer */
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->c_in = true;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->c_rdhup = true;
	if (events & EPOLLERR)
		conn->c_err = true;
	if (events & EPOLLPRI) {
		conn->c_pri = true;
		conn->c_in = true;
	}
	if (events & EPOLLHUP)
		conn->hup = true;
	if (events & EPOLLOUT)
		conn->c_out = true;
	pump(&conn->work);
}

/** pump_unsent - bytes the target has sent that are not with the stack yet */
size_t pump_unsent(const struct conn *conn)
{
	int n = 0;

	if (conn->csrc.fd >= 0 && !conn->corked)
		ioctl(conn->csrc.fd, FIONREAD, &n);
	return conn->to_stack.len + (n > 0 ? (size_t)n : 0);
}
