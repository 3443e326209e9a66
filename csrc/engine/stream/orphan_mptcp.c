// SPDX-License-Identifier: GPL-2.0-only
/*
 * MPTCP sockets that the target has closed while their peers may still send.
 *
 * Theory of operation
 *
 * If data arrive for a closed TCP socket, TCP answers with a RST, which the
 * peer notices at once, even if it is blocked in a write. A closed MPTCP socket
 * accepts data until its buffer is full, and resets only after a minute
 * (mptcp_should_close(), net/mptcp/protocol.c). A target that requested TCP
 * must see the behaviour of TCP. Such a socket is therefore shut down and kept
 * here until its peer ends the connection as well. If data arrive instead, the
 * socket is reset.
 *
 * The sockets wait as long as with TCP (LEAVE_MS). The end of the run does not
 * wait for them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/lklhost.h"
#include "base/loop.h"
#include "engine/carrier/conn.h"
#include "engine/stream/stream.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define LEAVE_MS	60000		/* default of net.ipv4.tcp_fin_timeout */
#define MS		1000000ull

/**
 * struct orphan - a closed socket
 * @ssrc: @sfd in the stack's epoll
 * @until: time at which @sfd is closed in any case
 */
struct orphan {
	struct stack_src ssrc;
	struct list link;
	uint64_t until;
	int sfd;
};

static void late(struct timer *t);
static struct list orphans = LIST_INIT(orphans);	/* oldest first */
static struct timer late_timer = TIMER_INIT(late_timer, late);

/** gone - close a socket; if @reset, with a RST */
static void gone(struct orphan *l, bool reset)
{
	const struct linger abort = { .l_onoff = 1 };

	l->ssrc.fn = NULL;
	list_del(&l->link);
	if (reset)
		st_setsockopt(l->sfd, SOL_SOCKET, SO_LINGER, &abort,
			      sizeof(abort));
	st_close(l->sfd);
	loop_free_later(l);
}

/** heard - handle data or end-of-file from the peer */
static void heard(struct stack_src *src, uint32_t events)
{
	struct orphan *l = container_of(src, struct orphan, ssrc);
	char byte;
	long n = st_recvfrom(l->sfd, &byte, 1, MSG_DONTWAIT | MSG_PEEK, NULL,
			     NULL);

	(void)events;
	if (n != -EAGAIN)
		gone(l, n > 0);
}

/** late - close the sockets that have timed out */
static void late(struct timer *t)
{
	uint64_t now = now_ns();

	while (!list_empty(&orphans)) {
		struct orphan *l = container_of(orphans.next, struct orphan,
						link);

		if (l->until > now) {
			timer_arm(t, l->until);
			return;
		}
		gone(l, false);
	}
}

/**
 * orphan_mptcp_take - take over the socket of @conn if its peer may still send
 *
 * The caller frees @conn. Returns true if the socket is taken over.
 */
bool orphan_mptcp_take(const struct stream *s)
{
	const struct conn *conn = &s->conn;
	int proto = 0;
	socklen_t len = sizeof(proto);
	struct orphan *l;

	if (!(conn->facts & F_WAS_OPEN) || (conn->stack & (S_EOF | S_BROKEN)) ||
	    (conn->facts & (F_RESET | F_ABORTIVE)) || !stack_alive() ||
	    host.state >= CTL_STATE_ENDING ||
	    st_getsockopt(conn->sfd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) ||
	    proto != IPPROTO_MPTCP)
		return false;
	l = calloc(1, sizeof(*l));
	if (!l)
		return false;
	l->sfd = conn->sfd;
	l->ssrc.fn = heard;
	l->until = now_ns() + LEAVE_MS * MS;
	list_init(&l->link);
	st_shutdown(l->sfd, SHUT_WR);
	if ((conn->stack & S_WATCHED) ?
	    st_rewatch(l->sfd, &l->ssrc, EPOLLIN | EPOLLRDHUP) :
	    st_watch(l->sfd, &l->ssrc, EPOLLIN | EPOLLRDHUP)) {
		free(l);
		return false;
	}
	if (list_empty(&orphans))
		timer_arm(&late_timer, l->until);
	list_add_tail(&l->link, &orphans);
	return true;
}

/** orphan_mptcp_stop - close all sockets without a RST, because the run ends */
void orphan_mptcp_stop(void)
{
	while (!list_empty(&orphans))
		gone(container_of(orphans.next, struct orphan, link), false);
	timer_cancel(&late_timer);
}
