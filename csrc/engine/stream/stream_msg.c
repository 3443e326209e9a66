// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams: calls with addresses and message headers.
 *
 * Theory of operation
 *
 * read, write, send and recv are not notified. sendmsg and recvmsg are
 * notified, because the filter cannot see whether their header contains a name.
 * If it contains none, the kernel executes sendmsg, and scm_rights.c executes
 * recvmsg on the carrier. With a name, a unix socket would behave differently
 * from TCP: TCP ignores the name when sending and returns length 0 when
 * receiving. A unix socket also lacks timestamps and
 * TCP_INQ, which the target may have requested. recv with MSG_TRUNC or
 * MSG_ERRQUEUE is notified as well: with MSG_TRUNC, TCP discards data.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/call/native.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"
#include "engine/dgram/dgram.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

/* Option numbers from include/uapi/asm-generic/socket.h. */
#define OPT_TIMESTAMP_OLD	29
#define OPT_TIMESTAMPNS_OLD	35
#define OPT_TIMESTAMP_NEW	63
#define OPT_TIMESTAMPNS_NEW	64
#define WAITALL_MAX	32768
#define CMSG_TCP_INQ	36	/* TCP_CM_INQ, include/uapi/linux/tcp.h */

/** left - count the bytes left to read for the caller, like tcp_inq_hint() */
static int left(struct call *c)
{
	struct conn *conn = c->conn;
	int here = 0, there = 0;

	ioctl(c->dup, FIONREAD, &here);
	st_ioctl(conn->sfd, FIONREAD, &there);
	here += there + (int)conn->to_target.len;
	return !here && (conn->stack & S_EOF) ? 1 : here;
}

/** broken - return EPIPE, with SIGPIPE unless MSG_NOSIGNAL is set */
static int64_t broken(const struct call *c, int flags)
{
	if (!(flags & MSG_NOSIGNAL))
		task_signal(c, SIGPIPE);
	return -EPIPE;
}

/**
 * stamp_now - create a timestamp for data received before the target requested
 * it
 *
 * The kernel also uses the current time in this case (net/socket.c,
 * __sock_recv_timestamp()). With SO_TIMESTAMPING, it provides no timestamp.
 */
static void stamp_now(struct stream *s)
{
	/*
	 * The old struct timeval and struct timespec consist of two words, the
	 * new ones of two 64-bit values.
	 */
	long old[2];
	int64_t new[2];
	bool is_new = s->stamps.wanted == OPT_TIMESTAMP_NEW ||
		      s->stamps.wanted == OPT_TIMESTAMPNS_NEW;
	size_t len = is_new ? sizeof(new) : sizeof(old);
	struct cmsghdr cm = { .cmsg_level = SOL_SOCKET,
			      .cmsg_len = CMSG_LEN(len),
			      .cmsg_type = s->stamps.wanted };
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	switch (s->stamps.wanted) {
	case OPT_TIMESTAMP_OLD:
	case OPT_TIMESTAMP_NEW:
		ts.tv_nsec /= 1000;
		break;
	case OPT_TIMESTAMPNS_OLD:
	case OPT_TIMESTAMPNS_NEW:
		break;
	default:
		return;
	}
	old[0] = (long)ts.tv_sec;
	old[1] = ts.tv_nsec;
	new[0] = ts.tv_sec;
	new[1] = ts.tv_nsec;
	memcpy(s->stamps.buf, &cm, sizeof(cm));
	memcpy(s->stamps.buf + CMSG_LEN(0), is_new ? (void *)new : old, len);
	s->stamps.len = CMSG_SPACE(len);
}

/** stream_control - write the ancillary data that the target has requested */
static size_t stream_control(struct call *c, char *out, size_t room, int *flags)
{
	struct conn *conn = c->conn;
	struct stream *s = stream_of(conn);
	union {
		struct cmsghdr align;
		char buf[STAMPS_MAX + CMSG_SPACE(sizeof(int))];
	} ctl;
	size_t len = 0;

	if (s->stamps.wanted) {
		if (!s->stamps.len)
			stamp_now(s);
		memcpy(ctl.buf, s->stamps.buf, s->stamps.len);
		len = s->stamps.len;
	}
	if (s->inq_wanted) {
		struct cmsghdr cm = {
			.cmsg_level = IPPROTO_TCP, .cmsg_type = CMSG_TCP_INQ,
			.cmsg_len = CMSG_LEN(sizeof(int)),
		};
		int n = left(c);

		memset(ctl.buf + len, 0, CMSG_SPACE(sizeof(int)));
		memcpy(ctl.buf + len, &cm, sizeof(cm));
		memcpy(ctl.buf + len + CMSG_LEN(0), &n, sizeof(n));
		len += CMSG_SPACE(sizeof(int));
	}
	return msg_cut_control(out, room, ctl.buf, len, flags);
}

