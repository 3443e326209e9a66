// SPDX-License-Identifier: GPL-2.0-only
/*
 * SHUT_WR of a stream: one byte stays unread in the carrier.
 *
 * Theory of operation
 *
 * A read of the target fails with ECONNRESET only if our end of the carrier is
 * closed while it holds an unread byte of the target. After SHUT_WR, nothing can
 * be added to the carrier. A reset by the peer would then look like the end of
 * its data, and a truncated answer would look complete. SHUT_WR is therefore
 * caught. The last byte of the carrier stays unread until the connection ends:
 *
 *	the carrier has data	it is the target's last byte, of which the stack
 *				gets a copy (MSG_PEEK)
 *	the carrier is empty	it is a marker, which we send through the
 *				duplicate of the target's end
 *
 * If another thread of the target writes at the same time, its data may be in
 * front of the marker and behind it. The marker has credentials (SCM_CREDENTIALS),
 * which the kernel gives only to us. A read stops at the limit between messages
 * of different senders, so the marker is found and removed, and the target's
 * last byte takes its place.
 *
 * If the target shuts down its end by another call, or outside of the run, there
 * is no such byte. It has asked for no more data then, or sees end-of-file.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/carrier/conn.h"
#include "engine/stream/pump.h"
#include "engine/stream/stream.h"

/* Room for the credentials of one message. */
union ctl {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(struct ucred))];
};

/** unread - count the bytes in the carrier */
static int unread(const struct stream *s)
{
	int n = 0;

	return ioctl(s->conn.csrc.fd, FIONREAD, &n) ? 0 : n;
}

/** marker_send - send the marker through @dup; returns whether it was sent */
static bool marker_send(int dup)
{
	union ctl ctl = { .buf = "" };
	struct ucred me = { getpid(), getuid(), getgid() };
	struct iovec iov = { "", 1 };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf),
	};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_CREDENTIALS;
	cm->cmsg_len = CMSG_LEN(sizeof(me));
	memcpy(CMSG_DATA(cm), &me, sizeof(me));
	return sendmsg(dup, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/** message_read - read data of one sender; sets whether this is lklhost */
static ssize_t message_read(const struct stream *s, char *buf, size_t most,
			    bool *own)
{
	union ctl ctl;
	struct iovec iov = { buf, most };
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf),
	};
	ssize_t n = recvmsg(s->conn.csrc.fd, &mh, MSG_DONTWAIT);
	struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&mh) : NULL;
	struct ucred who = { 0 };

	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_CREDENTIALS)
		memcpy(&who, CMSG_DATA(cm), sizeof(who));
	*own = who.pid == getpid();
	return n;
}

/**
 * marker_find - remove the marker, because another thread has written, too
 *
 * Nothing can be added to the carrier any more. All bytes but the last one move
 * to the chunk.
 */
static void marker_find(struct stream *s)
{
	int one = 1, left;
	bool own, found = false;
	char buf[4096];

	setsockopt(s->conn.csrc.fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	setsockopt(s->conn.csrc.fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	while ((left = unread(s)) > 1) {
		size_t most = (size_t)left - 1;
		ssize_t n = message_read(s, buf, most < sizeof(buf) ? most :
						 sizeof(buf), &own);

		if (n <= 0 ||
		    (!own && chunk_keep(&s->conn.to_stack, buf, (size_t)n))) {
			stack_error(s, ENOMEM);
			break;
		}
		found |= own;
	}
	s->last = found ? LAST_UNSENT : LAST_SENT;
}

/** may_keep - whether the target's stream ends now */
static bool may_keep(const struct stream *s)
{
	return s->state == STREAM_OPEN && s->conn.csrc.fd >= 0 &&
	       s->last == LAST_NONE &&
	       !(s->conn.carrier & (C_RDHUP | C_EOF | C_HUP | C_HUNG_UP));
}

/** stream_half_close - handle shutdown(2) with SHUT_WR */
int64_t stream_half_close(struct call *c)
{
	struct stream *s = stream_of(c->conn);
	bool keep = may_keep(s), marker = keep && !unread(s) && marker_send(c->dup);
	int64_t ret = shutdown(c->dup, SHUT_WR) ? -errno : 0;

	if (ret || !keep || !unread(s))
		return ret;
	s->last = marker ? LAST_SENT : LAST_UNSENT;
	if (marker && unread(s) > 1)
		marker_find(s);
	return 0;
}

/**
 * last_read - read data of the target after its SHUT_WR, except for the last byte
 * @most: size of @buf
 *
 * Returns the bytes read, or 0 if the stream has ended. Updates C_IN and C_EOF.
 */
size_t last_read(struct stream *s, char *buf, size_t most)
{
	struct conn *conn = &s->conn;
	int left = unread(s);
	ssize_t n = 0;

	if (left > 1) {
		n = recv(conn->csrc.fd, buf, (size_t)left < most ?
			 (size_t)left - 1 : most - 1, MSG_DONTWAIT);
		if (n < left - 1)
			return n > 0 ? (size_t)n : 0;
	}
	if (s->last == LAST_UNSENT &&
	    recv(conn->csrc.fd, buf + n, 1, MSG_DONTWAIT | MSG_PEEK) == 1)
		n++;
	s->last = LAST_SENT;
	conn->carrier &= ~C_IN;
	conn->carrier |= C_EOF;
	if (conn->carrier & C_ERR)	/* closed with unread data */
		conn->facts |= F_RESET;
	return (size_t)n;
}
