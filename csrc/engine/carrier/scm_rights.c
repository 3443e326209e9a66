// SPDX-License-Identifier: GPL-2.0-only
/*
 * recvmsg() and recvmmsg() on sockets that the target itself uses, and
 * recvmsg() on the carriers of streams.
 *
 * Theory of operation
 *
 * A message may contain descriptors. A process outside the run may thus send a
 * socket of the host's network to the target. lklhost therefore receives the
 * message itself, on a duplicate of the caller's descriptor. It does so for
 * every kind of socket, because the target could replace any descriptor by a
 * unix socket before the host's kernel uses it. It passes the
 * descriptors to the caller, except for foreign sockets (foreign_sock.c). If there is a
 * foreign socket, the caller gets fewer descriptors and MSG_CTRUNC, as if there
 * were no room.
 *
 * No call here blocks. A blocking caller is held. The loop watches a duplicate
 * of the caller's socket. Like the host's kernel, the held call keeps this
 * socket open.
 *
 * SCM_CREDENTIALS contains the sender's ids as numbers in the namespaces of the
 * receiver. The ids are translated if the caller is in other namespaces than
 * lklhost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/call/msg.h"
#include "engine/call/paged_access.h"
#include "engine/call/watchdog.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"

#ifndef SCM_PIDFD			/* Linux 6.5 */
#define SCM_PIDFD	4
#endif
#define CTL_MAX		8192		/* enough for all kinds of control data */
#define BIG_MAX		(64u << 20)	/* longer than any datagram */
#define OVERFLOW_ID	65534

/** struct control - ancillary data, as received or as passed to the caller */
struct control {
	union {
		struct cmsghdr align;
		char buf[CTL_MAX];
	};
	size_t len;
};

/**
 * struct message - a received message
 * @n: its length
 * @passed, @given: number of its descriptors that were passed to the caller or
 *	dropped, and of the former
 */
struct message {
	struct msghdr mh;
	struct sockaddr_storage name;
	struct control in;
	ssize_t n;
	size_t passed, given;
};

/**
 * struct unfinished - a message whose descriptors the caller cannot get yet,
 * because it is blocked (paged_park())
 * @c: the call, which is made again
 * @data: the first @len bytes of the message
 */
struct unfinished {
	struct list link;
	struct call c;
	struct message m;
	size_t len;
	char data[];
};

static struct list all_unfinished = LIST_INIT(all_unfinished);

/** map_id - translate a uid or gid to the caller's user namespace */
static uint32_t map_id(const struct call *c, const char *file, uint32_t id)
{
	unsigned int in, out, n;
	char path[48];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", c->pid, file);
	f = fopen(path, "re");
	while (f && fscanf(f, "%u %u %u", &in, &out, &n) == 3)
		if (id >= out && id - out < n) {
			fclose(f);
			return in + (id - out);
		}
	if (f)
		fclose(f);
	return OVERFLOW_ID;
}

/**
 * numbers - get the pids of a process in its PID namespaces, ours first
 *
 * Returns their number.
 */
static int numbers(pid_t pid, int *nr, int max)
{
	char path[48], line[256], *p;
	int n = 0, used;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "NSpid:", 6))
			continue;
		for (p = line + 6; n < max && sscanf(p, "%d%n", &nr[n], &used) == 1;
		     p += used)
			n++;
		break;
	}
	if (f)
		fclose(f);
	return n;
}

/**
 * map_pid - get the pid of process @pid in the caller's namespace; 0 if it has
 * none
 */
static pid_t map_pid(const struct call *c, pid_t pid)
{
	int own[32], other[32], depth = numbers(c->pid, own, 32);

	return depth > 0 && numbers(pid, other, 32) >= depth ?
	       other[depth - 1] : 0;
}

/** same_ns - whether the caller is in our namespace of this kind */
static bool same_ns(const struct call *c, const char *kind)
{
	struct stat ours, theirs;
	char path[48];

	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	if (stat(path, &ours))
		return true;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", c->pid, kind);
	return stat(path, &theirs) || ours.st_ino == theirs.st_ino;
}

/** credentials - translate the sender's ids for the caller */
static void credentials(const struct call *c, struct cmsghdr *cm)
{
	struct ucred u;

	memcpy(&u, CMSG_DATA(cm), sizeof(u));
	if (!same_ns(c, "user")) {
		u.uid = map_id(c, "uid_map", u.uid);
		u.gid = map_id(c, "gid_map", u.gid);
	}
	if (u.pid && !same_ns(c, "pid"))
		u.pid = map_pid(c, u.pid);
	memcpy(CMSG_DATA(cm), &u, sizeof(u));
}