/**
 * put_rest - write the results of a receive except the data
 *
 * TCP returns no name; there may be ancillary data.
 */
static int64_t put_rest(struct call *c, const struct user_msg *um)
{
	char ctl[STAMPS_MAX + CMSG_SPACE(sizeof(int))];
	size_t room = um->controllen < sizeof(ctl) ? um->controllen :
						     sizeof(ctl);
	static const int zero;
	int flags = 0;

	if (c->nr == SYS_recvfrom)
		return c->args[5] ?
		       mem_write(c, c->args[5], &zero, sizeof(zero)) : 0;
	room = stream_control(c, ctl, room, &flags);
	return msg_put_result(c, um, NULL, 0, ctl, room, flags);
}

/**
 * too_few - whether MSG_WAITALL is set and data are missing
 * @h: the call, if it waits already
 *
 * Larger sizes may not fit into the carrier, so MSG_WAITALL is ignored for
 * them.
 */
static bool too_few(const struct call *c, const struct held *h, size_t want,
		    int flags)
{
	const struct conn *conn = c->conn;
	const struct stream *s = stream_of(conn);
	int n;

	return !(h && h->quits) &&
	       (flags & MSG_WAITALL) && !(flags & (MSG_PEEK | MSG_DONTWAIT)) &&
	       want <= WAITALL_MAX && !s->rcvbuf &&
	       s->state == STREAM_OPEN && !(conn->carrier & C_SHUT) &&
	       (h || !call_nonblocking(c)) && !ioctl(c->dup, FIONREAD, &n) &&
	       (size_t)n < want && !carrier_is_shut(c->dup);
}

