// SPDX-License-Identifier: GPL-2.0-only
/* Bytes that leave a connection and are read later. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bytes.h"

#define IDLE_MAX	1000	/* failed calls on an exchanged descriptor */

const char *const way_names[WAYS] = {
	"read", "sendfile", "splice", "tee", "relay", "vmsplice", "exchange",
};

/**
 * struct exchange - a descriptor number that alternates between the connection
 * and another file
 * @h, @fd: the held bytes and the connection; @over: set to end the exchange
 */
struct exchange {
	const struct hold *h;
	int fd;
	_Atomic bool over;
};

/** a_pipe - create a pipe that is larger than the held data */
static void a_pipe(int p[2])
{
	if (pipe(p) || fcntl(p[1], F_SETPIPE_SZ, MB) < 0)
		die("pipe", 0);
}

/** room - let a unix socket store @size bytes, which a thread sends and then reads itself */
static void room(int fd, int size)
{
	/* A signal can interrupt an intercepted call: see limits.md. */
	while (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		if (errno != EINTR)
			die("SO_SNDBUFFORCE", 0);
}

/** hold_open - create the descriptors that the way needs */
void hold_open(struct hold *h, enum way way)
{
	*h = (struct hold){ .way = way };
	a_pipe(h->pipe);
	a_pipe(h->copy);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, h->relay) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, h->idle))
		die("socketpair", 0);
	room(h->relay[0], 4 * MB);
	h->slot = dup(h->idle[0]);
}

/** hold_close - close these descriptors */
void hold_close(struct hold *h)
{
	int i;

	for (i = 0; i < 2; i++) {
		close(h->pipe[i]);
		close(h->copy[i]);
		close(h->relay[i]);
		close(h->idle[i]);
	}
	close(h->slot);
}

/** exchanger - thread that calls dup2() as fast as possible */
static void *exchanger(void *arg)
{
	struct exchange *x = arg;

	while (!x->over) {
		if (dup2(x->fd, x->h->slot) < 0 ||
		    dup2(x->h->idle[0], x->h->slot) < 0)
			die("dup2", 0);
	}
	return NULL;
}

/** into_pipe - make one non-blocking call; returns bytes, or -1 with errno */
static ssize_t into_pipe(const struct hold *h, int fd, size_t n)
{
	ssize_t ret = -1;

	errno = EINVAL;
	if (h->way != WAY_SPLICE && h->way != WAY_EXCHANGE)
		ret = sendfile(h->pipe[1], fd, NULL, n);
	/*
	 * Not every kernel supports sendfile() from a socket; a kernel inside
	 * the program never does.
	 */
	if (ret < 0 && errno == EINVAL)
		ret = splice(h->way == WAY_EXCHANGE ? h->slot : fd, NULL,
			     h->pipe[1], NULL, n, SPLICE_F_NONBLOCK);
	return ret;
}

/** full - whether the pipe is full, rather than the connection empty */
static bool full(const struct hold *h, int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	if (h->way == WAY_EXCHANGE)
		return false;	/* the call may have met the other file */
	return h->len && poll(&p, 1, 0) > 0;
}

/** fill_pipe - move at least one byte and at most @most into the pipe */
static void fill_pipe(struct hold *h, struct stream *s, size_t most)
{
	unsigned int idle = 0;

	while (h->len < most && (!h->len || idle < IDLE_MAX)) {
		ssize_t n = into_pipe(h, s->fd, most - h->len);

		if (n > 0) {
			h->len += (size_t)n;
			idle = 0;
		} else if (!n || (errno != EAGAIN && errno != EINTR)) {
			die(way_names[h->way], h->pos + h->len);
		} else if (errno == EAGAIN && full(h, s->fd)) {
			break;
		} else if (h->way == WAY_EXCHANGE) {
			idle++;
			sched_yield();
		} else {
			readable(s->fd);
		}
	}
}

/** exchanged - like fill_pipe(), while another thread exchanges the descriptor */
static void exchanged(struct hold *h, struct stream *s, size_t most)
{
	struct exchange x = { .h = h, .fd = s->fd };
	pthread_t t;

	if (pthread_create(&t, NULL, exchanger, &x))
		die("a thread", 0);
	fill_pipe(h, s, most);
	x.over = true;
	pthread_join(t, NULL);
}

/** pass_on - move the @n bytes in @from into @to by tee() or splice() */
static void pass_on(const struct hold *h, int from, int to, size_t n)
{
	while (n) {
		ssize_t ret = h->way == WAY_TEE ? tee(from, to, n, 0) :
			      splice(from, NULL, to, NULL, n, 0);

		if (ret < 0 && errno == EINTR)
			continue;
		if (ret <= 0)
			die(way_names[h->way], h->pos);
		if (h->way == WAY_TEE && (size_t)ret != n)
			die("tee takes all at once", (uint64_t)ret);
		n -= (size_t)ret;
	}
}

/** hold_take - take @most bytes from the connection, and read none of them */
void hold_take(struct hold *h, struct stream *s, size_t most)
{
	h->pos = s->pos;
	h->len = 0;
	if (h->way == WAY_READ)
		return;
	if (h->way == WAY_EXCHANGE)
		exchanged(h, s, most);
	else
		fill_pipe(h, s, most);
	s->pos += h->len;
	if (h->way == WAY_TEE)
		pass_on(h, h->pipe[0], h->copy[1], h->len);
	if (h->way == WAY_RELAY)
		pass_on(h, h->pipe[0], h->relay[0], h->len);
}

/** get - read the held bytes by read() or vmsplice() */
static ssize_t get(const struct hold *h, int fd, char *buf, size_t n)
{
	struct iovec iov = { buf, n };

	return h->way == WAY_VMSPLICE ? vmsplice(fd, &iov, 1, 0) :
					read(fd, buf, n);
}

/** check_at - read the held bytes from @fd and check them */
static void check_at(const struct hold *h, int fd, uint64_t seed)
{
	char buf[64 * KB];
	size_t done = 0;

	while (done < h->len) {
		size_t want = h->len - done < sizeof(buf) ? h->len - done :
							    sizeof(buf);
		ssize_t n = get(h, fd, buf, want);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die(way_names[h->way], h->pos + done);
		check(way_names[h->way], buf, seed, h->pos + done, (size_t)n);
		done += (size_t)n;
	}
}

/** hold_check - read the held bytes, and compare each of them */
void hold_check(struct hold *h, struct stream *s)
{
	check_at(h, h->way == WAY_RELAY ? h->relay[1] : h->pipe[0], s->seed);
	if (h->way == WAY_TEE)
		check_at(h, h->copy[0], s->seed);
	h->len = 0;
}
