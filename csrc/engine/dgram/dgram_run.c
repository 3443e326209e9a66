// SPDX-License-Identifier: GPL-2.0-only
/*
 * Datagrams: runs of equal size, which the stack handles as one packet.
 *
 * Theory of operation
 *
 * Most of the cost of a small datagram is in the stack's layers UDP and IP. The
 * stack has two mechanisms to go through them once for many datagrams. The
 * engine uses both on its own, invisibly for the target:
 *
 * - Receive: with UDP_GRO, the stack merges datagrams of the same flow with the
 *   same size, TTL and TOS; the last one may be shorter. A receive call returns
 *   them together with their size, and the engine passes them on one by one.
 * - Send: with the control message UDP_SEGMENT, the stack splits one message
 *   into datagrams. The engine makes such a message of the datagrams that wait
 *   in the carrier and have the same size.
 *
 * These must hold:
 *
 * - The target receives and sends exactly the datagrams that it would without
 *   this file, and, with one exception, in the same order. Only traffic decides
 *   whether they are merged: UDP_GRO is set when many datagrams have arrived in
 *   one turn.
 * - The exception: GRO holds datagrams back until the end of a turn, but neither
 *   empty nor fragmented ones, nor those whose frames were padded
 *   (udp_gro_receive_segment()). These overtake others of the same turn. The
 *   first one that arrives therefore ends UDP_GRO for a while.
 * - An option that makes single datagrams visible, such as a timestamp or a
 *   filter, ends both (D_EXACT). An option that this file does not know does,
 *   too.
 * - Without the control message, a merged message is one large datagram. Nothing
 *   may therefore receive from the stack's socket without asking for it, and
 *   UDP_GRO stays cleared only if the socket's queue was empty then.
 * - If the target sets UDP_GRO itself, it receives what the stack returns, and
 *   the control message.
 *
 * The buffer of the stack's socket must hold what arrives in one turn of the
 * loop, because the engine moves datagrams only afterwards. It is therefore
 * larger than the default, which getsockopt() still returns.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/carrier/conn.h"
#include "engine/dgram/dgram.h"
#include "stack/stack.h"

#define RCVBUF		(2 << 20)	/* the kernel doubles it, socket(7) */
#define RUN_BYTES	65000		/* less than the largest datagram */
#define RUN_MAX		64		/* UDP_MAX_SEGMENTS before Linux 6.9 */
#define DRAIN_MAX	4096

/* Shorter ones may have been padded to Ethernet's minimum, longer ones fragmented. */
#define SIZE_MIN	(46 - 20 - 8)
#define SIZE_MAX4	(1500 - 20 - 8)
#define SIZE_MAX6	(1500 - 40 - 8)
#define USUAL		256	/* others in a row, after which UDP_GRO is set */

/* Some C libraries lack these; see linux/udp.h. */
#define OPT_UDP_SEGMENT	103
#define OPT_UDP_GRO	104

/** dgram_run_start - initialize a new socket */
void dgram_run_start(struct dgram *d)
{
	int size = RCVBUF, now = 0;
	socklen_t len = sizeof(now);

	if (d->conn.kind != KIND_DGRAM ||
	    st_getsockopt(d->conn.sfd, SOL_SOCKET, SO_RCVBUF, &now, &len) ||
	    now >= 2 * size)
		return;
	if (!st_setsockopt(d->conn.sfd, SOL_SOCKET, SO_RCVBUFFORCE, &size,
			   sizeof(size)))
		d->rcvbuf = now;
}

/** may_run - whether runs of datagrams may be merged */
static bool may_run(const struct dgram *d)
{
	const struct conn *conn = &d->conn;

	return !(d->runs & D_EXACT) && !(conn->facts & F_HOSTED) &&
	       conn->type == SOCK_DGRAM &&
	       (!conn->proto || conn->proto == IPPROTO_UDP);
}

/**
 * can_split - whether the stack knows UDP_SEGMENT
 *
 * Linux before 4.18 ignores the control message, and would send a run as one
 * datagram.
 */
static bool can_split(const struct dgram *d)
{
	static enum { UNKNOWN, YES, NO } known;
	socklen_t len = sizeof(int);
	int size;

	if (known == UNKNOWN)
		known = st_getsockopt(d->conn.sfd, IPPROTO_UDP, OPT_UDP_SEGMENT,
				      &size, &len) ? NO : YES;
	return known == YES;
}

