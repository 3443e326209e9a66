// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams: connect, and events of the stack. listen.c contains listen and
 * accept.
 *
 * Theory of operation
 *
 * connect(): the stack's socket is non-blocking. If the answer does not come at
 * once, a blocking caller is held. For a non-blocking caller, the carrier is
 * connected and corked (carrier.c). When the stack reports success, the cork is
 * removed and held callers are answered. If the stack reports a failure, our
 * end is closed with the filler unread, and SO_ERROR returns the reason.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "control/control.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/common/loopback.h"
#include "engine/stream/pump.h"
#include "engine/stream/stream.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

static const struct sockaddr none = { .sa_family = AF_UNSPEC };

#define STREAM_EVENTS	(EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP)

/** stream_watch - call @event when the stack's socket has events */
int stream_watch(struct stream *s,
		 void (*event)(struct stack_src *src, uint32_t events))
{
	s->conn.ssrc.fn = event;
	return conn_watch(&s->conn, STREAM_EVENTS);
}

/** tcp_attach - connect the caller's carrier to us, so that data can flow */
int64_t tcp_attach(struct stream *s, int dup)
{
	struct conn *conn = &s->conn;
	int ret = carrier_meet(s, dup);

	if (ret)
		return ret;
	conn_stats.connected += !(conn->facts & F_HOSTED);
	conn_event(conn, "connect");
	pump_open(s);
	return 0;
}

/** stream_take_error - get and clear SO_ERROR of a stream or netlink socket */
int stream_take_error(struct call *c)
{
	struct conn *conn = c->conn;
	int err = 0, native = 0;
	socklen_t len = sizeof(err);

	if (conn->so_error) {
		err = conn->so_error;
		conn->so_error = 0;
		getsockopt(c->dup, SOL_SOCKET, SO_ERROR, &native, &len);
		/* A read or write may have reported and cleared the error. */
		return (conn->carrier & C_FAILED) && !native ? 0 : err;
	}
	st_getsockopt(conn->sfd, SOL_SOCKET, SO_ERROR, &err, &len);
	return err;
}

/**
 * connect_shut - end a held connect, because another thread has shut it down
 *
 * TCP ends the attempt and can connect again, which the carrier cannot.
 */
static int64_t connect_shut(struct call *c, struct held *h)
{
	int64_t ret;
	int err;

	list_del(&h->link);	/* fallback_reconnect() wakes the others */
	loop_del(&h->src);
	ret = fallback_reconnect(c);
	if (ret)
		return ret;
	err = stream_take_error(c);
	return err ? -err : -ECONNABORTED;
}

/** connect_retry - retry a held connect */
static int64_t connect_retry(struct call *c, struct held *h)
{
	struct conn *conn = c->conn;
	struct stream *s = stream_of(conn);
	int err = conn->so_error;

	switch (s->state) {
	case STREAM_CONNECTING:
		return h->event && conn->csrc.fd < 0 && carrier_is_shut(c->dup) ?
		       connect_shut(c, h) : CALL_HELD;
	case STREAM_OPEN:
		return conn->csrc.fd >= 0 ? 0 : tcp_attach(s, c->dup);
	default:
		conn->so_error = 0;
		return err ? -err : -ECONNABORTED;
	}
}

/** cork - make the carrier look unconnected until the answer comes */
static int cork(struct stream *s, int dup)
{
	struct conn *conn = &s->conn;
	int ret;

	if (conn->csrc.fd >= 0)
		return 0;
	ret = carrier_meet(s, dup);
	return ret ? ret : carrier_cork(s, dup);
}

/**
 * connect_quit - handle that a held caller stops waiting for the connect
 *
 * The connect continues. Without a cork, poll would report the new carrier as
 * connected.
 */
static void connect_quit(struct call *c)
{
	if (stream_of(c->conn)->state == STREAM_CONNECTING)
		cork(stream_of(c->conn), c->dup);
}

/**
 * tcp_wait - wait for the stack's answer to a connect
 * @retry: retries the call of a blocking caller
 * @done: value of h->done for @retry
 * @ret: result for a non-blocking caller, or after a timeout
 */
int64_t tcp_wait(struct call *c, bool now,
		 int64_t (*retry)(struct call *, struct held *), uint64_t done,
		 int64_t ret)
{
	struct held *h;
	int err;

	if (now || call_nonblocking(c)) {
		err = cork(stream_of(c->conn), c->dup);
		return err ? err : ret;
	}
	h = call_hold(c, &c->conn->held, EPOLLRDHUP, retry,
		      hold_deadline(c, SO_SNDTIMEO), ret);
	if (!h)
		return -ENOMEM;
	h->done = done;
	h->quit = connect_quit;
	return CALL_HELD;
}

/** disconnect - handle connect(2) to AF_UNSPEC */
static int64_t disconnect(struct call *c, const struct sockaddr_storage *ss,
			  socklen_t len)
{
	if (stream_of(c->conn)->state == STREAM_NEW)
		return st_connect(c->conn->sfd, ss, len);
	return fallback_reconnect(c);
}

