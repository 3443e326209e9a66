// SPDX-License-Identifier: GPL-2.0-only
/*
 * Datagrams: sendto, recvfrom, sendmsg, recvmsg, sendmmsg, recvmmsg.
 *
 * Theory of operation
 *
 * To send, the engine copies the message from the target and makes the call in
 * the stack. To receive, it reads the carrier first, which holds the older
 * messages, then the stack. A held call retries these steps. send_one(),
 * recv_one() and the like return CALL_HELD if the call would block.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/space.h"
#include "engine/dgram/dgram.h"
#include "engine/dgram/peer.h"
#include "stack/stack.h"

#define CTL_MAX		4096
#define FLAGS_PASSED	(MSG_DONTROUTE | MSG_CONFIRM | MSG_MORE | MSG_OOB)

union control {
	struct cmsghdr align;
	char buf[CTL_MAX];
};

/** send_one - send one message; CALL_HELD if the stack has no room */
static int64_t send_one(struct call *c, const struct user_msg *um)
{
	struct conn *conn = c->conn;
	struct dgram *d = dgram_of(conn);
	struct sockaddr_storage ss;
	union control ctl;
	struct iovec iov = { c->buf, um->total };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	int64_t ret;

	if (um->total > CALL_BUF_SIZE)
		return -EMSGSIZE;
	if (um->controllen > CTL_MAX)
		return -ENOBUFS;
	if (um->name) {
		ret = addr_read(c, um->name, um->namelen, &ss);
		if (ret < 0)
			return ret;
		mh.msg_name = &ss;
		mh.msg_namelen = (socklen_t)ret;
		ret = hostnet_send(c, &ss, ret);
		if (ret)
			return ret;
	}
	ret = mem_read(c, um->control, ctl.buf, um->controllen);
	if (!ret)
		ret = msg_get_data(c, um, 0, c->buf, um->total);
	if (ret)
		return ret;
	if (um->controllen) {
		mh.msg_control = ctl.buf;
		mh.msg_controllen = um->controllen;
		if ((conn->facts & F_HOSTED) && !hostnet_control(conn, &mh))
			return -EPERM;
	}
	ret = -dgram_take_error(d, c->dup);
	if (!ret && !carrier_may_send(c->dup))
		ret = -EPIPE;
	dgram_look_again(d, c->dup);
	if (ret)
		return ret;
	if (conn->to_stack.buf)		/* sent earlier, and still waits */
		return CALL_HELD;
	space_references(c, conn, c->buf, um->total);
	ret = st_sendmsg(conn->sfd, &mh, (um->flags & FLAGS_PASSED) |
			 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (ret == -EAGAIN)
		return CALL_HELD;
	if (ret >= 0) {
		conn_stats.dgrams_out++;
		conn->bytes_out += (uint64_t)ret;
	}
	return ret;
}

/**
 * is_ours - whether a message in the carrier comes from a socket of lklhost
 *
 * Another carrier can send one to it (NATIVE_LOCAL_SOCKET).
 */
static bool is_ours(const struct conn *conn, const struct sockaddr_un *un,
		    socklen_t len, uint32_t *peer)
{
	uint32_t id;
	char kind;

	if (!carrier_parse(un, len, &kind, &id))
		return false;
	*peer = kind == NAME_PEER ? id : UINT32_MAX;
	return kind == NAME_PEER || (kind == NAME_DGRAM && id == conn->id);
}

/** from_carrier - receive the oldest message in the carrier */
static ssize_t from_carrier(struct call *c, int flags, struct origin *o)
{
	struct conn *conn = c->conn;
	struct dgram *d = dgram_of(conn);
	struct sockaddr_un un;
	struct iovec iov = { c->buf, CALL_BUF_SIZE };
	struct msghdr mh = { .msg_name = &un, .msg_namelen = sizeof(un),
			     .msg_iov = &iov, .msg_iovlen = 1 };
	const struct origin *known = NULL;
	uint32_t peer;
	ssize_t n;

	n = recvmsg(c->dup, &mh, MSG_DONTWAIT | (flags & MSG_PEEK));
	while (n >= 0 && conn->kind != KIND_NETLINK &&
	       !is_ours(conn, &un, mh.msg_namelen, &peer)) {
		if (flags & MSG_PEEK)
			recv(c->dup, NULL, 0, MSG_DONTWAIT);
		mh.msg_namelen = sizeof(un);
		n = recvmsg(c->dup, &mh, MSG_DONTWAIT | (flags & MSG_PEEK));
	}
	if (n < 0)
		return -errno;
	memset(o, 0, sizeof(*o));
	if (conn->kind == KIND_NETLINK) {
		if (d->last)
			memcpy(o, d->last, origin_size(d->last));
		return n;
	}
	known = peer == UINT32_MAX ? d->last : peer_origin(peer);
	if (known)
		memcpy(o, known, origin_size(known));
	return n;
}

/**
 * more - move datagrams to the carrier, which is empty
 *
 * Returns 1 if there may be some in it, 0 if the stack's socket can be read
 * directly, or a negative errno. The stack may have merged datagrams
 * (dgram_run.c), which only the carrier separates.
 */
static int more(struct dgram *d)
{
	int ret;

	if (d->conn.to_target.len) {
		dgram_kick(d);
		return 1;
	}
	if (!(d->runs & D_GRO))
		return 0;
	ret = dgram_fetch(d);
	return ret ? ret : 1;
}

/** take_one - copy one message to the caller; CALL_HELD if there is none */
static int64_t take_one(struct call *c, const struct user_msg *um, int uflags)
{
	struct conn *conn = c->conn;
	union control ctl;
	struct sockaddr_storage ss;
	struct iovec iov = { c->buf, CALL_BUF_SIZE };
	struct msghdr mh = { .msg_name = &ss, .msg_namelen = sizeof(ss),
			     .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = ctl.buf,
			     .msg_controllen = um->controllen };
	int flags = uflags & (MSG_PEEK | MSG_ERRQUEUE), out;
	struct origin o;
	int64_t n, ret;

	if (um->controllen > CTL_MAX)
		mh.msg_controllen = CTL_MAX;
	n = flags & MSG_ERRQUEUE ? -EAGAIN : from_carrier(c, flags, &o);
	if (n == -EAGAIN && !(flags & MSG_ERRQUEUE)) {
		ret = more(dgram_of(conn));
		if (ret < 0)
			return ret == -EAGAIN ? CALL_HELD : ret;
		if (ret)
			n = from_carrier(c, flags, &o);
	}
	if (n >= 0) {
		memcpy(&ss, o.name, sizeof(o.name));
		mh.msg_namelen = o.namelen;
		mh.msg_flags = 0;
		mh.msg_controllen = msg_cut_control(ctl.buf, mh.msg_controllen,
						    o.ctl, o.ctllen,
						    &mh.msg_flags);
	} else {
		if (conn->kind == KIND_NETLINK) {	/* see room(), dgram.c */
			if (iov.iov_len > um->total)
				iov.iov_len = um->total;
			flags |= MSG_TRUNC;
		}
		n = st_recvmsg(conn->sfd, &mh, MSG_DONTWAIT | flags);
		if (n == -EAGAIN)
			return flags & MSG_ERRQUEUE ? -EAGAIN : CALL_HELD;
		if (n < 0)
			return n;
		if ((flags & MSG_ERRQUEUE) && conn->kind == KIND_DGRAM)
			dgram_queue_read(dgram_of(conn), c->dup);
		if (!(flags & MSG_PEEK))
			conn->bytes_in += (uint64_t)n;
		conn_stats.dgrams_in += conn->kind != KIND_STREAM;
		inode_map_translate(conn, c->buf, (size_t)n < iov.iov_len ?
				    (size_t)n : iov.iov_len);
	}
	out = mh.msg_flags & (MSG_CTRUNC | MSG_ERRQUEUE | MSG_OOB);
	if ((uint64_t)n > um->total)
		out |= MSG_TRUNC;
	ret = msg_put_data(c, um, 0, c->buf, (size_t)n);
	if (!ret)
		ret = msg_put_result(c, um, &ss, mh.msg_namelen, ctl.buf,
				     mh.msg_controllen, out);
	if (ret)
		return ret;
	return (uflags & MSG_TRUNC) || (uint64_t)n <= um->total ?
	       n : (int64_t)um->total;
}

/**
 * recv_one - return a pending error, or copy one message to the caller
 * @um: destination
 *
 * Returns CALL_HELD if there is neither an error nor a message.
 */
static int64_t recv_one(struct call *c, const struct user_msg *um, int flags)
{
	struct dgram *d;
	int64_t ret;
	int err;

	if (flags & MSG_ERRQUEUE)	/* the socket may also be a stream */
		return take_one(c, um, flags);
	d = dgram_of(c->conn);
	err = dgram_take_error(d, c->dup);
	ret = err ? -err : take_one(c, um, flags);
	dgram_look_again(d, c->dup);
	return ret;
}

/** hold_send - wait for room in the stack, unless the call is non-blocking */
static int64_t hold_send(struct call *c, int flags,
			 int64_t (*retry)(struct call *, struct held *))
{
	if ((flags & MSG_DONTWAIT) || call_nonblocking(c))
		return -EAGAIN;
	dgram_want_out(c->conn);
	if (!call_hold(c, &c->conn->held, 0, retry,
		       hold_deadline(c, SO_SNDTIMEO), -EAGAIN))
		return -ENOMEM;
	return CALL_HELD;
}

/** hold_recv - wait for a message, unless the call is non-blocking */
static int64_t hold_recv(struct call *c, int flags,
			 int64_t (*retry)(struct call *, struct held *))
{
	if ((flags & MSG_DONTWAIT) || call_nonblocking(c))
		return -EAGAIN;
	if (!call_hold(c, &c->conn->held, EPOLLRDHUP, retry,
		       hold_deadline(c, SO_RCVTIMEO), -EAGAIN))
		return -ENOMEM;
	return CALL_HELD;
}

/** send_retry - retry sendto or sendmsg */
static int64_t send_retry(struct call *c, struct held *h)
{
	struct user_msg um;
	int64_t ret = msg_get(c, &um);

	(void)h;
	return ret ? ret : send_one(c, &um);
}

/** dgram_sendto - handle sendto(2) */
int64_t dgram_sendto(struct call *c)
{
	struct user_msg um;
	int64_t ret = msg_get(c, &um);

	if (!ret)
		ret = send_one(c, &um);
	return ret == CALL_HELD ? hold_send(c, um.flags, send_retry) : ret;
}

/** dgram_sendmsg - handle sendmsg(2) */
int64_t dgram_sendmsg(struct call *c)
{
	return dgram_sendto(c);
}

/**
 * recv_again - like recv_one(), for a call that waits
 *
 * The wait ends without a message if the socket is shut down.
 */
static int64_t recv_again(struct call *c, const struct user_msg *um, int flags)
{
	int64_t ret = recv_one(c, um, flags);

	if (ret != CALL_HELD || !carrier_is_shut(c->dup))
		return ret;
	return msg_put_result(c, um, NULL, 0, NULL, 0, 0);
}

/** recv_retry - retry recvfrom or recvmsg */
static int64_t recv_retry(struct call *c, struct held *h)
{
	struct user_msg um;
	int64_t ret = msg_get_named(c, &um);

	(void)h;
	return ret ? ret : recv_again(c, &um, um.flags);
}

/** dgram_recvfrom - handle recvfrom(2) */
int64_t dgram_recvfrom(struct call *c)
{
	struct user_msg um;
	int64_t ret = msg_get_named(c, &um);

	if (!ret)
		ret = recv_one(c, &um, um.flags);
	return ret == CALL_HELD ? hold_recv(c, um.flags, recv_retry) : ret;
}

/** dgram_recvmsg - handle recvmsg(2) */
int64_t dgram_recvmsg(struct call *c)
{
	return dgram_recvfrom(c);
}

/**
 * sendmmsg_from - send the messages from element @i on
 *
 * Returns CALL_HELD if sending the first element would block.
 */
static int64_t sendmmsg_from(struct call *c, uint64_t i)
{
	uint64_t n = mmsg_len(c);
	int64_t ret = 0, end;
	struct user_msg um;

	um.flags = (int)c->args[3];
	mmsg_begin();
	for (; i < n; i++) {
		ret = mmsg_get(c, i, &um);
		if (!ret)
			ret = send_one(c, &um);
		if (ret >= 0)
			ret = mmsg_done(c, i, ret);
		if (ret)
			break;
	}
	end = mmsg_end(c);
	if (end)
		return end;
	return i || !ret ? (int64_t)i : ret;
}

/** sendmmsg_retry - retry a sendmmsg whose first element would block */
static int64_t sendmmsg_retry(struct call *c, struct held *h)
{
	(void)h;
	return sendmmsg_from(c, c->done);
}

/** dgram_sendmmsg - handle sendmmsg(2) */
int64_t dgram_sendmmsg(struct call *c)
{
	int64_t ret = sendmmsg_from(c, c->done);

	return ret == CALL_HELD ?
	       hold_send(c, (int)c->args[3], sendmmsg_retry) : ret;
}

/**
 * recvmmsg_from - receive available messages, from element @i on
 * @waits: the call waits, and ends if the socket is shut down
 *
 * Returns the number of filled elements, or CALL_HELD if no element is filled.
 * Returns a negative errno only if the first element fails.
 */
static int64_t recvmmsg_from(struct call *c, uint64_t i, bool waits)
{
	int flags = (int)c->args[3];
	uint64_t n = mmsg_len(c);
	int64_t ret = 0, end;
	struct user_msg um;

	mmsg_begin();
	for (; i < n; i++) {
		ret = mmsg_get(c, i, &um);
		if (!ret)
			ret = (waits ? recv_again : recv_one)
				(c, &um, flags & ~MSG_WAITFORONE);
		waits &= !(flags & MSG_WAITFORONE);
		if (ret >= 0)
			ret = mmsg_done(c, i, ret);
		if (ret)
			break;
	}
	end = mmsg_end(c);
	if (end)
		return end;
	return i || !ret ? (int64_t)i : ret;
}

/**
 * recvmmsg_retry - retry until all elements are filled; with MSG_WAITFORONE,
 * until one is filled
 */
static int64_t recvmmsg_retry(struct call *c, struct held *h)
{
	int64_t ret = recvmmsg_from(c, h->done, true);

	if (ret < 0)
		return ret;
	h->done = (uint64_t)ret;
	if (h->done < mmsg_len(c) && !((int)c->args[3] & MSG_WAITFORONE)) {
		h->timeout_ret = h->partial = ret;
		return CALL_HELD;
	}
	return ret;
}

/** dgram_recvmmsg - handle recvmmsg(2) */
int64_t dgram_recvmmsg(struct call *c)
{
	int flags = (int)c->args[3];
	uint64_t deadline;
	int64_t ret = mmsg_deadline(c, &deadline);
	struct held *h;

	if (ret)
		return ret;
	ret = recvmmsg_from(c, c->done, false);
	if (ret != CALL_HELD && (ret < 0 || (uint64_t)ret == mmsg_len(c) ||
				 (flags & MSG_WAITFORONE)))
		return ret;
	if ((flags & MSG_DONTWAIT) || call_nonblocking(c))
		return ret == CALL_HELD ? -EAGAIN : ret;
	h = call_hold(c, &c->conn->held, EPOLLRDHUP, recvmmsg_retry, deadline,
		      ret == CALL_HELD ? -EAGAIN : ret);
	if (!h)
		return -ENOMEM;
	h->done = ret == CALL_HELD ? 0 : (uint64_t)ret;
	h->partial = (int64_t)h->done;
	return CALL_HELD;
}