/** recv_try - receive as much as possible without blocking */
static int64_t recv_try(struct call *c, struct held *h)
{
	int flags = (int)c->args[c->nr == SYS_recvfrom ? 3 : 2];
	struct user_msg um;
	int64_t ret;
	ssize_t n;

	ret = msg_get(c, &um);
	if (ret)
		return ret;
	if (too_few(c, h, um.total, flags))
		return CALL_HELD;
	n = recv(c->dup, c->buf,
		 um.total < CALL_BUF_SIZE ? um.total : CALL_BUF_SIZE,
		 (flags & (MSG_PEEK | MSG_TRUNC)) | MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN ? CALL_HELD : -errno;
	ret = (flags & MSG_TRUNC) ? 0 :
	      msg_put_data(c, &um, 0, c->buf, (size_t)n);
	if (!ret)
		ret = put_rest(c, &um);
	return ret ? ret : n;
}

/**
 * stream_wait - try a call, and hold it if its caller blocks
 * @opt: SO_RCVTIMEO or SO_SNDTIMEO
 *
 * If there are several messages, a blocking caller waits only for the first.
 */
static int64_t stream_wait(struct call *c, int flags, int opt,
			   int64_t (*try)(struct call *, struct held *))
{
	int64_t ret = try(c, NULL);
	struct held *h;

	if (ret != CALL_HELD)
		return ret;
	if ((flags & MSG_DONTWAIT) || call_nonblocking(c))
		return -EAGAIN;
	h = call_hold(c, &c->conn->held, EPOLLRDHUP, try, hold_deadline(c, opt),
		      -EAGAIN);
	if (!h)
		return -ENOMEM;
	h->again = opt == SO_SNDTIMEO;
	return CALL_HELD;
}

/** tcp_recv - handle recvfrom(2) and recvmsg(2) of a stream */
int64_t tcp_recv(struct call *c)
{
	struct user_msg um;
	int64_t ret;

	ret = msg_get(c, &um);
	if (ret)
		return ret;
	if (um.flags & MSG_ERRQUEUE)
		return dgram_recvmsg(c);
	if (stream_of(c->conn)->state == STREAM_NEW || stream_of(c->conn)->state == STREAM_LISTENING)
		return -ENOTCONN;
	if (!um.name && !(um.flags & MSG_TRUNC) &&
	    !(um.controllen && (stream_of(c->conn)->stamps.wanted ||
				stream_of(c->conn)->inq_wanted)))
		return scm_rights_call(c);
	return stream_wait(c, um.flags, SO_RCVTIMEO, recv_try);
}

/** stream_send_try - send as much as possible without blocking */
int64_t stream_send_try(struct call *c, struct held *h)
{
	struct user_msg um;
	size_t done = h ? h->done : c->done;
	int64_t ret;
	ssize_t n;

	ret = msg_get(c, &um);
	if (ret)
		return ret;
	do {	/* a send without data also reports an error */
		size_t len = um.total - done;

		if (len > CALL_BUF_SIZE)
			len = CALL_BUF_SIZE;
		ret = msg_get_data(c, &um, done, c->buf, len);
		if (ret)
			return done ? (int64_t)done : ret;
		n = send(c->dup, c->buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			if (h)
				h->done = done;
			return h || !done ? CALL_HELD : (int64_t)done;
		}
		if (n < 0) {
			ret = -errno;
			if (done)
				return (int64_t)done;
			/* TCP reports an error first, a unix socket the end. */
			if (ret == -EPIPE)
				ret = -stream_take_error(c);
			return ret ? ret : broken(c, um.flags);
		}
		done += (size_t)n;
	} while (done < um.total);
	return (int64_t)done;
}

/** tcp_send - handle sendto(2) and sendmsg(2) of a stream, without MSG_FASTOPEN */
int64_t tcp_send(struct call *c)
{
	struct user_msg um;
	int64_t ret;

	ret = msg_get(c, &um);
	if (ret)
		return ret;
	if (stream_of(c->conn)->state == STREAM_NEW || stream_of(c->conn)->state == STREAM_LISTENING)
		return broken(c, um.flags);
	/* A unix socket would also send descriptors; TCP does not. */
	if ((!um.name || !um.namelen) && !um.controllen)
		return call_native(NATIVE_SEND);
	return stream_wait(c, um.flags, SO_SNDTIMEO, stream_send_try);
}

/** element - make a separate call of one message of a sendmmsg or recvmmsg */
static struct call element(const struct call *c, uint64_t i, int nr)
{
	struct call one = *c;

	one.nr = nr;
	one.done = 0;
	one.args[1] += i * sizeof(struct mmsghdr);
	one.args[2] = (uint64_t)(int)c->args[3] & ~(uint64_t)MSG_WAITFORONE;
	return one;
}

/** each - send or receive messages, as far as possible without blocking */
static int64_t each(struct call *c, int nr,
		    int64_t (*try)(struct call *, struct held *))
{
	uint64_t i, n = (uint32_t)c->args[2];
	int64_t ret;

	if (n > MSG_IOV_MAX)
		n = MSG_IOV_MAX;
	for (i = c->done; i < n; i++) {
		struct call one = element(c, i, nr);
		uint32_t len;

		ret = try(&one, NULL);
		if (ret >= 0) {
			len = (uint32_t)ret;
			ret = mem_write(c, one.args[1] +
					offsetof(struct mmsghdr, msg_len),
					&len, sizeof(len));
		}
		if (ret)
			return i ? (int64_t)i : ret;
	}
	return (int64_t)n;
}

/** recvmmsg_try - execute recvmmsg(2), as far as possible without blocking */
static int64_t recvmmsg_try(struct call *c, struct held *h)
{
	(void)h;
	return each(c, SYS_recvmsg, recv_try);
}

/** sendmmsg_try - execute sendmmsg(2), as far as possible without blocking */
static int64_t sendmmsg_try(struct call *c, struct held *h)
{
	(void)h;
	return each(c, SYS_sendmsg, stream_send_try);
}

/** tcp_recvmmsg - handle recvmmsg(2) of a stream */
int64_t tcp_recvmmsg(struct call *c)
{
	if (stream_of(c->conn)->state == STREAM_NEW || stream_of(c->conn)->state == STREAM_LISTENING)
		return -ENOTCONN;
	return stream_wait(c, (int)c->args[3], SO_RCVTIMEO, recvmmsg_try);
}

/** tcp_sendmmsg - handle sendmmsg(2) of a stream */
int64_t tcp_sendmmsg(struct call *c)
{
	if (stream_of(c->conn)->state == STREAM_NEW || stream_of(c->conn)->state == STREAM_LISTENING)
		return broken(c, (int)c->args[3]);
	return stream_wait(c, (int)c->args[3], SO_SNDTIMEO, sendmmsg_try);
}
