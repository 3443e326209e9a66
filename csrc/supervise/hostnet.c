// SPDX-License-Identifier: GPL-2.0-only
/*
 * Chosen destinations (--host-net): what the target reaches by the host's stack.
 *
 * Theory of operation
 *
 * Every socket begins as the stack's. When it is connected to a chosen
 * destination, or is a datagram socket without a name of its own that sends its
 * first message to one, a socket of the host's network (home.c) takes the place
 * of the carrier: under the same number, and under all others by which this
 * process has it. From then on the calls on it are the host kernel's.
 *
 * The connect itself is made here, without waiting, so that no other thread of
 * the target can exchange the address meanwhile; a blocking caller is held until
 * it is decided, and keeps the carrier when it failed. The options set before
 * come along, and so do entries in epolls of this process, which know the socket
 * by its old description.
 *
 * A socket of the host's reaches chosen destinations and no others. Connected to
 * another one, or bound, or made to listen, it becomes the stack's again as long
 * as it has no peer: getaddrinfo(3) connects one socket to one address after the
 * other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "home.h"
#include "host.h"
#include "hostnet.h"
#include "msg.h"

/**
 * struct attempt - a connect of a blocking caller, who is held
 * @src: the socket; closed when the connect is decided
 * @ino: inode of the carrier it shall replace
 * @ss, @len: the destination
 */
struct attempt {
	struct source src;
	struct list held;
	uint64_t ino;
	struct sockaddr_storage ss;
	socklen_t len;
};

/** settle - install a socket of the host's, with the caller's own O_NONBLOCK */
static int64_t settle(struct call *c, int fd, uint64_t ino,
		      const struct sockaddr_storage *ss)
{
	int ret;

	if (!call_nonblocking(c))
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	ret = copies_replace(c, fd, ino);
	if (!ret)
		hostnet_count(c->task, ss);
	return ret;
}

/** attempt_ready - the connect of a held caller is decided */
static void attempt_ready(struct source *src, uint32_t events)
{
	struct attempt *a = container_of(src, struct attempt, src);
	int fd = src->fd;

	(void)events;
	held_wake(&a->held);
	loop_del(src);
	close(fd);
	loop_free_later(a);
}

/** attempt_retry - it is: tell the caller */
static int64_t attempt_retry(struct call *c, struct held *h)
{
	struct attempt *a = (struct attempt *)(uintptr_t)h->done;
	socklen_t len = sizeof(int);
	int err = 0;

	getsockopt(a->src.fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err)
		return -err;
	/* The kernel shall see the connect end, or another one would (see
	 * connected(), tcp.c). */
	connect(a->src.fd, (struct sockaddr *)&a->ss, a->len);
	if (!call_valid(c))
		return CALL_ANSWERED;
	if (call_dup(c, (int)c->args[0]) || fd_ino(c->dup) != a->ino)
		return -EBADF;
	return settle(c, a->src.fd, a->ino, &a->ss);
}

/** attempt - hold a blocking caller until @fd, taken over, is connected */
static int64_t attempt(struct call *c, int fd, uint64_t ino,
		       const struct sockaddr_storage *ss, socklen_t len)
{
	struct attempt *a = calloc(1, sizeof(*a));
	struct held *h = NULL;

	if (a) {
		list_init(&a->held);
		a->src.fn = attempt_ready;
		a->src.fd = fd;
		a->ino = ino;
		a->ss = *ss;
		a->len = len;
		h = call_hold(c, &a->held, attempt_retry,
			      hold_deadline(c, SO_SNDTIMEO), -EINPROGRESS);
	}
	if (!h) {
		free(a);
		close(fd);
		return -ENOMEM;
	}
	h->done = (uintptr_t)a;
	loop_add(&a->src, EPOLLOUT);
	return CALL_HELD;
}

/** carry_over - options set on the carrier, for the host's socket @fd */
static void carry_over(const struct call *c, int fd)
{
	static const int names[] = { SO_RCVTIMEO, SO_SNDTIMEO };
	struct timeval tv;
	socklen_t len;
	size_t i;

	fallback_replay_host(c->conn, fd);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		len = sizeof(tv);
		if (!getsockopt(c->dup, SOL_SOCKET, names[i], &tv, &len))
			setsockopt(fd, SOL_SOCKET, names[i], &tv, len);
	}
}

/** fresh - a socket of the host's like the one the caller has */
static int fresh(const struct call *c)
{
	const struct conn *conn = c->conn;
	int fd = home_socket(conn->domain, conn->type | SOCK_NONBLOCK,
			     conn->proto);

	if (fd >= 0)
		carry_over(c, fd);
	return fd;
}

/** leave - connect(2) of a carrier to a chosen destination */
static int64_t leave(struct call *c, const struct sockaddr_storage *ss,
		     socklen_t len)
{
	const struct conn *conn = c->conn;
	uint64_t ino = fd_ino(c->dup);
	int64_t ret;
	int fd;

	if (conn->kind == KIND_STREAM && conn->state != CONN_NEW &&
	    conn->state != CONN_DONE)
		return CALL_GO_ON;	/* the stack has something to say */
	fd = fresh(c);
	if (fd < 0)
		return fd;
	ret = connect(fd, (const struct sockaddr *)ss, len) ? -errno : 0;
	if (ret == -EINPROGRESS && !call_nonblocking(c))
		return attempt(c, fd, ino, ss, len);
	if (!ret || ret == -EINPROGRESS) {
		int64_t err = settle(c, fd, ino, ss);

		if (err)
			ret = err;
	}
	close(fd);
	return ret;
}

