// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections into the other stack, which lklrun has accepted on the host.
 *
 * lklrun keeps a descriptor of its socket until the connection is made, so that it can
 * try another address of the stack. So a failure leaves the socket as it is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "base/loop.h"
#include "gateway/relay.h"
#include "shared/gateway_proto.h"
#include "stack/stack.h"

/**
 * struct entrance - a connection that the other stack has not accepted yet
 * @link: in the list of all; lklrun limits their number
 * @src: of the stack's socket @sfd
 * @id: in messages
 * @fd: the host's socket
 */
struct entrance {
	struct list link;
	struct stack_src src;
	uint64_t id;
	int sfd, fd;
};

static struct list entrances = LIST_INIT(entrances);

/** leave - end the wait for a connection; its sockets stay open */
static void leave(struct entrance *e)
{
	list_del(&e->link);
	st_unwatch(e->sfd, &e->src);
	loop_free_later(e);
}

static void fail(struct entrance *e)
{
	leave(e);
	st_close(e->sfd);
	close(e->fd);
	tell_of(GATEWAY_ENDED, e->id, GATEWAY_RESET);
}

static void entrance_event(struct stack_src *src, uint32_t events)
{
	struct entrance *e = container_of(src, struct entrance, src);
	int error = 0;
	socklen_t len = sizeof(error);

	if (st_getsockopt(e->sfd, SOL_SOCKET, SO_ERROR, &error, &len) || error ||
	    (events & (EPOLLERR | EPOLLHUP))) {
		fail(e);
		return;
	}
	leave(e);
	tell_of(GATEWAY_ENTERED, e->id, 0);
	if (relay_start(e->sfd, e->fd, e->id))
		tell_of(GATEWAY_ENDED, e->id, GATEWAY_RESET);
}

/** connect_as - connect to the other stack from an address that is not ours */
static int connect_as(const struct gateway_msg *m)
{
	struct sockaddr_in6 from = { .sin6_family = AF_INET6 }, to = { .sin6_family = AF_INET6 };
	const int on = 1, off = 0;
	long fd = st_socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	long ret = fd;

	memcpy(&from.sin6_addr, m->src, 16);
	memcpy(&to.sin6_addr, m->dst, 16);
	to.sin6_port = m->dport;
	if (ret >= 0)
		ret = st_setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (ret >= 0)
		ret = st_setsockopt(fd, SOL_IPV6, IPV6_TRANSPARENT, &on, sizeof(on));
	if (ret >= 0)	/* connect() then chooses a port that is free for this destination */
		ret = st_setsockopt(fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if (ret >= 0)
		ret = st_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (ret >= 0)
		ret = st_bind(fd, &from, sizeof(from));
	if (ret >= 0)
		ret = st_connect(fd, &to, sizeof(to));
	if (ret >= 0 || ret == -EINPROGRESS)
		return (int)fd;
	if (fd >= 0)
		st_close(fd);
	return (int)ret;
}

/** enter - connect to the other stack for lklrun's socket @fd, which it owns */
void enter(const struct gateway_msg *m, int fd)
{
	struct entrance *e = calloc(1, sizeof(*e));
	int sfd = e && fd >= 0 ? connect_as(m) : -ENOMEM;

	if (sfd >= 0) {
		e->src.fn = entrance_event;
		e->id = m->id;
		e->sfd = sfd;
		e->fd = fd;
		if (!st_watch(sfd, &e->src, EPOLLOUT)) {
			list_add_tail(&e->link, &entrances);
			return;
		}
		st_close(sfd);
	}
	free(e);
	if (fd >= 0)
		close(fd);
	tell_of(GATEWAY_ENDED, m->id, GATEWAY_RESET);
}

/** enter_cancel - give a connection up, unless it has been made or has failed */
void enter_cancel(uint64_t id)
{
	struct list *pos;

	list_for_each(pos, &entrances) {
		struct entrance *e = container_of(pos, struct entrance, link);

		if (e->id == id) {
			fail(e);
			return;
		}
	}
}
