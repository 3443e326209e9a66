// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pump: bytes between a carrier and a stream socket of the stack.
 *
 * Theory of operation
 *
 * Both sides report edges, kept as c_in, c_out, s_in, s_out. A direction goes on
 * while its source has data and its destination takes them, at most ROUNDS
 * times; then the connection joins the ready list, so that none starves the
 * others. A read that comes back short has emptied the source: the flag is
 * cleared without asking for EAGAIN, unless the end of the stream was announced
 * or urgent data are there, before which reading stops.
 * What the destination does not take lies in a chunk, and nothing is read from
 * the source until it is gone. Where much comes in from the stack at a time, it is
 * sent from where it lies in the stack, and what the carrier does not take stays
 * there.
 *
 * What the end of one side means for the other is in ends.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "conn.h"
#include "host.h"

#define ROUNDS		4
#define MANY		(SHARED_SIZE / 8)	/* bytes worth a list of where they lie */
#define REFS		256

/** chunk_keep - @len bytes wait for the destination */
int chunk_keep(struct chunk *ch, const char *data, size_t len)
{
	ch->buf = malloc(len);
	if (!ch->buf)
		return -ENOMEM;
	memcpy(ch->buf, data, len);
	ch->off = 0;
	ch->len = len;
	return 0;
}

/** chunk_sent - @n bytes of it are gone */
static void chunk_sent(struct chunk *ch, size_t n)
{
	ch->off += n;
	ch->len -= n;
	if (ch->len)
		return;
	free(ch->buf);
	ch->buf = NULL;
}

/** chunk_drop - forget it */
static void chunk_drop(struct chunk *ch)
{
	if (ch->len)
		chunk_sent(ch, ch->len);
}

/** want_out - have the loop report when the carrier takes data again */
static void want_out(struct conn *conn, bool want)
{
	if (conn->c_want_out == want)
		return;
	conn->c_want_out = want;
	loop_mod(&conn->csrc, CARRIER_EVENTS | (want ? EPOLLOUT : 0));
}

/** stack_error - the stack refuses to send: what it received still counts */
void stack_error(struct conn *conn, int err)
{
	if (err != EPIPE && !conn->so_error)
		conn->so_error = err;
	conn->s_broken = true;
	conn->s_in = true;
	conn->s_err = true;
	chunk_drop(&conn->to_stack);
	lane_tx_off(conn);
}

/**
 * stack_putv - send to the stack; bytes taken, or a negative errno
 * @len: bytes in @iov
 *
 * When the target's end of the stream is next, the last bytes wait for it, so
 * that both go in one packet: see ends_pass().
 */
long stack_putv(struct conn *conn, struct iovec *iov, int cnt, size_t len)
{
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (conn->c_eof ? MSG_MORE : 0);
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = (size_t)cnt };
	long n = cnt == 1 ? st_sendto(conn->sfd, iov->iov_base, len, flags,
				      NULL, 0) :
			    st_sendmsg(conn->sfd, &mh, flags);

	if (n == -EINPROGRESS)	/* TCP_FASTOPEN_CONNECT, without a cookie */
		n = -EAGAIN;
	if (n < (long)len)
		conn->s_out = false;
	if (n > 0)
		conn->bytes_out += (uint64_t)n;
	return n;
}

/** stack_put - the same of one piece */
static long stack_put(struct conn *conn, char *buf, size_t len)
{
	struct iovec iov = { buf, len };

	return stack_putv(conn, &iov, 1, len);
}

/**
 * carrier_read - what the target wrote into shared_buf
 * @room: no more of it
 *
 * Returns bytes, 0 for nothing now or nothing ever; sets c_in, c_eof.
 */
static size_t carrier_read(struct conn *conn, int room)
{
	ssize_t n = recv(conn->csrc.fd, shared_buf, (size_t)room, MSG_DONTWAIT);

	if (n > 0) {
		if (n < SHARED_SIZE && !conn->c_pri) {
			/* After the announced end nothing can follow. */
			conn->c_eof = conn->c_rdhup && !conn->c_err;
			conn->c_in = conn->c_err;
		}
		return (size_t)n;
	}
	conn->c_in = false;
	if (n == 0) {
		conn->c_eof = true;
	} else if (errno != EAGAIN) {
		conn->c_eof = true;	/* closed with unread data */
		conn->reset_out = true;
	}
	return 0;
}

/** carrier_room - how much to read there: 0: nothing now; -EAGAIN: look at the lane */
static int carrier_room(struct conn *conn)
{
	int room = SHARED_SIZE;

	if (conn->lane)
		room = lane_carrier_room(conn, room);
	if (!room)
		conn->c_in = false;
	return room;
}

