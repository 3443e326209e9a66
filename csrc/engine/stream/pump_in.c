// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pump from the stack to the target; see pump.c.
 *
 * If much data arrives at a time, it is sent directly from the stack's memory.
 * Data that the carrier does not accept remain in the stack. The host copies
 * the data into the carrier, so the target never shares a page with the stack.
 * A target that shared a page could keep it (splice, sendfile, a pipe, another
 * process) after the stack has reused it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/stream/pump.h"
#include "stack/stack.h"

/* Minimum number of bytes for which pass_refs() is worthwhile. */
#define MANY		(PUMP_SIZE / 8)
#define REFS		256

/*
 * Size of the carrier of a busy stream (the host doubles it). The target, which
 * may run on another CPU, must not empty the carrier while we wake up. This is
 * not used with a single CPU, where it would only exceed the cache.
 */
#define ROOMY		(1 << 20)
#define ROOMY_MAX	16		/* maximum number of such carriers */

/**
 * pump_most - the bytes to move at a time
 *
 * Thousands of connections whose readers do not read must not fill lklhost's
 * memory, so each keeps little once all keep much.
 */
size_t pump_most(void)
{
	return conn_stats.kept < KEPT_MAX ? PUMP_SIZE : 4096;
}

/** want_out - set whether the loop reports that the carrier accepts data */
static void want_out(struct stream *s, bool want)
{
	struct conn *conn = &s->conn;

	if (!(conn->carrier & C_WANT_OUT) == !want)
		return;
	flag_set(&conn->carrier, C_WANT_OUT, want);
	loop_mod(&conn->csrc, CARRIER_EVENTS | (want ? EPOLLOUT : 0));
}

/**
 * carrier_took - update the state after the carrier accepted @n of @len bytes
 * @n: may also be a negative errno
 */
static void carrier_took(struct stream *s, ssize_t n, size_t len)
{
	struct conn *conn = &s->conn;

	if (n < (ssize_t)len)
		conn->carrier &= ~C_OUT;
	if (n == -EAGAIN || (n >= 0 && n < (ssize_t)len))
		want_out(s, true);
	if (n > 0)
		conn->bytes_in += (uint64_t)n;
}

/**
 * carrier_putv - send to the target
 * @len: sum of the lengths in @iov
 *
 * Returns the number of bytes accepted, or a negative errno.
 */
static ssize_t carrier_putv(struct stream *s, struct iovec *iov, int cnt,
			    size_t len)
{
	struct conn *conn = &s->conn;
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = (size_t)cnt };
	ssize_t n = sendmsg(conn->csrc.fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0)
		n = -errno;
	carrier_took(s, n, len);
	return n;
}

/** carrier_put - carrier_putv() for a single buffer */
static ssize_t carrier_put(struct stream *s, char *buf, size_t len)
{
	struct iovec iov = { buf, len };

	return carrier_putv(s, &iov, 1, len);
}

/** stamped_read - read data and store their timestamps */
static long stamped_read(struct stream *s, char *buf, size_t most)
{
	struct conn *conn = &s->conn;
	struct iovec iov = { buf, most };
	union {
		struct cmsghdr align;
		char buf[STAMPS_MAX];
	} ctl;
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf),
	};
	long n = st_recvmsg(conn->sfd, &mh, MSG_DONTWAIT);
	struct cmsghdr *cm;

	if (n <= 0)
		return n;
	s->stamps.len = 0;
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm)) {
		size_t len = CMSG_ALIGN(cm->cmsg_len);

		if (cm->cmsg_level != SOL_SOCKET)
			continue;
		memcpy(s->stamps.buf + s->stamps.len, cm, len);
		s->stamps.len += len;
	}
	return n;
}

/** stack_gave - update the state after the stack returned @n bytes of @most */
static void stack_gave(struct stream *s, size_t n, size_t most)
{
	struct conn *conn = &s->conn;

	flag_set(&conn->stack, S_BULK, n >= MANY);
	if (n < most && !(conn->stack & (S_RDHUP | S_ERR | S_URGENT)))
		conn->stack &= ~S_IN;
}

/**
 * stack_read - read data of the peer into @buf, which has PUMP_SIZE bytes
 *
 * Returns the bytes read, or 0 if there are no data now or the stream has
 * ended. Updates S_IN, S_EOF and S_BROKEN.
 */
