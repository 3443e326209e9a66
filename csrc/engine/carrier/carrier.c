// SPDX-License-Identifier: GPL-2.0-only
/*
 * The carrier: the descriptor that the target holds in place of a socket.
 *
 * Theory of operation
 *
 * A carrier is an AF_UNIX socket. It remains the same open file description for
 * its whole life, so the kernel itself handles poll, epoll, dup, fork, exec and
 * SCM_RIGHTS. Its inode number and SO_COOKIE, recorded when it was created,
 * identify the connection, in whichever process the carrier is open. No other
 * socket can have them. The calls act on the carrier as follows:
 *
 *	socket()	creates an unconnected stream socket
 *	connect()	connects the same socket to our meeting point
 *	listen()	makes the same socket listen
 *	accept()	creates a connected pair; the target's end has a name
 *
 * Cork: a non-blocking connect() connects the carrier at once. Until the peer
 * has answered, poll must not report the carrier as writable, so the direction
 * to us is first filled with filler bytes. A small SO_SNDBUF limits the filler
 * to a few bytes. SO_SNDBUF is restored only when the filler is removed,
 * because a larger value would make the carrier writable.
 *
 * Reset: if our end is closed while it holds unread bytes, the target first
 * reads the data sent to it, then gets ECONNRESET, then end-of-file, as with
 * TCP.
 *
 * Names: the kernel needs the address of a socket to connect to it or to send
 * to it. Carriers and our own sockets are therefore bound to abstract names,
 * which encode this instance and a number. A name identifies a socket only
 * while we know that this socket is open. If lklhost could not create its own
 * network namespace (host.shared_netns), other processes see and use the same
 * names:
 *
 * - The meeting point is open only during a connect(). SO_PEERCRED names
 *   the process that called connect(), which must be lklhost.
 * - A datagram carrier is always connected to our end. It then accepts no
 *   message of another socket, and needs no message to its name.
 * - A foreign connection to a listening carrier is discarded like a token, see
 *   carrier_token().
 * - A process can take the name of a closed carrier. carriers_find_gone() finds
 *   such carriers.
 *
 * When the target closes a connected carrier, or shuts it down in both
 * directions, our end gets EPOLLHUP. Closing a listening, datagram or
 * unconnected carrier causes no event. carrier_gone() detects it by trying to
 * bind another socket to the carrier's name. That socket is our own end of a
 * pair, which has no name, or else a socket created for this purpose.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/stream_conn.h"
#include "process/process.h"

#define PREFIX		"lklrun"
#define PREFIX_LEN	6
#define INST_LEN	16
#define ID_LEN		8
/* A name consists of a zero byte, prefix, instance, letter and number. */
#define NAME_LEN	(1 + PREFIX_LEN + INST_LEN + 1 + ID_LEN)
#define MEETING_BACKLOG	1024
#define MEETING_TRIES	8

/* Number of carriers with a larger buffer (C_BIGBUF), see pump_in.c. */
unsigned int carriers_roomy;
static int meeting = -1;	/* listens for the carriers' connect() */
static uint32_t meeting_id;
static int alive = -1;		/* an epoll with all carriers, if we have no namespace */
static pid_t self;
/* Unbound sockets, by type, for checking whether a name is free. */
static int probe[SOCK_SEQPACKET + 1];
static int spare = -1;		/* a probe that got a name; usable as a token */
static char prefix[1 + PREFIX_LEN + INST_LEN + 1];

/**
 * carrier_name - build the name of one end of a carrier
 * @kind: NAME_*
 *
 * Returns the address length for bind() and connect().
 */
socklen_t carrier_name(struct sockaddr_un *un, char kind, uint32_t id)
{
	static const char hex[] = "0123456789abcdef";
	char *p = un->sun_path + 1 + PREFIX_LEN + INST_LEN;
	int i;

	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, prefix, sizeof(prefix) - 1);
	*p++ = kind;
	for (i = 28; i >= 0; i -= 4)
		*p++ = hex[(id >> i) & 15];
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + NAME_LEN);
}

/**
 * carrier_parse - parse a name that carrier_name() built
 *
 * Returns false if the name does not belong to this instance.
 */
bool carrier_parse(const struct sockaddr_un *un, socklen_t len, char *kind,
		   uint32_t *id)
{
	const char *p = un->sun_path + 1 + PREFIX_LEN + INST_LEN;
	uint32_t v = 0;
	int i;

	if (len != offsetof(struct sockaddr_un, sun_path) + NAME_LEN ||
	    un->sun_family != AF_UNIX ||
	    memcmp(un->sun_path, prefix, sizeof(prefix) - 1))
		return false;
	*kind = *p++;
	for (i = 0; i < ID_LEN; i++) {
		char ch = *p++;

		if (ch >= '0' && ch <= '9')
			v = v << 4 | (uint32_t)(ch - '0');
		else if (ch >= 'a' && ch <= 'f')
			v = v << 4 | (uint32_t)(ch - 'a' + 10);
		else
			return false;
	}
	*id = v;
	return true;
}

