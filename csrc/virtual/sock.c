// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets, pipes, eventfds and timerfds: objects of the stack's kernel. Each of
 * them is non-blocking there. A call of a program that may wait is tried again
 * after each event.
 */
#define _GNU_SOURCE
#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "virtual/virtual.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP	262
#endif
#ifndef SOL_MPTCP
#define SOL_MPTCP	284
#endif
#define MPTCP_FULL_INFO	4	/* linux/mptcp.h */

#define ADDR_SIZE	128
#define CONTROL_SIZE	4096

/**
 * struct transfer - a call that reads or writes
 * @iov: buffers in the program's memory
 * @total: their length
 * @socket: the call is one for sockets
 */
struct transfer {
	struct iovec iov[IOV_MAX];
	unsigned int count;
	uint64_t total;
	int flags;
	bool socket;
	char name[ADDR_SIZE];
	socklen_t name_len;
	char control[CONTROL_SIZE];
	size_t control_len;
	int msg_flags;
};

bool mptcp;

static struct transfer x;	/* of the call that is handled */

static bool is_socket(int f)
{
	return fd_info[f].kind == FD_STREAM || fd_info[f].kind == FD_MESSAGES;
}

static bool ready(int f, short events)
{
	struct pollfd p = { .fd = f, .events = events };

	return ST(poll, &p, 1, 0, 0, 0, 0);
}

/* A call would have to wait: @option is the socket's option with its limit. */
static enum verdict wait_io(struct thread *t, int f, int option, bool nonblock, long error, long *ret)
{
	struct timeval tv = { 0, 0 };
	socklen_t len = sizeof(tv);
	uint64_t timeout = NEVER;

	*ret = error;
	if (nonblock)
		return ANSWER;
	if (!t->retry && is_socket(f) &&
	    !ST(getsockopt, f, SOL_SOCKET, option, &tv, &len, 0) && (tv.tv_sec || tv.tv_usec))
		timeout = (uint64_t)tv.tv_sec * 1000000000 + (uint64_t)tv.tv_usec * 1000;
	return wait_until(t, timeout);
}

static int one_buffer(uint64_t at, uint64_t len)
{
	if (len > SSIZE_MAX)
		return -EINVAL;
	x.iov[0] = (struct iovec){ (void *)at, len };
	x.count = 1;
	x.total = len;
	return 0;
}

static int read_iov(struct thread *t, uint64_t at, uint64_t count)
{
	unsigned int i;

	if (count > IOV_MAX)
		return -EINVAL;
	if (mem_read(t, x.iov, at, count * sizeof(x.iov[0])))
		return -EFAULT;
	x.count = (unsigned int)count;
	x.total = 0;
	for (i = 0; i < count; i++) {
		if (x.iov[i].iov_len > SSIZE_MAX - x.total)
			return -EINVAL;
		x.total += x.iov[i].iov_len;
	}
	return 0;
}

static void begin(int flags, bool socket)
{
	x.flags = flags;
	x.socket = socket;
	x.name_len = 0;
	x.control_len = 0;
	x.msg_flags = 0;
}

/* Copies @len bytes between buf and the program's buffers, from their byte @skip on. */
static int copy(struct thread *t, uint64_t skip, size_t len, bool to_program)
{
	size_t done = 0, part;
	unsigned int i;

	for (i = 0; i < x.count && done < len; i++) {
		uint64_t at = (uint64_t)x.iov[i].iov_base;

		if (skip >= x.iov[i].iov_len) {
			skip -= x.iov[i].iov_len;
			continue;
		}
		part = x.iov[i].iov_len - skip;
		if (part > len - done)
			part = len - done;
		if (to_program ? mem_write(t, at + skip, buf + done, part) :
				 mem_read(t, buf + done, at + skip, part))
			return -EFAULT;
		done += part;
		skip = 0;
	}
	return 0;
}

/*
 * Sends @len bytes in buf, which are those of the program from @skip on, without a copy. The
 * kernel keeps only pages of its own memory, and each buffer in pages of its own. They
 * exist until the packets do not.
 */
