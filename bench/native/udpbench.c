/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * udpbench: datagrams in one direction, at a rate or at full speed. All calls
 * go to the kernel of the process, so the program measures the host or an
 * engine.
 *
 *	udpbench serve ADDR PORT
 *	udpbench send|recv ADDR PORT BYTES RATE MS
 *
 * ADDR is an IPv4 address. *
 * RATE is in datagrams per second, 0 is full speed. The client prints the rate
 * at the receiver and the share of lost datagrams. A TCP connection, over which
 * both ends exchange a struct order and the results, is the control connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>

#include "bench.h"

#define LIMIT_S		60	/* of the whole program, by SIGALRM */
#define TICK_S		1e-3	/* interval of the bursts at a rate, as iperf3 has it */
#define IDLE_MS		100	/* a receiver stops after this time without datagrams */

static char buf[65536];

/**
 * struct order - what the client wants from the server
 * @send: whether the client sends
 * @size: bytes of a datagram
 * @rate: datagrams per second, 0 is full speed
 * @ms: duration
 */
struct order {
	uint32_t send, size, rate, ms;
};

/**
 * struct count - datagrams of one end
 * @n: number
 * @seconds: time from the first to the last one
 */
struct count {
	uint64_t n;
	double seconds;
};

/**
 * blast - send datagrams on a connected socket
 * @fd: the socket
 * @o: size, rate and duration
 */
static struct count blast(int fd, const struct order *o)
{
	double begin = now(), t = begin, end = begin + o->ms / 1e3;
	struct count c = { 0, 0 };

	while (t < end) {
		uint64_t due = o->rate ? (uint64_t)((t + TICK_S - begin) * o->rate) : c.n + 64;

		while (c.n < due) {
			if (send(fd, buf, o->size, 0) < 0 && errno != ENOBUFS)
				die("send", -errno);
			c.n++;
		}
		t = now();
		if (o->rate && (double)c.n / o->rate > t - begin) {
			double wait = begin + (double)c.n / o->rate - t;
			struct timespec ts = { 0, (long)(wait * 1e9) };

			nanosleep(&ts, NULL);
			t = now();
		}
	}
	c.seconds = t - begin;
	return c;
}

/**
 * gather - receive datagrams until none arrives any more
 * @fd: the socket
 * @o: their size
 */
static struct count gather(int fd, const struct order *o)
{
	struct timeval idle = { 0, IDLE_MS * 1000 };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	double begin = 0, last = 0;
	struct count c = { 0, 0 };
	ssize_t n;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof(idle)))
		die("SO_RCVTIMEO", -errno);
	poll(&p, 1, 5000);
	begin = now();
	while ((n = recv(fd, buf, sizeof(buf), 0)) >= 0) {
		if (n != (ssize_t)o->size)
			die("a datagram of another size", 0);
		/* The clock is as slow as a small part of a receive call. */
		if (!(c.n++ & 63))
			last = now();
	}
	if (errno != EAGAIN)
		die("recv", -errno);
	c.seconds = last - begin;
	return c;
}

/** address - parse an address and a port */
static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	if (inet_pton(AF_INET, ip, &sin.sin_addr) != 1)
		die("no IPv4 address", 0);
	return sin;
}

/** get - read a message of the control connection */
static void get(int fd, void *msg, size_t len)
{
	if (recv(fd, msg, len, MSG_WAITALL) != (ssize_t)len)
		die("control connection", -errno);
}

/** put - write a message to the control connection */
static void put(int fd, const void *msg, size_t len)
{
	if (send(fd, msg, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("control connection", -errno);
}

/** attend_udp - serve one client */
static void attend_udp(int fd)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	struct order o;
	struct count c;
	int udp;

	get(fd, &o, sizeof(o));
	if (getsockname(fd, (struct sockaddr *)&sin, &len))
		die("getsockname", -errno);
	sin.sin_port = 0;
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (udp < 0 || bind(udp, (struct sockaddr *)&sin, len) ||
	    getsockname(udp, (struct sockaddr *)&sin, &len))
		die("UDP socket", -errno);
	put(fd, &sin.sin_port, sizeof(sin.sin_port));
	if (o.send) {
		c = gather(udp, &o);
	} else {
		if (recvfrom(udp, buf, sizeof(buf), 0, (struct sockaddr *)&sin, &len) < 0 ||
		    connect(udp, (struct sockaddr *)&sin, len))
			die("first datagram", -errno);
		c = blast(udp, &o);
	}
	put(fd, &c, sizeof(c));
}

/** serve_udp - serve clients for ever */
static void serve_udp(const char *ip, const char *port)
{
	struct sockaddr_in sin = address(ip, port);
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (l < 0 || bind(l, (struct sockaddr *)&sin, sizeof(sin)) || listen(l, 16))
		die("listen", -errno);
	serve_each(l, attend_udp, LIMIT_S);
}

int main(int argc, char **argv)
{
	struct count sent, got;
	struct sockaddr_in sin;
	struct order o;
	double cpu;
	int fd, udp;

	if (argc == 4 && !strcmp(argv[1], "serve"))
		serve_udp(argv[2], argv[3]);
	if (argc != 7 || (strcmp(argv[1], "send") && strcmp(argv[1], "recv")))
		die("usage: udpbench serve ADDR PORT | send|recv ADDR PORT BYTES RATE MS", 0);
	o = (struct order){ argv[1][0] == 's', (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]),
			    (uint32_t)atoi(argv[6]) };
	if (!o.size || o.size > sizeof(buf) || !o.ms)
		die("BYTES or MS is out of range", 0);
	alarm(LIMIT_S);
	sin = address(argv[2], argv[3]);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sin, sizeof(sin)))
		die("connect", -errno);
	put(fd, &o, sizeof(o));
	get(fd, &sin.sin_port, sizeof(sin.sin_port));
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (udp < 0 || connect(udp, (struct sockaddr *)&sin, sizeof(sin)))
		die("UDP socket", -errno);
	cpu = cpu_seconds();
	if (o.send) {
		sent = blast(udp, &o);
		get(fd, &got, sizeof(got));
	} else {
		put(udp, buf, 1);
		got = gather(udp, &o);
		get(fd, &sent, sizeof(sent));
	}
	if (!got.n || !sent.n || got.seconds <= 0)
		die("no datagram arrived", 0);
	printf("%.0f 1/s\n%.4f %%-lost\n", (double)got.n / got.seconds,
	       got.n < sent.n ? 100 * (double)(sent.n - got.n) / (double)sent.n : 0);
	report_cpu(cpu, 1e6 / (double)got.n, "cpu-µs/op");
	return 0;
}
