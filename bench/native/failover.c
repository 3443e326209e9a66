/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * failover: measures when the bytes of an MPTCP connection arrive while another
 * program cuts one of its paths.
 *
 *	failover serve ADDR PORT
 *	failover send|recv ADDR PORT MILLISECONDS
 *		prints "go", and after that time a line: CLOCK_MONOTONIC in seconds at
 *		the first byte that arrived, then the bytes that arrived in each
 *		hundredth of a second since, counted by the receiver
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bench.h"

#define LIMIT_S	40		/* of the whole program, by SIGALRM */
#define TICKS	100		/* per second */
#define MOST	(LIMIT_S * TICKS)

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP	262
#endif

static char buf[128 * 1024];

/**
 * struct hello - request of a client
 * @what: 's': to send, 'r': to receive
 * @ms: duration
 */
struct hello {
	uint32_t what, ms;
};

/**
 * struct course - received data
 * @begin: start time
 * @bytes: in each tick since then
 */
struct course {
	double begin;
	uint64_t bytes[MOST];
};

static struct course course;

/**
 * endpoint - make an MPTCP socket and its address
 * @ip: IPv4 address
 * @port: decimal
 * @sin: the address
 */
static int endpoint(const char *ip, const char *port, struct sockaddr_in *sin)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);

	if (fd < 0)
		die("socket", -errno);
	*sin = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	if (inet_pton(AF_INET, ip, &sin->sin_addr) != 1)
		die("no IPv4 address", 0);
	return fd;
}

/**
 * take - read for a time, or to the end, and count
 * @fd: connection
 * @ms: time after the first byte; 0: to the end
 */
static void take(int fd, uint32_t ms)
{
	double t = 0;
	ssize_t n;

	while (!ms || t * 1e3 < ms) {
		n = read(fd, buf, sizeof(buf));
		if (n <= 0)
			break;
		if (!course.begin)
			course.begin = now();
		t = now() - course.begin;
		if (t * TICKS < MOST)
			course.bytes[(int)(t * TICKS)] += (uint64_t)n;
	}
}

/**
 * give - write for a time, or until the peer closes
 * @fd: connection
 * @ms: duration; 0: until the peer closes
 */
static void give(int fd, uint32_t ms)
{
	double end = now() + ms / 1e3;
	char c;

	while (!ms || now() < end) {
		if (write(fd, buf, sizeof(buf)) < 0)
			break;
		if (!ms && !recv(fd, &c, 1, MSG_DONTWAIT))
			break;	/* the client has enough */
	}
}

/**
 * attend - serve the client's request
 * @fd: accepted connection
 */
static void attend(int fd)
{
	struct hello hello;

	if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello))
		return;
	if (hello.what == 'r') {
		give(fd, 0);
		return;
	}
	take(fd, 0);
	if (send(fd, &course, sizeof(course), MSG_NOSIGNAL) != sizeof(course))
		perror("failover: the answer");
}

/**
 * serve - run the other end, with a process for each connection
 * @ip: address to listen on
 * @port: and port
 */
static void serve(const char *ip, const char *port)
{
	struct sockaddr_in sin;
	int one = 1, l;

	signal(SIGPIPE, SIG_IGN);
	l = endpoint(ip, port, &sin);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(l, 16) < 0)
		die("listen", -errno);
	serve_each(l, attend, LIMIT_S);
}

/**
 * run - run the client
 * @hello: its request
 * @ip: the server's address
 * @port: and port
 */
static void run(struct hello hello, const char *ip, const char *port)
{
	struct sockaddr_in sin;
	int fd = endpoint(ip, port, &sin), i, last = 0;

	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
		die("connect", -errno);
	if (write(fd, &hello, sizeof(hello)) != sizeof(hello))
		die("first bytes", -errno);
	printf("go\n");
	fflush(stdout);
	if (hello.what == 'r') {
		take(fd, hello.ms);
		shutdown(fd, SHUT_WR);
		while (read(fd, buf, sizeof(buf)) > 0)
			;
	} else {
		give(fd, hello.ms);
		shutdown(fd, SHUT_WR);
		if (recv(fd, &course, sizeof(course), MSG_WAITALL) != sizeof(course))
			die("the other end's answer", -errno);
	}
	for (i = 0; i < MOST; i++)
		if (course.bytes[i])
			last = i;
	printf("%.6f", course.begin);
	for (i = 0; i <= last; i++)
		printf(" %llu", (unsigned long long)course.bytes[i]);
	printf("\n");
}

/**
 * main - see the top
 */
int main(int argc, char **argv)
{
	struct hello hello = { 0, 0 };

	if (argc == 4 && !strcmp(argv[1], "serve"))
		serve(argv[2], argv[3]);
	if (argc != 5 || (strcmp(argv[1], "send") && strcmp(argv[1], "recv")))
		goto usage;
	hello.what = argv[1][0] == 's' ? 's' : 'r';
	hello.ms = (uint32_t)atoi(argv[4]);
	if (!hello.ms || hello.ms > (LIMIT_S - 10) * 1000)
		goto usage;
	alarm(LIMIT_S);
	run(hello, argv[2], argv[3]);
	return 0;
usage:
	fputs("usage: failover serve ADDR PORT | failover send|recv ADDR PORT MILLISECONDS (to 30000)\n", stderr);
	return 2;
}
