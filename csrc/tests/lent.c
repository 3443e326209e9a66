// SPDX-License-Identifier: GPL-2.0-only
/*
 * Received bytes that are lent to a carrier (supervise/lent.c), where their pages could
 * be used again too early: every byte is checked after much else has gone through the
 * stack's memory. It prints the same lines on any sockets.
 *
 *	lent		what a program may do itself
 *	lent PATH	gives a connection to who listens on the unix socket PATH, with
 *			bytes in it, and goes on when that one says so
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "conform.h"
#include "lane_bytes.h"

#define MB		(1u << 20)
#define FILLED		(8 * MB)	/* more than the buffers of a connection hold */
#define CHURN		(48 * MB)
#define OUTER_SEED	7		/* test_lent.py has these three as well */
#define OUTER_READ	(4 * MB)
#define OUTER_PIPE	(256 * 1024)

static char buf[MB];

/** bad - the end of the program */
static void bad(const char *what, uint64_t at)
{
	printf("%s: wrong at %llu: %s\n", what, (unsigned long long)at, strerror(errno));
	fflush(stdout);
	_exit(1);
}

/** check - @n bytes of the stream @seed from @pos on */
static void check(const char *what, const char *p, uint32_t seed, uint64_t pos, size_t n)
{
	int64_t at = wrong(p, seed, pos, n);

	if (at >= 0)
		bad(what, (uint64_t)at);
}

/** take - read up to the place @to */
static uint64_t take(const char *what, int fd, uint32_t seed, uint64_t pos, uint64_t to)
{
	while (pos < to) {
		size_t want = to - pos < sizeof(buf) ? (size_t)(to - pos) : sizeof(buf);
		ssize_t n = read(fd, buf, want);

		if (n <= 0)
			bad(what, pos);
		check(what, buf, seed, pos, (size_t)n);
		pos += (uint64_t)n;
	}
	return pos;
}