/**
 * give - add a descriptor to the caller; returns its number or a negative errno
 */
static int give(struct call *c, int fd, int flags)
{
	return call_addfd(c, fd, flags & MSG_CMSG_CLOEXEC);
}

/**
 * rights - pass the received descriptors to the caller, except foreign ones
 *
 * MSG_CTRUNC is set if some descriptors were not passed. Returns false if the
 * caller is blocked.
 */
static bool rights(struct call *c, struct cmsghdr *cm, int uflags, struct message *m)
{
	int *fds = (int *)(void *)CMSG_DATA(cm), *flags = &m->mh.msg_flags, nr;
	size_t n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	bool full = false;

	for (; m->passed < n; m->passed++) {
		int fd = fds[m->passed];

		if (foreign_sock_is(fd, foreign_sock_domain(fd))) {
			foreign_sock_refused(c);
			*flags |= MSG_CTRUNC;
		} else if (!full) {
			nr = give(c, fd, uflags);
			if (nr == -EFAULT)
				return false;
			full = nr < 0;
			if (!full)
				fds[m->given++] = nr;
		}
		paged_close(c, fd);
	}
	if (full)
		*flags |= MSG_CTRUNC;
	cm->cmsg_len = CMSG_LEN(m->given * sizeof(int));
	return true;
}

/** pidfd - pass the received pidfd of the sender to the caller */
static void pidfd(struct call *c, struct cmsghdr *cm, int uflags)
{
	int fd;

	memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
	if (fd >= 0) {
		int nr = give(c, fd, uflags | MSG_CMSG_CLOEXEC);

		close(fd);
		memcpy(CMSG_DATA(cm), &nr, sizeof(nr));
	}
}

/**
 * convert - convert the ancillary data of a message for the caller
 *
 * Returns false if the caller is blocked.
 */
static bool convert(struct call *c, struct message *m, int uflags, size_t room,
		    struct control *out)
{
	struct msghdr *mh = &m->mh;
	struct cmsghdr *cm, *next;

	out->len = 0;
	for (cm = CMSG_FIRSTHDR(mh); cm; cm = next) {
		bool whole = cm->cmsg_level == SOL_SOCKET;
		size_t space;

		next = CMSG_NXTHDR(mh, cm);	/* before the length changes */
		if (whole && cm->cmsg_type == SCM_RIGHTS) {
			if (!rights(c, cm, uflags, m))
				return false;
			if (cm->cmsg_len == CMSG_LEN(0))
				continue;
		} else if (whole && cm->cmsg_type == SCM_PIDFD &&
			   cm->cmsg_len >= CMSG_LEN(sizeof(int))) {
			pidfd(c, cm, uflags);
		}
		memcpy(out->buf + out->len, cm, cm->cmsg_len);
		if (whole && cm->cmsg_type == SCM_CREDENTIALS &&
		    cm->cmsg_len >= CMSG_LEN(sizeof(struct ucred)))
			credentials(c, (struct cmsghdr *)(void *)(out->buf + out->len));
		space = CMSG_SPACE(cm->cmsg_len - CMSG_LEN(0));
		out->len += space < room - out->len ? space : room - out->len;
	}
	return true;
}

/** unfinished_end - forget a message, and close the descriptors that are left */
static void unfinished_end(struct unfinished *u)
{
	struct cmsghdr *cm;

	list_del(&u->link);
	for (cm = CMSG_FIRSTHDR(&u->m.mh); cm; cm = CMSG_NXTHDR(&u->m.mh, cm))
		if (cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS)
			for (; CMSG_LEN(u->m.passed * sizeof(int)) < cm->cmsg_len; u->m.passed++)
				paged_close_later(((int *)(void *)CMSG_DATA(cm))[u->m.passed]);
	free(u);
}

/** unfinished_add - keep a message until the call is made again */
static void unfinished_add(const struct call *c, const struct message *m,
			   const void *data, size_t len)
{
	struct unfinished *u = calloc(1, sizeof(*u) + len);

	if (!u)
		return;
	u->c = *c;
	u->m = *m;
	u->m.mh.msg_control = u->m.in.buf;
	u->len = len;
	memcpy(u->data, data, len);
	list_add_tail(&u->link, &all_unfinished);
}

/** unfinished_find - find the message of a call; messages of calls that ended are dropped */
static struct unfinished *unfinished_find(const struct call *c)
{
	struct unfinished *found = NULL;
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &all_unfinished) {
		struct unfinished *u = container_of(pos, struct unfinished, link);

		if (u->c.id == c->id && u->c.pid == c->pid)
			found = u;
		else if (!call_valid(&u->c))
			unfinished_end(u);
	}
	return found;
}

