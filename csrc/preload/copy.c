// SPDX-License-Identifier: GPL-2.0-only
/*
 * sendfile() and splice(): nothing moves by itself between two kernels, so
 * data is copied. What one side does not take is not taken from the other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "internal.h"

#define CHUNK		(64UL << 10)
#define PIPE_CHUNK	4096UL	/* what a socket that is writable takes */

static void chunk_put(char *p)
{
	RAW2(munmap, p, CHUNK);
}

/** send_some - to the stack, with SIGPIPE and the count of bytes */
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
	/* Files only: what was read from a pipe cannot be put back. */
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

/** from_stack - splice() from a socket to a pipe */
static long from_stack(int in, int out, long len, long flags, char *buf)
{
	long n, put;
	int peek = MSG_PEEK | (flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0);

	n = stack_wait(SYS_recvfrom, (long[6]){ entries[in].sfd, (long)buf, len, peek },
		       !sock_of(in)->timeo);
	if (n <= 0)
		return n;
	if (flags & SPLICE_F_NONBLOCK) {
		struct pollfd p = { .fd = out, .events = POLLOUT };

		if (poll_host(&p, 1) <= 0)
			return -EAGAIN;
		if (n > (long)PIPE_CHUNK)
			n = PIPE_CHUNK;	/* PIPE_BUF: taken whole */
	}
	put = RAW3(write, out, buf, n);
	if (put <= 0)
		return put;
	stack_wait(SYS_recvfrom, (long[6]){ entries[in].sfd, (long)buf, put, 0 }, true);
	COUNT_BYTES(sock_of(in), in, put);
	return put;
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

			/* It is out of the pipe: it has to go. */
			stack_wait(SYS_ppoll, (long[6]){ (long)&p, 1, (long)&second, 0, 8 }, false);
			continue;
		}
		if (sent < 0)
			return done ? done : sent;
		done += sent;
	}
	return n < 0 ? n : done;
}

/** call_splice - splice(2) */
long call_splice(long nr, const long *a)
{
	int in = (int)a[0], out = (int)a[2];
	long len = a[4] < (long)CHUNK ? a[4] : (long)CHUNK, ret;
	char *buf;

	if (likely(!is_sock(in) && !is_sock(out)))
		return native(nr, a);
	if ((is_sock(in) && a[1]) || (is_sock(out) && a[3]))
		return -ESPIPE;
	if (len <= 0 || (is_sock(in) && is_sock(out)))
		return len ? -EINVAL : 0;
	COUNT(calls, 1);
	buf = pages(CHUNK);
	if (!buf)
		return -ENOMEM;
	ret = is_sock(in) ? from_stack(in, out, len, a[5], buf) :
			    to_stack(in, out, len, a[5], buf);
	chunk_put(buf);
	return ret;
}