/**
 * carrier_make - create an unconnected carrier
 *
 * Returns a descriptor or a negative errno.
 */
int carrier_make(int type, uint32_t id)
{
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&un,
		 carrier_name(&un, (type & 0xf) == SOCK_DGRAM ? NAME_INBOX :
			      NAME_TARGET, id))) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

/**
 * carrier_pair - create a connected carrier
 * @type: type of the socket, with SOCK_NONBLOCK if the target wants it
 * @sv: [0] is set to our end, [1] to the target's end
 */
int carrier_pair(int type, uint32_t id, int sv[2])
{
	struct sockaddr_un un;

	if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sv))
		return -errno;
	if (bind(sv[1], (struct sockaddr *)&un,
		 carrier_name(&un, NAME_TARGET, id))) {
		int ret = -errno;

		close(sv[0]);
		close(sv[1]);
		return ret;
	}
	return 0;
}

/** carrier_watch - make the loop watch @fd, our end of a stream's carrier */
int carrier_watch(struct conn *conn, int fd)
{
	conn->csrc.fd = fd;
	conn->csrc.fn = conn_ops->carrier_event;
	return loop_add(&conn->csrc, CARRIER_EVENTS);
}

/**
 * carrier_bigbuf - set how many bytes sent from @fd, our end, a carrier holds
 *
 * A datagram carrier must hold a whole burst. The stack's socket has the buffer
 * that the target requested, but its datagrams are moved to the carrier at
 * once.
 */
void carrier_bigbuf(int fd, int size)
{
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

/**
 * carrier_note - record which socket the target's end is, when it is created
 *
 * The helper thread (carrier_pool.c) calls this, too.
 */
void carrier_note(struct conn *conn, int fd)
{
	struct epoll_event ev = { .events = 0 };

	conn->carrier_ino = ev.data.u64 = fd_ino(fd);
	conn->carrier_cookie = fd_cookie(fd);
	conn->listed = alive >= 0 &&
		       !epoll_ctl(alive, EPOLL_CTL_ADD, fd, &ev);
}

/**
 * carrier_is_old - whether @fd, which has no connection, may have been a carrier
 *
 * The name proves nothing, but calls on such a socket fail in any case.
 */
bool carrier_is_old(int fd)
{
	struct sockaddr_un un;
	socklen_t len = sizeof(un);
	uint32_t id;
	char kind;

	return !getsockname(fd, (struct sockaddr *)&un, &len) &&
	       carrier_parse(&un, len, &kind, &id);
}

/** carrier_type - get the socket type of a connection's carrier */
static int carrier_type(const struct conn *conn)
{
	switch (conn->kind) {
	case KIND_DGRAM:
		return SOCK_DGRAM;
	case KIND_NETLINK:
		return SOCK_SEQPACKET;
	default:
		return SOCK_STREAM;
	}
}

/**
 * carrier_gone - whether the target has closed its last copy of the carrier
 *
 * Each socket type has a separate abstract namespace, so the probe has the
 * carrier's type.
 */
bool carrier_gone(struct conn *conn)
{
	int type = carrier_type(conn), *fd = &probe[type];
	char kind = type == SOCK_DGRAM ? NAME_INBOX : NAME_TARGET;
	struct sockaddr_un un;
	socklen_t len = carrier_name(&un, kind, conn->id);

	if (conn->carrier & C_GONE)	/* our own bind() may occupy the name */
		return true;
	if ((conn->facts & F_ACCEPTED) && conn->csrc.fd >= 0) {
		if (bind(conn->csrc.fd, (struct sockaddr *)&un, len))
			return false;
		conn->carrier |= C_GONE;
		return true;
	}
	if (*fd < 0)
		*fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0 || bind(*fd, (struct sockaddr *)&un, len))
		return false;
	/* The probe has this name now, and is usable only as a token. */
	if (type == SOCK_STREAM && spare < 0)
		spare = *fd;
	else
		close(*fd);
	*fd = -1;
	conn->carrier |= C_GONE;
	return true;
}

/**
 * carrier_is_shut - whether the target has shut down receiving (shutdown(2)), or
 * the end of the peer's data has reached the carrier
 */
bool carrier_is_shut(int dup)
{
	struct pollfd p = { .fd = dup, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLRDHUP);
}

/**
 * carrier_may_send - whether the target has not shut down sending
 *
 * No poll bit shows this for a datagram socket. The kernel checks it before it
 * reads the data, so nothing is sent from an address that cannot be read
 * (net/core/sock.c, sock_alloc_send_pskb()).
 */