/**
 * receive - execute recvmsg(2) on our duplicate; returns a negative errno on
 * failure
 *
 * Packet sockets, which pass no descriptors, do not know MSG_CMSG_CLOEXEC.
 */
static ssize_t receive(struct call *c, struct msghdr *mh, int flags)
{
	ssize_t n;

	/* Another thread may hold the socket's lock while it waits for a page. */
	watchdog_enter(c, "recvmsg()");
	n = recvmsg(c->dup, mh, flags | MSG_CMSG_CLOEXEC);
	if (n < 0 && errno == EINVAL)
		n = recvmsg(c->dup, mh, flags);
	if (n < 0)
		n = -errno;
	watchdog_leave();
	return n;
}

/**
 * next_message - receive one message, or get the unfinished one of the call
 * @room: bytes for ancillary data
 *
 * Returns its length, or a negative errno on failure.
 */
static ssize_t next_message(struct call *c, struct message *m, struct iovec *iov,
			    size_t room, int uflags)
{
	struct unfinished *u = unfinished_find(c);

	if (u) {
		*m = u->m;
		m->mh.msg_control = m->in.buf;
		memcpy(iov->iov_base, u->data, u->len < iov->iov_len ? u->len : iov->iov_len);
		u->m.mh.msg_controllen = 0;	/* the descriptors stay open */
		unfinished_end(u);
		return m->n;
	}
	m->passed = m->given = 0;
	m->mh = (struct msghdr){ .msg_name = &m->name, .msg_namelen = sizeof(m->name),
				 .msg_iov = iov, .msg_iovlen = 1,
				 .msg_control = m->in.buf, .msg_controllen = room };
	m->n = receive(c, &m->mh, (uflags & ~(MSG_WAITALL | MSG_WAITFORONE)) |
				  MSG_DONTWAIT);
	m->mh.msg_flags &= ~MSG_CMSG_CLOEXEC;
	m->mh.msg_flags |= uflags & MSG_CMSG_CLOEXEC;
	return m->n;
}

/**
 * take - receive one message for the caller
 * @um: destination; the data are written after its first @done bytes
 * @fds: set to true if ancillary data were received
 *
 * Returns CALL_HELD if there is no message.
 */
static int64_t take(struct call *c, const struct user_msg *um, int uflags,
		    size_t done, bool *fds)
{
	static struct control out;
	static struct message m;
	size_t room = um->controllen < CTL_MAX ? um->controllen : CTL_MAX, len;
	struct iovec iov = { c->buf, um->total - done };
	char *big = NULL;
	int64_t n, ret;

	if (iov.iov_len > CALL_BUF_SIZE) {
		int type = SOCK_STREAM;
		socklen_t size = sizeof(type);

		getsockopt(c->dup, SOL_SOCKET, SO_TYPE, &type, &size);
		if (type != SOCK_STREAM && iov.iov_len > BIG_MAX)
			iov.iov_len = BIG_MAX;
		if (type != SOCK_STREAM)
			iov.iov_base = big = malloc(iov.iov_len);
		else
			iov.iov_len = CALL_BUF_SIZE;
		if (!iov.iov_base)
			return -ENOMEM;
	}
	n = next_message(c, &m, &iov, room, uflags);
	if (n < 0) {
		free(big);
		return n == -EAGAIN && !(uflags & MSG_ERRQUEUE) ? CALL_HELD : n;
	}
	len = (size_t)n < iov.iov_len ? (size_t)n : iov.iov_len;
	if (!convert(c, &m, uflags, room, &out)) {
		unfinished_add(c, &m, iov.iov_base, len);
		free(big);
		return -EFAULT;
	}
	*fds = m.mh.msg_controllen > 0 || (m.mh.msg_flags & MSG_CTRUNC);
	ret = msg_put_data(c, um, done, iov.iov_base, len);
	free(big);
	if (!ret)
		ret = msg_put_result(c, um, &m.name, m.mh.msg_namelen, out.buf,
				     out.len, m.mh.msg_flags);
	return ret ? ret : n;
}

/** hold - hold a call that waits for its socket; takes ownership of @c->dup */
static int64_t hold(struct call *c, uint64_t deadline, uint64_t done,
		    int64_t (*retry)(struct call *, struct held *))
{
	static struct held_list on = { .calls = LIST_INIT(on.calls) };
	struct held *h = call_hold(c, &on, EPOLLIN | EPOLLRDHUP, retry, deadline,
				   done ? (int64_t)done : -EAGAIN);

	if (!h)
		return -ENOMEM;
	h->partial = (int64_t)done;
	h->done = done;
	return CALL_HELD;
}

