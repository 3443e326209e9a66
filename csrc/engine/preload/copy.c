// SPDX-License-Identifier: GPL-2.0-only
/*
 * sendfile() and splice(). Data cannot move between two kernels without a copy.
 * The engine reads data from one side only if the other side accepts it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "engine/preload/internal.h"

#define CHUNK		(64UL << 10)
#define PIPE_CHUNK	4096UL	/* what a writable socket accepts */

static void chunk_put(char *p)
{
	RAW2(munmap, p, CHUNK);
}

/** send_some - send to the stack; raises SIGPIPE and counts the bytes */
static long send_some(int fd, const char *buf, long len, int flags)
{
	long ret = stack_wait(SYS_sendto,
			      (long[6]){ entries[fd].sfd, (long)buf, len, flags },
			      !sock_of(fd)->timeo);

	if (ret > 0)
		COUNT_BYTES(sock_of(fd), out, ret);
	broken_pipe(sock_of(fd), ret, flags);
	return ret;
}

/** call_sendfile - sendfile(2) */
long call_sendfile(long nr, const long *a)
{
	int out = (int)a[0], in = (int)a[1];
	long left = a[3], off = 0, done = 0, n, sent;
	bool pos = a[2];
	char *buf;

	if (likely(!is_sock(out) && !is_sock(in)))
		return native(nr, a);
	if (!is_sock(out) || is_sock(in))
		return -EINVAL;
	if (pos && preload_copy(&off, (void *)a[2], sizeof(off)))
		return -EFAULT;
	if (left < 0 || (pos && off < 0))
		return -EINVAL;
	/* Files only: data read from a pipe cannot be put back. */
	n = pos ? 0 : RAW3(lseek, in, 0, SEEK_CUR);
	if (n < 0)
		return n == -ESPIPE ? -EINVAL : n;
	if (!pos)
		off = n;
	COUNT(calls, 1);
	buf = pages(CHUNK);
	if (!buf)
		return -ENOMEM;
	while (left > 0) {
		n = RAW4(pread64, in, buf, left < (long)CHUNK ? left : (long)CHUNK, off);
		if (n <= 0) {
			if (!done)
				done = n;
			break;
		}
		sent = send_some(out, buf, n, 0);
		if (sent < 0) {
			if (!done)
				done = sent;
			break;
		}
		off += sent;
		done += sent;
		left -= sent;
		if (sent < n)
			break;
	}
	chunk_put(buf);
	if (done > 0 && pos && preload_copy((void *)a[2], &off, sizeof(off)))
		return -EFAULT;
	if (done > 0 && !pos)
		RAW3(lseek, in, off, SEEK_SET);
	return done;
}

/** unread - fail with SIGPIPE: the pipe has no reader */
static long unread(void)
{
	RAW3(tgkill, RAW0(getpid), RAW0(gettid), SIGPIPE);
	return -EPIPE;
}

/**
 * pipe_room - bytes that a pipe accepts without blocking; waits for space
 * unless @nonblock is set
 *
 * A writable pipe has room for at least one page; an empty pipe has all its
 * room.
 */
static long pipe_room(int out, long nonblock)
{
	struct pollfd p = { .fd = out, .events = POLLOUT };
	long flags = RAW3(fcntl, out, F_GETFL, 0);
	long size = RAW3(fcntl, out, F_GETPIPE_SZ, 0);
	int filled = 1;

	if (flags < 0 || size < 0)
		return flags < 0 ? flags : -EINVAL;	/* not a pipe */
	if (poll_host(&p, 1) <= 0) {
		if (nonblock || (flags & O_NONBLOCK))
			return -EAGAIN;
		if (RAW5(ppoll, &p, 1, NULL, NULL, 8) < 0)
			return -EINTR;
	}
	if (p.revents & POLLERR)
		return unread();
	return !RAW3(ioctl, out, FIONREAD, &filled) && !filled ? size : (long)PIPE_CHUNK;
}