bool carrier_may_send(int dup)
{
	struct iovec nowhere = { NULL, 1 };
	struct msghdr mh = { .msg_iov = &nowhere, .msg_iovlen = 1 };

	return sendmsg(dup, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) != -1 ||
	       errno != EPIPE;
}

/** carrier_token - get a stream socket for connecting to a listening carrier */
int carrier_token(void)
{
	int fd = spare;

	spare = -1;
	if (fd < 0)
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			    0);
	return fd;
}

/**
 * carriers_find_gone - mark the closed carriers, without their names
 *
 * An epoll lists a file until its last descriptor is closed, and keeps none.
 */
void carriers_find_gone(void)
{
	unsigned long long ino;
	char path[40], line[256];
	struct conn *conn;
	struct list *pos;
	FILE *f;

	if (alive < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", alive);
	f = fopen(path, "re");
	if (!f)
		return;
	list_for_each(pos, &conns)
		container_of(pos, struct conn, link)->seen = false;
	while (fgets(line, sizeof(line), f)) {
		/* For the format, see ep_show_fdinfo(), fs/eventpoll.c. */
		conn = sscanf(line, "tfd:%*d events:%*x data:%llx", &ino) == 1 ?
		       conn_by_ino(ino) : NULL;
		if (conn)
			conn->seen = true;
	}
	fclose(f);
	list_for_each(pos, &conns) {
		conn = container_of(pos, struct conn, link);
		if (conn->listed && !conn->seen)
			conn->carrier |= C_GONE;
	}
}

/** carrier_init - set up the names of this instance */
int carrier_init(void)
{
	char text[INST_LEN + 1];
	size_t i;

	for (i = 0; i < sizeof(probe) / sizeof(probe[0]); i++)
		probe[i] = -1;
	snprintf(text, sizeof(text), "%016llx",
		 (unsigned long long)host.instance);
	memcpy(prefix + 1, PREFIX, PREFIX_LEN);
	memcpy(prefix + 1 + PREFIX_LEN, text, INST_LEN);
	self = getpid();
	if (!host.shared_netns)
		return 0;
	alive = epoll_create1(EPOLL_CLOEXEC);
	return alive < 0 ? -errno : 0;
}

/** meeting_close - close the meeting point, with all connections to it */
static void meeting_close(void)
{
	if (meeting >= 0)
		close(meeting);
	meeting = -1;
}

/** meeting_open - create the meeting point, under a name that is free */
static int meeting_open(void)
{
	struct sockaddr_un un;
	int tries;

	if (meeting >= 0)
		return 0;
	meeting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	for (tries = 0; meeting >= 0 && tries < MEETING_TRIES; tries++) {
		if (!host.shared_netns ||
		    getrandom(&meeting_id, sizeof(meeting_id), GRND_NONBLOCK) < 0)
			meeting_id++;
		if (!bind(meeting, (struct sockaddr *)&un,
			  carrier_name(&un, NAME_MEETING, meeting_id)) &&
		    !listen(meeting, MEETING_BACKLOG))
			return 0;
	}
	meeting_close();
	return -EADDRNOTAVAIL;
}

/** meeting_accept - accept the connection that we have just made */
static int meeting_accept(void)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	int fd, tries;

	for (tries = 0; tries <= MEETING_BACKLOG; tries++) {
		fd = accept4(meeting, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return -errno;
		if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
		    who.pid == self)
			return fd;
		close(fd);
	}
	return -ECONNABORTED;
}

/** carrier_stop - undo carrier_init() */
void carrier_stop(void)
{
	size_t i;

	meeting_close();
	if (alive >= 0)
		close(alive);
	alive = -1;
	if (spare >= 0)
		close(spare);
	spare = -1;
	for (i = 0; i < sizeof(probe) / sizeof(probe[0]); i++) {
		if (probe[i] >= 0)
			close(probe[i]);
		probe[i] = -1;
	}
}

/** connect_soon - connect @dup to the meeting point; -EAGAIN if it is full */
static int connect_soon(int dup)
{
	const struct timeval soon = { .tv_usec = 1 };	/* a jiffy */
	struct timeval old = { 0 };
	socklen_t len = sizeof(old);
	struct sockaddr_un un;
	int ret;

	/* The target controls O_NONBLOCK, but not this: setsockopt() is caught. */
	if (getsockopt(dup, SOL_SOCKET, SO_SNDTIMEO, &old, &len) ||
	    setsockopt(dup, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon)))
		return -errno;
	ret = connect(dup, (struct sockaddr *)&un,
		      carrier_name(&un, NAME_MEETING, meeting_id)) ? -errno : 0;
	setsockopt(dup, SOL_SOCKET, SO_SNDTIMEO, &old, len);
	return ret;
}