static long send_zerocopy(int f, struct msghdr *m, uint64_t skip, size_t len)
{
	static struct iovec v[IOV_MAX];
	size_t done = 0, part;
	unsigned int i, n = 0;
	long ret = 0;

	for (i = 0; i < x.count && done < len; i++) {
		if (skip >= x.iov[i].iov_len) {
			skip -= x.iov[i].iov_len;
			continue;
		}
		part = x.iov[i].iov_len - skip < len - done ? x.iov[i].iov_len - skip : len - done;
		ret = ST(mmap, NULL, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (ret < 0 && ret > -4096)
			break;
		memcpy((void *)ret, buf + done, part);
		v[n++] = (struct iovec){ (void *)ret, part };
		done += part;
		skip = 0;
		ret = 0;
	}
	m->msg_iov = v;
	m->msg_iovlen = n;
	if (!ret)
		ret = ST(sendmsg, f, m, x.flags | MSG_NOSIGNAL, 0, 0, 0);
	for (i = 0; i < n; i++)
		ST(munmap, v[i].iov_base, v[i].iov_len, 0, 0, 0, 0);
	return ret;
}

static long send_part(int f, uint64_t skip, size_t len)
{
	struct iovec v = { buf, len };
	struct msghdr m = {
		.msg_name = x.name_len ? x.name : NULL, .msg_namelen = x.name_len,
		.msg_iov = &v, .msg_iovlen = 1,
		.msg_control = x.control_len ? x.control : NULL, .msg_controllen = x.control_len,
	};

	if (is_socket(f) && x.flags & MSG_ZEROCOPY)
		return send_zerocopy(f, &m, skip, len);
	if (is_socket(f))
		return ST(sendmsg, f, &m, x.flags | MSG_NOSIGNAL, 0, 0, 0);
	return x.socket ? -ENOTSOCK : ST(write, f, buf, len, 0, 0, 0);
}

/* Waits until the socket is connected or has failed. */
static enum verdict wait_connected(struct thread *t, int f, long *ret)
{
	socklen_t len = sizeof(int);
	int error = 0;

	if (!ready(f, POLLOUT))
		return wait_io(t, f, SO_SNDTIMEO, false, -EINPROGRESS, ret);
	*ret = ST(getsockopt, f, SOL_SOCKET, SO_ERROR, &error, &len, 0);
	*ret = *ret ? *ret : -error;
	return ANSWER;
}

/*
 * Sends what x describes. A stream takes all bytes before a blocking call returns. A
 * call that has had to wait goes on when the socket is writable, which requires more
 * room than a first attempt. A call that also connects (TCP Fast Open) waits for that.
 */
static enum verdict send_all(struct thread *t, int f, long *ret)
{
	bool stream = fd_info[f].kind == FD_STREAM || fd_info[f].kind == FD_PIPE;
	bool nonblock = fd_nonblock(f) || x.flags & MSG_DONTWAIT;
	bool opens = fd_info[f].kind == FD_STREAM && !nonblock && (x.flags & MSG_FASTOPEN || fd_info[f].fastopen);
	bool full = t->retry && fd_info[f].kind == FD_STREAM && !ready(f, POLLOUT);
	uint64_t left;
	size_t part;
	int zero = 0;

	for (;;) {
		if (t->connecting) {
			if (wait_connected(t, f, ret) == WAIT)
				return WAIT;
			if (*ret)
				return ANSWER;
			t->connecting = opens = full = false;
			t->connected = true;
			if (t->done && t->done == x.total)
				break;
		}
		if (t->connected)
			x.flags &= ~MSG_FASTOPEN;
		left = x.total - t->done;
		part = left < BUF_SIZE ? left : BUF_SIZE;
		*ret = full ? -EAGAIN : !stream && left > BUF_SIZE ? -EMSGSIZE : copy(t, t->done, part, false);
		if (!*ret)
			*ret = send_part(f, t->done, part);
		if (*ret > 0 && stream)
			t->done += (uint64_t)*ret;
		if (opens && !t->connected && (*ret > 0 || *ret == -EINPROGRESS)) {
			/* As if the kernel knew of the waiting writer, its data carry the ACK. */
			if (t->done < x.total)
				ST(setsockopt, f, IPPROTO_TCP, TCP_QUICKACK, &zero, sizeof(zero), 0);
			t->connecting = true;
			continue;
		}
		if (*ret > 0 && stream && t->done < x.total)
			continue;
		if (*ret == -EAGAIN && wait_io(t, f, SO_SNDTIMEO, nonblock, -EAGAIN, ret) == WAIT)
			return WAIT;
		break;
	}
	if (t->done)
		*ret = (long)t->done;
	/* The program gets the signal when its call returns. */
	if (*ret == -EPIPE && fd_info[f].kind != FD_MESSAGES && !(x.flags & MSG_NOSIGNAL))
		syscall(SYS_tgkill, t->p->pid, t->tid, SIGPIPE);
	return ANSWER;
}

static long receive_part(int f, size_t len)
{
	struct iovec v = { buf, len };
	struct msghdr m = {
		.msg_name = x.name, .msg_namelen = sizeof(x.name), .msg_iov = &v, .msg_iovlen = 1,
		.msg_control = x.control, .msg_controllen = x.control_len,
	};
	long ret;

	if (!is_socket(f))
		return x.socket ? -ENOTSOCK : ST(read, f, buf, len, 0, 0, 0);
	ret = ST(recvmsg, f, &m, x.flags & ~MSG_WAITALL, 0, 0, 0);
	x.name_len = m.msg_namelen;
	x.control_len = m.msg_controllen;
	x.msg_flags = m.msg_flags;
	return ret;
}

/* Whether the first buffer exists */
static bool has_buffer(struct thread *t)
{
	unsigned int i = 0;
	char byte;

	while (!x.iov[i].iov_len)
		i++;
	return !mem_read(t, &byte, (uint64_t)x.iov[i].iov_base, 1);
}

static bool holds_data(int f)
{
	int bytes = 0;

	return !ST(ioctl, f, FIONREAD, &bytes, 0, 0, 0) && bytes > 0;
}

/*
 * Receives into what x describes. One call takes all that a stream holds, in several
 * parts, unless messages about the data (SCM_RIGHTS, timestamps) come with each part.
 */
static enum verdict receive(struct thread *t, int f, long *ret)
{
	bool stream = fd_info[f].kind == FD_STREAM;
	bool all = stream && x.flags & MSG_WAITALL && !(x.flags & MSG_PEEK);
	bool parts = all || (stream && !x.control_len &&
			     !(x.flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)));
	size_t part, got;

	do {
		part = x.total - t->done < BUF_SIZE ? x.total - t->done : BUF_SIZE;
		if (part && is_socket(f) && !has_buffer(t)) {	/* which must not take the data */
			*ret = ST(recvfrom, f, buf, 1, x.flags | MSG_PEEK, NULL, NULL);
			*ret = *ret > 0 ? -EFAULT : *ret;
		} else {
			*ret = receive_part(f, part);
		}
		if (*ret == -EAGAIN && wait_io(t, f, SO_RCVTIMEO, fd_nonblock(f) ||
					       x.flags & (MSG_DONTWAIT | MSG_ERRQUEUE), -EAGAIN,
					       ret) == WAIT)
			return WAIT;
		if (*ret > 0 && !(stream && x.flags & MSG_TRUNC)) {
			got = (size_t)*ret < part ? (size_t)*ret : part;
			if (copy(t, t->done, got, true))
				*ret = -EFAULT;
		}
		if (*ret > 0 && parts)
			t->done += (uint64_t)*ret;
	} while (*ret > 0 && parts && t->done < x.total &&
		 (all || (*ret == BUF_SIZE && holds_data(f))));
	if (t->done)
		*ret = (long)t->done;
	return ANSWER;
}

