// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams by all ways to read and write, in sizes of one byte to a megabyte, every byte
 * checked: for the library that puts large writes into shared memory (lane/).
 *
 * It prints the same lines on any sockets. LANE_MIX in the environment names those parts
 * that are to run. Beside it lies lane_rest, which it executes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "conform.h"
#include "lane_bytes.h"
#include "rnd.h"

#define MOST	(1u << 20)
#define MB	(1u << 20)
#define TIME	100		/* seconds for all */

__thread uint64_t rnd_state;

enum how { BLOCK, POLL, SELECT, LEVEL, EDGE };

/**
 * struct stream - one direction of a connection
 * @raw: of 100 calls so many are made without the C library
 * @pos: bytes so far
 * @err: what ended it, 0: all is there
 */
struct stream {
	int fd;
	enum how how;
	int raw;
	bool reads;
	uint32_t seed;
	uint64_t pos, total;
	int err;
	int epfd;
};

static char rest[4096];	/* the other program */

/** die - the stream is not what it should be */
static void die(const char *what, const struct stream *s, int64_t at)
{
	printf("%s: stream %u at %lld of %lld: %s\n", what, s->seed, (long long)at,
	       (long long)s->total, strerror(errno));
	fflush(stdout);
	_exit(1);
}

/** some_size - often large */
static size_t some_size(void)
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
static void wait_fd(struct stream *s)
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
static void *run_stream(void *arg)
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

static volatile int alarms;

/** ring_ring - a signal */
static void ring_ring(int sig)
{
	(void)sig;
	alarms++;
}

