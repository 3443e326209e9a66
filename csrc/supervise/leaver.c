// SPDX-License-Identifier: GPL-2.0-only
/*
 * MPTCP sockets that the target has closed while their peers may still send.
 *
 * Theory of operation
 *
 * TCP answers data for a socket that is closed with a reset, and the peer, be it
 * blocked in a write, knows at once. An MPTCP socket takes them until its buffer
 * is full, and resets after a minute (mptcp_should_close(), net/mptcp/protocol.c).
 * A target that asked for TCP shall see TCP: so such a socket is shut and kept
 * here, until its peer ends as well, and is reset when there are data instead.
 *
 * They wait as long as TCP would, LEAVE_MS; at the end of the run nobody waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "conn.h"
#include "ctl_proto.h"
#include "host.h"

#define LEAVE_MS	60000		/* net.ipv4.tcp_fin_timeout's default */
#define MS		1000000ull

/**
 * struct leaver - a closed socket
 * @ssrc: @sfd in the stack's epoll
 * @until: when it is closed in any case
 */
struct leaver {
	struct stack_src ssrc;
	struct list link;
	uint64_t until;
	int sfd;
};

static void late(struct timer *t);
static struct list leavers = LIST_INIT(leavers);	/* the oldest first */
static struct timer late_timer = TIMER_INIT(late_timer, late);

/** gone - close it; @reset: the peer shall hear that nobody reads */
static void gone(struct leaver *l, bool reset)
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

/** heard - data, or the end, from the peer */
static void heard(struct stack_src *src, uint32_t events)
{
	struct leaver *l = container_of(src, struct leaver, ssrc);
	char byte;
	long n = st_recvfrom(l->sfd, &byte, 1, MSG_DONTWAIT | MSG_PEEK, NULL,
			     NULL);

	(void)events;
	if (n != -EAGAIN)
		gone(l, n > 0);
}

/** late - the time of the oldest is over */
static void late(struct timer *t)
{
	uint64_t now = now_ns();

	while (!list_empty(&leavers)) {
		struct leaver *l = container_of(leavers.next, struct leaver,
						link);

		if (l->until > now) {
			timer_arm(t, l->until);
			return;
		}
		gone(l, false);
	}
}

/**
 * leaver_take - @conn is freed: see to its socket, if that is needed
 *
 * Returns true when the socket is taken over.
 */
bool leaver_take(const struct conn *conn)
{
	int proto = 0;
	socklen_t len = sizeof(proto);
	struct leaver *l;

	if (!conn->was_open || conn->s_eof || conn->s_broken ||
	    conn->reset_out || conn->abortive || !stack_alive() ||
	    host.state >= CTL_STATE_ENDING ||
	    st_getsockopt(conn->sfd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) ||
	    proto != IPPROTO_MPTCP)
		return false;
	l = malloc(sizeof(*l));
	if (!l)
		return false;
	l->sfd = conn->sfd;
	l->ssrc.fn = heard;
	l->until = now_ns() + LEAVE_MS * MS;
	list_init(&l->link);
	st_shutdown(l->sfd, SHUT_WR);
	if (conn->watched ?
	    st_rewatch(l->sfd, &l->ssrc, EPOLLIN | EPOLLRDHUP) :
	    st_watch(l->sfd, &l->ssrc, EPOLLIN | EPOLLRDHUP)) {
		free(l);
		return false;
	}
	if (list_empty(&leavers))
		timer_arm(&late_timer, l->until);
	list_add_tail(&l->link, &leavers);
	return true;
}

/** leavers_stop - the run ends: the stack shall end them as it does */
void leavers_stop(void)
{
	while (!list_empty(&leavers))
		gone(container_of(leavers.next, struct leaver, link), false);
	timer_cancel(&late_timer);
}