/**
 * from_stack - splice() from a socket to a pipe
 *
 * Data received cannot go back into the socket, because another thread may
 * receive there as well. So this receives no more than the pipe accepts.
 */
static long from_stack(int in, int out, long len, long flags, char *buf)
{
	long n, put, done = 0, room = pipe_room(out, flags & SPLICE_F_NONBLOCK);

	if (room < 0)
		return room;
	n = stack_wait(SYS_recvfrom,
		       (long[6]){ entries[in].sfd, (long)buf, len < room ? len : room,
				  flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0 },
		       !sock_of(in)->timeo);
	while (done < n) {
		struct pollfd p = { .fd = out, .events = POLLOUT };

		put = RAW3(write, out, buf + done, n - done);
		if (put == -EAGAIN)	/* another thread wrote to the pipe */
			RAW5(ppoll, &p, 1, NULL, NULL, 8);
		else if (put < 0 && put != -EINTR)
			return done ? done : put;
		else if (put > 0)
			done += put;
	}
	if (n > 0)
		COUNT_BYTES(sock_of(in), in, n);
	return n;
}

/** to_stack - splice() from a pipe to a socket */
static long to_stack(int in, int out, long len, long flags, char *buf)
{
	struct pollfd p = { .fd = entries[out].sfd, .events = POLLOUT },
		      q = { .fd = in, .events = POLLIN };
	bool nonblock = (flags & SPLICE_F_NONBLOCK) ||
			(STACK(fcntl, p.fd, F_GETFL, 0, 0, 0, 0) & O_NONBLOCK);
	long n, sent, done = 0;

	if (nonblock && !poll_stack(&p))
		return -EAGAIN;
	if ((flags & SPLICE_F_NONBLOCK) && poll_host(&q, 1) <= 0)
		return -EAGAIN;
	n = RAW3(read, in, buf, len < (long)PIPE_CHUNK ? len : (long)PIPE_CHUNK);
	while (done < n) {
		sent = send_some(out, buf + done, n - done, 0);
		if (sent == -EAGAIN) {
			struct timespec second = { .tv_sec = 1 };

			/* The data has left the pipe, so it must be sent. */
			stack_wait(SYS_ppoll, (long[6]){ (long)&p, 1, (long)&second, 0, 8 }, false);
			continue;
		}
		if (sent < 0)
			return done ? done : sent;
		done += sent;
	}
	return n < 0 ? n : done;
}

/**
 * between - splice() between a pipe and a socket of the stack
 *
 * The descriptor may no longer be such a socket.
 */
static long between(long nr, const long *a, char *buf)
{
	int in = (int)a[0], out = (int)a[2];
	long len = a[4] < (long)CHUNK ? a[4] : (long)CHUNK, ret;
	unsigned int was;

	do {
		was = __atomic_load_n(&dups, __ATOMIC_ACQUIRE);
		if (is_sock(in))
			ret = from_stack(in, out, len, a[5], buf);
		else if (is_sock(out))
			ret = to_stack(in, out, len, a[5], buf);
		else
			ret = native(nr, a);
	} while (exchanged(ret, was));
	return ret;
}

/** call_splice - splice(2) */
long call_splice(long nr, const long *a)
{
	int in = (int)a[0], out = (int)a[2];
	unsigned int was = __atomic_load_n(&dups, __ATOMIC_ACQUIRE);
	long ret;
	char *buf;

	if (likely(!is_sock(in) && !is_sock(out))) {
		ret = native(nr, a);
		if (likely(!exchanged(ret, was)))
			return ret;
	}
	if ((is_sock(in) && a[1]) || (is_sock(out) && a[3]))
		return -ESPIPE;
	if (a[4] <= 0 || (is_sock(in) && is_sock(out)))
		return a[4] ? -EINVAL : 0;
	COUNT(calls, 1);
	buf = pages(CHUNK);
	if (!buf)
		return -ENOMEM;
	ret = between(nr, a, buf);
	chunk_put(buf);
	return ret;
}