/** sender - a child that writes @total bytes of the stream @seed, and closes or resets */
static pid_t sender(const int sv[2], uint32_t seed, uint64_t total, bool resets)
{
	pid_t pid = fork();
	uint64_t pos = 0;

	if (pid)
		return pid;
	alarm(40);
	dup2(sv[0], 3);
	closefrom(4);		/* our end of this one, and of others */
	while (pos < total) {
		size_t n = total - pos < sizeof(buf) ? (size_t)(total - pos) : sizeof(buf);
		size_t done = 0;

		fill(buf, seed, pos, n);
		while (done < n) {
			ssize_t k = send(3, buf + done, n - done, MSG_NOSIGNAL);

			if (k <= 0)
				_exit(errno == EPIPE || errno == ECONNRESET ? 0 : 1);
			done += (size_t)k;
		}
		pos += n;
	}
	if (resets) {
		struct linger now = { 1, 0 };
		int left = 1, i;

		for (i = 0; left && i < 1000000; i++)
			ioctl(3, TIOCOUTQ, &left);
		setsockopt(3, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	}
	close(3);
	_exit(0);
}

/** begin - a connection, and the child that writes @total to it; our end of it */
static int begin(uint32_t seed, uint64_t total, bool resets, pid_t *pid)
{
	int sv[2];

	tcp_pair(AF_INET, sv);
	*pid = sender(sv, seed, total, resets);
	close(sv[0]);
	return sv[1];
}

/** ended - the child has */
static void ended(const char *what, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		bad(what, (uint64_t)status);
}

/** churn - other bytes through the same memory */
static void churn(uint32_t seed)
{
	pid_t pid;
	int fd = begin(seed, CHURN, false, &pid);

	take("churn", fd, seed, 0, CHURN);
	close(fd);
	ended("churn", pid);
}

/** full - until @fd holds what it can and nothing moves any more */
static void full(int fd)
{
	int was = -1, now = 0, same = 0;

	while (same < 20) {
		msleep(5);
		ioctl(fd, FIONREAD, &now);
		same = now == was ? same + 1 : 0;
		was = now;
	}
}

/** slow - read long after it came */
static void slow(void)
{
	pid_t pid;
	int fd = begin(1, FILLED, false, &pid);
	uint64_t pos = take("slow", fd, 1, 0, 2 * MB + 123);

	full(fd);
	churn(2);
	pos = take("slow", fd, 1, pos, FILLED);
	ended("slow", pid);
	printf("slow: %llu, then %zd\n", (unsigned long long)pos, read(fd, buf, 1));
	close(fd);
}

/** unread - closed with bytes that nobody has read, again and again */
static void unread(void)
{
	uint32_t i;

	for (i = 0; i < 12; i++) {
		pid_t pid, other;
		int fd = begin(10 + i, FILLED, false, &pid);
		int keep = begin(30 + i, FILLED, false, &other);
		uint64_t pos = take("kept", keep, 30 + i, 0, MB);

		take("unread", fd, 10 + i, 0, MB + 7 * i);
		full(fd);
		full(keep);
		close(fd);
		ended("unread", pid);
		take("kept", keep, 30 + i, pos, FILLED);
		close(keep);
		ended("kept", other);
	}
	printf("unread: done\n");
}

/** reset - by the peer, with everything on this side and little of it read */
static void reset(void)
{
	const uint64_t total = 900 * 1024;
	pid_t pid;
	int fd = begin(50, total, true, &pid);
	uint64_t pos = take("reset", fd, 50, 0, 300 * 1024);

	ended("reset", pid);
	churn(51);
	pos = take("reset", fd, 50, pos, total);
	printf("reset: %llu\n", (unsigned long long)pos);
	close(fd);
}

/** splice_rest - into a pipe, which is read after much else */
static void splice_rest(int fd, uint32_t seed, uint64_t pos)
{
	uint64_t room;
	ssize_t n = 0;
	int p[2];

	if (pipe(p))
		bad("pipe", 0);
	room = (uint64_t)fcntl(p[1], F_SETPIPE_SZ, 256 * 1024);
	while (pos < FILLED) {
		uint64_t in = 0;

		while (in < room && pos + in < FILLED) {
			n = splice(fd, NULL, p[1], NULL, FILLED, in ? SPLICE_F_NONBLOCK : 0);
			if (n <= 0)
				break;
			in += (uint64_t)n;
		}
		if (!in)
			bad("splice", pos);
		if (pos < 4 * MB)
			churn(61);
		pos = take("spliced", p[0], seed, pos, pos + in);
	}
	printf("spliced: %llu\n", (unsigned long long)pos);
	close(p[0]);
	close(p[1]);
}

/** spliced - from a connection, and then from another that had been filled before */
static void spliced(void)
{
	uint64_t pos[2];
	pid_t pid[2];
	int i, fd[2];

	for (i = 0; i < 2; i++) {
		uint32_t seed = 60 + 2 * (uint32_t)i;

		fd[i] = begin(seed, FILLED, false, &pid[i]);
		pos[i] = take("before splice", fd[i], seed, 0, 2 * MB + 4567);
	}
	full(fd[0]);
	full(fd[1]);
	for (i = 0; i < 2; i++) {
		splice_rest(fd[i], 60 + 2 * (uint32_t)i, pos[i]);
		ended("spliced", pid[i]);
		close(fd[i]);
	}
}

/** given - to somebody outside */
static void given(const char *path)
{
	char ctl[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { "f", 1 };
	struct msghdr mh = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl,
			     .msg_controllen = sizeof(ctl) };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int to = socket(AF_UNIX, SOCK_STREAM, 0), fd;
	pid_t pid;
	char c;

	strncpy(un.sun_path, path, sizeof(un.sun_path) - 1);
	if (connect(to, (struct sockaddr *)&un, sizeof(un)))
		bad("meet", 0);
	fd = begin(OUTER_SEED, FILLED, false, &pid);
	take("before it is given", fd, OUTER_SEED, 0, OUTER_READ);
	full(fd);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	if (sendmsg(to, &mh, 0) != 1 || read(to, &c, 1) != 1)	/* it has spliced */
		bad("give", 0);
	churn(71);
	if (write(to, "r", 1) != 1 || read(to, &c, 1) != 1)	/* it has read */
		bad("give", 1);
	take("after it was given", fd, OUTER_SEED, OUTER_READ + OUTER_PIPE, FILLED);
	ended("given", pid);
	printf("given: %c\n", c);
	close(fd);
	close(to);
}

int main(int argc, char **argv)
{
	alarm(50);
	if (argc > 1) {
		given(argv[1]);
		return 0;
	}
	slow();
	unread();
	reset();
	spliced();
	return 0;
}
