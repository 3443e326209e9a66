// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of a stream: pass the end of each side to the other side.
 *
 * Theory of operation
 *
 *	event on the carrier		action in the stack
 *	end-of-file, SHUT_WR		shutdown(SHUT_WR), after the chunk
 *	closed				the same, then close
 *	closed with unread data		reset
 *
 *	event in the stack		action on the carrier
 *	end-of-file			shutdown(SHUT_WR), after the chunk
 *	an error			close with an unread byte: ECONNRESET
 *
 * After both directions are shut down, the carrier reports EPOLLHUP as if it
 * were closed. carrier_gone() shows whether it is really closed. If not, the
 * connection remains in the state STREAM_DONE for further calls of the target.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/stream/pump.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

/** warn_reset - warn, once, that the target cannot see that the peer has reset */
static void warn_reset(const struct conn *conn)
{
	static bool told;

	if (!told)
		warn_user("%.16s (pid %d): a connection was reset by its peer; the program sees an end of the data instead, because this kernel has no pidfd_getfd (Linux 5.6)",
			  conn->comm, conn->maker);
	told = true;
}

/** discard - discard the data in the carrier that the stack does not take */
static void discard(struct stream *s)
{
	struct conn *conn = &s->conn;
	char buf[16 * 1024];

	while (recv(conn->csrc.fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

/** last_discard - discard the byte that half_close.c keeps: it would reset */
static void last_discard(struct stream *s)
{
	if (s->last != LAST_NONE)
		discard(s);
	s->last = LAST_NONE;
}

/**
 * finish_reset - pass an error of the stack to the target, after all earlier
 * data
 *
 * The error requires an unread byte in the carrier. This is either a byte that
 * the target sent and we have not read, or a byte that we write through a
 * borrowed duplicate of the target's end. After the target's own SHUT_WR it is
 * in the carrier already, see half_close.c. If the target has already got the
 * end of the data, TCP keeps reporting this end to a read.
 */
static void finish_reset(struct stream *s)
{
	struct conn *conn = &s->conn;
	int unread = 0, dup;

	if (conn->carrier & (C_HUP | C_SHUT)) {
		last_discard(s);
	} else if (ioctl(conn->csrc.fd, FIONREAD, &unread) || !unread) {
		dup = carrier_borrow(conn);
		if (dup >= 0) {
			unread = send(dup, "", 1,
				      MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
			paged_close_later(dup);
		} else if (dup == -ENOSYS) {
			warn_reset(conn);
		}
	}
	flag_set(&conn->carrier, C_FAILED, unread > 0);
	conn_stats.resets++;
	conn_event(conn, "reset");
	carrier_drop(conn);
	stream_set_state(s, STREAM_DONE);
	if ((conn->carrier & C_HUP) || carrier_gone(conn)) {
		conn_free(conn);
		return;
	}
	conn_probe_add(conn);
	held_wake(&conn->held);
}

/** has_sent_all - whether all that the target will send is in the stack */
static bool has_sent_all(const struct conn *conn)
{
	return (conn->carrier & C_EOF) && !conn->to_stack.len;
}

/** has_got_all - whether all that the peer will send is in the carrier */
static bool has_got_all(const struct conn *conn)
{
	return (conn->stack & S_END) && !conn->to_target.len;
}

/**
 * is_closed - whether the target has closed the carrier, and no data wait
 *
 * An abortive close does not wait for the stack to accept the rest.
 */
static bool is_closed(struct conn *conn)
{
	if (!(conn->carrier & C_HUP))
		return false;
	if (has_sent_all(conn) && !(conn->stack & S_SHUT) &&
	    (conn->facts & F_RESET))
		return true;
	if ((conn->facts & F_ABORTIVE) &&
	    (conn->to_stack.len || !(conn->carrier & C_IN)))
		return carrier_gone(conn);
	return has_sent_all(conn) && carrier_gone(conn);
}

/** must_reset - whether the target must see the stack's error now */
static bool must_reset(const struct conn *conn)
{
	return (conn->stack & S_BROKEN) &&
	       (has_got_all(conn) || (conn->carrier & (C_HUP | C_NO_READER)));
}

/**
 * shutdown_pass - pass the end of each side to the other side
 *
 * Returns false if @conn is freed or done.
 */
bool shutdown_pass(struct stream *s)
{
	struct conn *conn = &s->conn;

	if (is_closed(conn)) {	/* close() sends the FIN or RST */
		conn_free(conn);
		return false;
	}
	if (has_sent_all(conn) && !(conn->stack & S_SHUT)) {
		conn->stack |= S_SHUT;
		if (!(conn->stack & S_BROKEN))
			st_shutdown(conn->sfd, SHUT_WR);
	}
	if ((conn->stack & S_SHUT) && (conn->carrier & C_HUP)) {
		last_discard(s);
		carrier_drop(conn);
		stream_set_state(s, STREAM_DONE);
		conn_probe_add(conn);
		held_wake(&conn->held);
		return false;
	}
	if (must_reset(conn)) {
		finish_reset(s);
		return false;
	}
	if (has_got_all(conn) && !(conn->carrier & C_SHUT)) {
		conn->carrier |= C_SHUT;
		shutdown(conn->csrc.fd, SHUT_WR);
	}
	return true;
}

/**
 * shutdown_connect - end a connect, because the target has shut down the carrier
 *
 * TCP resets the attempt, and the next connect begins another one.
 */
void shutdown_connect(struct stream *s)
{
	static const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct conn *conn = &s->conn;
	int err;
	socklen_t len = sizeof(err);

	st_connect(conn->sfd, &none, sizeof(none));
	st_getsockopt(conn->sfd, SOL_SOCKET, SO_ERROR, &err, &len);
	conn->so_error = ECONNRESET;
	conn->facts |= F_REPORTED;
	stream_set_state(s, STREAM_DONE);
	carrier_drop(conn);	/* leaves the filler unread */
	conn->carrier |= C_FAILED;
	held_wake(&conn->held);
}

/**
 * shutdown_reset - handle the peer's reset before the target has read all data
 *
 * Until the target has read all data, its writes must fail and waiting writes
 * must end; otherwise they would fill a carrier that is never emptied. One byte
 * remains unread in the carrier and later makes the target's read fail with
 * ECONNRESET. The target may be writing right now. Until our byte is written, a
 * small SO_SNDBUF therefore limits the data that the target can add. poll in
 * the target thus does not block.
 */
void shutdown_reset(struct stream *s)
{
	struct conn *conn = &s->conn;
	int dup, small = 0, old = 0;
	socklen_t len = sizeof(old);

	conn->carrier |= C_HUNG_UP;
	if (s->last != LAST_NONE)
		return;		/* its writes fail already */
	dup = carrier_borrow(conn);
	if (dup < 0) {
		shutdown(conn->csrc.fd, SHUT_RD);
		discard(s);
		return;
	}
	getsockopt(dup, SOL_SOCKET, SO_SNDBUF, &old, &len);
	setsockopt(dup, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	discard(s);
	send(dup, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(conn->csrc.fd, SHUT_RD);
	old /= 2;		/* the kernel doubles it, socket(7) */
	setsockopt(dup, SOL_SOCKET, SO_SNDBUF, &old, sizeof(old));
	paged_close_later(dup);
}