/** push_stack - target to stack; true: there is more to do */
static bool push_stack(struct conn *conn)
{
	int round, room;

	for (round = 0; round < ROUNDS; round++) {
		struct chunk *ch = &conn->to_stack;
		size_t n;
		long sent;

		if (conn->s_broken)
			return false;
		if (ch->len) {
			if (!conn->s_out)
				return false;
			sent = stack_put(conn, ch->buf + ch->off, ch->len);
			if (sent < 0 && sent != -EAGAIN)
				stack_error(conn, (int)-sent);
			if (sent > 0)
				chunk_sent(ch, (size_t)sent);
			continue;
		}
		sent = conn->lane ? lane_to_stack(conn) : 0;
		if (sent < 0 && sent != -EAGAIN)
			stack_error(conn, (int)-sent);
		if (sent < 0)
			return false;
		if (sent)
			continue;
		room = conn->c_in ? carrier_room(conn) : 0;
		if (!room)
			return false;
		if (room < 0)
			continue;
		if (conn->c_pri)
			urgent_out(conn);
		n = carrier_read(conn, room);
		if (conn->c_eof)
			lane_tx_off(conn);
		if (!n)	/* what came before the end may be in the lane */
			return lane_unsent(conn) > 0;
		sent = stack_put(conn, shared_buf, n);
		if (sent < 0 && sent != -EAGAIN) {
			stack_error(conn, (int)-sent);
			return false;
		}
		if (sent < 0)
			sent = 0;
		if ((size_t)sent < n &&
		    chunk_keep(ch, shared_buf + sent, n - (size_t)sent))
			stack_error(conn, ENOMEM);
	}
	return true;
}

/**
 * carrier_putv - give to the target
 * @len: bytes in @iov
 *
 * Returns bytes taken, or a negative errno.
 */
static ssize_t carrier_putv(struct conn *conn, struct iovec *iov, int cnt,
			    size_t len)
{
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = (size_t)cnt };
	ssize_t n = sendmsg(conn->csrc.fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0)
		n = -errno;
	if (n < (ssize_t)len)
		conn->c_out = false;
	if (n == -EAGAIN || (n >= 0 && n < (ssize_t)len))
		want_out(conn, true);
	if (n > 0)
		conn->bytes_in += (uint64_t)n;
	return n;
}

/** carrier_put - the same of one piece */
static ssize_t carrier_put(struct conn *conn, char *buf, size_t len)
{
	struct iovec iov = { buf, len };

	return carrier_putv(conn, &iov, 1, len);
}

/** stamped_read - the same as a plain read, keeping the time stamps */
static long stamped_read(struct conn *conn)
{
	struct iovec iov = { shared_buf, SHARED_SIZE };
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
	conn->stamps_len = 0;
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm)) {
		size_t len = CMSG_ALIGN(cm->cmsg_len);

		if (cm->cmsg_level != SOL_SOCKET)
			continue;
		memcpy(conn->stamps + conn->stamps_len, cm, len);
		conn->stamps_len += len;
	}
	return n;
}

/** stack_gave - @n bytes, of @room that it could have given */
static void stack_gave(struct conn *conn, size_t n, size_t room)
{
	conn->s_many = n >= MANY;
	if (n < room && !conn->s_rdhup && !conn->s_err && !conn->s_urgent)
		conn->s_in = false;
}

/**
 * stack_said - a receive of at most @room bytes returned @n
 *
 * Returns bytes, 0 for nothing now or nothing ever; sets s_in, s_eof, s_broken.
 */
static size_t stack_said(struct conn *conn, long n, size_t room)
{
	if (n > 0) {
		stack_gave(conn, (size_t)n, room);
		return (size_t)n;
	}
	conn->s_in = false;
	if (n == 0)
		conn->s_eof = true;
	else if (n != -EAGAIN)
		stack_error(conn, (int)-n);
	if (n != -EAGAIN)
		conn->s_end = true;
	return 0;
}

/** stack_read - what the peer sent into shared_buf; bytes, as stack_said() */
static size_t stack_read(struct conn *conn)
{
	long n = conn->stamps_wanted ? stamped_read(conn) :
		 st_recvfrom(conn->sfd, shared_buf, SHARED_SIZE, MSG_DONTWAIT,
			     NULL, NULL);

	return stack_said(conn, n, SHARED_SIZE);
}

/**
 * pass_refs - stack to target without a copy here
 *
 * Returns bytes taken, 0 when there is nothing to pass on in this way, or a
 * negative errno of the carrier's.
 */