/* Returns an address as accept() does. */
static int give_name(struct thread *t, const char *name, socklen_t len, uint64_t to, uint64_t len_at)
{
	socklen_t room;

	if (!to)
		return 0;
	if (mem_read(t, &room, len_at, sizeof(room)))
		return -EFAULT;
	if (mem_write(t, to, name, room < len ? room : len))
		return -EFAULT;
	return mem_write(t, len_at, &len, sizeof(len));
}

static int read_name(struct thread *t, uint64_t at, uint64_t len)
{
	x.name_len = at ? (socklen_t)len : 0;
	if (x.name_len > sizeof(x.name))
		return -EINVAL;
	return mem_read(t, x.name, at, x.name_len);
}

static enum fd_kind kind_of(int type)
{
	return (type & 0xf) == SOCK_STREAM ? FD_STREAM : FD_MESSAGES;
}

enum verdict on_socket(struct thread *t, uint64_t *a, int f, long *ret)
{
	int domain = (int)a[0], type = (int)a[1], proto = (int)a[2];

	(void)f;
	if (mptcp && (domain == AF_INET || domain == AF_INET6) && kind_of(type) == FD_STREAM &&
	    (!proto || proto == IPPROTO_TCP))
		proto = IPPROTO_MPTCP;
	*ret = fd_add(t, (int)ST(socket, domain, type | SOCK_NONBLOCK, proto, 0, 0, 0), kind_of(type),
		      type & SOCK_NONBLOCK, type & SOCK_CLOEXEC);
	return ANSWER;
}

