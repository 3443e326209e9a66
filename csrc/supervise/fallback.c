// SPDX-License-Identifier: GPL-2.0-only
/*
 * Second chances of a stream socket: plain TCP where MPTCP lacks an option, and
 * another connect after one that failed.
 *
 * Theory of operation
 *
 * A target that asked for TCP and was given MPTCP may set options that MPTCP
 * sockets do not have (net/mptcp/sockopt.c). As long as the socket has no peer it
 * is replaced by a TCP socket, provided that this one takes the option: it gets
 * the options set so far, which are noted for the purpose, and the same address.
 * One line says so, since the target's connection will then be no MPTCP.
 *
 * A non-blocking connect that failed leaves a carrier that was connected and
 * cannot be again, while TCP can; and TCP can be disconnected, by connect() to
 * AF_UNSPEC. The target gets a fresh carrier in place of the old one, under the
 * numbers and in the epolls where it has it (copies.c). It is known by a new
 * name, so what other processes have of the old one are orphans.
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
#include <sys/time.h>
#include <unistd.h>

#include "conn.h"
#include "host.h"
#include "hostnet.h"

#define NOTES_MAX	64
#define VALUE_MAX	256

/**
 * struct opt_note - an option that was set
 * @next: the one set before
 */
struct opt_note {
	struct opt_note *next;
	int level, name;
	int len;
	char value[];
};

/** fallback_note - an option was set on a socket that may have to be replaced */
void fallback_note(struct conn *conn, int level, int name, const void *value,
		   int len)
{
	struct opt_note *o;

	if ((!conn->is_mptcp && !hostnet_any()) ||
	    conn->state != CONN_NEW || len > VALUE_MAX ||
	    conn->n_notes >= NOTES_MAX)
		return;
	o = malloc(sizeof(*o) + (size_t)len);
	if (!o)
		return;
	o->level = level;
	o->name = name;
	o->len = len;
	if (len)
		memcpy(o->value, value, (size_t)len);
	o->next = conn->notes;
	conn->notes = o;
	conn->n_notes++;
}

/** fallback_forget - the socket stays what it is */
void fallback_forget(struct conn *conn)
{
	while (conn->notes) {
		struct opt_note *o = conn->notes;

		conn->notes = o->next;
		free(o);
	}
	conn->n_notes = 0;
}

/** replay - set the noted options, the oldest first */
static void replay(const struct conn *conn, const struct opt_note *o, int sfd)
{
	if (!o)
		return;
	replay(conn, o->next, sfd);
	if (hostnet_option(conn, o->level, o->name))
		st_setsockopt(sfd, o->level, o->name, o->value, o->len);
}

/** fallback_replay - set the options noted on the socket that is there now */
void fallback_replay(const struct conn *conn)
{
	replay(conn, conn->notes, conn->sfd);
}

/** is_bound - whether the socket has an address; it comes back in @ss */
static bool is_bound(const struct conn *conn, struct sockaddr_storage *ss,
		     socklen_t *len)
{
	*len = sizeof(*ss);
	if (st_getsockname(conn->sfd, ss, len))
		return false;
	return ((struct sockaddr_in *)ss)->sin_port != 0;
}

/**
 * fallback_to_tcp - MPTCP refused an option: try with TCP
 * @ret: what MPTCP said
 *
 * Returns 0 when the socket is TCP now and has the option, else @ret.
 */