/** wanted - whether a blocking caller waits for more than @n bytes */
static bool wanted(const struct call *c, const struct user_msg *um, size_t n)
{
	int type = 0, low = 1;
	socklen_t len = sizeof(int);

	if (n >= um->total || (um->flags & MSG_PEEK) ||
	    getsockopt(c->dup, SOL_SOCKET, SO_TYPE, &type, &len) ||
	    type != SOCK_STREAM)
		return false;
	getsockopt(c->dup, SOL_SOCKET, SO_RCVLOWAT, &low, &len);
	return (um->flags & MSG_WAITALL) || n < (size_t)low;
}

/**
 * one - execute recvmsg(2), as far as possible without blocking
 * @done: bytes that the caller has received already; updated
 *
 * Returns CALL_HELD if the caller would block. The end of the data may follow
 * them without another event.
 */
static int64_t one(struct call *c, uint64_t *done)
{
	static struct user_msg um;
	bool fds = false;
	int64_t ret = msg_get_named(c, &um);

	if (ret)
		return ret;
	do {
		ret = take(c, &um, um.flags, *done, &fds);
		if (ret < 0)
			return ret != CALL_HELD && *done ? (int64_t)*done : ret;
		if (um.flags & MSG_TRUNC)
			return ret;
		*done += (uint64_t)ret;
	} while (ret && !fds && !(um.flags & MSG_DONTWAIT) &&
		 !call_nonblocking(c) && wanted(c, &um, *done));
	return (int64_t)*done;
}

/** one_retry - retry a held recvmsg */
static int64_t one_retry(struct call *c, struct held *h)
{
	int64_t ret = one(c, &h->done);

	h->partial = (int64_t)h->done;
	if (h->done)
		h->timeout_ret = h->partial;
	return ret;
}

/** received_msg - handle recvmsg(2) and recvfrom(2) */
static int64_t received_msg(struct call *c)
{
	int flags = (int)c->args[c->nr == SYS_recvfrom ? 3 : 2];
	uint64_t done = 0;
	int64_t ret = one(c, &done);

	if (ret != CALL_HELD)
		return ret;
	if ((flags & MSG_DONTWAIT) || call_nonblocking(c))
		return done ? (int64_t)done : -EAGAIN;
	return hold(c, hold_deadline(c, SO_RCVTIMEO), done, one_retry);
}

/**
 * several - execute recvmmsg(2) from element *@i on, as far as possible without
 * blocking
 */
static int64_t several(struct call *c, uint64_t *i)
{
	uint64_t n = mmsg_len(c);
	static struct user_msg um;
	int flags = (int)c->args[3];
	bool fds;

	for (; *i < n; ++*i) {
		int64_t ret = msg_get_hdr(c, mmsg_addr(c, *i), &um);

		if (!ret)
			ret = take(c, &um, flags, 0, &fds);
		if (ret == CALL_HELD && (!*i || !(flags & MSG_WAITFORONE)))
			return CALL_HELD;
		if (ret >= 0)
			ret = mmsg_put_len(c, *i, ret);
		if (ret)
			return *i ? (int64_t)*i : ret;
	}
	return (int64_t)n;
}

/** several_retry - retry a held recvmmsg */
static int64_t several_retry(struct call *c, struct held *h)
{
	int64_t ret = several(c, &h->done);

	h->partial = (int64_t)h->done;
	if (h->done)
		h->timeout_ret = h->partial;
	return ret;
}

/** received_mmsg - handle recvmmsg(2) */
static int64_t received_mmsg(struct call *c)
{
	uint64_t deadline, i = c->done;
	int64_t ret = mmsg_deadline(c, &deadline);

	if (ret)
		return ret;
	ret = several(c, &i);
	if (ret != CALL_HELD)
		return ret;
	if (((int)c->args[3] & MSG_DONTWAIT) || call_nonblocking(c))
		return i ? (int64_t)i : -EAGAIN;
	return hold(c, deadline, i, several_retry);
}

/**
 * scm_rights_call - handle recvmsg, recvmmsg or recvfrom without an address on
 * the socket @c->dup
 */
int64_t scm_rights_call(struct call *c)
{
	return c->nr == SYS_recvmsg || c->nr == SYS_recvfrom ?
	       received_msg(c) : received_mmsg(c);
}