/** every - SIGALRM each @us, 0: no more; calls are not restarted after it */
static void every(int us)
{
	struct sigaction sa = { .sa_handler = ring_ring };
	struct itimerval it = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

/**
 * both_ways - streams in both directions of one connection at a time, of @pairs
 * @us: signals come so often, 0: none
 */
static void both_ways(const char *name, enum how how, int raw, uint64_t total, int pairs, int us)
{
	struct stream s[4 * 8];
	pthread_t t[4 * 8];
	int i, n = pairs * 4;
	bool bad = false;

	memset(s, 0, sizeof(s));
	for (i = 0; i < pairs; i++) {
		int sv[2], k;

		tcp_pair(i % 2 ? AF_INET6 : AF_INET, sv);
		for (k = 0; k < 4; k++) {
			int fd = sv[k & 1];

			if (how != BLOCK)
				fcntl(fd, F_SETFL, O_NONBLOCK);
			s[4 * i + k] = (struct stream){ .fd = fd, .how = how, .raw = raw,
				.reads = k / 2, .total = total,
				.seed = (uint32_t)(1 + 10 * i + (k == 0 || k == 3)) };
		}
	}
	every(us);
	for (i = 0; i < n; i++)
		pthread_create(&t[i], NULL, run_stream, &s[i]);
	for (i = 0; i < n; i++) {
		pthread_join(t[i], NULL);
		if (s[i].err || s[i].pos != total) {
			printf("%s: %s %u at %llu: %s\n", name, s[i].reads ? "reading" : "writing",
			       s[i].seed, (unsigned long long)s[i].pos,
			       s[i].err > 0 ? strerrorname_np(s[i].err) : "the end");
			bad = true;
		}
	}
	every(0);
	if (us)
		printf("signals: %d\n", alarms > 0);
	if (bad)
		_exit(fflush(stdout) ? 2 : 1);
	for (i = 0; i < n; i += 4) {
		close(s[i].fd);
		close(s[i + 1].fd);
	}
	printf("%s: %d streams of %llu bytes\n", name, pairs * 2, (unsigned long long)total);
	fflush(stdout);
}

/** writer - a thread that writes @total bytes */
static pthread_t writer(struct stream *s, int fd, uint32_t seed, uint64_t total)
{
	pthread_t t;

	*s = (struct stream){ .fd = fd, .seed = seed, .total = total };
	pthread_create(&t, NULL, run_stream, s);
	return t;
}

/** end_status - of a child, as text; a child that hangs is ended by its alarm */
static void end_status(const char *name, pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	printf("%s: %s %d\n", name, WIFSIGNALED(status) ? "signal" : "status",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	fflush(stdout);
}

/** read_on - read up to @to, checking */
static void read_on(struct stream *s, uint64_t to)
{
	s->total = to;
	s->reads = true;
	run_stream(s);
	if (s->err || s->pos != to) {
		errno = s->err;
		die("read on", s, (int64_t)s->pos);
	}
}

/** in_turns - parent and child read the same connection, now one, now the other */
static void in_turns(void)
{
	struct stream w, *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const uint64_t total = 24 * MB, turn = total / 16;
	int sv[2], to_child[2], to_parent[2], i;
	pthread_t t;
	pid_t pid;
	char c = 0;

	tcp_pair(AF_INET, sv);
	if (pipe(to_child) || pipe(to_parent))
		return;
	*r = (struct stream){ .fd = sv[1], .seed = 77 };
	t = writer(&w, sv[0], 77, total);
	read_on(r, turn);
	pid = fork();
	if (!pid) {
		alarm(30);
		rnd_seed(1);
		while (read(to_child[0], &c, 1) == 1 && c) {
			read_on(r, r->pos + turn);
			if (write(to_parent[1], "x", 1) != 1)
				break;
		}
		_exit(0);
	}
	for (i = 1; i < 16; i += 2) {
		c = 1;
		if (write(to_child[1], &c, 1) != 1 || read(to_parent[0], &c, 1) != 1)
			break;
		if (i < 15)
			read_on(r, r->pos + turn);
	}
	c = 0;
	if (write(to_child[1], &c, 1) != 1)
		return;
	end_status("in turns, child", pid);
	pthread_join(t, NULL);
	printf("in turns: %llu bytes\n", (unsigned long long)r->pos);
	for (i = 0; i < 2; i++) {
		close(sv[i]);
		close(to_child[i]);
		close(to_parent[i]);
	}
	munmap(r, sizeof(*r));
}

/** moved - dup() in between, and dup2() onto a number that meant another stream */
static void moved(void)
{
	struct stream w[2], r[2];
	int sv[2][2], i;
	pthread_t t[2];

	for (i = 0; i < 2; i++) {
		tcp_pair(AF_INET, sv[i]);
		t[i] = writer(&w[i], sv[i][0], (uint32_t)(50 + i), 16 * MB);
		r[i] = (struct stream){ .fd = sv[i][1], .seed = (uint32_t)(50 + i) };
		read_on(&r[i], 4 * MB);
	}
	r[0].fd = dup(sv[0][1]);
	read_on(&r[0], 8 * MB);
	/* The numbers change places. */
	i = dup(sv[0][1]);
	dup2(sv[1][1], sv[0][1]);
	dup2(i, sv[1][1]);
	close(i);
	close(r[0].fd);
	r[0].fd = sv[1][1];
	r[1].fd = sv[0][1];
	for (i = 0; i < 2; i++) {
		read_on(&r[i], 16 * MB);
		pthread_join(t[i], NULL);
	}
	for (i = 0; i < 4; i++)
		close(sv[i / 2][i % 2]);
	printf("moved: %llu %llu\n", (unsigned long long)r[0].pos,
	       (unsigned long long)r[1].pos);
	fflush(stdout);
}

/** pass - a descriptor over a unix socket */
static void pass(int over, int fd)
{
	char ctl[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { "f", 1 };
	struct msghdr mh = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl,
			     .msg_controllen = sizeof(ctl) };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);

	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	sendmsg(over, &mh, 0);
}

/** passed - the reverse */
static int passed(int over)
{
	char ctl[CMSG_SPACE(sizeof(int))] = { 0 }, c;
	struct iovec v = { &c, 1 };
	struct msghdr mh = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl,
			     .msg_controllen = sizeof(ctl) };
	int fd = -1;

	if (recvmsg(over, &mh, 0) == 1 && CMSG_FIRSTHDR(&mh))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof(fd));
	return fd;
}

/** given_away - read a part, then another program without the library has it */
static void given_away(bool rights)
{
	char seed[16], pos[32];
	struct stream w, r;
	int sv[2], over[2];
	pthread_t t;
	pid_t pid;

	tcp_pair(AF_INET, sv);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, over))
		return;
	fcntl(sv[0], F_SETFD, FD_CLOEXEC);
	t = writer(&w, sv[0], 91, 20 * MB);
	r = (struct stream){ .fd = sv[1], .seed = 91 };
	pid = rights ? fork() : 1;
	if (!pid) {
		alarm(30);
		close(sv[0]);
		close(sv[1]);
		dup2(passed(over[1]), 0);
		snprintf(pos, sizeof(pos), "%u", 5 * MB);
		execl(rest, rest, "91", pos, NULL);
		_exit(127);
	}
	read_on(&r, 5 * MB);
	if (rights) {
		pass(over[0], sv[1]);
	} else {
		snprintf(seed, sizeof(seed), "%d", 91);
		snprintf(pos, sizeof(pos), "%u", 5 * MB);
		pid = fork();
		if (!pid) {
			alarm(30);
			close(sv[0]);
			dup2(sv[1], 0);
			close(sv[1]);
			execl(rest, rest, seed, pos, NULL);
			_exit(127);
		}
	}
	close(sv[1]);
	pthread_join(t, NULL);
	shutdown(sv[0], SHUT_WR);
	close(sv[0]);
	end_status(rights ? "by SCM_RIGHTS" : "by exec", pid);
	close(over[0]);
	close(over[1]);
}

