// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams: listen and accept.
 *
 * Theory of operation
 *
 * The carrier listens as well, so that the kernel itself handles poll and epoll
 * on it. Pending connections stay in the stack's accept queue. While there are
 * any, a token makes the carrier readable: a token is an empty connection to
 * the carrier. Each arriving connection adds a token (up to TOKENS), so that
 * edge-triggered pollers get an event for each. accept() takes a connection
 * from the stack and passes one end of a connected pair to the target. When the
 * stack's queue is empty, the tokens are removed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"
#include "engine/stream/pump.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

#define CARRIER_BACKLOG	16

/** stop_listening - repeat the target's shutdown of its listener in the stack */
static void stop_listening(struct conn *conn)
{
	st_shutdown(conn->sfd, SHUT_RDWR);
	conn_listens(conn, false);
}

/** token_add - make the listening carrier readable */
static void token_add(struct stream *s)
{
	struct conn *conn = &s->conn;
	struct sockaddr_un un;
	int fd;

	if (s->listener.tokens == TOKENS)
		return;
	fd = carrier_token();
	if (fd < 0)
		return;
	/* The backlog has room for TOKENS, so this does not block. */
	if (connect(fd, (struct sockaddr *)&un,
		    carrier_name(&un, NAME_TARGET, conn->id))) {
		if (errno != ECONNREFUSED) {
			close(fd);
			return;
		}
		close(fd);
		if (carrier_gone(conn))	/* freed later: a held call uses it */
			conn_sweep_soon();
		else
			stop_listening(conn);
		return;
	}
	s->listener.token_fd[s->listener.tokens++] = fd;
}

/**
 * tokens_remove - remove the tokens, because the stack's accept queue is empty
 */
static void tokens_remove(struct stream *s, int dup)
{
	struct pollfd p = { .fd = dup, .events = POLLIN };

	/*
	 * If other processes can connect to the carrier (see carrier.c), this
	 * also removes their connections.
	 */
	while ((s->listener.tokens || host.shared_netns) && poll(&p, 1, 0) > 0) {
		int fd = accept4(dup, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			break;
		close(fd);
		if (s->listener.tokens)
			close(s->listener.token_fd[--s->listener.tokens]);
	}
}

/** listen_event - handle a new pending connection of the listener */
static void listen_event(struct stack_src *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, ssrc);
	struct stream *s = stream_of(conn);

	(void)events;
	if (s->state != STREAM_LISTENING)
		return;
	held_wake(&conn->held);
	if (!(conn->facts & F_DEAD) && s->listener.tokens < TOKENS &&
	    st_readable(conn->sfd))
		token_add(s);
}

/** tcp_listen - handle listen(2) */
int64_t tcp_listen(struct call *c)
{
	struct conn *conn = c->conn;
	struct stream *s;
	long ret;

	ret = hostnet_serve(c);
	if (ret)
		return ret;
	/* A carrier that was shut down cannot listen, unlike TCP's sockets. */
	if (conn->kind == KIND_STREAM && carrier_is_shut(c->dup) &&
	    (stream_of(conn)->state == STREAM_NEW ||
	     stream_of(conn)->state == STREAM_LISTENING)) {
		ret = fallback_reconnect(c);
		if (ret)
			return ret;
	}
	ret = st_listen(conn->sfd, (int)c->args[1]);
	if (ret == -EADDRINUSE) {
		conn_sweep();
		ret = st_listen(conn->sfd, (int)c->args[1]);
	}
	if (ret || conn->kind != KIND_STREAM)
		return ret;
	s = stream_of(conn);
	if (s->state == STREAM_LISTENING)
		return 0;
	if (listen(c->dup, CARRIER_BACKLOG))
		return -errno;
	stream_set_state(s, STREAM_LISTENING);
	conn_reachable(conn);
	conn_event(conn, "listen");
	conn_listens(conn, true);
	/* Over loopback, the connection is there when the call connect() returns. */
	conn->ssrc.first = true;
	return stream_watch(s, listen_event);
}