/** refused - report that no server of the stack accepts a connect to loopback */
static void refused(const struct stream *s)
{
	char text[LOOPBACK_TEXT];

	if (!(s->conn.facts & F_HOSTED) && loopback_refused(s->aim, text))
		ctl_event(CTL_EV_REFUSED, (uint32_t)s->conn.maker, 0, text);
}

/** connected - handle the result of a connect in the stack */
static void connected(struct stream *s)
{
	struct conn *conn = &s->conn;
	int err = 0;
	socklen_t len = sizeof(err);

	st_getsockopt(conn->sfd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (!err) {
		stream_set_state(s, STREAM_OPEN);
		if (conn->csrc.fd >= 0) {
			carrier_uncork(s);
			conn_stats.connected += !(conn->facts & F_HOSTED);
			conn_event(conn, "connect");
			pump_open(s);
		} else {
			/*
			 * For a blocking connect, the stack must be told that
			 * it has ended.
			 */
			struct sockaddr sa = { .sa_family =
				(sa_family_t)conn->domain };

			st_connect(conn->sfd, &sa, sizeof(sa));
		}
		held_wake(&conn->held);
		return;
	}
	if (err == ECONNREFUSED)
		refused(s);
	conn->so_error = err;
	if (conn->csrc.fd >= 0) {
		stream_set_state(s, STREAM_DONE);
		carrier_drop(conn);	/* leaves the filler unread */
		conn->carrier |= C_FAILED;
	} else {
		/*
		 * The carrier was never used and the target may try again, so
		 * the attempt is also reset in the stack's socket.
		 */
		st_connect(conn->sfd, &none, sizeof(none));
		stream_set_state(s, STREAM_NEW);
	}
	held_wake(&conn->held);
}

/** reset_after_end - record an error that follows the end of the peer's data */
static void reset_after_end(struct stream *s)
{
	int err = 0;
	socklen_t len = sizeof(err);

	st_getsockopt(s->conn.sfd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (!err)	/* the error queue is not empty */
		return;
	s->conn.so_error = err;
	stack_error(s, err);
}

/** tcp_stack_event - handle an event of a connection's socket in the stack */
static void tcp_stack_event(struct stack_src *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, ssrc);
	struct stream *s = stream_of(conn);

	switch (s->state) {
	case STREAM_CONNECTING:
		if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
			return;
		flag_set(&conn->stack, S_IN,
			 events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP));
		conn->stack |= S_OUT;
		connected(s);
		return;
	case STREAM_OPEN:
		if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
			conn->stack |= S_IN;
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			conn->stack |= S_OUT;
		if (events & (EPOLLRDHUP | EPOLLHUP))
			conn->stack |= S_RDHUP;
		if (events & EPOLLPRI)
			conn->stack |= S_PRI;
		if (events & EPOLLERR)
			conn->stack |= S_ERR;
		if ((conn->stack & (S_ERR | S_END | S_BROKEN)) == (S_ERR | S_END))
			reset_after_end(s);
		pump(&conn->work);
		return;
	default:
		return;
	}
}

/** tcp_watch - add the socket of a connection to the stack's epoll */
int tcp_watch(struct stream *s)
{
	return stream_watch(s, tcp_stack_event);
}

/** tcp_connect - handle connect(2) of a stream */
int64_t tcp_connect(struct call *c, const struct sockaddr_storage *ss,
		    socklen_t len)
{
	struct conn *conn = c->conn;
	struct stream *s = stream_of(conn);
	int err;
	long ret;

	if (ss->ss_family == AF_UNSPEC && len >= (socklen_t)sizeof(sa_family_t))
		return disconnect(c, ss, len);
	switch (s->state) {
	case STREAM_NEW:
		break;
	case STREAM_CONNECTING:
		return tcp_wait(c, false, connect_retry, 0, -EALREADY);
	case STREAM_DONE:
		if (conn->facts & F_WAS_OPEN)
			return st_connect(conn->sfd, ss, len);
		/*
		 * The call after a failed attempt returns the error and ends
		 * the attempt. The call after that starts another attempt
		 * (__inet_stream_connect(), net/ipv4/af_inet.c).
		 */
		err = stream_take_error(c);
		if (!(conn->facts & F_REPORTED)) {
			conn->facts |= F_REPORTED;
			st_connect(conn->sfd, &none, sizeof(none));
			return err ? -err : -ECONNABORTED;
		}
		ret = fallback_reconnect(c);
		if (ret)
			return ret;
		break;
	default:
		return st_connect(conn->sfd, ss, len);
	}
	conn_sweep_few(KIND_STREAM);
	ret = tcp_watch(s);
	if (ret)
		return ret;
	ret = st_connect(conn->sfd, ss, len);
	if (ret == 0) {
		stream_set_state(s, STREAM_OPEN);
		return tcp_attach(s, c->dup);
	}
	if (ret != -EINPROGRESS)
		return ret;
	stream_set_state(s, STREAM_CONNECTING);
	s->aim = loopback_of(ss, len);
	return tcp_wait(c, false, connect_retry, 0, -EINPROGRESS);
}
