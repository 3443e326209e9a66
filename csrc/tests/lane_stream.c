// SPDX-License-Identifier: GPL-2.0-only
/* A stream of lane_mix: written and read in all ways, in sizes of one byte to a megabyte. */
#include "lane_stream.h"

__thread uint64_t rnd_state;
volatile int alarms;

/** die - the stream is not what it should be */
void die(const char *what, const struct stream *s, int64_t at)
{
	printf("%s: stream %u at %lld of %lld: %s\n", what, s->seed, (long long)at,
	       (long long)s->total, strerror(errno));
	fflush(stdout);
	_exit(1);
}

/** some_size - often large */
size_t some_size(void)
{
	switch (below(8)) {
	case 0:
		return 1 + below(100);
	case 1:
		return 1 + below(16384);
	case 2:
		return 16384;
	case 3:
		return 65536;
	default:
		return 1 + below(MOST);
	}
}

/** split - a list of up to four pieces */
static int split(struct iovec *v, char *buf, size_t n)
{
	int cnt = 0;

	while (cnt < 3 && n > 1) {
		size_t part = below(n);

		v[cnt++] = (struct iovec){ buf, part };
		buf += part;
		n -= part;
	}
	v[cnt++] = (struct iovec){ buf, n };
	return cnt;
}

/** in_some - one of the ways to read */
static ssize_t in_some(const struct stream *s, char *buf, size_t n)
{
	struct iovec v[4];

	if ((int)below(100) < s->raw)
		return syscall(SYS_read, s->fd, buf, n);
	switch (below(8)) {
	case 0:
		return readv(s->fd, v, split(v, buf, n));
	case 1:
		return recv(s->fd, buf, n, 0);
	case 2:
		return recvfrom(s->fd, buf, n, 0, NULL, NULL);
	case 3:
		return recv(s->fd, buf, n, MSG_PEEK) < 0 ? -1 : read(s->fd, buf, n);
	case 4:
		return s->how == BLOCK && n <= s->total - s->pos ?
		       recv(s->fd, buf, n, MSG_WAITALL) : read(s->fd, buf, n);
	default:
		return read(s->fd, buf, n);
	}
}

/** out_some - one of the ways to write */
static ssize_t out_some(const struct stream *s, char *buf, size_t n)
{
	struct iovec v[4];

	if ((int)below(100) < s->raw)
		return syscall(SYS_write, s->fd, buf, n);
	switch (below(4)) {
	case 0:
		return writev(s->fd, v, split(v, buf, n));
	case 1:
		return send(s->fd, buf, n, MSG_NOSIGNAL);
	case 2:
		return sendto(s->fd, buf, n, 0, NULL, 0);
	default:
		return write(s->fd, buf, n);
	}
}

/** wait_fd - until there may be something to do */
void wait_fd(struct stream *s)
{
	struct pollfd p = { s->fd, s->reads ? POLLIN : POLLOUT, 0 };
	struct timeval tv = { 20, 0 };
	struct epoll_event ev;
	int n = 1;
	fd_set set;

	switch (s->how) {
	case BLOCK:
		return;
	case POLL:
		n = poll(&p, 1, 20000);
		break;
	case SELECT:
		FD_ZERO(&set);
		FD_SET(s->fd, &set);
		n = select(s->fd + 1, s->reads ? &set : NULL, s->reads ? NULL : &set, NULL,
			   &tv);
		break;
	case LEVEL:
	case EDGE:
		n = epoll_wait(s->epfd, &ev, 1, 20000);
	}
	if (!n)
		die("no event", s, (int64_t)s->pos);
}

/** run_stream - until it is at its end */
void *run_stream(void *arg)
{
	struct stream *s = arg;
	struct epoll_event ev = { .events = s->reads ? EPOLLIN : EPOLLOUT };
	char *buf = malloc(MOST);
	bool ready = false;

	rnd_seed(s->seed * 2 + s->reads);
	if (s->how >= LEVEL) {
		s->epfd = epoll_create1(EPOLL_CLOEXEC);
		if (s->how == EDGE)
			ev.events |= EPOLLET;
		epoll_ctl(s->epfd, EPOLL_CTL_ADD, s->fd, &ev);
	}
	while (s->pos < s->total) {
		uint64_t left = s->total - s->pos;
		size_t want = some_size();
		ssize_t n;

		if (want > left)
			want = left;
		if (!ready)
			wait_fd(s);
		if (s->reads) {
			n = in_some(s, buf, want);
		} else {
			fill(buf, s->seed, s->pos, want);
			n = out_some(s, buf, want);
		}
		/* One who hears of edges goes on until there is nothing. */
		ready = s->how == EDGE && n > 0;
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0) {
			s->err = n ? errno : -1;
			break;
		}
		if (s->reads) {
			int64_t bad = wrong(buf, s->seed, s->pos, (size_t)n);

			if (bad >= 0)
				die("wrong byte", s, bad);
		}
		s->pos += (uint64_t)n;
	}
	if (s->how >= LEVEL)
		close(s->epfd);
	free(buf);
	return NULL;
}

/** ring_ring - a signal */
static void ring_ring(int sig)
{
	(void)sig;
	alarms++;
}

/** every - SIGALRM each @us, 0: no more; calls are not restarted after it */
void every(int us)
{
	struct sigaction sa = { .sa_handler = ring_ring };
	struct itimerval it = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

/** writer - a thread that writes @total bytes */
pthread_t writer(struct stream *s, int fd, uint32_t seed, uint64_t total)
{
	pthread_t t;

	*s = (struct stream){ .fd = fd, .seed = seed, .total = total };
	pthread_create(&t, NULL, run_stream, s);
	return t;
}

/** end_status - of a child, as text; a child that hangs is ended by its alarm */
void end_status(const char *name, pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	printf("%s: %s %d\n", name, WIFSIGNALED(status) ? "signal" : "status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	fflush(stdout);
}

/** read_on - read up to @to, checking */
void read_on(struct stream *s, uint64_t to)
{
	s->total = to;
	s->reads = true;
	run_stream(s);
	if (s->err || s->pos != to) {
		errno = s->err;
		die("read on", s, (int64_t)s->pos);
	}
}
