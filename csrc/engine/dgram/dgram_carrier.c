// SPDX-License-Identifier: GPL-2.0-only
/*
 * The carrier of a datagram socket: our end of it, and the messages that go
 * into it and come out of it. See dgram.c for the theory of operation.
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

#include "base/loop.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/dgram/dgram.h"
#include "engine/dgram/dgram_carrier.h"
#include "engine/dgram/peer.h"

/*
 * Room for a datagram of the target, see dgram_sndbuf(). The odd number of
 * cache lines keeps the beginnings of the datagrams in different sets of the
 * cache.
 */
#define OUT_MAX		(65536 + 33 * 64)

/* The datagrams that the target has sent; mostly only their first page is used. */
static char out_buf[DGRAMS][OUT_MAX] __attribute__((aligned(4096)));

/** dgram_retry - retry carriers that were full */
void dgram_retry(void)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		if (conn->kind != KIND_STREAM && conn->to_target.len)
			work_queue(&conn->work);
	}
}

/**
 * dgram_want_room - set whether the loop reports that our end accepts data
 *
 * Otherwise each read of the target would wake the loop.
 */
int dgram_want_room(struct conn *conn, bool want)
{
	if (conn->csrc.fd < 0 || !(conn->carrier & C_WANT_OUT) == !want)
		return 0;
	flag_set(&conn->carrier, C_WANT_OUT, want);
	return loop_mod(&conn->csrc, DGRAM_EVENTS | (want ? EPOLLOUT : 0));
}

/** dgram_our_end - create our end of the carrier, once */
int dgram_our_end(struct dgram *d)
{
	struct conn *conn = &d->conn;
	struct sockaddr_un un;
	int fd;

	if (conn->csrc.fd >= 0)
		return 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	carrier_bigbuf(fd, DGRAM_ROOM);
	if (bind(fd, (struct sockaddr *)&un,
		 carrier_name(&un, NAME_DGRAM, conn->id)) ||
	    connect(fd, (struct sockaddr *)&un,
		    carrier_name(&un, NAME_INBOX, conn->id))) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	conn->csrc.fd = fd;
	return loop_add(&conn->csrc, DGRAM_EVENTS);
}

/**
 * set_origin - make @o the origin of datagrams from our end
 *
 * Returns -EAGAIN until the target has read all datagrams of another origin.
 */
static int set_origin(struct dgram *d, const struct origin *o)
{
	struct conn *conn = &d->conn;
	int unread = 1;

	if (d->last && origin_same(d->last, o))
		return 0;
	if (ioctl(conn->csrc.fd, SIOCOUTQ, &unread) || unread)
		return -EAGAIN;
	if (!d->last)
		d->last = malloc(sizeof(*o));
	if (!d->last)
		return -ENOMEM;
	memcpy(d->last, o, origin_size(o));
	return 0;
}

/**
 * dgram_attach - connect the carrier to our end
 * @dup: duplicate of the carrier
 */
int dgram_attach(struct dgram *d, int dup)
{
	struct conn *conn = &d->conn;
	struct sockaddr_un un;
	int ret = dgram_our_end(d);

	if (ret || (conn->carrier & C_CONNECTED))
		return ret;
	if (connect(dup, (struct sockaddr *)&un,
		    carrier_name(&un, NAME_DGRAM, conn->id)))
		return -errno;
	conn->carrier |= C_CONNECTED;
	return 0;
}

/**
 * send_split - send @len bytes to a carrier as messages of @size bytes
 * @un: the carrier's name, of @unlen bytes; 0: @fd is connected to it
 *
 * Returns the bytes sent, or a negative errno if the first message failed.
 */
static ssize_t send_split(int fd, const char *buf, size_t len, size_t size,
			  struct sockaddr_un *un, socklen_t unlen)
{
	static struct mmsghdr mm[DGRAMS];
	static struct iovec iov[DGRAMS];
	size_t n = 0, at, put;
	int ret;

