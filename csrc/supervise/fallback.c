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
 * cannot be again, while TCP can. The target gets a fresh carrier in place of the
 * old one, under the same number. It is known by a new name, so duplicates of
 * the old one are orphans, and an epoll that still had it has it no more. A
 * program that takes it out of the epoll when connect has failed, as nearly all
 * do, sees no difference.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
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

	if (!conn->is_mptcp || conn->state != CONN_NEW || len > VALUE_MAX ||
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
static void replay(const struct opt_note *o, int sfd)
{
	if (!o)
		return;
	replay(o->next, sfd);
	st_setsockopt(sfd, o->level, o->name, o->value, o->len);
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
	replay(conn->notes, (int)sfd);
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
	fallback_forget(conn);
	conn_stats.fallbacks++;
	warn_user("%s (pid %d): MPTCP has no option %d of level %d: this socket is plain TCP",
		  task_comm(c->task), task_tgid(c->task), name, level);
	return 0;
}

/** is_cloexec - whether the caller's descriptor is close-on-exec */
static bool is_cloexec(const struct call *c, int fd)
{
	char path[64], text[256], *p;
	unsigned int flags = 0;
	ssize_t n;
	int f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", c->pid, fd);
	f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return true;
	n = read(f, text, sizeof(text) - 1);
	close(f);
	text[n > 0 ? n : 0] = '\0';
	p = strstr(text, "flags:");
	return !p || sscanf(p, "flags: %o", &flags) != 1 || (flags & O_CLOEXEC);
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

/**
 * fallback_reconnect - a connect failed, the caller connects again
 *
 * Returns 0 with @c->dup and the connection's carrier fresh and its state
 * CONN_NEW, or a negative errno.
 */
int64_t fallback_reconnect(struct call *c)
{
	static const struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct conn *conn = c->conn;
	int fd, ret, num = (int)c->args[0], sndbuf = conn->cork_sndbuf;
	uint32_t id = conn_renumber(conn);

	fd = carrier_make(SOCK_STREAM |
			  (call_nonblocking(c) ? SOCK_NONBLOCK : 0), id);
	if (fd < 0)
		return fd;
	copy_opts(c->dup, fd);
	if (sndbuf)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	conn->carrier_ino = fd_ino(fd);
	ret = call_addfd_replace(c, fd, num, is_cloexec(c, num));
	if (ret < 0) {
		close(fd);
		return ret;
	}
	close(c->dup);
	c->dup = fd;
	st_connect(conn->sfd, &none, sizeof(none));
	conn->state = CONN_NEW;
	conn->native_err = false;
	conn->told = false;
	conn->hup = false;
	conn->corked = 0;
	conn_probe_add(conn);
	return 0;
}