static enum verdict add_pair(struct thread *t, long made, int *pair, enum fd_kind kind, int flags,
			     uint64_t to, long *ret)
{
	int i;

	*ret = made;
	if (made)
		return ANSWER;
	for (i = 0; i < 2; i++) {
		pair[i] = fd_add(t, pair[i], kind, flags & O_NONBLOCK, flags & O_CLOEXEC);
		if (pair[i] < 0)
			fail("%s: too many descriptors", t->p->program->name);
	}
	*ret = mem_write(t, to, pair, 2 * sizeof(*pair));
	return ANSWER;
}

enum verdict on_socketpair(struct thread *t, uint64_t *a, int f, long *ret)
{
	int pair[2];

	(void)f;
	return add_pair(t, ST(socketpair, a[0], a[1] | SOCK_NONBLOCK, a[2], pair, 0, 0), pair,
			kind_of((int)a[1]), (int)a[1], a[3], ret);
}

static enum verdict make_pipe(struct thread *t, uint64_t to, int flags, long *ret)
{
	int pair[2];

	return add_pair(t, ST(pipe2, pair, flags | O_NONBLOCK, 0, 0, 0, 0), pair, FD_PIPE, flags, to, ret);
}

enum verdict on_pipe(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return make_pipe(t, a[0], 0, ret);
}

enum verdict on_pipe2(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return make_pipe(t, a[0], (int)a[1], ret);
}

static enum verdict make_eventfd(struct thread *t, uint64_t count, int flags, long *ret)
{
	*ret = fd_add(t, (int)ST(eventfd2, count, flags | O_NONBLOCK, 0, 0, 0, 0), FD_OTHER,
		      flags & O_NONBLOCK, flags & O_CLOEXEC);
	return ANSWER;
}

enum verdict on_eventfd(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return make_eventfd(t, a[0], 0, ret);
}

enum verdict on_eventfd2(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return make_eventfd(t, a[0], (int)a[1], ret);
}

enum verdict on_timerfd_create(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	*ret = fd_add(t, (int)ST(timerfd_create, a[0], a[1] | TFD_NONBLOCK, 0, 0, 0, 0), FD_OTHER,
		      a[1] & TFD_NONBLOCK, a[1] & TFD_CLOEXEC);
	return ANSWER;
}

enum verdict on_timerfd_settime(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct itimerspec new, old;

	if (f < 0)
		return NATIVE;	/* fails */
	*ret = mem_read(t, &new, a[2], sizeof(new));
	if (!*ret)
		*ret = ST(timerfd_settime, f, a[1], &new, &old, 0, 0);
	if (!*ret && a[3])
		*ret = mem_write(t, a[3], &old, sizeof(old));
	return ANSWER;
}

enum verdict on_timerfd_gettime(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct itimerspec now_set;

	if (f < 0)
		return NATIVE;
	*ret = ST(timerfd_gettime, f, &now_set, 0, 0, 0, 0);
	if (!*ret)
		*ret = mem_write(t, a[1], &now_set, sizeof(now_set));
	return ANSWER;
}

enum verdict on_bind(struct thread *t, uint64_t *a, int f, long *ret)
{
	if (f < 0)
		return NATIVE;
	*ret = read_name(t, a[1], a[2]);
	if (!*ret)
		*ret = ST(bind, f, x.name, x.name_len, 0, 0, 0);
	if (!*ret && fd_info[f].kind == FD_MESSAGES)
		message(MSG_LISTEN, t->p->program->id, now, NULL, 0);
	return ANSWER;
}

enum verdict on_connect(struct thread *t, uint64_t *a, int f, long *ret)
{
	if (f < 0)
		return NATIVE;
	if (t->connecting)
		return wait_connected(t, f, ret);
	*ret = read_name(t, a[1], a[2]);
	if (!*ret)
		*ret = ST(connect, f, x.name, x.name_len, 0, 0, 0);
	if (*ret == -EALREADY && !fd_nonblock(f))
		*ret = -EINPROGRESS;	/* a signal has interrupted the call before */
	if (*ret != -EINPROGRESS && *ret != -EAGAIN)
		return ANSWER;
	if (*ret == -EINPROGRESS && !fd_nonblock(f))
		t->connecting = true;
	return wait_io(t, f, SO_SNDTIMEO, fd_nonblock(f), *ret, ret);
}

enum verdict on_listen(struct thread *t, uint64_t *a, int f, long *ret)
{
	if (f < 0)
		return NATIVE;
	*ret = ST(listen, f, a[1], 0, 0, 0, 0);
	if (!*ret)
		message(MSG_LISTEN, t->p->program->id, now, NULL, 0);
	return ANSWER;
}