/**
 * closed_already - check whether the target has closed a new connection
 *
 * The target continues as soon as it has the descriptor, while we still have a
 * copy of it. If the target closes its descriptor in this time, we get the
 * event only when we close our copy. Events of ends that the target closed
 * later may then come first. The order matters: the end that closes first
 * enters TIME_WAIT.
 */
static void closed_already(struct stream *s)
{
	struct conn *conn = &s->conn;
	struct pollfd p = { .fd = conn->csrc.fd, .events = POLLIN | POLLRDHUP };

	if (poll(&p, 1, 0) > 0 && (p.revents & POLLHUP))
		tcp_carrier_event(&conn->csrc, (uint32_t)p.revents);
}

/**
 * accepted_drop - close an unused accepted socket without waiting
 *
 * With SO_LINGER, closing would wait for the peer.
 */
static void accepted_drop(const struct conn *lis, int sfd)
{
	static const struct linger none;

	if (lis->facts & F_LINGER)	/* the option is inherited */
		st_setsockopt(sfd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	st_close(sfd);
}

/**
 * inherit - copy the state that a connection inherits from its listener
 * @fd: the target's end of its carrier
 */
static void inherit(struct stream *s, const struct stream *lis, int fd)
{
	s->on_carrier = lis->on_carrier;
	carrier_options(s, fd);
	s->rcvbuf = lis->rcvbuf;
	s->stamps.wanted = lis->stamps.wanted;
	s->inq_wanted = lis->inq_wanted;
	s->conn.facts |= lis->conn.facts &
			 (F_LINGER | F_ABORTIVE | F_MPTCP | F_MPTCP_ASKED |
			  F_TCP_BY_OPTION | F_SPACE);
}

/**
 * accepted - create the connection and carrier of an accepted socket
 * @sfd: socket of the stack; on error, the caller still owns it
 * @fd: set to the target's end of the carrier
 *
 * Returns 0 or a negative errno.
 */
static int accepted(struct call *c, int sfd, int flags, struct stream **made,
		    int *fd)
{
	struct conn *lis = c->conn, *conn = carrier_pool_get(flags, fd);
	struct stream *s;
	int sv[2], ret;

	if (conn) {
		conn_begin(conn, c, sfd, lis->domain, lis->type, lis->proto);
	} else {
		conn = conn_new(c, KIND_STREAM, sfd, lis->domain, lis->type,
				lis->proto);
		if (!conn)
			return -ENOMEM;
		ret = carrier_pair(SOCK_STREAM | (flags & SOCK_NONBLOCK),
				   conn->id, sv);
		if (ret) {
			conn->sfd = -1;
			conn_free(conn);
			return ret;
		}
		carrier_note(conn, sv[1]);
		carrier_watch(conn, sv[0]);
		*fd = sv[1];
	}
	conn_has_carrier(conn);
	s = stream_of(conn);
	inherit(s, stream_of(lis), *fd);
	conn->facts |= F_ACCEPTED;
	stream_set_state(s, STREAM_OPEN);
	*made = s;
	return 0;
}

/**
 * hand_over - pass an accepted connection to the caller of accept
 * @sfd: socket of the stack
 * @ss: address of the peer
 *
 * If the caller is gone, has no free descriptor or waits for a page of its memory,
 * the connection is stashed. The next accept takes the stashed connection first.
 */
static int64_t hand_over(struct call *c, int sfd, struct sockaddr_storage *ss,
			 socklen_t len)
{
	int flags = c->nr == SYS_accept4 ? (int)c->args[3] : 0;
	struct stream *lis = stream_of(c->conn), *s;
	struct conn *conn;
	int fd, ret;

	if (c->args[1]) {
		ret = (int)addr_write(c, c->args[1], c->args[2], ss, len);
		if (ret == -ESRCH || (ret && paged_waits(c)))
			goto stash;
		if (ret) {
			accepted_drop(&lis->conn, sfd);	/* as the kernel does */
			return ret;
		}
	}
	ret = accepted(c, sfd, flags, &s, &fd);
	if (ret) {
		if (ret == -EMFILE)	/* our limit, not the caller's */
			ret = call_no_room(c);
		goto stash;
	}
	conn = &s->conn;
	ret = call_addfd_send(c, fd, flags & SOCK_CLOEXEC);
	close(fd);
	if (ret < 0) {
		conn->sfd = -1;
		conn_free(conn);
		goto stash;
	}
	conn->tfd = ret;
	if (c->left) {
		orphan_fd_add(c, ret, conn->carrier_ino, ss, len);
		if (lis->state == STREAM_LISTENING)
			token_add(lis);
	}
	conn_stats.accepted++;
	conn_stats.made++;
	task_count_socket(c->task, true);
	conn_event(conn, "accept");
	tcp_watch(s);
	pump_open(s);
	closed_already(s);
	return CALL_ANSWERED;

stash:
	lis->listener.stash_fd = sfd;
	lis->listener.stashed = true;
	lis->listener.stash_addr = *ss;
	lis->listener.stash_len = len;
	if (lis->state == STREAM_LISTENING)
		token_add(lis);
	return ret == -ESRCH || ret == -ENOENT ? CALL_ANSWERED : ret;
}

/**
 * settle_tokens - remove the tokens if the last pending connection was taken
 *
 * This must happen before the caller continues, because the caller may poll at
 * once, and then block in another accept.
 */
static void settle_tokens(struct call *c)
{
	struct stream *lis = stream_of(c->conn);

	if ((lis->listener.tokens || host.shared_netns) &&
	    !st_readable(lis->conn.sfd))
		tokens_remove(lis, c->dup);
}

/** accept_try - take a connection from the stack; -EAGAIN if there is none */
static int64_t accept_try(struct call *c)
{
	struct listener *l = &stream_of(c->conn)->listener;
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct orphan_fd *left = orphan_fd_find(c);
	long sfd;

	if (left) {
		settle_tokens(c);
		return orphan_fd_give(c, left);
	}
	if (l->stashed) {
		l->stashed = false;
		ss = l->stash_addr;
		settle_tokens(c);
		return hand_over(c, l->stash_fd, &ss, l->stash_len);
	}
	if (memory_short())
		return -ENOBUFS;
	sfd = st_accept4(c->conn->sfd, &ss, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (sfd < 0)
		return sfd;
	settle_tokens(c);
	return hand_over(c, (int)sfd, &ss, len);
}

/**
 * is_shut - whether the target has shut down its listener
 *
 * shutdown(2) is not notified. The stack's socket is therefore shut down when
 * we detect it.
 */
static bool is_shut(struct stream *s, int dup)
{
	if (!carrier_is_shut(dup))
		return false;
	stop_listening(&s->conn);
	return true;
}

/** accept_retry - retry a held accept */
static int64_t accept_retry(struct call *c, struct held *h)
{
	int64_t ret;

	(void)h;
	if (!call_valid(c))
		return CALL_ANSWERED;
	ret = accept_try(c);
	if (ret != -EAGAIN)
		return ret;
	return is_shut(stream_of(c->conn), c->dup) ? -EINVAL : CALL_HELD;
}

/** tcp_accept - handle accept(2) and accept4(2) */
int64_t tcp_accept(struct call *c)
{
	struct conn *conn = c->conn;
	struct stream *s;
	struct held *h;
	int64_t ret;

	if (c->nr == SYS_accept4 &&
	    (c->args[3] & ~(uint64_t)(SOCK_NONBLOCK | SOCK_CLOEXEC)))
		return -EINVAL;
	if (conn->kind != KIND_STREAM)	/* the stack returns the right error */
		return memory_short() ? -ENOBUFS :
		       st_accept4(conn->sfd, NULL, NULL,
				  SOCK_NONBLOCK | SOCK_CLOEXEC);
	s = stream_of(conn);
	ret = accept_try(c);
	if (ret == -EAGAIN && (s->listener.tokens || host.shared_netns))
		tokens_remove(s, c->dup);
	if (ret == -EAGAIN && is_shut(s, c->dup))
		return -EINVAL;
	if (ret != -EAGAIN || call_nonblocking(c))
		return ret;
	h = call_hold(c, &conn->held, EPOLLRDHUP, accept_retry,
		      hold_deadline(c, SO_RCVTIMEO), -EAGAIN);
	if (!h)
		return -ENOMEM;
	h->again = true;	/* another thread may leave a connection */
	return CALL_HELD;
}
