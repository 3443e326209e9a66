// SPDX-License-Identifier: GPL-2.0-only
/*
 * Datagrams: errors that belong to no call, and other state that a carrier
 * cannot represent.
 *
 * Theory of operation
 *
 * ICMP errors, and errors of a datagram from a plain send(), are stored in
 * so_error. Held calls and later notified calls return them.
 *
 * To wake the target's poll and its plain calls, we set an error on the carrier
 * itself. If our end disconnects while it holds unread data, the kernel sets
 * ECONNRESET on the other end (net/unix/af_unix.c, unix_dgram_disconnected()).
 * This is the only error that we can set. If the carrier is not connected to
 * our end, we connect it for this moment. The carrier must be empty for this,
 * because disconnecting discards its queue.
 *
 * A plain send() reports this error too, although the error belongs to another
 * datagram. With IP_RECVERR, the program expects errors in a queue and not from
 * send(). Such a socket therefore gets the error only if the target waits in
 * poll() or a read, or if the error has been postponed for some milliseconds.
 *
 * The same error represents the stack's error queue (IP_RECVERR, transmit
 * timestamps), whose poll bits are EPOLLERR and, with SO_SELECT_ERR_QUEUE, also
 * EPOLLPRI. The carrier has this option too. While the queue is not empty,
 * each call that clears the carrier's error sets the error again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/list.h"
#include "base/lklhost.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/dgram/dgram.h"
#include "engine/dgram/dgram_carrier.h"
#include "engine/dgram/peer.h"
#include "stack/stack.h"

#define UDP_MAX_IPV4	(65535 - 20 - 8)
#define UDP_MAX_IPV6	(65535 - 8)
#define UNIX_OVERHEAD	32	/* the limit is sk_sndbuf - 32 */

#define LATE_NS		100000ull
#define LATE_LOOKS	200

static void late_due(struct timer *t);
static struct timer late_timer = TIMER_INIT(late_timer, late_due);
static struct list late = LIST_INIT(late);

/* The message that is being moved. */
static char msg_buf[DGRAM_MAX];

static const struct sockaddr nobody = { .sa_family = AF_UNSPEC };

/**
 * dgram_sndbuf - SO_SNDBUF of the target's end
 *
 * It makes a plain send() that exceeds the protocol's limit fail with EMSGSIZE.
 * SO_SNDBUF is always even, so one size that is too large is accepted and the
 * datagram is lost.
 */
int dgram_sndbuf(int domain)
{
	int max = domain == AF_INET ? UDP_MAX_IPV4 : UDP_MAX_IPV6;

	return (max + UNIX_OVERHEAD + 1) / 2;	/* doubled, see socket(7) */
}