static enum verdict accept_one(struct thread *t, uint64_t *a, int f, int flags, long *ret)
{
	char name[ADDR_SIZE];
	socklen_t len = sizeof(name);
	int error;

	if (f < 0)
		return NATIVE;
	*ret = ST(accept4, f, name, &len, flags | SOCK_NONBLOCK, 0, 0);
	if (*ret == -EAGAIN)
		return wait_io(t, f, SO_RCVTIMEO, fd_nonblock(f), -EAGAIN, ret);
	*ret = fd_add(t, (int)*ret, fd_info[f].kind, flags & SOCK_NONBLOCK, flags & SOCK_CLOEXEC);
	error = *ret < 0 ? 0 : give_name(t, name, len, a[1], a[2]);
	*ret = error ? error : *ret;
	return ANSWER;
}

enum verdict on_accept(struct thread *t, uint64_t *a, int f, long *ret)
{
	return accept_one(t, a, f, 0, ret);
}

enum verdict on_accept4(struct thread *t, uint64_t *a, int f, long *ret)
{
	return accept_one(t, a, f, (int)a[3], ret);
}

/* getsockname(), getpeername() */
enum verdict on_name(struct thread *t, uint64_t *a, int f, long *ret)
{
	char name[ADDR_SIZE];
	socklen_t len = sizeof(name);

	if (f < 0)
		return NATIVE;
	*ret = st_call(t->req.data.nr, f, (long)name, (long)&len, 0, 0, 0);
	if (!*ret)
		*ret = give_name(t, name, len, a[1], a[2]);
	return ANSWER;
}

/* Options with pointers to other memory, or with descriptors */
static bool is_plain(int level, int option)
{
	if (level == SOL_SOCKET)
		return option != SO_ATTACH_BPF && option != SO_ATTACH_REUSEPORT_CBPF &&
		       option != SO_ATTACH_REUSEPORT_EBPF;
	if (level == IPPROTO_TCP)
		return option != TCP_ZEROCOPY_RECEIVE;
	if (level == SOL_MPTCP)
		return option != MPTCP_FULL_INFO;
	/* iptables, arptables, ip6tables */
	return level == IPPROTO_IP ? option != 64 && option != 65 && option != 96 && option != 97 :
	       level != IPPROTO_IPV6 || (option != 64 && option != 65);
}

/* The program of a filter is elsewhere in memory. */
static int attach_filter(struct thread *t, uint64_t *a, int f)
{
	struct sock_fprog prog;

	if (a[4] != sizeof(prog))
		return -EINVAL;
	if (mem_read(t, &prog, a[3], sizeof(prog)) || !prog.len || prog.len > BPF_MAXINSNS)
		return -EINVAL;
	if (mem_read(t, buf, (uint64_t)prog.filter, prog.len * sizeof(*prog.filter)))
		return -EFAULT;
	prog.filter = (struct sock_filter *)buf;
	return (int)ST(setsockopt, f, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog), 0);
}

enum verdict on_setsockopt(struct thread *t, uint64_t *a, int f, long *ret)
{
	if (f < 0)
		return NATIVE;
	if (!is_plain((int)a[1], (int)a[2]))
		return UNSUPPORTED;
	if (a[1] == SOL_SOCKET && a[2] == SO_ATTACH_FILTER) {
		*ret = attach_filter(t, a, f);
		return ANSWER;
	}
	*ret = a[4] > BUF_SIZE ? -EINVAL : mem_read(t, buf, a[3], a[4]);
	if (!*ret)
		*ret = ST(setsockopt, f, a[1], a[2], a[3] ? buf : NULL, a[4], 0);
	if (!*ret && a[1] == IPPROTO_TCP && a[2] == TCP_FASTOPEN_CONNECT)
		fd_info[f].fastopen = buf[0];
	return ANSWER;
}

enum verdict on_getsockopt(struct thread *t, uint64_t *a, int f, long *ret)
{
	socklen_t len;

	if (f < 0)
		return NATIVE;
	if (!is_plain((int)a[1], (int)a[2]))
		return UNSUPPORTED;
	*ret = mem_read(t, &len, a[4], sizeof(len));
	if (!*ret && len > BUF_SIZE)
		len = BUF_SIZE;
	if (!*ret)
		*ret = mem_read(t, buf, a[3], len);
	if (!*ret)
		*ret = ST(getsockopt, f, a[1], a[2], buf, &len, 0);
	if (!*ret)
		*ret = mem_write(t, a[3], buf, len);
	if (!*ret)
		*ret = mem_write(t, a[4], &len, sizeof(len));
	return ANSWER;
}

