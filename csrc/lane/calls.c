// SPDX-License-Identifier: GPL-2.0-only
/*
 * What stands in front of the C library's functions.
 *
 * Those for a few bytes go on after one comparison. Calls with an address, with
 * control data or for many messages are not here: lklhost answers them itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define EXPORT	__attribute__((visibility("default")))

/* The next definitions of the same names: the C library's, or another library's. */
static struct {
	ssize_t (*write)(int, const void *, size_t);
	ssize_t (*writev)(int, const struct iovec *, int);
	ssize_t (*send)(int, const void *, size_t, int);
	ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
	int (*shutdown)(int, int);
} next;

#define FIND(member, name)	(*(void **)&next.member = dlsym(RTLD_NEXT, name))

/** find_next - before main(); earlier when a library's initializer calls us */
static __attribute__((constructor)) void find_next(void)
{
	FIND(writev, "writev");
	FIND(send, "send");
	FIND(sendto, "sendto");
	FIND(shutdown, "shutdown");
	FIND(write, "write");
}

/** ready - the functions of @next may be called */
static inline void ready(void)
{
	if (unlikely(!next.write))
		find_next();
}

/** op_native - as if we were not here */
ssize_t op_native(const struct op *op)
{
	char *buf = op->iov->iov_base;

	switch (op->call) {
	case OP_WRITE:
		return next.write(op->fd, buf, op->len);
	case OP_WRITEV:
		return next.writev(op->fd, op->iov, op->cnt);
	case OP_SEND:
		return next.send(op->fd, buf, op->len, op->flags);
	case OP_SENDTO:
		return next.sendto(op->fd, buf, op->len, op->flags, NULL, 0);
	}
	__builtin_unreachable();
}

/**
 * op_rest - write what begins at the @off'th byte, at most @max bytes
 *
 * Returns what the last of its calls says, or how much was written by all.
 */
ssize_t op_rest(const struct op *op, size_t off, size_t max)
{
	const struct iovec *v = op->iov;
	struct op part = *op;
	struct iovec iov;
	ssize_t done = 0, n;

	if (!off && op->len <= max)
		return op_native(op);
	if (op->call == OP_WRITEV)
		part.call = OP_WRITE;
	for (; max && v < op->iov + op->cnt; v++) {
		if (off >= v->iov_len) {
			off -= v->iov_len;
			continue;
		}
		iov.iov_base = (char *)v->iov_base + off;
		iov.iov_len = v->iov_len - off < max ? v->iov_len - off : max;
		part.iov = &iov;
		part.len = iov.iov_len;
		n = op_native(&part);
		if (n <= 0)
			return done ? done : n;
		done += n;
		if ((size_t)n < iov.iov_len)
			break;
		max -= (size_t)n;
		off = 0;
	}
	return done;
}

/** writes - whether a write of @len bytes is a matter for the lanes */
static inline bool writes(size_t len)
{
	ready();
	return unlikely(len >= LANE_MIN) && len <= SSIZE_MAX;
}

/** one - a call with one piece of memory */
static ssize_t one(int call, int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct op op = { .call = call, .fd = fd, .flags = flags, .iov = &iov,
			 .cnt = 1, .len = len };

	return lane_write(&op);
}

/** total - bytes in a list, SIZE_MAX where the kernel is to say what is wrong with it */
static size_t total(const struct iovec *iov, int cnt)
{
	size_t len = 0;
	int i;

	if (cnt < 1 || cnt > IOV_MAX)
		return SIZE_MAX;
	for (i = 0; i < cnt; i++) {
		if (iov[i].iov_len > SSIZE_MAX - len)
			return SIZE_MAX;
		len += iov[i].iov_len;
	}
	return len;
}

EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
	return writes(len) ? one(OP_WRITE, fd, buf, len, 0) :
			     next.write(fd, buf, len);
}

EXPORT ssize_t __write(int fd, const void *buf, size_t len) __attribute__((alias("write")));

EXPORT ssize_t writev(int fd, const struct iovec *iov, int cnt)
{
	struct op op = { .call = OP_WRITEV, .fd = fd, .iov = iov, .cnt = cnt };

	op.len = total(iov, cnt);
	return writes(op.len) ? lane_write(&op) : next.writev(fd, iov, cnt);
}

EXPORT ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	return writes(len) ? one(OP_SEND, fd, buf, len, flags) :
			     next.send(fd, buf, len, flags);
}

EXPORT ssize_t __send(int fd, const void *buf, size_t len, int flags) __attribute__((alias("send")));

EXPORT ssize_t sendto(int fd, const void *buf, size_t len, int flags,
		      const struct sockaddr *addr, socklen_t addrlen)
{
	return !addr && writes(len) ?
	       one(OP_SENDTO, fd, buf, len, flags) :
	       (ready(), next.sendto(fd, buf, len, flags, addr, addrlen));
}

/* What is written after it must not go into the ring any more. */
EXPORT int shutdown(int fd, int how)
{
	uint64_t ino = how != SHUT_RD && load(&lanes) ? sock_ino(fd) : 0;
	struct entry *e = ino ? lane_get(ino) : NULL;

	if (e) {
		store(&e->lane->tx_off, 1);
		lane_put(e);
	}
	ready();
	return next.shutdown(fd, how);
}