/** dgram_run_many - many datagrams have arrived: let the stack merge them */
void dgram_run_many(struct dgram *d)
{
	int on = 1;

	if (!(d->runs & (D_GRO | D_GRO_ASKED)) && may_run(d) &&
	    d->usual >= USUAL &&
	    !st_setsockopt(d->conn.sfd, IPPROTO_UDP, OPT_UDP_GRO, &on,
			   sizeof(on)))
		d->runs |= D_GRO;
}

/**
 * dgram_run_split - get the size of the datagrams in a received message
 * @mh: the result of the receive; its control message is hidden
 * @len: length of the message
 */
size_t dgram_run_split(const struct dgram *d, struct msghdr *mh, size_t len)
{
	struct cmsghdr *cm;
	int size;

	if (!(d->runs & D_GRO))
		return len;
	for (cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		if (cm->cmsg_level != IPPROTO_UDP || cm->cmsg_type != OPT_UDP_GRO)
			continue;
		memcpy(&size, CMSG_DATA(cm), sizeof(size));
		cm->cmsg_level = -1;	/* origin_set() ignores it */
		return size > 0 && (size_t)size < len ? (size_t)size : len;
	}
	return len;
}

/**
 * dgram_run_length - number of datagrams that dgram_run_send() may send together
 * @v: datagrams
 * @n: their number
 */
size_t dgram_run_length(const struct dgram *d, const struct iovec *v, size_t n)
{
	size_t size = v[0].iov_len, total = size, i;

	if (n < 2 || !size || (d->runs & D_NO_GSO) || !may_run(d) ||
	    !can_split(d))
		return 1;
	for (i = 1; i < n && i < RUN_MAX; i++) {
		total += v[i].iov_len;
		if (!v[i].iov_len || v[i].iov_len > size || total > RUN_BYTES)
			break;
		if (v[i].iov_len < size)
			return i + 1;	/* only the last one may be shorter */
	}
	return i;
}

/**
 * dgram_run_send - send a run of datagrams with one call
 * @v: datagrams, of which dgram_run_length() returned @n
 *
 * Returns 0, or a negative errno; none was sent then. The socket may be unable
 * to send them in this way, for example because they exceed the path's MTU. It
 * is then not tried again.
 */
