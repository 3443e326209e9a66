// SPDX-License-Identifier: GPL-2.0-only
/*
 * Datagrams: UDP, ICMP and raw sockets. Netlink sockets use the same code
 * paths.
 *
 * Theory of operation
 *
 * The target holds a datagram carrier. A send with an address is a notified
 * call, and the engine sends the datagram in the stack at once. When the stack
 * receives a datagram, the engine sends it to the carrier from a socket whose
 * name represents the datagram's origin (peer.c). The kernel itself thus
 * handles read and poll, and recvfrom finds the address by that name.
 *
 * The carrier of a connected socket is connected to our end. The socket's
 * datagrams come from our end, and a plain send() of the target goes to it. All
 * of these datagrams share one name, so such a carrier holds only datagrams of
 * one origin at a time. The origin mostly changes with the ancillary data,
 * which most programs do not request.
 *
 * If the queue of a carrier is full, the datagram waits in a chunk, and no more
 * datagrams are received from the stack. The stack then drops datagrams as for
 * any slow reader. Our end, connected to the carrier, reports EPOLLOUT when
 * there is room again. If the send buffer of a peer's socket (peer.c) was full
 * instead, a timer triggers the retry.
 *
 * A netlink carrier is a connected SOCK_SEQPACKET pair. Its messages have one
 * origin at a time: the kernel, and the multicast group of the message.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "base/loop.h"
#include "engine/supervise/carrier.h"
#include "engine/supervise/conn.h"
#include "engine/supervise/dgram.h"
#include "engine/supervise/notify.h"
#include "engine/supervise/peer.h"
#include "stack/stack.h"

#define DGRAMS		64	/* messages moved per call */
#define QUEUE_MAX	2048	/* queue length of a carrier, see netns_private() */
#define RETRY_NS	1000000ull

static void retry_due(struct timer *t);
/* The message that is being moved. */
static char msg_buf[DGRAM_MAX] __attribute__((aligned(4096)));
static struct timer retry_timer = TIMER_INIT(retry_timer, retry_due);