enum verdict on_shutdown(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t;
	*ret = f < 0 ? 0 : ST(shutdown, f, a[1], 0, 0, 0, 0);
	return f < 0 ? NATIVE : ANSWER;
}

enum verdict on_ioctl(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct ifreq ifr;
	struct timeval tv;
	int n;

	if (f < 0)
		return NATIVE;
	switch (a[1]) {
	case TCGETS:
		*ret = -ENOTTY;
		return ANSWER;
	case FIONBIO:
		*ret = mem_read(t, &n, a[2], sizeof(n));
		if (!*ret)
			fd_set_nonblock(f, n);
		return ANSWER;
	case FIOASYNC:
		*ret = mem_read(t, &n, a[2], sizeof(n));
		if (!*ret)
			*ret = fd_set_async(f, n);
		return ANSWER;
	case FIOCLEX:
	case FIONCLEX:
		return NATIVE;
	case FIONREAD:
	case SIOCOUTQ:
	case SIOCATMARK:
		*ret = ST(ioctl, f, a[1], &n, 0, 0, 0);
		if (!*ret)
			*ret = mem_write(t, a[2], &n, sizeof(n));
		return ANSWER;
	case SIOCGSTAMP:	/* the name of SIOCGSTAMP_OLD */
		*ret = ST(ioctl, f, a[1], &tv, 0, 0, 0);
		if (!*ret)
			*ret = mem_write(t, a[2], &tv, sizeof(tv));
		return ANSWER;
	case TUNSETOFFLOAD:
	case TUNSETPERSIST:
		*ret = ST(ioctl, f, a[1], a[2], 0, 0, 0);
		return ANSWER;
	case TUNSETIFF:
	case TUNGETIFF:
	case SIOCSIFFLAGS:
	case SIOCSIFMTU:
	case SIOCGIFTXQLEN:
	case SIOCSIFTXQLEN:
	case SIOCGIFNAME:
	case SIOCGIFFLAGS:
	case SIOCGIFADDR:
	case SIOCGIFBRDADDR:
	case SIOCGIFNETMASK:
	case SIOCGIFMTU:
	case SIOCGIFHWADDR:
	case SIOCGIFINDEX:
		*ret = mem_read(t, &ifr, a[2], sizeof(ifr));
		if (!*ret)
			*ret = ST(ioctl, f, a[1], &ifr, 0, 0, 0);
		if (!*ret)
			*ret = mem_write(t, a[2], &ifr, sizeof(ifr));
		return ANSWER;
	}
	return UNSUPPORTED;
}

enum verdict on_read(struct thread *t, uint64_t *a, int f, long *ret)
{
	begin(0, false);
	*ret = f < 0 ? 0 : one_buffer(a[1], a[2]);
	return f < 0 ? NATIVE : *ret ? ANSWER : receive(t, f, ret);
}

enum verdict on_readv(struct thread *t, uint64_t *a, int f, long *ret)
{
	begin(0, false);
	*ret = f < 0 ? 0 : read_iov(t, a[1], a[2]);
	return f < 0 ? NATIVE : *ret ? ANSWER : receive(t, f, ret);
}

enum verdict on_write(struct thread *t, uint64_t *a, int f, long *ret)
{
	begin(0, false);
	*ret = f < 0 ? 0 : one_buffer(a[1], a[2]);
	return f < 0 ? NATIVE : *ret ? ANSWER : send_all(t, f, ret);
}

enum verdict on_writev(struct thread *t, uint64_t *a, int f, long *ret)
{
	begin(0, false);
	*ret = f < 0 ? 0 : read_iov(t, a[1], a[2]);
	return f < 0 ? NATIVE : *ret ? ANSWER : send_all(t, f, ret);
}

/* Between objects of the stack; otherwise, programs then copy the bytes themselves */
enum verdict on_splice(struct thread *t, uint64_t *a, int f, long *ret)
{
	int to = fd_stack(t, a[2]), mark = 0;

