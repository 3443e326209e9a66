// SPDX-License-Identifier: GPL-2.0-only
/*
 * Destinations of --host-net, which the target reaches through the host's
 * stack.
 *
 * Theory of operation
 *
 * Every socket first belongs to the stack. When the socket is connected to a
 * chosen destination, a socket of the host's network (hostnet_helper.c) replaces it,
 * behind the same carrier. The same happens if a datagram socket without a
 * local name sends its first message to such a destination. The new socket gets
 * the options that were set before. Only lklhost has a descriptor of this
 * socket (stack/host_socks.c). All operations of the target on the socket therefore
 * pass through lklhost, which copies an address before it checks the address.
 *
 * A socket of the host reaches only chosen destinations. If the socket is
 * connected to another destination, bound, or made to listen, a socket of the
 * stack replaces it again, as long as it has no peer. getaddrinfo(3) requires
 * this, because it connects one socket to one address after the other. Source
 * routes are refused, because they are not visible in the address.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/stream_conn.h"
#include "process/process.h"
#include "stack/stack.h"

/** replace - replace the connection's socket with @fd */
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
	if (!conn->so_error)	/* else it must still be reported */
		conn->facts |= F_REPORTED;
	sockopt_log_replay(conn, conn->sfd);
	return watched && conn->kind != KIND_STREAM ? conn_watch(conn, EPOLLIN) : 0;
}

/** leave - use a socket of the host for this connection */
static int leave(struct call *c, const struct sockaddr_storage *ss)
{
	struct conn *conn = c->conn;
	int fd, ret = 0;

	if (!st_host_socks)
		ret = host_socks_start();
	if (ret)
		return ret;
	fd = hostnet_socket(conn->domain, conn->type | SOCK_NONBLOCK, conn->proto);
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

/** has_peer - whether the connection is, or was, connected to a peer */
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
 * hostnet_connect - choose the network for a connect to @ss
 *
 * Returns 0 if the carrier now has the right socket, otherwise the call's
 * result.
 */
int64_t hostnet_connect(struct call *c, const struct sockaddr_storage *ss,
			int64_t len)
{
	struct conn *conn = c->conn;
	bool chosen = hostnet_chosen(ss, len);

	if (!hostnet_any() || conn->kind == KIND_NETLINK ||
	    (conn->facts & F_SPACE) || ss->ss_family == AF_UNSPEC || chosen == !!(conn->facts & F_HOSTED))
		return 0;
	if (conn->kind != KIND_STREAM || !has_peer(conn))
		return chosen ? leave(c, ss) : come_back(c);
	if (!(conn->facts & F_HOSTED))
		return 0;	/* the stack returns the error */
	return stream_of(conn)->state == STREAM_CONNECTING ? -EALREADY : -EISCONN;
}

/**
 * hostnet_send - choose the network for a datagram to @ss, or for MSG_FASTOPEN
 *
 * Returns 0 if the carrier now has the right socket, or a negative errno.
 */
int64_t hostnet_send(struct call *c, const struct sockaddr_storage *ss,
		     int64_t len)
{
	struct conn *conn = c->conn;
	struct sockaddr_storage name;
	socklen_t namelen = sizeof(name);
	bool chosen = hostnet_chosen(ss, len);

	if (!hostnet_any() || conn->kind == KIND_NETLINK ||
	    (conn->facts & F_SPACE) || (!chosen && !(conn->facts & F_HOSTED)))
		return 0;
	if (conn->kind == KIND_STREAM)
		return -EOPNOTSUPP;
	if (conn->facts & F_HOSTED)	/* AF_UNSPEC is a destination, too */
		return chosen ? 0 : -ENETUNREACH;
	/* The socket has a name in the stack, which others may know. */
	if (!st_getsockname(conn->sfd, &name, &namelen) &&
	    ((struct sockaddr_in *)&name)->sin_port)
		return -ENETUNREACH;
	return leave(c, ss);
}

/**
 * hostnet_serve - use the stack for bind or listen; returns 0 or a negative
 * errno
 */
int64_t hostnet_serve(struct call *c)
{
	if (!(c->conn->facts & F_HOSTED))
		return 0;
	return has_peer(c->conn) ? -EINVAL : come_back(c);
}
