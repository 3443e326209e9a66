/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other end of lklbench's connections, on the host's kernel, and the
 * messages between the two.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bench.h"

#define CHUNK	(128 * 1024)	/* of one send or receive */
#define LIMIT_S	60		/* of the whole program, by SIGALRM */

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP	262
#endif

/*
 * Page-aligned, like a program's own buffer: some CPUs copy far slower if
 * source and target addresses nearly match modulo a page.
 */
static char buf[CHUNK] __attribute__((aligned(4096)));

/**
 * struct hello - request of a client
 * @what: 's', 'r' or 'e'
 * @size: bytes of one call of the server
 * @warm_ms: warm-up time
 * @nagle: without TCP_NODELAY
 * @cc: congestion control of the server's end, or none for the default
 */
struct hello {
	uint32_t what, size, warm_ms, nagle;
	char cc[16];
};

/**
 * struct tally - data that arrived at a sink after the warm-up
 * @bytes: number of bytes
 * @seconds: duration
 */
struct tally {
	uint64_t bytes;
	double seconds;
};

/**
 * address - make a socket address from words of the command line
 * @ip: IPv4 or IPv6 address
 * @port: decimal
 * @ss: the result
 *
 * Return: its length
 */
static socklen_t address(const char *ip, const char *port, struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *sin = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, ip, &sin->sin_addr) == 1) {
		sin->sin_family = AF_INET;
		sin->sin_port = htons((uint16_t)atoi(port));
		return sizeof(*sin);
	}
	if (inet_pton(AF_INET6, ip, &sin6->sin6_addr) != 1)
		die("no address", 0);
	sin6->sin6_family = AF_INET6;
	sin6->sin6_port = htons((uint16_t)atoi(port));
	return sizeof(*sin6);
}

/**
 * sink - read to the end, and answer with the amount
 * @fd: accepted connection
 * @warm: seconds of warm-up, which do not count
 */
static void sink(int fd, double warm)
{
	double begin = now(), last = begin;
	uint64_t got = 0, early = 0;
	struct tally tally;
	ssize_t n;

	warm += begin;
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		got += (uint64_t)n;
		last = now();
		if (last <= warm) {
			early = got;
			begin = last;
		}
	}
	tally.bytes = got - early;
	tally.seconds = last - begin;
	if (write(fd, &tally, sizeof(tally)) != sizeof(tally))
		perror("lklbench: the sink's answer");
}

/**
 * source - write until the client signals the end
 * @fd: accepted connection
 * @size: of one write
 */
static void source(int fd, size_t size)
{
	size_t since = 0;
	char c;

	while (write(fd, buf, size) > 0) {
		since += size;
		if (since < 2 * CHUNK)
			continue;
		since = 0;
		if (!recv(fd, &c, 1, MSG_DONTWAIT))
			break;
	}
}

/**
 * attend - play the role that the client's first bytes request, until it closes
 * @fd: accepted connection
 */
static void attend(int fd)
{
	struct hello hello;
	int one = 1;
	ssize_t n;

	if (recv(fd, &hello, sizeof(hello), MSG_WAITALL) != sizeof(hello) || !hello.size || hello.size > sizeof(buf))
		return;
	hello.cc[sizeof(hello.cc) - 1] = 0;
	if (hello.cc[0] && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, hello.cc, (socklen_t)strlen(hello.cc)) < 0) {
		perror("lklbench: TCP_CONGESTION of the server's end");
		return;
	}
	if (!hello.nagle)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	switch (hello.what) {
	case 's':
		sink(fd, hello.warm_ms / 1e3);
		break;
	case 'r':
		source(fd, hello.size);
		break;
	case 'e':
		while ((n = read(fd, buf, 1)) == 1)
			if (write(fd, buf, 1) != 1)
				break;
		break;
	}
}

/**
 * serve - run the other end of all measurements, with a process for each
 * connection
 * @ip: address to listen on
 * @port: and port
 * @mptcp: accept MPTCP too
 * @cc: congestion control, or NULL. It applies from the first packet on,
 *	because a connection that ever used BBR stays paced.
 */
static void serve(const char *ip, const char *port, int mptcp, const char *cc)
{
	struct sockaddr_storage ss;
	socklen_t len = address(ip, port, &ss);
	int one = 1, l;

	signal(SIGPIPE, SIG_IGN);
	l = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, mptcp ? IPPROTO_MPTCP : 0);
	if (l < 0)
		die("socket", -errno);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (cc && setsockopt(l, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) < 0)
		die("TCP_CONGESTION", -errno);
	if (bind(l, (struct sockaddr *)&ss, len) < 0)
		die("bind", -errno);
	if (listen(l, 16) < 0)
		die("listen", -errno);
	serve_each(l, attend, LIMIT_S);
}

#endif
