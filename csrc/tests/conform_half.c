// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prints what a program sees that has ended its own stream by SHUT_WR: the peer's
 * answer, its end, and a reset in its middle, see conform.h.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "conform.h"

#define ALL	(POLLIN | POLLOUT | POLLRDHUP)
#define RACES	300

static char big[1 << 16];

/** reset - close the peer's end with a RST */
static void reset(int fd)
{
	struct linger now = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

/** rest - print what is left to read, its end, and the result of a write */
static void rest(int fd)
{
	char buf[16];
	int i;

	for (i = 0; i < 3; i++)
		say("read", read(fd, buf, sizeof(buf)));
	say("write", write(fd, "x", 1));
	say("send", send(fd, "x", 1, MSG_NOSIGNAL));
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	events("at the end", fd, POLLHUP, ALL, 0);
	close(fd);
}

/** request - a pair whose client has sent a request and ended its stream */
static void request(int family, int sv[2], const char *what)
{
	char buf[16];

	printf("# %s, family %d\n", what, family);
	tcp_pair(family, sv);
	say("request", write(sv[0], "request", 7));
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	events("half-closed", sv[0], POLLOUT, ALL, LIMIT_MS);
	say("arrives", recv(sv[1], buf, 7, MSG_WAITALL));
	say("its end", read(sv[1], buf, sizeof(buf)));
}

/** answered - an answer that ends as it should, or is cut by a reset */
static void answered(int family)
{
	int sv[2], i;
	char buf[16];

	request(family, sv, "complete answer");
	say("answer", write(sv[1], "answer", 6));
	close(sv[1]);
	events("answered", sv[0], POLLRDHUP, ALL, LIMIT_MS);
	rest(sv[0]);

	request(family, sv, "end, then a reset");
	say("SHUT_WR", shutdown(sv[1], SHUT_WR));
	wait_for(sv[0], POLLRDHUP);
	say("end", read(sv[0], buf, sizeof(buf)));
	reset(sv[1]);
	rest(sv[0]);

	for (i = 0; i < 2; i++) {
		request(family, sv, i ? "half an answer, read before the reset" : "half an answer, then a reset");
		say("answer", write(sv[1], "half", 4));
		wait_for(sv[0], POLLIN);
		if (i)
			say("read", read(sv[0], buf, sizeof(buf)));
		reset(sv[1]);
		events("reset", sv[0], POLLHUP, ALL, LIMIT_MS);
		rest(sv[0]);
	}

	request(family, sv, "reset without an answer");
	reset(sv[1]);
	events("reset", sv[0], POLLHUP, ALL, LIMIT_MS);
	get_int("SO_ERROR", sv[0], SOL_SOCKET, SO_ERROR);
	rest(sv[0]);

	request(family, sv, "closed with unread data");
	say("answer", write(sv[1], "answer", 6));
	wait_for(sv[0], POLLIN);
	close(sv[0]);
	wait_for(sv[1], POLLHUP);
	say("peer reads", read(sv[1], buf, sizeof(buf)));
	close(sv[1]);

	request(family, sv, "ended again");
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	say("SHUT_RD", shutdown(sv[0], SHUT_RD));
	say("SHUT_RDWR", shutdown(sv[0], SHUT_RDWR));
	say("end", read(sv[0], buf, sizeof(buf)));
	close(sv[0]);
	close(sv[1]);
}

static int late_fd;

/** late_reset - reset while the other thread waits */
static void *late_reset(void *arg)
{
	(void)arg;
	msleep(100);
	reset(late_fd);
	return NULL;
}

/** waits - a call that waits for the answer ends by a reset */
static void waits(int family)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET };
	int sv[2], ep = epoll_create1(0);
	pthread_t t;
	char buf[16];

	request(family, sv, "reset during a read");
	late_fd = sv[1];
	pthread_create(&t, NULL, late_reset, NULL);
	say("read", read(sv[0], buf, sizeof(buf)));
	pthread_join(t, NULL);
	rest(sv[0]);

	request(family, sv, "reset during epoll_wait");
	late_fd = sv[1];
	epoll_ctl(ep, EPOLL_CTL_ADD, sv[0], &ev);
	pthread_create(&t, NULL, late_reset, NULL);
	say("epoll", epoll_wait(ep, &ev, 1, LIMIT_MS));
	pthread_join(t, NULL);
	events("reset", sv[0], POLLHUP, ALL, LIMIT_MS);
	rest(sv[0]);
	close(ep);
}