/** is_empty - whether the target has nothing to read on the carrier */
static bool is_empty(int dup)
{
	struct pollfd p = { .fd = dup, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/** set_carrier_error - set the error on a carrier connected to our end */
static bool set_carrier_error(const struct dgram *d, int dup)
{
	const struct conn *conn = &d->conn;
	struct sockaddr_un un;

	if (send(dup, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
		return false;
	connect(conn->csrc.fd, &nobody, sizeof(nobody));
	connect(conn->csrc.fd, (struct sockaddr *)&un,
		carrier_name(&un, NAME_INBOX, conn->id));
	return true;
}

/** has_queue - whether the socket queues errors (IP_RECVERR) */
static bool has_queue(const struct dgram *d)
{
	const struct conn *conn = &d->conn;
	bool v6 = conn->domain == AF_INET6;
	socklen_t len = sizeof(int);
	int on = 0;

	return !st_getsockopt(conn->sfd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
			      v6 ? IPV6_RECVERR : IP_RECVERR, &on, &len) && on;
}

/**
 * target_waits - whether the last thread that used the socket waits for an
 * event
 */
static bool target_waits(const struct dgram *d)
{
	const struct conn *conn = &d->conn;
	static const int calls[] = {
		SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_epoll_pwait2,
		SYS_read, SYS_readv, SYS_recvfrom,
#ifdef SYS_poll
		SYS_poll, SYS_epoll_wait,
#endif
#if defined(__x86_64__)
		SYS_select,
#elif defined(__arm__)
		SYS__newselect, SYS_ppoll_time64, SYS_pselect6_time64, SYS_recv,
#endif
	};
	char path[32], text[16];
	ssize_t n = -1;
	size_t i;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", conn->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (text[0] != 'r' && atoi(text) == calls[i])	/* "running" */
			return true;
	return false;
}

/** late_due - raise the postponed errors */
static void late_due(struct timer *t)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &late) {
		struct dgram *d = container_of(pos, struct dgram, late);
		struct conn *conn = &d->conn;

		list_del(&d->late);
		if (conn->so_error || st_failed(conn->sfd))
			dgram_raise(d, -1);
	}
	if (!list_empty(&late))
		timer_arm(t, now_ns() + LATE_NS);
}

/** postpone - postpone an error if it must wait; returns true if so */
static bool postpone(struct dgram *d)
{
	struct conn *conn = &d->conn;

	if (!list_empty(&d->late))
		return true;
	if (!(conn->carrier & C_CONNECTED) || d->late_looks >= LATE_LOOKS ||
	    !has_queue(d) || target_waits(d)) {
		d->late_looks = 0;
		return false;
	}
	d->late_looks++;
	list_add_tail(&d->late, &late);
	if (list_empty(&late_timer.link))
		timer_arm(&late_timer, now_ns() + LATE_NS);
	return true;
}

/**
 * dgram_raise - set an error on the carrier
 * @dup: a duplicate of the target's end, or -1
 */
void dgram_raise(struct dgram *d, int dup)
{
	struct conn *conn = &d->conn;
	struct sockaddr_un un;
	int own = -1;

	if (conn->kind != KIND_DGRAM || postpone(d) || dgram_our_end(d))
		return;
	if (dup < 0)
		dup = own = carrier_borrow(conn);
	if (dup < 0)
		return;
	if (conn->carrier & C_CONNECTED) {
		dgram_save(d);
		if (set_carrier_error(d, dup))
			conn->carrier |= C_FAILED;
	} else if (is_empty(dup) &&
		   !connect(dup, (struct sockaddr *)&un,
			    carrier_name(&un, NAME_DGRAM, conn->id))) {
		if (set_carrier_error(d, dup))
			conn->carrier |= C_FAILED;
		connect(dup, &nobody, sizeof(nobody));
	}
	if (own >= 0)
		close(own);
}

/** dgram_failed - handle an error that the stack returned for the socket */
void dgram_failed(struct dgram *d, int err)
{
	struct conn *conn = &d->conn;

	if (conn->kind != KIND_DGRAM)
		return;
	conn->so_error = err;
	if (!list_empty(&conn->held.calls))
		held_wake(&conn->held);
	if (conn->so_error && !(conn->facts & F_DEAD))
		dgram_raise(d, -1);
}

/**
 * dgram_take_error - get the error for a call on @dup, or 0 if there is none
 *
 * This clears the carrier's error; the caller must then call
 * dgram_look_again().
 */
int dgram_take_error(struct dgram *d, int dup)
{
	struct conn *conn = &d->conn;
	int err = conn->so_error, native = 0;
	socklen_t len = sizeof(native);

	if (!err && !(conn->carrier & C_FAILED))
		return 0;
	conn->so_error = 0;
	getsockopt(dup, SOL_SOCKET, SO_ERROR, &native, &len);
	/* A plain call may already have reported and cleared the error. */
	return (conn->carrier & C_FAILED) && !native ? 0 : err;
}

/**
 * dgram_look_again - set the carrier's error again if the stack's queue is not
 * empty
 */
void dgram_look_again(struct dgram *d, int dup)
{
	struct conn *conn = &d->conn;

	if (!(conn->carrier & C_FAILED) || conn->so_error)
		return;
	conn->carrier &= ~C_FAILED;
	if (st_failed(conn->sfd))
		dgram_raise(d, dup);
}

/**
 * dgram_queue_read - handle that the target has read from the stack's error
 * queue
 */
void dgram_queue_read(struct dgram *d, int dup)
{
	struct conn *conn = &d->conn;
	int native;
	socklen_t len = sizeof(native);

	conn->so_error = 0;	/* as in sock_dequeue_err_skb() */
	if (!(conn->carrier & C_FAILED))
		return;
	getsockopt(dup, SOL_SOCKET, SO_ERROR, &native, &len);
	dgram_look_again(d, dup);
}

/* A datagram temporarily taken out of the carrier. */
struct unread {
	struct list link;
	struct origin origin;
	size_t len;
	char data[];
};

/**
 * take_out - take the next datagram out of the carrier; NULL if there is none
 */
static struct unread *take_out(struct dgram *d, int dup)
{
	struct sockaddr_un un;
	socklen_t unlen = sizeof(un);
	ssize_t n = recvfrom(dup, msg_buf, DGRAM_MAX, MSG_DONTWAIT,
			     (struct sockaddr *)&un, &unlen);
	const struct origin *from = NULL;
	struct unread *u;
	uint32_t id;
	char kind;

	if (n < 0)
		return NULL;
	u = calloc(1, sizeof(*u) + (size_t)n);
	if (!u)
		return NULL;
	if (carrier_parse(&un, unlen, &kind, &id))
		from = kind == NAME_PEER ? peer_origin(id) : d->last;
	if (from)
		memcpy(&u->origin, from, origin_size(from));
	u->len = (size_t)n;
	if (n)
		memcpy(u->data, msg_buf, u->len);
	return u;
}

/**
 * dgram_disconnect - disconnect the target's socket from its peer
 *
 * Disconnecting the carrier would lose unread datagrams, so these are put back.
 * An error stays, too.
 */
int dgram_disconnect(struct dgram *d, int dup)
{
	struct conn *conn = &d->conn;
	struct list unread = LIST_INIT(unread), *pos, *tmp;
	struct unread *u;
	int err;

	if (!(conn->carrier & C_CONNECTED) || host.shared_netns)
		return 0;
	err = dgram_take_error(d, dup);	/* else the next receive would fail */
	while ((u = take_out(d, dup)))
		list_add_tail(&u->link, &unread);
	connect(dup, &nobody, sizeof(nobody));
	conn->carrier &= ~C_CONNECTED;
	list_for_each_safe(pos, tmp, &unread) {
		u = container_of(pos, struct unread, link);
		list_del(&u->link);
		if (dgram_put(d, u->data, u->len, u->len,
			      &u->origin) < 0)
			conn_stats.dgrams_dropped++;
		free(u);
	}
	dgram_look_again(d, dup);
	if (err)
		dgram_failed(d, err);
	return 0;
}