static ssize_t pass_refs(struct conn *conn)
{
	struct iovec iov[REFS];
	size_t len = 0;
	ssize_t put;
	int i, n;

	if (!conn->s_many || conn->stamps_wanted || conn->s_urgent)
		return 0;
	n = st_refs(conn->sfd, iov, REFS, SHARED_SIZE);
	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (!len) {
		conn->s_many = false;
		return 0;
	}
	put = carrier_putv(conn, iov, n, len);
	if (put <= 0)
		return put;
	st_recvfrom(conn->sfd, NULL, put, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
	if ((size_t)put == len)
		stack_gave(conn, n == REFS ? SHARED_SIZE : len, SHARED_SIZE);
	return put;
}

/** flush - what waits for the carrier, which takes data; false: it is closed */
static bool flush(struct conn *conn)
{
	struct chunk *ch = &conn->to_target;
	ssize_t put = carrier_put(conn, ch->buf + ch->off, ch->len);

	if (put > 0)
		chunk_sent(ch, (size_t)put);
	else if (put != -EAGAIN)
		conn->c_deaf = true;
	return !conn->c_deaf;
}

/** pump_flush - give to the target at once what waits for it */
void pump_flush(struct conn *conn)
{
	while (conn->to_target.len && conn->c_out && flush(conn))
		;
}

/**
 * pass_lane - stack to target by the lane
 *
 * Returns 1: something is on offer, or has ended; 0: it is not for the lane; -1: it
 * is not to go on now.
 */
static int pass_lane(struct conn *conn)
{
	int room = lane_batch_room(conn), ret;
	size_t n;

	if (!room)
		return 0;
	if (room < 0) {
		conn->c_out = false;
		want_out(conn, true);
		return -1;
	}
	n = stack_said(conn, lane_receive(conn, room), (size_t)room);
	if (!n)
		return -1;
	ret = lane_offer(conn, n);
	if (ret == -EAGAIN) {
		conn->c_out = false;
		want_out(conn, true);
	} else if (ret) {
		conn->c_deaf = true;
	}
	return 1;
}

/** push_target - stack to target; true: there is more to do */
static bool push_target(struct conn *conn)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		struct chunk *ch = &conn->to_target;
		ssize_t put;
		size_t n;

		if (conn->c_deaf)
			return false;
		if (conn->s_pri)
			lane_back(conn);	/* in its place, as all bytes */
		if (lane_on_offer(conn))
			return false;
		if (ch->len) {
			if (conn->s_pri)
				urgent_in(conn);
			if (!conn->c_out)
				return false;
			flush(conn);
			continue;
		}
		if (conn->s_pri && urgent_in(conn))
			continue;
		if (!conn->c_out)
			return false;	/* pass_refs() has left it in the stack */
		put = conn->lane && conn->s_in && !conn->s_end ?
		      pass_lane(conn) : 0;
		if (put < 0)
			return false;
		if (put)
			continue;
		if (conn->c_want_out)
			want_out(conn, false);
		if (!conn->s_in || conn->s_end)
			return false;
		put = pass_refs(conn);
		if (put < 0 && put != -EAGAIN)
			conn->c_deaf = true;
		if (put)
			continue;
		n = stack_read(conn);
		if (!n)
			return false;
		put = carrier_put(conn, shared_buf, n);
		if (put < 0 && put != -EAGAIN) {
			conn->c_deaf = true;
			return false;
		}
		if (put < 0)
			put = 0;
		if ((size_t)put < n &&
		    chunk_keep(ch, shared_buf + put, n - (size_t)put))
			stack_error(conn, ENOMEM);
	}
	return true;
}

/** pump - both directions of one connection */
void pump(struct work *w)
{
	struct conn *conn = container_of(w, struct conn, work);
	bool more, unread;

	if (conn->state != CONN_OPEN || conn->csrc.fd < 0)
		return;
	if (conn->lane)
		lane_begin(conn);
	more = push_target(conn);
	more |= push_stack(conn);
	if (conn->lane && lane_bad(conn)) {
		conn->reset_out = true;
		conn_free(conn);
		return;
	}
	if (!ends_pass(conn))
		return;
	if (!list_empty(&conn->held))
		held_wake(&conn->held);
	unread = conn->to_target.len || lane_on_offer(conn);
	if (conn->s_broken && (unread || !conn->c_out) && !conn->c_hung_up)
		ends_hang_up(conn);
	/* A full carrier says when it has room; asking again would be in vain. */
	if (more || (conn->s_broken && conn->s_in && !unread && conn->c_out))
		work_queue(w);
	if (conn->lane)
		lane_wait(conn);
}

/** pump_open - the connection is there, both sides take data */
void pump_open(struct conn *conn)
{
	conn->state = CONN_OPEN;
	conn->was_open = true;
	fallback_forget(conn);
	account_peer(conn);
	if (conn->rcvbuf)
		setsockopt(conn->csrc.fd, SOL_SOCKET, SO_SNDBUF, &conn->rcvbuf,
			   sizeof(conn->rcvbuf));
	conn->c_out = true;
	conn->s_out = true;
	conn_probe_del(conn);	/* EPOLLHUP tells from now on */
	work_queue(&conn->work);
}

/** tcp_carrier_event - the target did something with its end */
void tcp_carrier_event(struct source *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, csrc);

	if (conn->state == CONN_CONNECTING) {
		if (events & (EPOLLHUP | EPOLLERR))
			conn_free(conn);	/* closed before the answer */
		return;
	}
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->c_in = true;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->c_rdhup = true;
	if (events & EPOLLERR)
		conn->c_err = true;
	if (events & EPOLLPRI) {
		conn->c_pri = true;
		conn->c_in = true;
	}
	if (events & EPOLLHUP)
		conn->hup = true;
	if (events & EPOLLOUT)
		conn->c_out = true;
	pump(&conn->work);
}

/** pump_unsent - bytes the target has sent that are not with the stack yet */
size_t pump_unsent(const struct conn *conn)
{
	int n = 0;

	if (conn->csrc.fd >= 0 && !conn->corked)
		ioctl(conn->csrc.fd, FIONREAD, &n);
	return conn->to_stack.len + lane_unsent(conn) + (n > 0 ? (size_t)n : 0);
}
