/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The host's kernel as the peer of a stack: bulk data in which every byte is
 * known, and echoed datagrams, over IPv4 and IPv6.
 */
#ifndef TESTS_PEER_H
#define TESTS_PEER_H

#include "tap.h"

#define PORT	5202

/* Its address as seen by the stack; either family */
static const char *peer_ip;

static inline socklen_t peer_addr(struct sockaddr_in6 *to)
{
	struct sockaddr_in *sa = (void *)to;

	memset(to, 0, sizeof(*to));
	if (!strchr(peer_ip, ':')) {
		*sa = addr4(peer_ip, PORT);
		return sizeof(*sa);
	}
	to->sin6_family = AF_INET6;
	to->sin6_port = htons(PORT);
	inet_pton(AF_INET6, peer_ip, &to->sin6_addr);
	return sizeof(*to);
}

static inline long peer_connect(void)
{
	struct sockaddr_in6 to;
	socklen_t len = peer_addr(&to);
	long s = L3(socket, to.sin6_family, SOCK_STREAM, 0), ret;

	ret = s < 0 ? s : L3(connect, s, &to, len);
	if (ret && s >= 0)
		L1(close, s);
	return ret ? ret : s;
}

/* 1: the bytes are those of the stream from @at on */
static inline int check(const unsigned char *p, long n, unsigned long at)
{
	long i;

	for (i = 0; i < n; i++)
		if (p[i] != (unsigned char)((at + i) * 2654435761u >> 13))
			return 0;
	return 1;
}

static inline void make(unsigned char *p, long n, unsigned long at)
{
	long i;

	for (i = 0; i < n; i++)
		p[i] = (at + i) * 2654435761u >> 13;
}

/*
 * The host's end. First byte: 's': checks received data and answers with the
 * count; 'r': 4 bytes with the number of megabytes to send; 'u' in UDP: echo.
 */
static inline void host_tcp(int s)
{
	static unsigned char buf[65536];
	unsigned int mb;
	uint64_t at;
	ssize_t n, k;
	char mode;
	int c;

	for (;;) {
		c = accept(s, NULL, NULL);
		if (c < 0 || read(c, &mode, 1) != 1)
			_exit(0);
		if (mode == 's') {
			for (at = 0; (n = read(c, buf, sizeof(buf))) > 0; at += n)
				if (!check(buf, n, at))
					break;
			if (write(c, &at, sizeof(at)) < 0)
				perror("write");
		} else if (read(c, &mb, 4) == 4) {
			for (at = 0; at < (uint64_t)mb << 20; at += n) {
				make(buf, sizeof(buf), at);
				for (n = 0; n < (ssize_t)sizeof(buf); n += k) {
					k = write(c, buf + n, sizeof(buf) - n);
					if (k <= 0)
						break;
				}
				if (n < (ssize_t)sizeof(buf))
					break;
			}
		}
		close(c);
	}
}

static inline void host_udp(int u)
{
	static unsigned char buf[65536];
	struct sockaddr_in6 sa;
	socklen_t len;
	ssize_t n;

	for (;;) {
		len = sizeof(sa);
		n = recvfrom(u, buf, sizeof(buf), 0, (struct sockaddr *)&sa, &len);
		if (n < 0)
			_exit(0);
		sendto(u, buf, n, 0, (struct sockaddr *)&sa, len);
	}
}

static inline void host_server(pid_t *pids)
{
	struct sockaddr_in6 sa = {
		.sin6_family = AF_INET6, .sin6_port = htons(PORT),
	};
	int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	int u = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s, (struct sockaddr *)&sa, sizeof(sa)) || listen(s, 5) ||
	    bind(u, (struct sockaddr *)&sa, sizeof(sa))) {
		printf("Bail out! host sockets\n");
		exit(2);
	}
	pids[0] = fork_tied();
	if (!pids[0])
		host_tcp(s);
	pids[1] = fork_tied();
	if (!pids[1])
		host_udp(u);
	close(s);
	close(u);
}

/* Number of correct bytes of @mb megabytes sent to the host */
/* @size: of a write, at most 1 MiB */
static inline uint64_t send_by(unsigned int mb, size_t size)
{
	static unsigned char buf[1 << 20];
	long c = peer_connect(), n, k;
	uint64_t at, got = 0;

	if (c < 0)
		return 0;
	L3(write, c, "s", 1);
	for (at = 0; at < (uint64_t)mb << 20; at += size) {
		make(buf, size, at);
		for (n = 0; n < (long)size; n += k) {
			k = L3(write, c, buf + n, size - n);
			if (k <= 0)
				break;
		}
	}
	L2(shutdown, c, SHUT_WR);
	L3(read, c, &got, 8);
	L1(close, c);
	return got >> 20;
}

static inline uint64_t send_mb(unsigned int mb)
{
	return send_by(mb, 65536);
}

static inline uint64_t recv_mb(unsigned int mb)
{
	static unsigned char buf[100000];
	struct timeval tv = { 10, 0 };
	long c = peer_connect(), n;
	uint64_t at = 0;

	if (c < 0)
		return 0;
	L5(setsockopt, c, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	L3(write, c, "r", 1);
	L3(write, c, &mb, 4);
	while ((n = L3(read, c, buf, sizeof(buf))) > 0) {
		if (!check(buf, n, at))
			break;
		at += n;
	}
	L1(close, c);
	return at >> 20;
}

/* Sends a datagram of that size and receives the echo */
static inline int echo(int size)
{
	static unsigned char buf[65536], back[65536];
	struct sockaddr_in6 to;
	socklen_t len = peer_addr(&to);
	struct timeval tv = { 3, 0 };
	long s = L3(socket, to.sin6_family, SOCK_DGRAM, 0), n;

	make(buf, size, size);
	L5(setsockopt, s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	n = L6(sendto, s, buf, size, 0, &to, len);
	if (n == size)
		n = L3(read, s, back, sizeof(back));
	L1(close, s);
	return n == size && !memcmp(buf, back, size);
}

static inline int carrier(void)
{
	char buf[16];

	lkl_mount_fs("sysfs");
	if (lread_file("/sysfs/class/net/eth0/carrier", buf, sizeof(buf)) < 0)
		return -1;
	return atoi(buf);
}


#endif