	*ret = -EINVAL;
	if (f < 0 || to < 0)
		return f < 0 && to < 0 ? NATIVE : ANSWER;
	*ret = a[1] || a[3] ? -ESPIPE : ST(splice, f, NULL, to, NULL, a[4], a[5]);
	if (*ret != -EAGAIN || a[5] & SPLICE_F_NONBLOCK || fd_nonblock(f) || fd_nonblock(to))
		return ANSWER;
	/* At urgent data, a blocking call ends; the stack's file is non-blocking. */
	if (!ST(ioctl, f, SIOCATMARK, &mark, 0, 0, 0) && mark) {
		*ret = 0;
		return ANSWER;
	}
	return wait_until(t, NEVER);
}

/* From a file to an object of the stack, at most BUF_SIZE bytes */
enum verdict on_sendfile(struct thread *t, uint64_t *a, int f, long *ret)
{
	off_t at = 0;
	int file;

	*ret = -EINVAL;
	if (f < 0 || fd_stack(t, a[1]) >= 0)	/* the program then copies the bytes itself */
		return f < 0 && fd_stack(t, a[1]) < 0 ? NATIVE : ANSWER;
	file = (int)syscall(SYS_pidfd_getfd, t->p->pidfd, a[1], 0);
	if (file < 0)
		return NATIVE;	/* EBADF */
	begin(0, false);
	if (!a[2] || !mem_read(t, &at, a[2], sizeof(at)))
		*ret = pread(file, buf, a[3] < BUF_SIZE ? a[3] : BUF_SIZE, a[2] ? at : lseek(file, 0, SEEK_CUR));
	else
		errno = EFAULT, *ret = -1;
	if (*ret == -1)
		*ret = -errno;
	if (*ret > 0)
		*ret = send_part(f, 0, (size_t)*ret);
	if (*ret == -EAGAIN && wait_io(t, f, SO_SNDTIMEO, fd_nonblock(f), -EAGAIN, ret) == WAIT) {
		close(file);
		return WAIT;
	}
	at += *ret;
	if (*ret > 0 && a[2] && mem_write(t, a[2], &at, sizeof(at)))
		*ret = -EFAULT;
	else if (*ret > 0 && !a[2])
		lseek(file, *ret, SEEK_CUR);
	close(file);
	return ANSWER;
}

enum verdict on_sendto(struct thread *t, uint64_t *a, int f, long *ret)
{
	if (f < 0)
		return NATIVE;
	begin((int)a[3], true);
	*ret = one_buffer(a[1], a[2]);
	if (!*ret)
		*ret = read_name(t, a[4], a[5]);
	return *ret ? ANSWER : send_all(t, f, ret);
}

enum verdict on_recvfrom(struct thread *t, uint64_t *a, int f, long *ret)
{
	int error;

	if (f < 0)
		return NATIVE;
	begin((int)a[3], true);
	*ret = one_buffer(a[1], a[2]);
	if (*ret)
		return ANSWER;
	if (receive(t, f, ret) == WAIT)
		return WAIT;
	error = *ret < 0 ? 0 : give_name(t, x.name, x.name_len, a[4], a[5]);
	*ret = error ? error : *ret;
	return ANSWER;
}

