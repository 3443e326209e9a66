// SPDX-License-Identifier: GPL-2.0-only
/* Streams in which each byte is computed from the seed of the connection and its position. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bytes.h"

__thread uint64_t rnd_state;

/** die - end the program; print the position at which something was wrong */
void die(const char *what, uint64_t at)
{
	printf("%s: wrong at %llu: %s\n", what, (unsigned long long)at,
	       errno ? strerror(errno) : "a byte");
	fflush(stdout);
	_exit(1);
}

/** word - compute the eight bytes at 8 * @i of the stream @seed */
static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed << 40) + i;

	x = (x ^ x >> 32) * 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

/** fill - write @n bytes of the stream @seed, from @pos on */
void fill(char *buf, uint64_t seed, uint64_t pos, size_t n)
{
	while (n) {
		uint64_t w = word(seed, pos / 8);
		size_t off = pos % 8, k = 8 - off < n ? 8 - off : n;

		memcpy(buf, (char *)&w + off, k);
		buf += k;
		pos += k;
		n -= k;
	}
}

/** check - check that @buf contains what fill() would write */
void check(const char *what, const char *buf, uint64_t seed, uint64_t pos,
	   size_t n)
{
	char want[4 * KB];

	while (n) {
		size_t k = n < sizeof(want) ? n : sizeof(want), i;

		fill(want, seed, pos, k);
		errno = 0;
		for (i = 0; memcmp(buf, want, k) && i < k; i++)
			if (buf[i] != want[i])
				die(what, pos + i);
		buf += k;
		pos += k;
		n -= k;
	}
}

/** tcp_pair - make a connection over loopback, alternating IPv4 and IPv6 */
void tcp_pair(int sv[2])
{
	static _Atomic unsigned int turns;
	int family = turns++ % 2 ? AF_INET6 : AF_INET, l;
	struct sockaddr_in6 sa = { .sin6_family = (sa_family_t)family };
	socklen_t len = sizeof(sa);

	if (family == AF_INET)
		((struct sockaddr_in *)&sa)->sin_addr.s_addr =
			htonl(INADDR_LOOPBACK);
	else
		sa.sin6_addr = in6addr_loopback;
	l = socket(family, SOCK_STREAM, 0);
	sv[0] = socket(family, SOCK_STREAM, 0);
	if (l < 0 || sv[0] < 0 ||
	    bind(l, (struct sockaddr *)&sa,
		 family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa)) ||
	    listen(l, 1) || getsockname(l, (struct sockaddr *)&sa, &len) ||
	    connect(sv[0], (struct sockaddr *)&sa, len))
		die("a connection", 0);
	sv[1] = accept(l, NULL, NULL);
	if (sv[1] < 0)
		die("accept", 0);
	close(l);
}

/** readable - wait until there is something to read */
void readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	if (poll(&p, 1, -1) < 0 && errno != EINTR)
		die("poll", 0);
}

/** take - read and check the next @n bytes */
void take(const char *what, struct stream *s, size_t n)
{
	char buf[128 * KB];

	while (n) {
		ssize_t got = read(s->fd, buf, n < sizeof(buf) ? n : sizeof(buf));

		if (got < 0 && errno == EAGAIN)
			readable(s->fd);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			die(what, s->pos);
		check(what, buf, s->seed, s->pos, (size_t)got);
		s->pos += (size_t)got;
		n -= (size_t)got;
	}
}

/** put - send all bytes; returns false if the other end is gone */
bool put(int fd, const char *buf, size_t n)
{
	while (n) {
		ssize_t sent = send(fd, buf, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		buf += sent;
		n -= (size_t)sent;
	}
	return true;
}

/** sender - a thread that writes a stream until its peer is gone */
void *sender(void *arg)
{
	char buf[64 * KB];
	struct stream s = *(struct stream *)arg;

	free(arg);
	do {
		fill(buf, s.seed, s.pos, sizeof(buf));
		s.pos += sizeof(buf);
	} while (put(s.fd, buf, sizeof(buf)));
	close(s.fd);
	return NULL;
}