int dgram_run_send(struct dgram *d, struct iovec *v, size_t n)
{
	union {
		struct cmsghdr cm;
		char buf[CMSG_SPACE(sizeof(uint16_t))];
	} ctl = { .cm = { .cmsg_len = CMSG_LEN(sizeof(uint16_t)),
			  .cmsg_level = IPPROTO_UDP,
			  .cmsg_type = OPT_UDP_SEGMENT } };
	struct msghdr mh = { .msg_iov = v, .msg_iovlen = n,
			     .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };
	uint16_t size = (uint16_t)v[0].iov_len;
	long ret;

	memcpy(CMSG_DATA(&ctl.cm), &size, sizeof(size));
	ret = st_sendmsg(d->conn.sfd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	switch (ret) {
	case -EINVAL:
	case -EMSGSIZE:
	case -EIO:
	case -EOPNOTSUPP:
	case -ENOPROTOOPT:
		d->runs |= D_NO_GSO;
	}
	return ret < 0 ? (int)ret : 0;
}

/** dgram_run_again - the path may have changed: try runs again */
void dgram_run_again(struct dgram *d)
{
	d->runs &= (unsigned char)~D_NO_GSO;
}

/** set_gro - set or clear UDP_GRO of the stack's socket */
static void set_gro(const struct dgram *d, int on)
{
	st_setsockopt(d->conn.sfd, IPPROTO_UDP, OPT_UDP_GRO, &on, sizeof(on));
}

/**
 * end_gro - stop merging received datagrams
 *
 * First, the engine passes on the datagrams in the queue of the stack's socket.
 * One that arrives before UDP_GRO is cleared is passed on like them. If the
 * target reads too slowly for this, merging ends with a later datagram.
 */
static void end_gro(struct dgram *d)
{
	struct conn *conn = &d->conn;
	int i;

	if (conn->facts & F_HOSTED)	/* another socket by now */
		d->runs &= (unsigned char)~D_GRO;
	if (!(d->runs & D_GRO) || d->ending)
		return;
	d->ending = true;	/* fetch() must not get here again */
	for (i = 0; i < DRAIN_MAX && !(conn->facts & F_DEAD) &&
	     !conn->to_target.len; i++) {
		long n = conn_ops->fetch(d);

		if (n == -EAGAIN) {
			set_gro(d, 0);
			n = st_recvfrom(conn->sfd, NULL, 0, MSG_DONTWAIT |
					MSG_PEEK | MSG_TRUNC, NULL, NULL);
			if (n == -EAGAIN) {
				d->runs &= (unsigned char)~D_GRO;
				break;
			}
			set_gro(d, 1);
		}
		if (n < 0)
			conn_ops->failed(d, (int)-n);
	}
	d->ending = false;
}

/**
 * dgram_run_received - count received datagrams
 * @size: their size
 * @n: their number
 */
void dgram_run_received(struct dgram *d, size_t size, unsigned int n)
{
	size_t max = d->conn.domain == AF_INET ? SIZE_MAX4 : SIZE_MAX6;

	if (size >= SIZE_MIN && size <= max && !(d->runs & D_EXACT)) {
		d->usual += n;
		return;
	}
	d->usual = 0;
	end_gro(d);
}

/** keeps_runs - whether an option leaves runs of datagrams as they are */
static bool keeps_runs(int level, int name)
{
	static const struct { int level, name; } known[] = {
		{ SOL_SOCKET, SO_RCVBUF }, { SOL_SOCKET, SO_SNDBUF },
		{ SOL_SOCKET, SO_RCVBUFFORCE }, { SOL_SOCKET, SO_SNDBUFFORCE },
		{ SOL_SOCKET, SO_REUSEADDR }, { SOL_SOCKET, SO_BROADCAST },
		{ SOL_SOCKET, SO_RCVTIMEO }, { SOL_SOCKET, SO_SNDTIMEO },
		{ SOL_SOCKET, SO_PRIORITY }, { SOL_SOCKET, SO_MARK },
		{ SOL_SOCKET, SO_BINDTODEVICE }, { SOL_SOCKET, SO_KEEPALIVE },
		{ IPPROTO_IP, IP_TOS }, { IPPROTO_IP, IP_TTL },
		{ IPPROTO_IP, IP_RECVTOS }, { IPPROTO_IP, IP_RECVTTL },
		{ IPPROTO_IP, IP_PKTINFO }, { IPPROTO_IP, IP_RECVERR },
		{ IPPROTO_IP, IP_MTU_DISCOVER },
		{ IPPROTO_IPV6, IPV6_V6ONLY }, { IPPROTO_IPV6, IPV6_TCLASS },
		{ IPPROTO_IPV6, IPV6_RECVTCLASS },
		{ IPPROTO_IPV6, IPV6_UNICAST_HOPS },
		{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT },
		{ IPPROTO_IPV6, IPV6_RECVPKTINFO },
		{ IPPROTO_IPV6, IPV6_RECVERR },
		{ IPPROTO_IPV6, IPV6_MTU_DISCOVER },
		{ IPPROTO_UDP, OPT_UDP_GRO },
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].level == level && known[i].name == name)
			return true;
	return false;
}

/** is_gro - whether the option is UDP_GRO of a UDP socket */
static bool is_gro(const struct dgram *d, int level, int name)
{
	return d->conn.type == SOCK_DGRAM && level == IPPROTO_UDP &&
	       name == OPT_UDP_GRO;
}

/**
 * dgram_run_option - the target is about to set an option
 * @value: @len bytes, at least readable as an int if @len permits
 *
 * Returns true if the stack's socket already has the wanted state.
 */
bool dgram_run_option(struct dgram *d, int level, int name, const void *value,
		      int len)
{
	int v = 0;

	if (d->conn.kind != KIND_DGRAM)
		return false;
	if (!keeps_runs(level, name)) {
		end_gro(d);
		d->runs |= D_EXACT;
	}
	if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_RCVBUFFORCE))
		d->rcvbuf = 0;
	if (!is_gro(d, level, name) || !value || len < (int)sizeof(v))
		return false;
	memcpy(&v, value, sizeof(v));
	if (v) {	/* what has been merged already is now what it asks for */
		d->runs &= (unsigned char)~D_GRO;
		d->runs |= D_GRO_ASKED;
		return false;
	}
	d->runs &= (unsigned char)~D_GRO_ASKED;
	return d->runs & D_GRO;
}

/**
 * dgram_run_value - get the value of an option that the engine has changed
 * @value: set to the value that the target expects
 */
bool dgram_run_value(const struct dgram *d, int level, int name, int *value)
{
	if (d->conn.kind != KIND_DGRAM || (d->conn.facts & F_HOSTED))
		return false;
	if (is_gro(d, level, name) && (d->runs & D_GRO)) {
		*value = 0;
		return true;
	}
	*value = d->rcvbuf;
	return level == SOL_SOCKET && name == SO_RCVBUF && d->rcvbuf;
}
