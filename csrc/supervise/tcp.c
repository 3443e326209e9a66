// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams: connect, listen, accept.
 *
 * Theory of operation
 *
 * connect(): the stack's socket is non-blocking. When the answer is not there
 * at once, a blocking caller is held; for a non-blocking one the carrier is
 * connected and corked (carrier.c). When the stack says that it is connected,
 * the cork comes out and held callers are answered; when it failed, our end is
 * closed with the filler unread, and SO_ERROR says why.
 *
 * listen(): the carrier listens as well, so that poll and epoll on it are the
 * kernel's own. Pending connections stay in the stack's accept queue. A token,
 * an empty connection to the carrier, makes it readable as long as there are
 * some; every arrival adds one (up to TOKENS), so that edge-triggered pollers
 * hear of each. accept() takes from the stack and hands over a connected pair;
 * when the stack has no more, the tokens are taken out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"
#include "host.h"

#define TOKENS		4	/* elements of conn->token_fd */
#define CARRIER_BACKLOG	16
#define STREAM_EVENTS	(EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP)

/** stream_watch - have the stack report on the socket */
static int stream_watch(struct conn *conn)
{
	conn->ssrc.fn = tcp_stack_event;
	return conn_watch(conn, STREAM_EVENTS);
}

/** attach - connect the caller's carrier to us: data may flow */
static int64_t attach(struct conn *conn, int dup)
{
	int ret = carrier_meet(conn, dup);

	if (ret)
		return ret;
	conn_stats.connected++;
	conn_event(conn, "connect");
	pump_open(conn);
	return 0;
}

/** connect_retry - a held connect */
static int64_t connect_retry(struct call *c, struct held *h)
{
	struct conn *conn = c->conn;
	int err = conn->so_error;
	uint32_t id;

	(void)h;
	switch (conn->state) {
	case CONN_CONNECTING:
		return CALL_HELD;
	case CONN_OPEN:
		if (conn->csrc.fd >= 0)
			return 0;
		if (call_dup(c, (int)c->args[0]))
			return -EBADF;
		if (carrier_identify(c->dup, &id) || id != conn->id)
			return -EBADF;
		return attach(conn, c->dup);
	default:
		conn->so_error = 0;
		return err ? -err : -ECONNABORTED;
	}
}

/** connect_wait - the stack's answer is not there yet */
static int64_t connect_wait(struct call *c)
{
	struct conn *conn = c->conn;
	int ret;

	if (call_nonblocking(c)) {
		if (conn->csrc.fd >= 0)
			return -EALREADY;
		ret = carrier_meet(conn, c->dup);
		if (!ret)
			ret = carrier_cork(conn, c->dup);
		return ret ? ret : -EINPROGRESS;
	}
	if (!call_hold(c, &conn->held, connect_retry,
		       hold_deadline(c, SO_SNDTIMEO), -EINPROGRESS))
		return -ENOMEM;
	return CALL_HELD;
}

