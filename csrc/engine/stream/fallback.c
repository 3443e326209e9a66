// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stream sockets: fall back to plain TCP if MPTCP lacks an option, and connect
 * again after a failed connect.
 *
 * Theory of operation
 *
 * A target that requested TCP and got MPTCP may set options that MPTCP sockets
 * lack (net/mptcp/sockopt.c). If the socket has no peer yet and a TCP socket
 * accepts the option, the TCP socket replaces the MPTCP socket. The TCP socket
 * gets the same address and the options set so far, which are recorded for this
 * purpose. A warning tells the user that the connection does not use MPTCP.
 *
 * After a failed connect, TCP can connect again, but the carrier cannot: it was
 * already connected for a non-blocking connect. TCP can also be disconnected,
 * by connect() to AF_UNSPEC. In both cases, a new carrier replaces the old one
 * in the target, under all its numbers and in its epolls (fd_replace.c). The new
 * carrier has a new name, so copies of the old carrier in other processes
 * become orphans.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

/** is_bound - whether the socket has an address, which is stored in @ss */
static bool is_bound(const struct conn *conn, struct sockaddr_storage *ss,
		     socklen_t *len)
{
	*len = sizeof(*ss);
	if (st_getsockname(conn->sfd, ss, len))
		return false;
	return ((struct sockaddr_in *)ss)->sin_port != 0;
}

/**
 * fallback_to_tcp - try an option with TCP, after MPTCP has refused it
 * @ret: error returned by MPTCP
 *
 * Returns 0 if the socket is now a TCP socket with this option, otherwise @ret.
 */
int64_t fallback_to_tcp(struct call *c, int level, int name, const void *value,
			int len, int64_t ret)
{
	struct conn *conn = c->conn;
	struct sockaddr_storage ss;
	socklen_t sslen;
	long sfd;

	if (!(conn->facts & F_MPTCP) || stream_of(conn)->state != STREAM_NEW ||
	    (ret != -EOPNOTSUPP && ret != -ENOPROTOOPT))
		return ret;
	sfd = st_socket(conn->domain,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (sfd < 0)
		return ret;
	sockopt_log_replay(conn, (int)sfd);
	if (st_setsockopt(sfd, level, name, value, len)) {
		st_close(sfd);
		return ret;
	}
	if (conn->stack & S_WATCHED)
		st_unwatch(conn->sfd, &conn->ssrc);
	conn->stack &= ~S_WATCHED;
	if (is_bound(conn, &ss, &sslen)) {
		st_close(conn->sfd);
		ret = st_bind(sfd, &ss, sslen);
		if (ret)
			log_line("binding the TCP socket that replaces MPTCP: %s",
				 strerror((int)-ret));
	} else {
		st_close(conn->sfd);
	}
	conn->sfd = (int)sfd;
	conn->facts &= ~F_MPTCP;
	conn->facts |= F_TCP_BY_OPTION;
	sockopt_log_drop(conn);
	conn_stats.fallbacks++;
	warn_user("%s (pid %d): MPTCP does not support option %d of level %d; this socket uses plain TCP",
		  task_comm(c->task), task_tgid(c->task), name, level);
	return 0;
}

/** path_fact - get a value of the first subflow's path; 0 if unknown */
static int path_fact(const struct conn *conn, int level, int name)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti);

	if (stream_of(conn)->state != STREAM_OPEN ||
	    st_getsockopt(conn->sfd, IPPROTO_TCP, TCP_INFO, &ti, &len))
		return 0;
	if (level == IPPROTO_TCP && name == TCP_MAXSEG)
		return (int)ti.tcpi_snd_mss;
	if ((level == IPPROTO_IP && name == IP_MTU) ||
	    (level == IPPROTO_IPV6 && name == IPV6_MTU))
		return (int)ti.tcpi_pmtu;
	return 0;
}

/**
 * fallback_get - get an option that MPTCP does not know
 * @ret: error returned by MPTCP
 *
 * Setting such an option would turn the socket into a TCP socket. The returned
 * value is therefore that of a new TCP socket, unless the option concerns the
 * path.
 */
int64_t fallback_get(const struct conn *conn, int level, int name, void *value,
		     socklen_t *len, int64_t ret)
{
	int fact;
	long sfd;

	if (!(conn->facts & F_MPTCP) ||
	    (ret != -EOPNOTSUPP && ret != -ENOPROTOOPT) ||
	    (level != IPPROTO_TCP && level != IPPROTO_IP &&
	     level != IPPROTO_IPV6))
		return ret;
	sfd = st_socket(conn->domain,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (sfd < 0)
		return ret;
	fact = path_fact(conn, level, name);
	if (fact) {
		if (*len > sizeof(fact))
			*len = sizeof(fact);
		memcpy(value, &fact, *len);
		ret = 0;
	} else {
		ret = st_getsockopt(sfd, level, name, value, len);
	}
	st_close(sfd);
	return ret;
}

/** forget - reset the state of a stream */
static void forget(struct stream *s)
{
	struct conn *conn = &s->conn;

	carrier_drop(conn);
	while (s->listener.tokens)
		close(s->listener.token_fd[--s->listener.tokens]);
	if (s->listener.stashed)
		st_close(s->listener.stash_fd);
	s->listener.stashed = false;
	free(chunk_take(&conn->to_stack));
	free(chunk_take(&conn->to_target));
	conn->carrier = 0;
	conn->stack &= S_WATCHED;
	conn->facts &= ~(F_REPORTED | F_RESET | F_WAS_OPEN);
	s->cork.bytes = 0;
	s->last = LAST_NONE;
	conn->so_error = 0;
	if (s->state == STREAM_LISTENING)
		conn_listens(conn, false);
	stream_set_state(s, STREAM_NEW);
}

/**
 * fallback_reconnect - prepare a stream for another connect, or for a
 * disconnect
 *
 * On success, returns 0; @c->dup is then a new carrier and the state is
 * STREAM_NEW. Otherwise returns a negative errno.
 */
int64_t fallback_reconnect(struct call *c)
{
	static const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct conn *conn = c->conn;
	struct stream *s = stream_of(conn);
	int fd, ret;
	uint32_t id = conn_free_number();

	fd = carrier_make(SOCK_STREAM |
			  (call_nonblocking(c) ? SOCK_NONBLOCK : 0), id);
	if (fd < 0)
		return fd;
	carrier_options(s, fd);
	ret = fd_replace_all(c, fd, fd_ino(c->dup));
	if (ret < 0) {
		close(fd);
		return ret;
	}
	/* With a byte unread, calls that wait on the old carrier fail. */
	send(c->dup, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	paged_close_later(c->dup);
	c->dup = fd;
	st_connect(conn->sfd, &none, sizeof(none));
	forget(s);
	conn_renumber(conn, id);
	carrier_note(conn, fd);
	conn_has_carrier(conn);
	conn_probe_add(conn);
	held_wake(&conn->held);
	return 0;
}