/** leave_unconnected - a datagram socket's first message: to a chosen one */
static int64_t leave_unconnected(struct call *c,
				 const struct sockaddr_storage *ss)
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	int64_t ret;
	int fd;

	/* It has a name, and so perhaps others who know it, in the stack. */
	if (!st_getsockname(c->conn->sfd, &name, &len) &&
	    ((struct sockaddr_in *)&name)->sin_port)
		return -ENETUNREACH;
	fd = fresh(c);
	if (fd < 0)
		return fd;
	ret = settle(c, fd, fd_ino(c->dup), ss);
	close(fd);
	return ret ? ret : CALL_NATIVE;
}

/** destination - of a call that sends, 0 when it names none */
static int64_t destination(const struct call *c, struct sockaddr_storage *ss)
{
	struct user_msg um;
	int64_t ret;

	switch (c->nr) {
	case SYS_connect:
		return addr_read(c, c->args[1], c->args[2], ss);
	case SYS_sendto:
		if (!c->args[4])
			return 0;
		return addr_read(c, c->args[4], c->args[5], ss);
	case SYS_sendmsg:
	case SYS_sendmmsg:	/* a struct mmsghdr begins with its msghdr */
		if (c->nr == SYS_sendmmsg && !(uint32_t)c->args[2])
			return 0;
		ret = msg_get_hdr(c, c->args[1], &um);
		if (ret || !um.name)
			return ret;
		return addr_read(c, um.name, um.namelen, ss);
	}
	return 0;
}

/** from_carrier - a call on a socket of the stack */
static int64_t from_carrier(struct call *c)
{
	struct sockaddr_storage ss;
	int64_t len = destination(c, &ss);

	if (len <= 0 || !hostnet_chosen(&ss, len))
		return CALL_GO_ON;
	if (c->nr == SYS_connect)
		return leave(c, &ss, (socklen_t)len);
	if (c->conn->kind == KIND_STREAM)	/* MSG_FASTOPEN */
		return -EOPNOTSUPP;
	return leave_unconnected(c, &ss);
}

/** has_peer - whether a socket of the host's is connected, or about to be */
static bool has_peer(int fd, int type)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct tcp_info info;

	if (type != SOCK_STREAM)
		return !getpeername(fd, (struct sockaddr *)&ss, &len);
	len = sizeof(info);
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	       info.tcpi_state != TCP_CLOSE;
}

/** int_opt - an option of a socket that is a number, or -1 */
static int int_opt(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

/** come_back - put a socket of the stack in the place of one of the host's */
static int64_t come_back(struct call *c, int domain, int type)
{
	int flags = call_nonblocking(c) ? SOCK_NONBLOCK : 0, fd, ret;
	uint64_t ino = fd_ino(c->dup);
	struct conn *conn;

	fd = sock_make(c, domain, type, int_opt(c->dup, SO_PROTOCOL), flags,
		       &conn);
	if (fd < 0)
		return fd;
	conn->carrier_ino = fd_ino(fd);
	ret = copies_replace(c, fd, ino);
	if (ret) {
		close(fd);
		conn_free(conn);
		return ret;
	}
	close(c->dup);
	c->dup = fd;
	c->conn = conn;
	conn->tfd = (int)c->args[0];
	return CALL_GO_ON;
}

/** on_host - a call on a socket of the host's */
static int64_t on_host(struct call *c)
{
	int domain = int_opt(c->dup, SO_DOMAIN), type;
	struct sockaddr_storage ss;
	int64_t len;

	if (domain != AF_INET && domain != AF_INET6)
		return CALL_NATIVE;
	type = int_opt(c->dup, SO_TYPE);
	switch (c->nr) {
	case SYS_connect:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
		len = destination(c, &ss);
		if (len < 0)
			return len;
		if (!len || ss.ss_family == AF_UNSPEC || hostnet_chosen(&ss, len))
			return CALL_NATIVE;
		if (c->nr != SYS_connect)
			return -ENETUNREACH;
		break;
	case SYS_bind:
	case SYS_listen:
		break;
	default:
		return CALL_NATIVE;
	}
	if (has_peer(c->dup, type) &&
	    (type == SOCK_STREAM || c->nr != SYS_connect))
		return CALL_NATIVE;
	return come_back(c, domain, type);
}

/**
 * hostnet_call - a call on a descriptor, before the stack hears of it
 * @found: what find_conn() said
 *
 * CALL_GO_ON: it is a carrier's, and the stack's affair.
 */
int64_t hostnet_call(struct call *c, int64_t found)
{
	if (!found)
		return c->conn->kind == KIND_NETLINK ? CALL_GO_ON :
						       from_carrier(c);
	if (found == CALL_NATIVE && c->dup >= 0)
		return on_host(c);
	return found;
}