/**
 * carrier_meet - connect the target's carrier to us
 * @dup: duplicate of the carrier
 *
 * Sets conn->csrc.fd and adds it to the loop. If other processes have filled
 * the queue of the meeting point, a new meeting point replaces it.
 */
int carrier_meet(struct stream *s, int dup)
{
	int ret = -EAGAIN, tries;

	for (tries = 0; ret == -EAGAIN && tries < MEETING_TRIES; tries++) {
		ret = meeting_open();
		if (!ret)
			ret = connect_soon(dup);
		if (!ret)
			ret = meeting_accept();
		if (ret < 0 || host.shared_netns)
			meeting_close();
	}
	return ret < 0 ? ret : carrier_watch(&s->conn, ret);
}

/**
 * carrier_cork - make the target's end unwritable for now
 * @dup: duplicate of the target's end, just connected
 */
int carrier_cork(struct stream *s, int dup)
{
	static const char filler[4096];
	int size = 0, old = 0;
	socklen_t len = sizeof(old);
	ssize_t n;

	if (getsockopt(dup, SOL_SOCKET, SO_SNDBUF, &old, &len))
		return -errno;
	setsockopt(dup, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	while ((n = send(dup, filler, 1, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
		s->cork.bytes += (unsigned int)n;
	s->cork.sndbuf = old / 2;	/* the kernel doubles it, socket(7) */
	if (errno != EAGAIN)
		return -errno;
	if (!task_can_getfd() && !s->cork.dup)
		s->cork.dup = fcntl(dup, F_DUPFD_CLOEXEC, 1);
	return 0;
}

/** cork_close - close the duplicate of a corked carrier */
static void cork_close(struct stream *s)
{
	if (s->cork.dup > 0)
		paged_close_later(s->cork.dup);
	s->cork.dup = 0;
}

/** carrier_drop - close our end of the carrier */
void carrier_drop(struct conn *conn)
{
	int fd = conn->csrc.fd;

	if (conn->kind == KIND_STREAM)
		cork_close(stream_of(conn));
	carriers_roomy -= !!(conn->carrier & C_BIGBUF);
	conn->carrier &= ~C_BIGBUF;
	if (fd < 0)
		return;
	loop_forget(&conn->csrc);
	close(fd);
}

/** borrow - duplicate @fd of @pid if it is @conn's carrier */
static int borrow(const struct conn *conn, pid_t pid, int fd)
{
	struct task *t = task_get(pid);
	int dup = t ? task_getfd(t, fd) : -ESRCH;

	if (dup < 0)
		return dup;
	if (conn_of_carrier(dup) == conn)
		return dup;
	close(dup);
	return -ENOENT;
}

/**
 * carrier_borrow - get a temporary duplicate of the target's end
 *
 * Some operations are impossible from our end. This first checks the process in
 * which the carrier was last seen, then the same descriptor number in every
 * process that has made a call and its descendants, because fork may have
 * passed on an accepted connection.
 * Returns a negative errno if no process has the carrier there, or -ENOSYS if it
 * cannot be obtained from a running process, before Linux 5.6.
 */
int carrier_borrow(struct conn *conn)
{
	pid_t pids[512];
	size_t i, n;
	int dup;

	if (conn->kind == KIND_STREAM && stream_of(conn)->cork.dup > 0)
		return fcntl(stream_of(conn)->cork.dup, F_DUPFD_CLOEXEC, 0);
	dup = borrow(conn, conn->pid, conn->tfd);
	if (dup >= 0 || dup == -ENOSYS)
		return dup;
	n = tasks_tree(pids, sizeof(pids) / sizeof(pids[0]));
	for (i = 0; i < n; i++) {
		dup = borrow(conn, pids[i], conn->tfd);
		if (dup >= 0)
			return dup;
	}
	return -ENOENT;
}

/**
 * carrier_uncork - make the target's end writable, when the peer has answered
 */
void carrier_uncork(struct stream *s)
{
	struct conn *conn = &s->conn;
	char buf[4096];
	int dup = carrier_borrow(conn);

	if (dup >= 0) {
		setsockopt(dup, SOL_SOCKET, SO_SNDBUF, &s->cork.sndbuf,
			   sizeof(s->cork.sndbuf));
		paged_close_later(dup);
	}
	while (s->cork.bytes) {
		size_t want = s->cork.bytes < sizeof(buf) ? s->cork.bytes :
							    sizeof(buf);
		ssize_t n = recv(conn->csrc.fd, buf, want, MSG_DONTWAIT);

		if (n <= 0)
			break;
		s->cork.bytes -= (unsigned int)n;
	}
	s->cork.bytes = 0;
	cork_close(s);
}