/** retry_due - retry carriers that were full */
static void retry_due(struct timer *t)
{
	struct list *pos, *tmp;

	(void)t;
	list_for_each_safe(pos, tmp, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		if (conn->kind != KIND_STREAM && conn->to_target.len)
			work_queue(&conn->work);
	}
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
	carrier_roomy(fd, DGRAM_ROOM);
	if (bind(fd, (struct sockaddr *)&un,
		 carrier_name(&un, NAME_DGRAM, conn->id)) ||
	    connect(fd, (struct sockaddr *)&un,
		    carrier_name(&un, NAME_INBOX, conn->id))) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	conn->csrc.fd = fd;
	return loop_add(&conn->csrc, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
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

/** carrier_send - send one message to the target; 0 or a negative errno */
static int carrier_send(struct dgram *d, const char *buf, size_t len,
			const struct origin *o)
{
	struct conn *conn = &d->conn;
	struct sockaddr_un un;
	socklen_t unlen;
	ssize_t n;
	int fd, ret;

	if (conn->kind == KIND_NETLINK || (conn->carrier & C_CONNECTED)) {
		ret = set_origin(d, o);
		if (ret)
			return ret;
		n = send(conn->csrc.fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		return n < 0 ? -errno : 0;
	}
	fd = peer_socket(o);
	if (fd < 0)
		return fd;
	unlen = carrier_name(&un, NAME_INBOX, conn->id);
	n = sendto(fd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL,
		   (struct sockaddr *)&un, unlen);
	return n < 0 ? -errno : 0;
}

/** keep - store @buf, after its origin, because the carrier is full */
static void keep(struct dgram *d, const char *buf, size_t len,
		 const struct origin *o)
{
	struct conn *conn = &d->conn;
	struct chunk *ch = &conn->to_target;

	ch->buf = malloc(sizeof(*o) + len);
	if (!ch->buf) {
		conn_stats.dgrams_dropped++;
		return;
	}
	memcpy(ch->buf, o, sizeof(*o));
	memcpy(ch->buf + sizeof(*o), buf, len);
	ch->len = sizeof(*o) + len;
	dgram_our_end(d);
	timer_arm(&retry_timer, now_ns() + RETRY_NS);
}

/**
 * put - send one message to the target, or store it
 *
 * Returns false if no more messages should be received: the carrier is full, or
 * @conn is gone.
 */
static bool put(struct dgram *d, const char *buf, size_t len,
		const struct origin *o)
{
	struct conn *conn = &d->conn;
	int ret = carrier_send(d, buf, len, o);

	switch (ret) {
	case 0:
		conn_stats.dgrams_in++;
		return true;
	case -EAGAIN:
	case -ENOBUFS:
		keep(d, buf, len, o);
		return false;
	case -ECONNREFUSED:
		if (conn->kind == KIND_DGRAM && carrier_gone(conn)) {
			dgram_gone(d);
			return false;
		}
		break;
	}
	conn_stats.dgrams_dropped++;
	return true;
}

/** dgram_put_back - put a message back into the carrier */
int dgram_put_back(struct dgram *d, const char *buf, size_t len,
		   const struct origin *o)
{
	return carrier_send(d, buf, len, o);
}

/** put_kept - retry the stored message; false if it could not be sent */
static bool put_kept(struct dgram *d)
{
	struct conn *conn = &d->conn;
	char *buf = conn->to_target.buf;
	size_t len = conn->to_target.len - sizeof(struct origin);
	struct origin o;
	bool ok;

	memcpy(&o, buf, sizeof(o));
	conn->to_target.buf = NULL;
	conn->to_target.len = 0;
	ok = put(d, buf + sizeof(o), len, &o);
	free(buf);
	return ok;
}

/** dgram_kick - send the stored message, because the target has made room */
void dgram_kick(struct dgram *d)
{
	struct conn *conn = &d->conn;

	if (conn->to_target.len && put_kept(d))
		work_queue(&conn->work);
}

/**
 * room - buffer size for receiving the next message
 *
 * A netlink dump arrives in messages as large as the largest buffer ever passed
 * to a receive call (max_recvmsg_len, net/netlink/af_netlink.c). Many programs
 * have only a buffer of one page, so our buffer must not be larger than the
 * next message.
 */
static size_t room(struct dgram *d)
{
	struct conn *conn = &d->conn;
	long n;

	if (conn->kind != KIND_NETLINK)
		return DGRAM_MAX;
	n = st_recvfrom(conn->sfd, msg_buf, 0,
			MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC, NULL, NULL);
	return n < 0 ? 0 : n > DGRAM_MAX ? DGRAM_MAX : (size_t)n;
}

/**
 * pull - move messages from the stack to the carrier; true if there may be more
 */
static bool pull(struct dgram *d)
{
	struct conn *conn = &d->conn;
	union {
		struct cmsghdr align;
		char buf[512];
	} ctl;
	struct sockaddr_storage ss;
	struct iovec iov = { msg_buf, DGRAM_MAX };
	struct origin o;
	long n;
	int i;

	for (i = 0; i < DGRAMS && (conn->stack & S_IN); i++) {
		struct msghdr mh = {
			.msg_name = &ss, .msg_namelen = sizeof(ss),
			.msg_iov = &iov, .msg_iovlen = 1,
			.msg_control = ctl.buf,
			.msg_controllen = sizeof(ctl.buf),
		};

		if (conn->to_target.len && !put_kept(d))
			return false;
		iov.iov_len = room(d);
		n = st_recvmsg(conn->sfd, &mh, MSG_DONTWAIT);
		if (n == -EAGAIN) {
			conn->stack &= ~S_IN;
			return false;
		}
		if (n < 0) {
			dgram_failed(d, (int)-n);
			continue;
		}
		conn->bytes_in += (uint64_t)n;
		owners_translate(conn, msg_buf, (size_t)n);
		origin_set(&o, &mh);
		if (!put(d, msg_buf, (size_t)n, &o))
			return false;
	}
	return conn->stack & S_IN;
}

/**
 * forward - send a message of a plain send() to the stack
 *
 * Returns false if the message must wait.
 */
static bool forward(struct dgram *d, const char *buf, size_t len)
{
	struct conn *conn = &d->conn;
	long n = st_sendto(conn->sfd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL,
			   NULL, 0);
	int err = 0;

	if (n == -EAGAIN) {
		conn->to_stack.buf = malloc(len ? len : 1);
		if (conn->to_stack.buf) {
			memcpy(conn->to_stack.buf, buf, len);
			conn->to_stack.len = len;
			st_rewatch(conn->sfd, &conn->ssrc, EPOLLIN | EPOLLOUT);
			return false;
		}
	}
	if (n < 0 && conn->kind == KIND_DGRAM) {
		/*
		 * This may be the error of an earlier datagram, which is
		 * reported only once.
		 */
		err = (int)-n;
		n = st_sendto(conn->sfd, buf, len, MSG_DONTWAIT | MSG_NOSIGNAL,
			      NULL, 0);
	}
	if (n < 0) {
		conn_stats.dgrams_dropped++;
	} else {
		conn_stats.dgrams_out++;
		conn->bytes_out += (uint64_t)n;
	}
	if (err)
		dgram_failed(d, err);
	return true;
}

/**
 * push - forward messages that the target sent natively
 *
 * Returns true if there may be more.
 */
static bool push(struct dgram *d)
{
	struct conn *conn = &d->conn;
	int i;

	if (conn->to_stack.buf) {
		char *buf = conn->to_stack.buf;
		size_t len = conn->to_stack.len;

		conn->to_stack.buf = NULL;
		conn->to_stack.len = 0;
		if (!forward(d, buf, len)) {
			free(buf);
			return false;
		}
		free(buf);
	}
	for (i = 0; i < DGRAMS && (conn->carrier & C_IN); i++) {
		ssize_t n = recv(conn->csrc.fd, msg_buf, DGRAM_MAX,
				 MSG_DONTWAIT);

		if (n < 0 || (n == 0 && conn->kind == KIND_NETLINK)) {
			conn->carrier &= ~C_IN;
			return false;
		}
		if (!forward(d, msg_buf, (size_t)n))
			return false;
	}
	return conn->carrier & C_IN;
}

/**
 * dgram_flush - forward natively sent messages before the current call
 *
 * An option such as IP_TTL applies to the datagrams that follow it.
 */
void dgram_flush(struct dgram *d)
{
	struct conn *conn = &d->conn;
	int i;

	if (conn->csrc.fd < 0)
		return;
	conn->carrier |= C_IN;
	/* The limit is the queue length: others may keep sending. */
	for (i = 0; i < QUEUE_MAX / DGRAMS; i++)
		if ((conn->facts & F_DEAD) || !push(d))
			break;
}

/** dgram_gone - free a closed connection, after sending its queued messages */
void dgram_gone(struct dgram *d)
{
	struct conn *conn = &d->conn;

	dgram_flush(d);
	if (conn->to_stack.buf)
		conn_stats.dgrams_dropped++;
	conn_free(conn);
}

/** dgram_pump - move messages in both directions */
static void dgram_pump(struct work *w)
{
	struct conn *conn = container_of(w, struct conn, work);
	struct dgram *d = dgram_of(conn);
	bool more;

	if (conn->facts & F_DEAD)
		return;
	if (conn->to_target.len && put_kept(d))
		conn->stack |= S_IN;
	if (conn->facts & F_DEAD)
		return;
	if ((conn->stack & S_IN) && !list_empty(&conn->held))
		held_wake(&conn->held);
	more = push(d);
	if (!conn->to_target.len)
		more |= pull(d);
	if (conn->facts & F_DEAD)
		return;
	if ((conn->carrier & C_HUP) && conn->kind == KIND_NETLINK) {
		conn_free(conn);
		return;
	}
	if (more)
		work_queue(w);
}

/** dgram_stack_event - handle an event of the stack's socket */
static void dgram_stack_event(struct stack_src *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, ssrc);
	struct dgram *d = dgram_of(conn);

	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		conn->stack |= S_IN;
	if (events & EPOLLOUT) {
		conn->stack |= S_OUT;
		if (!list_empty(&conn->held))
			held_wake(&conn->held);
		if (!conn->to_stack.buf && list_empty(&conn->held))
			st_rewatch(conn->sfd, &conn->ssrc, EPOLLIN);
	}
	dgram_pump(&conn->work);
	/* If no call has reported the error, it is in the error queue. */
	if ((events & EPOLLERR) && !(conn->facts & F_DEAD) && !conn->so_error &&
	    !(conn->carrier & C_FAILED) && st_failed(conn->sfd))
		dgram_raise(d, -1);
}

/** dgram_carrier_event - handle that the target has sent or read a message */
static void dgram_carrier_event(struct source *src, uint32_t events)
{
	struct conn *conn = container_of(src, struct conn, csrc);

	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		conn->carrier |= C_IN;
	if (events & EPOLLHUP && conn->kind == KIND_NETLINK)
		conn->carrier |= C_HUP;
	dgram_pump(&conn->work);
}

/** dgram_start - initialize a new socket */
int dgram_start(struct dgram *d)
{
	struct conn *conn = &d->conn;

	conn->work.fn = dgram_pump;
	conn->csrc.fn = dgram_carrier_event;
	conn->ssrc.fn = dgram_stack_event;
	return conn_watch(conn, EPOLLIN);
}

/**
 * netlink_start - initialize a new netlink socket; takes ownership of @cfd, our
 * end
 */
int netlink_start(struct dgram *d, int cfd)
{
	struct conn *conn = &d->conn;
	int ret = dgram_start(d);

	conn->csrc.fd = cfd;
	if (ret)
		return ret;
	return loop_add(&conn->csrc, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

/** dgram_want_out - make the stack report when the socket can send again */
void dgram_want_out(struct conn *conn)
{
	st_rewatch(conn->sfd, &conn->ssrc, EPOLLIN | EPOLLOUT);
}

/** dgram_connect - handle connect(2) of a datagram or netlink socket */
int64_t dgram_connect(struct call *c, const struct sockaddr_storage *ss,
		      socklen_t len)
{
	struct conn *conn = c->conn;
	struct dgram *d = dgram_of(conn);
	struct sockaddr_un un;
	long ret;

	conn_sweep_few(KIND_DGRAM);
	ret = st_connect(conn->sfd, ss, len);
	if (ret || conn->kind == KIND_NETLINK)
		return ret;
	if (ss->ss_family == AF_UNSPEC)
		return dgram_disconnect(d, c->dup);
	account_peer(conn);
	conn_event(conn, "connect");
	if (conn->carrier & C_CONNECTED)
		return 0;
	ret = dgram_our_end(d);
	if (ret)
		return ret;
	if (connect(c->dup, (struct sockaddr *)&un,
		    carrier_name(&un, NAME_DGRAM, conn->id)))
		return -errno;
	conn->carrier |= C_CONNECTED;
	return 0;
}