	if (len <= size) {
		ssize_t one = sendto(fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL,
				     unlen ? (struct sockaddr *)un : NULL, unlen);

		return one < 0 ? -errno : one;
	}
	for (at = 0; at < len && n < DGRAMS; at += size, n++) {
		iov[n].iov_base = (void *)(uintptr_t)(buf + at);
		iov[n].iov_len = len - at < size ? len - at : size;
		mm[n].msg_hdr = (struct msghdr){
			.msg_name = unlen ? un : NULL, .msg_namelen = unlen,
			.msg_iov = &iov[n], .msg_iovlen = 1,
		};
	}
	ret = sendmmsg(fd, mm, (unsigned int)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (ret < 0)
		return -errno;
	put = (size_t)ret * size;
	return put < len ? (ssize_t)put : (ssize_t)len;
}

/**
 * dgram_put - send datagrams to the target
 * @len: length of @buf
 * @size: size of a datagram; the last one may be shorter
 *
 * Returns the bytes sent, or a negative errno if the first datagram failed.
 */
ssize_t dgram_put(struct dgram *d, const char *buf, size_t len, size_t size,
		  const struct origin *o)
{
	struct conn *conn = &d->conn;
	struct sockaddr_un un;
	ssize_t ret;
	int fd;

	if (conn->kind == KIND_NETLINK || (conn->carrier & C_CONNECTED)) {
		ret = set_origin(d, o);
		return ret ? ret : send_split(conn->csrc.fd, buf, len, size,
					      NULL, 0);
	}
	fd = peer_socket(o);
	ret = fd < 0 ? fd : send_split(fd, buf, len, size, &un,
				       carrier_name(&un, NAME_INBOX, conn->id));
	if (ret != -EAGAIN && ret != -ENOBUFS)
		return ret;
	/* Datagrams that others do not read must not hold up this socket. */
	if (!dgram_our_end(d) && !set_origin(d, o)) {
		ssize_t own = send_split(conn->csrc.fd, buf, len, size, NULL, 0);

		if (own != -EAGAIN)
			return own;
	}
	if (ret == -EAGAIN)
		peer_want_out(o, dgram_retry);
	return ret;
}

/**
 * dgram_store_sent - store messages that the stack does not accept now
 *
 * Each one is stored behind its length. Without memory they are lost.
 */
void dgram_store_sent(struct conn *conn, const struct iovec *v, size_t n)
{
	size_t len = 0, i;
	char *p;

	for (i = 0; i < n; i++)
		len += sizeof(size_t) + v[i].iov_len;
	p = chunk_add(&conn->to_stack, len);
	if (!p) {
		conn_stats.dgrams_dropped += n;
		return;
	}
	for (i = 0; i < n; i++) {
		memcpy(p, &v[i].iov_len, sizeof(size_t));
		memcpy(p + sizeof(size_t), v[i].iov_base, v[i].iov_len);
		p += sizeof(size_t) + v[i].iov_len;
	}
}

/** dgram_stored_sent - list stored messages, DGRAMS at most; returns their number */
size_t dgram_stored_sent(const struct chunk *ch, struct iovec *v)
{
	char *buf = ch->buf + ch->off, *end = buf + ch->len;
	size_t n;

	for (n = 0; buf < end && n < DGRAMS; n++) {
		memcpy(&v[n].iov_len, buf, sizeof(size_t));
		v[n].iov_base = buf + sizeof(size_t);
		buf += sizeof(size_t) + v[n].iov_len;
	}
	return n;
}

/**
 * dgram_take - receive the messages in the carrier
 * @v: set to the messages, DGRAMS at most
 *
 * Returns their number. If there are no more, this clears C_IN.
 */
size_t dgram_take(struct conn *conn, struct iovec *v)
{
	static struct mmsghdr mm[DGRAMS];
	size_t i, got = 0;
	int n;

	for (i = 0; i < DGRAMS; i++) {
		v[i].iov_base = out_buf[i];
		v[i].iov_len = OUT_MAX;
		mm[i].msg_hdr = (struct msghdr){ .msg_iov = &v[i],
						 .msg_iovlen = 1 };
	}
	n = recvmmsg(conn->csrc.fd, mm, DGRAMS, MSG_DONTWAIT, NULL);
	if (n < DGRAMS)
		conn->carrier &= ~C_IN;
	for (i = 0; n > 0 && i < (size_t)n; i++) {
		if (mm[i].msg_hdr.msg_flags & MSG_TRUNC) {
			conn_stats.dgrams_dropped++;
			continue;
		}
		v[got].iov_base = out_buf[i];
		v[got++].iov_len = mm[i].msg_len;
	}
	return got;
}

/**
 * dgram_save - store what the target has sent, before our end of the carrier
 * is disconnected, which discards it
 *
 * A datagram that the target sends between these two steps is lost.
 */
void dgram_save(struct dgram *d)
{
	struct conn *conn = &d->conn;
	struct iovec v[DGRAMS];
	int i;

	conn->carrier |= C_IN;
	for (i = 0; i < QUEUE_MAX / DGRAMS && (conn->carrier & C_IN); i++) {
		size_t n = dgram_take(conn, v);

		if (conn_stats.kept >= KEPT_MAX)
			conn_stats.dgrams_dropped += n;
		else if (n)
			dgram_store_sent(conn, v, n);
	}
	if (conn->to_stack.buf)
		work_queue(&conn->work);
}
