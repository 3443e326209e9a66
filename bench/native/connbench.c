/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * connbench: many connections at once, of which some are busy. The server is an
 * epoll loop that gives every byte back; the client keeps one byte on its way on
 * each busy connection.
 *
 *	connbench serve ADDR PORT
 *	connbench load ADDR PORT IDLE BUSY MILLISECONDS
 *		prints round trips/s, then their median and 99th percentile in µs
 *	connbench hold ADDR PORT IDLE
 *		prints "ready" when all are accepted, and holds them until the
 *		end of its standard input
 *
 * Idle connections are made first and stay silent but for one byte each, which
 * says that the server has accepted them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS		256	/* fetched at once */
#define LIMIT_S		120	/* of a client, by SIGALRM */
#define SAMPLES_MAX	(1 << 22)

/** die - end with a line that says what failed */
static void __attribute__((noreturn)) die(const char *what)
{
	fprintf(stderr, "connbench: %s: %s\n", what, strerror(errno));
	exit(1);
}

/** now_ns - CLOCK_MONOTONIC */
static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/** address - a socket address from words of the command line */
static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};

	errno = EINVAL;
	if (inet_pton(AF_INET, ip, &sin.sin_addr) != 1)
		die(ip);
	return sin;
}

/** all_files - as many descriptors as we may have */
static void all_files(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim))
		die("RLIMIT_NOFILE");
	lim.rlim_cur = lim.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &lim))
		die("RLIMIT_NOFILE");
}

/** watch - have @ep report what @fd has to read, with @data */
static void watch(int ep, int fd, uint64_t data)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = data };

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
		die("epoll_ctl");
}

/** accept_all - take what waits at the listener */
static void accept_all(int ep, int l)
{
	int one = 1, fd;

	while ((fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		watch(ep, fd, (uint64_t)fd);
	}
	if (errno != EAGAIN && errno != ECONNABORTED)
		die("accept");
}

/** serve - the echo, for ever */
static void __attribute__((noreturn)) serve(const struct sockaddr_in *sin)
{
	struct epoll_event ev[EVENTS];
	int l, ep, one = 1, i, n;

	signal(SIGPIPE, SIG_IGN);
	all_files();
	ep = epoll_create1(EPOLL_CLOEXEC);
	l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (ep < 0 || l < 0)
		die("socket");
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (const struct sockaddr *)sin, sizeof(*sin)))
		die("bind");
	if (listen(l, 1024))
		die("listen");
	watch(ep, l, (uint64_t)l);
	for (;;) {
		n = epoll_wait(ep, ev, EVENTS, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait");
		for (i = 0; i < n; i++) {
			int fd = (int)ev[i].data.u64;
			char buf[4096];
			ssize_t got;

			if (fd == l) {
				accept_all(ep, l);
				continue;
			}
			got = read(fd, buf, sizeof(buf));
			if (got > 0 && write(fd, buf, (size_t)got) == got)
				continue;
			if (got < 0 && errno == EAGAIN)
				continue;
			close(fd);
		}
	}
}

/** dial - a connection, up to the first byte's way back */
static int dial(const struct sockaddr_in *sin)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	char byte = 0;

	if (fd < 0)
		die("socket");
	if (connect(fd, (const struct sockaddr *)sin, sizeof(*sin)))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
		die("first byte");
	return fd;
}

/** by_value - order of samples */
static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/** load - @busy connections, a byte on its way on each */
static void load(const struct sockaddr_in *sin, long busy, long ms)
{
	uint32_t *took = malloc(SAMPLES_MAX * sizeof(*took));
	uint64_t *sent = calloc((size_t)busy, sizeof(*sent));
	int *fds = calloc((size_t)busy, sizeof(*fds));
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev[EVENTS];
	uint64_t begin, end, now;
	size_t trips = 0, n;
	long i;

	if (!took || !sent || !fds || ep < 0)
		die("memory");
	for (i = 0; i < busy; i++) {
		fds[i] = dial(sin);
		watch(ep, fds[i], (uint64_t)i);
	}
	begin = now_ns();
	end = begin + (uint64_t)ms * 1000000;
	for (i = 0; i < busy; i++) {
		sent[i] = now_ns();
		if (write(fds[i], "", 1) != 1)
			die("write");
	}
	do {
		int got = epoll_wait(ep, ev, EVENTS, 5000), k;

		if (!got)
			errno = ETIMEDOUT;
		if (got <= 0)
			die("waiting for bytes");
		for (k = 0; k < got; k++) {
			uint64_t id = ev[k].data.u64;
			char byte;

			if (read(fds[id], &byte, 1) != 1)
				die("read");
			now = now_ns();
			if (trips < SAMPLES_MAX)
				took[trips] = (uint32_t)(now - sent[id]);
			trips++;
			sent[id] = now;
			if (write(fds[id], &byte, 1) != 1)
				die("write");
		}
		now = now_ns();
	} while (now < end);
	n = trips < SAMPLES_MAX ? trips : SAMPLES_MAX;
	qsort(took, n, sizeof(*took), by_value);
	printf("%.0f %.1f %.1f\n", (double)trips * 1e9 / (double)(now - begin),
	       took[n / 2] / 1e3, took[n * 99 / 100] / 1e3);
}

/** main - see the top */
int main(int argc, char **argv)
{
	struct sockaddr_in sin;
	long i, idle;

	if (argc < 4)
		goto usage;
	sin = address(argv[2], argv[3]);
	if (!strcmp(argv[1], "serve") && argc == 4)
		serve(&sin);
	if (!(!strcmp(argv[1], "load") && argc == 7) &&
	    !(!strcmp(argv[1], "hold") && argc == 5))
		goto usage;
	all_files();
	alarm(LIMIT_S);
	idle = atol(argv[4]);
	for (i = 0; i < idle; i++)
		dial(&sin);
	if (argc == 7 && atol(argv[5]) > 0) {
		load(&sin, atol(argv[5]), atol(argv[6]));
		return 0;
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
usage:
	fputs("usage: connbench serve ADDR PORT | load ADDR PORT IDLE BUSY MS | hold ADDR PORT IDLE\n",
	      stderr);
	return 2;
}
