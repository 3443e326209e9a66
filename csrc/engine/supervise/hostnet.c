// SPDX-License-Identifier: GPL-2.0-only
/*
 * Destinations of --host-net, which the target reaches through the host's
 * stack.
 *
 * Theory of operation
 *
 * Every socket first belongs to the stack. A socket of the host's network
 * (home.c) replaces it, behind the same carrier, when it is connected to a
 * chosen destination. The same happens if a datagram socket without a local
 * name sends its first message to one. The options set before are set on the
 * new socket. Only lklhost has this socket (stack/beside.c). All operations of
 * the target on it therefore pass through here, with an address that is copied
 * before it is checked.
 *
 * A socket of the host reaches only chosen destinations. If it is connected to
 * another one, bound, or made to listen, it becomes a socket of the stack
 * again, as long as it has no peer. This is for getaddrinfo(3), which connects
 * one socket to one address after the other. Source routes, which an address
 * does not show, are refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/supervise/conn.h"
#include "engine/supervise/hostnet.h"
#include "engine/supervise/notify.h"
#include "engine/supervise/stream.h"
#include "process/process.h"
#include "stack/stack.h"

/** replace - replace the connection's socket by @fd */
static int replace(struct conn *conn, long fd, bool hosted)
{
	void (*fn)(struct stack_src *src, uint32_t events) = conn->ssrc.fn;
	bool watched = conn->stack & S_WATCHED;

	if (watched)
		st_unwatch(conn->sfd, &conn->ssrc);
	st_close(conn->sfd);
	conn->sfd = (int)fd;
	flag_set(&conn->facts, F_HOSTED, hosted);
	conn->stack &= ~S_WATCHED;
	conn->ssrc.fn = fn;
	conn->stack &= ~(S_IN | S_OUT);
	if (!conn->so_error)	/* of a failure on the other network */
		conn->facts |= F_REPORTED;
	notes_replay(conn, conn->sfd);
	return watched && conn->kind != KIND_STREAM ? conn_watch(conn, EPOLLIN) : 0;
}

/** leave - use a socket of the host for this connection */
static int leave(struct call *c, const struct sockaddr_storage *ss)
{
	struct conn *conn = c->conn;
	int fd, ret = 0;

	if (!st_beside)
		ret = beside_start();
	if (ret)
		return ret;
	fd = home_socket(conn->domain, conn->type | SOCK_NONBLOCK, conn->proto);
	if (fd < 0)
		return fd;
	conn->facts &= ~(F_MPTCP | F_MPTCP_ASKED);
	hostnet_count(c->task, ss);
	return replace(conn, fd + ST_HOST, true);
}

/** come_back - use a socket of the stack again */
static int come_back(struct call *c)
{
	struct conn *conn = c->conn;
	bool is_mptcp;
	long fd = stack_socket(conn->domain, conn->type, conn->proto,
			       &is_mptcp);

	flag_set(&conn->facts, F_MPTCP, is_mptcp);
	if (fd < 0)
		return (int)fd;
	flag_set(&conn->facts, F_MPTCP_ASKED,
		 is_mptcp || conn->proto == IPPROTO_MPTCP);
	hostnet_uncount(c->task);
	return replace(conn, fd, false);
}

/** has_peer - whether it is, or was, connected */
static bool has_peer(const struct conn *conn)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (conn->kind == KIND_STREAM) {
		const struct stream *s = stream_of(conn);

		return s->state != STREAM_NEW &&
		       (s->state != STREAM_DONE || (conn->facts & F_WAS_OPEN));
	}
	return !st_getpeername(conn->sfd, &ss, &len);
}

/**
 * hostnet_connect - choose the socket for a connect of a carrier to @ss
 *
 * Returns 0 with the right socket behind the carrier, or the call's result.
 */
int64_t hostnet_connect(struct call *c, const struct sockaddr_storage *ss,
			int64_t len)
{
	struct conn *conn = c->conn;
	bool chosen = hostnet_chosen(ss, len);

	if (!hostnet_any() || conn->kind == KIND_NETLINK ||
	    ss->ss_family == AF_UNSPEC || chosen == !!(conn->facts & F_HOSTED))
		return 0;
	if (conn->kind != KIND_STREAM || !has_peer(conn))
		return chosen ? leave(c, ss) : come_back(c);
	if (!(conn->facts & F_HOSTED))
		return 0;	/* the stack gives the answer */
	return stream_of(conn)->state == STREAM_CONNECTING ? -EALREADY : -EISCONN;
}

/**
 * hostnet_send - choose the socket for a datagram to @ss, or for MSG_FASTOPEN
 *
 * Returns 0 or a negative errno, like hostnet_connect().
 */
int64_t hostnet_send(struct call *c, const struct sockaddr_storage *ss,
		     int64_t len)
{
	struct conn *conn = c->conn;
	struct sockaddr_storage name;
	socklen_t namelen = sizeof(name);
	bool chosen = hostnet_chosen(ss, len);

	if (!hostnet_any() || conn->kind == KIND_NETLINK ||
	    (!chosen && !(conn->facts & F_HOSTED)))
		return 0;
	if (conn->kind == KIND_STREAM)
		return -EOPNOTSUPP;
	if (conn->facts & F_HOSTED)	/* AF_UNSPEC is a destination here, too */
		return chosen ? 0 : -ENETUNREACH;
	/* It has a name in the stack, which others may know. */
	if (!st_getsockname(conn->sfd, &name, &namelen) &&
	    ((struct sockaddr_in *)&name)->sin_port)
		return -ENETUNREACH;
	return leave(c, ss);
}

/** hostnet_serve - use the stack for bind or listen; 0 or an errno */
int64_t hostnet_serve(struct call *c)
{
	if (!(c->conn->facts & F_HOSTED))
		return 0;
	return has_peer(c->conn) ? -EINVAL : come_back(c);
}