/** receive_fd - send @fd through a unix socket and receive another number for it */
static int receive_fd(int fd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl = { .buf = "" };
	struct iovec iov = { (char []){ "x" }, 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	int un[2], got = -1;

	socketpair(AF_UNIX, SOCK_STREAM, 0, un);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	sendmsg(un[0], &mh, 0);
	close(fd);
	if (recvmsg(un[1], &mh, 0) == 1 && (cm = CMSG_FIRSTHDR(&mh)))
		memcpy(&got, CMSG_DATA(cm), sizeof(got));
	close(un[0]);
	close(un[1]);
	return got;
}

/** elsewhere - SHUT_WR by another process, and by a received descriptor */
static void elsewhere(int family)
{
	char buf[16];
	int sv[2], how;
	pid_t child;

	for (how = 0; how < 2; how++) {
		printf("# SHUT_WR %s, family %d\n", how ? "by a received descriptor" : "by a child", family);
		tcp_pair(family, sv);
		if (how) {
			sv[0] = receive_fd(sv[0]);
			say("SHUT_WR", shutdown(sv[0], SHUT_WR));
		} else {
			child = fork();
			if (!child)
				_exit(!!shutdown(sv[0], SHUT_WR));
			waitpid(child, NULL, 0);
		}
		say("its end", read(sv[1], buf, sizeof(buf)));
		say("answer", write(sv[1], "half", 4));
		wait_for(sv[0], POLLIN);
		reset(sv[1]);
		events("reset", sv[0], POLLHUP, ALL, LIMIT_MS);
		rest(sv[0]);
	}
}

/** fill - write until nothing is accepted for a while; returns the bytes */
static long fill(int fd)
{
	long sum = 0;
	ssize_t n;
	int idle;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (idle = 0; idle < 10; idle++) {
		for (; (n = write(fd, big, sizeof(big))) > 0; idle = 0)
			sum += n;
		msleep(10);
	}
	fcntl(fd, F_SETFL, 0);
	return sum;
}

/** drain - read to the end; returns the bytes, or the negative errno after them */
static long drain(int fd)
{
	static char buf[1 << 16];
	long sum = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		sum += n;
	return n < 0 ? -errno : sum;
}

/** full - SHUT_WR while much data waits */
static void full(int family)
{
	char buf[16];
	int sv[2];
	long sum;

	printf("# SHUT_WR of a full socket, family %d\n", family);
	tcp_pair(family, sv);
	sum = fill(sv[0]);
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	say("write", send(sv[0], "x", 1, MSG_NOSIGNAL));
	printf("all arrives: %d\n", drain(sv[1]) == sum);
	say("answer", write(sv[1], "half", 4));
	wait_for(sv[0], POLLIN);
	reset(sv[1]);
	events("reset", sv[0], POLLHUP, ALL, LIMIT_MS);
	rest(sv[0]);

	printf("# reset with much unsent data, family %d\n", family);
	tcp_pair(family, sv);
	fill(sv[0]);
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	say("some arrives", recv(sv[1], buf, sizeof(buf), MSG_WAITALL));
	say("answer", write(sv[1], "half", 4));
	wait_for(sv[0], POLLIN);
	reset(sv[1]);
	events("reset", sv[0], POLLHUP, POLLIN | POLLRDHUP, LIMIT_MS);
	rest(sv[0]);

	printf("# reset before much of the answer is read, family %d\n", family);
	tcp_pair(family, sv);
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	say("its end", read(sv[1], buf, sizeof(buf)));
	fill(sv[1]);
	reset(sv[1]);
	msleep(50);
	printf("cut: %s\n", strerrorname_np((int)-drain(sv[0])));
	say("read", read(sv[0], buf, sizeof(buf)));
	close(sv[0]);
}

/** moves - calls that move data without a copy, after SHUT_WR */
static void moves(int family)
{
	int sv[2], pipes[2], file = open("/proc/self/exe", O_RDONLY);

	request(family, sv, "splice and sendfile");
	if (pipe(pipes))
		say("pipe", -1);
	say("fill", write(pipes[1], "abc", 3));
	say("splice", splice(pipes[0], NULL, sv[0], NULL, 3, 0));
	say("sendfile", sendfile(sv[0], file, NULL, 10));
	say("answer", write(sv[1], "abcdef", 6));
	say("splice from", splice(sv[0], NULL, pipes[1], NULL, 6, 0));
	reset(sv[1]);
	wait_for(sv[0], POLLHUP);
	say("splice from", splice(sv[0], NULL, pipes[1], NULL, 6, 0));
	rest(sv[0]);
	close(pipes[0]);
	close(pipes[1]);
	close(file);
}

static int race_fd;
static long race_sent;

/** race_write - write numbers until the stream ends */
static void *race_write(void *arg)
{
	struct timespec ts = { 0 };
	unsigned char c = 0;

	(void)arg;
	while (send(race_fd, &c, 1, MSG_NOSIGNAL) == 1) {
		race_sent++;
		ts.tv_nsec = 20000L * (c++ & 7);
		if (c % 3)
			nanosleep(&ts, NULL);
	}
	return NULL;
}

/** race - SHUT_WR while another thread writes: what was accepted arrives */
static void race(int family)
{
	int sv[2], i, wrong = 0, cut = 0;
	unsigned char buf[4096], want;
	pthread_t t;
	ssize_t n, k;
	long sum;

	printf("# SHUT_WR during writes, family %d\n", family);
	for (i = 0; i < RACES; i++) {
		tcp_pair(family, sv);
		race_fd = sv[0];
		race_sent = sum = 0;
		want = 0;
		pthread_create(&t, NULL, race_write, NULL);
		for (k = 0; k < i % 50; k++)
			sched_yield();
		shutdown(sv[0], SHUT_WR);
		while ((n = read(sv[1], buf, sizeof(buf))) > 0)
			for (k = 0; k < n; k++, sum++)
				wrong += buf[k] != want++;
		pthread_join(t, NULL);
		wrong += n || sum != race_sent;
		reset(sv[1]);
		cut += read(sv[0], buf, 1) == -1 && errno == ECONNRESET;
		close(sv[0]);
	}
	printf("wrong: %d, resets: %d\n", wrong, cut);
}

/** early - SHUT_WR of sockets that have no peer yet, and of others */
static void early(int family)
{
	struct sockaddr_storage ss;
	int fd, port, l = listener(family, 0, &port), type, un[2];
	char c;

	printf("# SHUT_WR of other sockets, family %d\n", family);
	fd = socket(family, SOCK_STREAM, 0);
	connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
	close(accept(l, NULL, NULL));
	wait_for(fd, POLLRDHUP);
	say("after the peer's end", shutdown(fd, SHUT_WR));
	say("end", read(fd, &c, 1));
	close(fd);
	close(l);
	for (type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
		socketpair(AF_UNIX, type, 0, un);
		say("unix", shutdown(un[0], SHUT_WR));
		say("write", send(un[0], "x", 1, MSG_NOSIGNAL));
		close(un[0]);
		close(un[1]);
	}
	fd = open("/dev/null", O_RDWR);
	say("no socket", shutdown(fd, SHUT_WR));
	close(fd);
	say("closed", shutdown(fd, SHUT_WR));
}

int main(void)
{
	static const int families[] = { AF_INET, AF_INET6 };
	size_t i;

	signal(SIGPIPE, SIG_IGN);
	for (i = 0; i < 2; i++) {
		answered(families[i]);
		waits(families[i]);
		elsewhere(families[i]);
		full(families[i]);
		moves(families[i]);
		race(families[i]);
		early(families[i]);
	}
	return 0;
}