static unsigned int fds_in(const struct cmsghdr *c)
{
	return c->cmsg_len < CMSG_LEN(0) ? 0 : (unsigned int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
}

/* Replaces the descriptors that a program passes by those of the stack. */
static int fds_to_stack(struct thread *t, struct cmsghdr *c)
{
	int *fds = (int *)CMSG_DATA(c), sfd;
	unsigned int i;

	for (i = 0; i < fds_in(c); i++) {
		sfd = fds[i] < 0 ? -1 : fd_stack(t, (uint64_t)fds[i]);
		if (fds[i] < 0)
			return -EBADF;
		if (sfd < 0)
			fail("%s: passes a descriptor of a file over a socket, which is not supported in virtual time",
			     t->p->program->name);
		fds[i] = sfd;
	}
	return 0;
}

/* And back: the program gets new descriptors. */
static void fds_from_stack(struct thread *t, struct cmsghdr *c)
{
	int *fds = (int *)CMSG_DATA(c), type;
	socklen_t len = sizeof(type);
	struct stat st;
	unsigned int i;

	for (i = 0; i < fds_in(c); i++) {
		enum fd_kind kind = FD_OTHER;

		if (!ST(getsockopt, fds[i], SOL_SOCKET, SO_TYPE, &type, &len, 0))
			kind = kind_of(type);
		else if (!ST(fstat, fds[i], &st, 0, 0, 0, 0) && S_ISFIFO(st.st_mode))
			kind = FD_PIPE;
		fds[i] = fd_add(t, fds[i], kind, false, x.flags & MSG_CMSG_CLOEXEC);
		if (fds[i] < 0)
			fail("%s: too many descriptors", t->p->program->name);
	}
}

/* Sends the message whose header is at @at. */
static enum verdict send_message(struct thread *t, int f, uint64_t at, int flags, long *ret)
{
	struct msghdr m;
	struct cmsghdr *c;

	begin(flags, true);
	*ret = mem_read(t, &m, at, sizeof(m));
	if (!*ret)
		*ret = read_iov(t, (uint64_t)m.msg_iov, m.msg_iovlen);
	if (!*ret)
		*ret = read_name(t, (uint64_t)m.msg_name, m.msg_namelen);
	if (!*ret)
		*ret = m.msg_controllen > sizeof(x.control) ? -ENOBUFS :
		       mem_read(t, x.control, (uint64_t)m.msg_control, m.msg_controllen);
	if (*ret)
		return ANSWER;
	x.control_len = m.msg_controllen;
	m.msg_control = x.control;
	for (c = CMSG_FIRSTHDR(&m); c && !*ret; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
			fail("%s: passes credentials over a socket, which is not supported in virtual time",
			     t->p->program->name);
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			*ret = fds_to_stack(t, c);
	}
	return *ret ? ANSWER : send_all(t, f, ret);
}

enum verdict on_sendmsg(struct thread *t, uint64_t *a, int f, long *ret)
{
	return f < 0 ? NATIVE : send_message(t, f, a[1], (int)a[2], ret);
}

/* The first message of several has been transferred, with so many bytes. */
static enum verdict one_message(struct thread *t, uint64_t at, long *ret)
{
	unsigned int len = (unsigned int)*ret;

	*ret = mem_write(t, at + offsetof(struct mmsghdr, msg_len), &len, sizeof(len));
	*ret = *ret ? *ret : 1;
	return ANSWER;
}

/* Sends the first message only, which a caller expects if others do not fit. */
enum verdict on_sendmmsg(struct thread *t, uint64_t *a, int f, long *ret)
{
	*ret = 0;
	if (f < 0 || !a[2])
		return f < 0 ? NATIVE : ANSWER;
	if (send_message(t, f, a[1], (int)a[3], ret) == WAIT)
		return WAIT;
	return *ret < 0 ? ANSWER : one_message(t, a[1], ret);
}

/* Receives a message whose header is at @at. */
static enum verdict receive_message(struct thread *t, int f, uint64_t at, int flags, long *ret)
{
	struct msghdr m, r;
	struct cmsghdr *c;
	int error;

	begin(flags, true);
	*ret = mem_read(t, &m, at, sizeof(m));
	if (!*ret)
		*ret = read_iov(t, (uint64_t)m.msg_iov, m.msg_iovlen);
	if (*ret)
		return ANSWER;
	x.control_len = m.msg_controllen < sizeof(x.control) ? m.msg_controllen : sizeof(x.control);
	if (receive(t, f, ret) == WAIT)
		return WAIT;
	if (*ret < 0)
		return ANSWER;
	r = (struct msghdr){ .msg_control = x.control, .msg_controllen = x.control_len };
	for (c = CMSG_FIRSTHDR(&r); c; c = CMSG_NXTHDR(&r, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			fds_from_stack(t, c);
	error = m.msg_name ? mem_write(t, (uint64_t)m.msg_name, x.name, x.name_len < m.msg_namelen ?
				       x.name_len : m.msg_namelen) : 0;
	m.msg_namelen = m.msg_name ? x.name_len : 0;
	if (!error)
		error = mem_write(t, (uint64_t)m.msg_control, x.control, x.control_len);
	m.msg_controllen = x.control_len;
	m.msg_flags = x.msg_flags;
	if (!error)
		error = mem_write(t, at, &m, sizeof(m));
	*ret = error ? error : *ret;
	return ANSWER;
}

enum verdict on_recvmsg(struct thread *t, uint64_t *a, int f, long *ret)
{
	return f < 0 ? NATIVE : receive_message(t, f, a[1], (int)a[2], ret);
}

/* Receives one message, which a caller expects if a signal arrives. */
enum verdict on_recvmmsg(struct thread *t, uint64_t *a, int f, long *ret)
{
	*ret = 0;
	if (f < 0 || !a[2])
		return f < 0 ? NATIVE : ANSWER;
	if (receive_message(t, f, a[1], (int)a[3] & ~MSG_WAITFORONE, ret) == WAIT)
		return WAIT;
	return *ret < 0 ? ANSWER : one_message(t, a[1], ret);
}