static size_t stack_read(struct stream *s, char *buf)
{
	struct conn *conn = &s->conn;
	size_t most = pump_most();
	long n = s->stamps.wanted ? stamped_read(s, buf, most) :
		 st_recvfrom(conn->sfd, buf, most, MSG_DONTWAIT,
			     NULL, NULL);

	if (n > 0) {
		stack_gave(s, (size_t)n, most);
		return (size_t)n;
	}
	conn->stack &= ~S_IN;
	if (n == 0)
		conn->stack |= S_EOF;
	else if (n != -EAGAIN)
		stack_error(s, (int)-n);
	if (n != -EAGAIN)
		conn->stack |= S_END;
	return 0;
}

/**
 * make_room - enlarge the carrier of a busy stream
 *
 * A carrier of the usual size does not hold ROOMY bytes. Once so many have gone
 * into it, the target has read most of them. For a target that does not read, a
 * larger carrier would only let the sender get further ahead.
 */
static void make_room(struct stream *s)
{
	struct conn *conn = &s->conn;

	if ((conn->carrier & C_BIGBUF) || s->rcvbuf || conn->bytes_in < ROOMY ||
	    carriers_roomy == ROOMY_MAX || loop_processors() < 2)
		return;
	conn->carrier |= C_BIGBUF;
	carriers_roomy++;
	carrier_bigbuf(conn->csrc.fd, ROOMY);
}

/**
 * pass_refs - move data to the target without a copy within the stack
 *
 * Returns the number of bytes accepted, 0 if there are no data to move in this
 * way, or a negative errno of the carrier.
 */
static ssize_t pass_refs(struct stream *s)
{
	struct conn *conn = &s->conn;
	struct iovec iov[REFS];
	size_t len = 0;
	ssize_t put;
	int i, n;

	if ((conn->stack & (S_BULK | S_URGENT)) != S_BULK || s->stamps.wanted)
		return 0;
	n = st_refs(conn->sfd, iov, REFS, PUMP_SIZE);
	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (!len) {
		conn->stack &= ~S_BULK;
		return 0;
	}
	make_room(s);
	put = carrier_putv(s, iov, n, len);
	if (put <= 0)
		return put;
	/*
	 * The stack has received all these bytes in order, so this call
	 * discards all of them. An urgent mark that arrives in the meantime
	 * would stop the call, and the rest would be sent twice. A broken
	 * connection is better than wrong data.
	 */
	if (st_recvfrom(conn->sfd, NULL, put, MSG_DONTWAIT | MSG_TRUNC, NULL,
			NULL) != put) {
		stack_error(s, ECONNRESET);
		conn->stack |= S_END;
	}
	/*
	 * S_IN remains set, because there may be more data without an event: if
	 * MPTCP has no room for data, they wait at the subflows, and move only
	 * when other data are read.
	 */
	return put;
}

/**
 * push_target - move data to the target, using @buf
 *
 * Returns true if there is more to do.
 */
bool push_target(struct stream *s, char *buf)
{
	struct conn *conn = &s->conn;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		struct chunk *ch = &conn->to_target;
		ssize_t put;
		size_t n;

		if (conn->carrier & C_NO_READER)
			return false;
		if (ch->len) {
			if (conn->stack & S_PRI)
				urgent_in(s);
			if (!(conn->carrier & C_OUT))
				return false;
			put = carrier_put(s, ch->buf + ch->off, ch->len);
			if (put > 0)
				chunk_sent(ch, (size_t)put);
			else if (put != -EAGAIN)
				conn->carrier |= C_NO_READER;
			continue;
		}
		if ((conn->stack & S_PRI) && urgent_in(s))
			continue;
		if (!(conn->carrier & C_OUT))
			return false;	/* the data remain in the stack */
		if (conn->carrier & C_WANT_OUT)
			want_out(s, false);
		if (!(conn->stack & S_IN) || (conn->stack & S_END))
			return false;
		put = pass_refs(s);
		if (put < 0 && put != -EAGAIN)
			conn->carrier |= C_NO_READER;
		if (put)
			continue;
		n = stack_read(s, buf);
		if (!n)
			return false;
		put = carrier_put(s, buf, n);
		if (put < 0 && put != -EAGAIN) {
			conn->carrier |= C_NO_READER;
			return false;
		}
		if (put < 0)
			put = 0;
		if ((size_t)put < n &&
		    chunk_keep(ch, buf + put, n - (size_t)put))
			stack_error(s, ENOMEM);
	}
	return true;
}