/** read_end - from @pos to the end of the stream, whose length is not known; bytes */
static uint64_t read_end(int fd, uint32_t seed, uint64_t pos, long *last)
{
	char *buf = malloc(MOST);
	uint64_t begin = pos;
	ssize_t n;

	while ((n = read(fd, buf, some_size())) > 0) {
		struct stream s = { .seed = seed };
		int64_t bad = wrong(buf, seed, pos, (size_t)n);

		if (bad >= 0)
			die("wrong byte", &s, bad);
		pos += (uint64_t)n;
	}
	*last = n ? errno : 0;
	free(buf);
	return pos - begin;
}

/** ends - a shutdown behind much that is under way, and a write after it */
static void ends(void)
{
	static char buf[MOST];
	int sv[2], round;
	long last;

	for (round = 0; round < 8; round++) {
		uint64_t total = (1 + below(8)) * 300000, got;
		struct stream w, r;
		pthread_t t;

		tcp_pair(AF_INET, sv);
		r = (struct stream){ .fd = sv[1], .seed = 33 };
		t = writer(&w, sv[0], 33, total);
		if (round & 1)
			msleep(20);	/* what fits is written before anything is read */
		read_on(&r, total);
		pthread_join(t, NULL);
		shutdown(sv[0], SHUT_WR);
		got = read_end(sv[1], 33, total, &last);
		if (got || last)
			printf("end: %llu more, %ld\n", (unsigned long long)got, last);
		signal(SIGPIPE, SIG_IGN);
		if (write(sv[0], buf, sizeof(buf)) != -1 || errno != EPIPE)
			printf("write after shutdown: %s\n", strerror(errno));
		close(sv[0]);
		close(sv[1]);
	}
	printf("ends\n");
	fflush(stdout);
}

/** burst - all is written and the writer gone before anybody reads */
static void burst(void)
{
	static char buf[300000];
	int sv[2], round, on = 1;
	long last;

	for (round = 0; round < 6; round++) {
		uint64_t got, done = 0;

		tcp_pair(AF_INET, sv);
		fcntl(sv[0], F_SETFL, O_NONBLOCK);
		while (done < 2 * MB) {
			ssize_t n;

			fill(buf, 34, done, sizeof(buf));
			n = write(sv[0], buf, sizeof(buf));
			if (n <= 0)
				break;
			done += (uint64_t)n;
		}
		setsockopt(sv[0], IPPROTO_TCP, 1, &on, sizeof(on));
		close(sv[0]);
		got = read_end(sv[1], 34, 0, &last);
		if (got != done || last)
			printf("burst: %llu of %llu, %ld\n", (unsigned long long)got,
			       (unsigned long long)done, last);
		close(sv[1]);
	}
	printf("bursts\n");
	fflush(stdout);
}

/** killed - a writer, and a reader, in the middle */
static void killed(bool reader)
{
	int sv[2], round, silent;
	long last;

	for (round = 0; round < 10; round++) {
		struct stream w;
		uint64_t got;
		pthread_t t = 0;
		pid_t pid;

		tcp_pair(AF_INET, sv);
		if (reader)
			t = writer(&w, sv[0], 44, 8 * MB);
		pid = fork();
		if (!pid) {
			struct stream s = { .fd = sv[reader], .seed = 44, .reads = reader,
					    .total = 1ull << 40 };

			alarm(30);
			close(sv[!reader]);
			run_stream(&s);
			_exit(0);
		}
		if (!reader)
			close(sv[0]);
		msleep(1 + (int)below(40));
		if (reader) {
			/* What it took is lost; the connection goes on, to its end. */
			char *buf = malloc(MOST);

			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			fcntl(sv[1], F_SETFL, O_NONBLOCK);
			for (silent = 0; w.pos < w.total && !w.err;) {
				struct pollfd p = { sv[1], POLLIN, 0 };

				silent = poll(&p, 1, 100) ? 0 : silent + 1;
				if (silent == 100)
					die("after a killed reader", &w, (int64_t)w.pos);
				while (read(sv[1], buf, MOST) > 0)
					;
			}
			free(buf);
			pthread_join(t, NULL);
			close(sv[0]);
		} else {
			struct stream r = { .fd = sv[1], .seed = 44 };

			read_on(&r, 1 * MB);
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			got = read_end(sv[1], 44, r.pos, &last);
			if (last)
				printf("killed: %llu, %ld\n", (unsigned long long)got, last);
		}
		close(sv[1]);
	}
	printf("killed %s\n", reader ? "readers" : "writers");
	fflush(stdout);
}