int64_t fallback_to_tcp(struct call *c, int level, int name, const void *value,
			int len, int64_t ret)
{
	struct conn *conn = c->conn;
	struct sockaddr_storage ss;
	socklen_t sslen;
	long sfd;

	if (!conn->is_mptcp || conn->state != CONN_NEW ||
	    (ret != -EOPNOTSUPP && ret != -ENOPROTOOPT))
		return ret;
	sfd = st_socket(conn->domain,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (sfd < 0)
		return ret;
	replay(conn, conn->notes, (int)sfd);
	if (st_setsockopt(sfd, level, name, value, len)) {
		st_close(sfd);
		return ret;
	}
	if (conn->watched)
		st_unwatch(conn->sfd, &conn->ssrc);
	conn->watched = false;
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
	conn->is_mptcp = false;
	conn->tcp_by_option = true;
	fallback_forget(conn);
	conn_stats.fallbacks++;
	warn_user("%s (pid %d): MPTCP has no option %d of level %d: this socket is plain TCP",
		  task_comm(c->task), task_tgid(c->task), name, level);
	return 0;
}

/** path_fact - what the first subflow knows of its path; 0: unknown */
static int path_fact(const struct conn *conn, int level, int name)
{
	struct tcp_info ti = { 0 };
	socklen_t len = sizeof(ti);

	if (conn->state != CONN_OPEN ||
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
 * fallback_get - MPTCP does not know an option that is asked for
 * @ret: what it said
 *
 * Setting one it does not know makes the socket TCP, so the value is that of a
 * fresh TCP socket, unless it is about the path.
 */
int64_t fallback_get(const struct conn *conn, int level, int name, void *value,
		     socklen_t *len, int64_t ret)
{
	int fact;
	long sfd;

	if (!conn->is_mptcp || (ret != -EOPNOTSUPP && ret != -ENOPROTOOPT) ||
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

/** copy_opts - what was set on the old carrier and is of use on the new one */
static void copy_opts(int from, int to)
{
	static const int names[] = { SO_RCVTIMEO, SO_SNDTIMEO };
	struct timeval tv;
	socklen_t len;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		len = sizeof(tv);
		if (!getsockopt(from, SOL_SOCKET, names[i], &tv, &len))
			setsockopt(to, SOL_SOCKET, names[i], &tv, len);
	}
}

/** forget - what a stream was until now */
static void forget(struct conn *conn)
{
	carrier_drop(conn);
	while (conn->tokens)
		close(conn->token_fd[--conn->tokens]);
	if (conn->stashed)
		st_close(conn->stash_fd);
	conn->stashed = false;
	free(conn->to_stack.buf);
	free(conn->to_target.buf);
	memset(&conn->to_stack, 0, sizeof(conn->to_stack));
	memset(&conn->to_target, 0, sizeof(conn->to_target));
	conn->c_in = conn->c_out = conn->s_in = conn->s_out = false;
	conn->s_many = false;
	conn->c_eof = conn->s_eof = conn->c_shut = conn->s_shut = false;
	conn->c_rdhup = conn->c_err = conn->c_deaf = conn->c_want_out = false;
	conn->c_hung_up = false;
	conn->s_rdhup = conn->s_err = conn->s_broken = conn->s_end = false;
	conn->c_pri = conn->s_pri = conn->s_urgent = false;
	conn->native_err = conn->told = conn->hup = conn->reset_out = false;
	conn->was_open = conn->gone = false;
	conn->corked = 0;
	conn->so_error = 0;
	conn->state = CONN_NEW;
}

/**
 * fallback_reconnect - the caller connects again, or to nobody
 *
 * Returns 0 with @c->dup and the connection's carrier fresh and its state
 * CONN_NEW, or a negative errno.
 */
int64_t fallback_reconnect(struct call *c)
{
	static const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct conn *conn = c->conn;
	int fd, ret, sndbuf = conn->cork_sndbuf;
	uint32_t id = conn_renumber(conn);

	fd = carrier_make(SOCK_STREAM |
			  (call_nonblocking(c) ? SOCK_NONBLOCK : 0), id);
	if (fd < 0)
		return fd;
	copy_opts(c->dup, fd);
	if (sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	ret = copies_replace(c, fd, fd_ino(c->dup));
	if (ret < 0) {
		close(fd);
		return ret;
	}
	conn->carrier_ino = fd_ino(fd);
	close(c->dup);
	c->dup = fd;
	st_connect(conn->sfd, &none, sizeof(none));
	forget(conn);
	conn_probe_add(conn);
	held_wake(&conn->held);
	return 0;
}