/** tcp_connect - connect(2) of a stream */
int64_t tcp_connect(struct call *c, const struct sockaddr_storage *ss,
		    socklen_t len)
{
	struct conn *conn = c->conn;
	int err = conn->so_error;
	long ret;

	switch (conn->state) {
	case CONN_NEW:
		break;
	case CONN_CONNECTING:
		if (call_nonblocking(c) && conn->csrc.fd >= 0)
			return -EALREADY;
		return connect_wait(c);
	case CONN_DONE:
		/* The call after a failure says how it failed, and ends the
		 * attempt; the next begins another (__inet_stream_connect(),
		 * net/ipv4/af_inet.c). */
		conn->so_error = 0;
		if (conn->was_open || !conn->told) {
			conn->told = true;
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
	ret = stream_watch(conn);
	if (ret)
		return ret;
	ret = st_connect(conn->sfd, ss, len);
	if (ret == 0) {
		if (ss->ss_family == AF_UNSPEC)
			return 0;
		conn->state = CONN_OPEN;
		return attach(conn, c->dup);
	}
	if (ret != -EINPROGRESS)
		return ret;
	conn->state = CONN_CONNECTING;
	return connect_wait(c);
}

/** connected - the stack has an answer for a connect */
static void connected(struct conn *conn)
{
	int err = 0;
	socklen_t len = sizeof(err);

	st_getsockopt(conn->sfd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (!err) {
		conn->state = CONN_OPEN;
		if (conn->csrc.fd >= 0) {
			carrier_uncork(conn);
			conn_stats.connected++;
			conn_event(conn, "connect");
			pump_open(conn);
		} else {
			/* A blocking connect: the stack shall see it end. */
			struct sockaddr sa = { .sa_family =
				(sa_family_t)conn->domain };

			st_connect(conn->sfd, &sa, sizeof(sa));
		}
		held_wake(&conn->held);
		return;
	}
	conn->so_error = err;
	if (conn->csrc.fd >= 0) {
		conn->state = CONN_DONE;
		carrier_drop(conn);	/* with the filler unread */
		conn->native_err = true;
	} else {
		/* The carrier was never used: the target may try again, so
		 * the stack's socket shall forget this attempt. */
		static const struct sockaddr none = { .sa_family = AF_UNSPEC };

		st_connect(conn->sfd, &none, sizeof(none));
		conn->state = CONN_NEW;
	}
	held_wake(&conn->held);
}

/** token_add - make the listening carrier readable */
static void token_add(struct conn *conn)
{
	struct sockaddr_un un;
	int fd;

	if (conn->tokens == TOKENS)
		return;
	fd = carrier_token();
	if (fd < 0)
		return;
	/* There is room for TOKENS, so this does not wait. */
	if (connect(fd, (struct sockaddr *)&un,
		    carrier_name(&un, NAME_TARGET, conn->id))) {
		close(fd);
		if (errno == ECONNREFUSED && carrier_gone(conn))
			conn_free(conn);	/* the target has closed it */
		return;
	}
	conn->token_fd[conn->tokens++] = fd;
}

/** tokens_remove - the stack's accept queue is empty */
static void tokens_remove(struct conn *conn, int dup)
{
	struct pollfd p = { .fd = dup, .events = POLLIN };

	while (conn->tokens && poll(&p, 1, 0) > 0) {
		int fd = accept4(dup, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			break;
		close(fd);
		close(conn->token_fd[--conn->tokens]);
	}
}

/** arrived - the listener has connections */
static void arrived(struct conn *conn)
{
	held_wake(&conn->held);
	if (!conn->dead && st_readable(conn->sfd))
		token_add(conn);
}

/** tcp_stack_event - the stack reports on a stream's socket */
void tcp_stack_event(struct stack_src *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, ssrc);

	switch (conn->state) {
	case CONN_CONNECTING:
		if (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
			return;
		conn->s_in = events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP);
		conn->s_out = true;
		connected(conn);
		return;
	case CONN_LISTENING:
		arrived(conn);
		return;
	case CONN_OPEN:
		if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
			conn->s_in = true;
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			conn->s_out = true;
		if (events & (EPOLLRDHUP | EPOLLHUP))
			conn->s_rdhup = true;
		if (events & EPOLLPRI)
			conn->s_pri = true;
		if (events & EPOLLERR)
			conn->s_err = true;
		pump(&conn->work);
		return;
	default:
		return;
	}
}

/** tcp_listen - listen(2) */
int64_t tcp_listen(struct call *c)
{
	struct conn *conn = c->conn;
	long ret;

	ret = st_listen(conn->sfd, (int)c->args[1]);
	if (ret == -EADDRINUSE) {
		conn_sweep();
		ret = st_listen(conn->sfd, (int)c->args[1]);
	}
	if (ret || conn->state == CONN_LISTENING)
		return ret;
	if (listen(c->dup, CARRIER_BACKLOG))
		return -errno;
	conn->state = CONN_LISTENING;
	conn_reachable(conn);
	conn_event(conn, "listen");
	return stream_watch(conn);
}

/**
 * closed_already - see whether the target has closed a fresh connection
 *
 * The target goes on as soon as it has the descriptor, while a copy is still
 * ours. When it closes its own in that time, the event comes with our copy's
 * end, after those of ends that it closed later: and the one that closes first
 * is the one that has TIME_WAIT.
 */
static void closed_already(struct conn *conn)
{
	struct pollfd p = { .fd = conn->csrc.fd, .events = POLLIN | POLLRDHUP };

	if (poll(&p, 1, 0) > 0 && (p.revents & POLLHUP))
		tcp_carrier_event(&conn->csrc, (uint32_t)p.revents);
}

/**
 * hand_over - an accepted connection to the caller of accept
 * @sfd: of the stack
 * @ss: the peer
 *
 * When the caller is gone, the connection goes back to where the next accept
 * looks first.
 */
static int64_t hand_over(struct call *c, int sfd, struct sockaddr_storage *ss,
			 socklen_t len)
{
	int flags = c->nr == SYS_accept4 ? (int)c->args[3] : 0;
	struct conn *lis = c->conn, *conn;
	int sv[2], ret;

	if (c->args[1]) {
		ret = (int)addr_write(c, c->args[1], c->args[2], ss, len);
		if (ret == -ESRCH)
			goto stash;
		if (ret) {
			st_close(sfd);	/* as the kernel does */
			return ret;
		}
	}
	conn = conn_new(c, KIND_STREAM, sfd, lis->domain, lis->type,
			lis->proto);
	if (!conn) {
		st_close(sfd);
		return -ENOMEM;
	}
	sock_inherit(conn, lis);
	ret = carrier_pair(SOCK_STREAM | (flags & SOCK_NONBLOCK), conn->id, sv);
	if (ret) {
		conn_free(conn);
		return ret;
	}
	conn->carrier_ino = fd_ino(sv[1]);
	conn->csrc.fd = sv[0];
	conn->csrc.fn = tcp_carrier_event;
	conn->state = CONN_OPEN;
	loop_add(&conn->csrc, CARRIER_EVENTS);
	ret = call_addfd_send(c, sv[1], flags & SOCK_CLOEXEC);
	close(sv[1]);
	if (ret < 0) {
		conn->sfd = -1;
		conn_free(conn);
		if (ret == -ENOENT)
			goto stash;
		st_close(sfd);
		return ret;
	}
	conn->tfd = ret;
	conn_stats.accepted++;
	conn_stats.made++;
	task_count_socket(c->task, true);
	conn_event(conn, "accept");
	stream_watch(conn);
	pump_open(conn);
	closed_already(conn);
	return CALL_ANSWERED;

stash:
	lis->stash_fd = sfd;
	lis->stashed = true;
	memcpy(&lis->stash_addr, ss, sizeof(*ss));
	lis->stash_len = len;
	if (lis->state == CONN_LISTENING)
		token_add(lis);
	return CALL_ANSWERED;
}

/** accept_try - take a connection from the stack; -EAGAIN when there is none */
static int64_t accept_try(struct call *c)
{
	struct conn *lis = c->conn;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	long sfd;

	if (lis->stashed) {
		lis->stashed = false;
		ss = lis->stash_addr;
		return hand_over(c, lis->stash_fd, &ss, lis->stash_len);
	}
	sfd = st_accept4(lis->sfd, &ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (sfd < 0)
		return sfd;
	return hand_over(c, (int)sfd, &ss, len);
}

/** accept_retry - a held accept */
static int64_t accept_retry(struct call *c, struct held *h)
{
	int64_t ret;

	(void)h;
	if (!call_valid(c))
		return CALL_ANSWERED;
	ret = accept_try(c);
	return ret == -EAGAIN ? CALL_HELD : ret;
}

/** tcp_accept - accept(2) and accept4(2) */
int64_t tcp_accept(struct call *c)
{
	struct conn *conn = c->conn;
	int64_t ret;

	if (c->nr == SYS_accept4 &&
	    (c->args[3] & ~(uint64_t)(SOCK_NONBLOCK | SOCK_CLOEXEC)))
		return -EINVAL;
	ret = accept_try(c);
	if (conn->tokens && !conn->stashed &&
	    (ret == -EAGAIN || !st_readable(conn->sfd)))
		tokens_remove(conn, c->dup);
	if (ret != -EAGAIN || call_nonblocking(c))
		return ret;
	if (!call_hold(c, &conn->held, accept_retry,
		       hold_deadline(c, SO_RCVTIMEO), -EAGAIN))
		return -ENOMEM;
	return CALL_HELD;
}