/** limits - SO_SNDTIMEO and SO_RCVTIMEO; what was counted as written is what arrives */
static void limits(void)
{
	struct timeval tv = { 0, 200000 };
	char *buf = malloc(MOST);
	struct stream r = { .seed = 55 };
	uint64_t done = 0;
	struct timespec a, b;
	int sv[2], rounds = 0;
	ssize_t n;
	double s;

	tcp_pair(AF_INET, sv);
	setsockopt(sv[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	setsockopt(sv[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	while (rounds++ < 200) {
		fill(buf, 55, done, MOST);
		n = write(sv[0], buf, MOST);
		if (n < 0)
			break;
		done += (uint64_t)n;
	}
	printf("full: %s\n", rounds < 200 ? strerrorname_np(errno) : "never");
	r.fd = sv[1];
	read_on(&r, done);
	clock_gettime(CLOCK_MONOTONIC, &a);
	n = read(sv[1], buf, MOST);
	clock_gettime(CLOCK_MONOTONIC, &b);
	s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	printf("empty: %zd %s, in time %d\n", n, strerrorname_np(errno), s > 0.1 && s < 2);
	fflush(stdout);
	close(sv[0]);
	close(sv[1]);
	free(buf);
}

/** turns - large requests and answers, and how long one takes */
static void turns(enum how how, size_t n)
{
	static char buf[2][MOST];
	struct timespec a, b;
	int sv[2], i;
	double us;

	tcp_pair(AF_INET, sv);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < 400; i++) {
		struct stream r = { .fd = sv[~i & 1], .how = how,
				    .seed = (uint32_t)i, .reads = true };
		ssize_t k, done;

		fill(buf[0], (uint32_t)i, 0, n);
		for (done = 0; done < (ssize_t)n; done += k) {
			k = write(sv[i & 1], buf[0] + done, n - (size_t)done);
			if (k <= 0)
				die("turn", &r, done);
		}
		for (done = 0; done < (ssize_t)n; done += k) {
			wait_fd(&r);
			k = read(r.fd, buf[1] + done, n - (size_t)done);
			if (k <= 0 || wrong(buf[1] + done, (uint32_t)i, (uint64_t)done, (size_t)k) >= 0)
				die("turn", &r, done);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	us = ((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3) / 400;
	fprintf(stderr, "# turns of %zu: %.0f us each\n", n, us);
	printf("turns: in time %d\n", us < 20000);
	fflush(stdout);
	close(sv[0]);
	close(sv[1]);
}

/** watch - nothing of this takes forever */
static void *watch(void *arg)
{
	unsigned int left = TIME;

	(void)arg;
	while (left)
		left = sleep(left);	/* signals end it */
	printf("not ended after %d s\n", TIME);
	fflush(stdout);
	_exit(3);
}

int main(void)
{
	const char *only = getenv("LANE_MIX");
	pthread_t t;

	if (readlink("/proc/self/exe", rest, sizeof(rest) - sizeof("lane_rest")) < 0)
		return 1;
	strcpy(strrchr(rest, '/') + 1, "lane_rest");
	rnd_seed(1);
	pthread_create(&t, NULL, watch, NULL);
#define DO(name, what) do { if (!only || !*only || strstr(only, name)) what; } while (0)
	DO("block", both_ways("blocking", BLOCK, 0, 24 * MB, 1, 0));
	DO("mixed", both_ways("mixed with raw calls", BLOCK, 40, 16 * MB, 1, 0));
	DO("poll", both_ways("poll", POLL, 0, 16 * MB, 1, 0));
	DO("select", both_ways("select", SELECT, 20, 12 * MB, 1, 0));
	DO("level", both_ways("epoll, levels", LEVEL, 0, 12 * MB, 1, 0));
	DO("edge", both_ways("epoll, edges", EDGE, 20, 12 * MB, 1, 0));
	DO("several", both_ways("several", BLOCK, 10, 4 * MB, 6, 0));
	DO("turns", in_turns());
	DO("moved", moved());
	DO("given", given_away(false));
	DO("given", given_away(true));
	DO("ends", ends());
	DO("burst", burst());
	DO("killed", killed(false));
	DO("killed", killed(true));
	DO("limits", limits());
	DO("signals", both_ways("interrupted", BLOCK, 10, 8 * MB, 1, 700));
	DO("large", turns(BLOCK, 65536));
	DO("large", turns(POLL, 65536));
	DO("large", turns(POLL, 20000));
	DO("large", turns(BLOCK, 400000));
	return 0;
}
