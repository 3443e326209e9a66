// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams in which each byte depends on its position, and calls that continue
 * after a signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soak.h"

#define PIECE	65536
#define SEARCH	2000000		/* maximum length of a stream in bytes */

__thread uint64_t rnd_state;

/** step - record progress of this process */
void step(void)
{
	if (place >= 0)
		shared->place[place].steps++;
}

/** wrong - print and count an error, which makes the test fail */
void wrong(const char *fmt, ...)
{
	char text[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(text) - 2)
		n = (int)sizeof(text) - 2;
	text[n++] = '\n';
	shared->wrong++;
	if (write(STDOUT_FILENO, text, (size_t)n) < 0)
		shared->wrong++;
}

/** word - compute the eight bytes at position 8 * @i of the stream @seed */
static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + i) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9ull;
}

/** bytes_make - write @len bytes of the stream @seed from @at on */
void bytes_make(unsigned char *buf, size_t len, uint64_t seed, uint64_t at)
{
	size_t i;

	for (i = 0; i < len; i++, at++)
		buf[i] = (unsigned char)(word(seed, at >> 3) >> (at & 7) * 8);
}

/** found - return the position of the eight bytes at @p in the stream @seed, -1 if not found */
static int64_t found(const unsigned char *p, uint64_t seed)
{
	unsigned char words[16];
	uint64_t at;

	for (at = 0; at < SEARCH; at++) {
		bytes_make(words, 8, seed, at);
		if (!memcmp(words, p, 8))
			return (int64_t)at;
	}
	return -1;
}

/** bytes_check - compare @buf with the stream; -1 if a byte is wrong */
int bytes_check(const unsigned char *buf, size_t len, uint64_t seed,
		uint64_t at)
{
	static unsigned char want[PIECE];
	char text[40] = "";
	size_t i, k;

	bytes_make(want, len, seed, at);
	if (!memcmp(buf, want, len))
		return 0;
	for (i = 0; buf[i] == want[i]; i++)
		;
	for (k = 0; k < 16 && i + k < len; k++)
		sprintf(text + 2 * k, "%02x", buf[i + k]);
	wrong("byte %llu (%zu of %zu that came) of the stream %#llx: %s, which is at %lld of it, at %lld of the other way's",
	      (unsigned long long)(at + i), i, len, (unsigned long long)seed,
	      text, k < 8 ? -1ll : (long long)found(buf + i, seed),
	      k < 8 ? -1ll : (long long)found(buf + i, ~seed));
	return -1;
}

/** again - whether a call was interrupted, and must be repeated */
bool again(void)
{
	if (errno != EINTR)
		return false;
	shared->interrupted++;
	return true;
}

/** send_stream - send a stream; 0, or -1 with errno */
int send_stream(int fd, uint64_t seed, uint64_t len)
{
	static unsigned char buf[PIECE];
	uint64_t at = 0;

	while (at < len) {
		size_t n = len - at < PIECE ? (size_t)(len - at) : PIECE;
		size_t done = 0;

		bytes_make(buf, n, seed, at);
		while (done < n) {
			ssize_t ret = send(fd, buf + done, n - done,
					   MSG_NOSIGNAL);

			if (ret < 0 && again())
				continue;
			if (ret < 0)
				return -1;
			done += (size_t)ret;
			step();
		}
		at += n;
		shared->bytes += n;
	}
	return 0;
}

/**
 * recv_stream - receive and check
 *
 * Returns the number of bytes received before the end, at most @len, or -1 with
 * errno. errno is EPROTO for a wrong byte.
 */
int64_t recv_stream(int fd, uint64_t seed, uint64_t len)
{
	static unsigned char buf[PIECE];
	uint64_t at = 0;

	while (at < len) {
		ssize_t n = recv(fd, buf, len - at < PIECE ? len - at : PIECE, 0);

		if (n < 0 && again())
			continue;
		if (n < 0)
			return -1;
		if (!n)
			break;
		step();
		if (bytes_check(buf, (size_t)n, seed, at)) {
			errno = EPROTO;
			return -1;
		}
		at += (uint64_t)n;
	}
	return (int64_t)at;
}

/** recv_all - receive exactly @len bytes; returns 1, 0 at the end, or -1 with errno */
int recv_all(int fd, void *buf, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = recv(fd, (char *)buf + at, len - at, 0);

		if (n < 0 && again())
			continue;
		if (n <= 0)
			return (int)n;
		at += (size_t)n;
		step();
	}
	return 1;
}

/** recv_end - expect the end of the stream; 0, or -1 (errno 0 if a byte arrived) */
int recv_end(int fd)
{
	char byte;
	ssize_t n;

	do {
		n = recv(fd, &byte, 1, 0);
	} while (n < 0 && again());
	if (n > 0)
		errno = 0;
	return n ? -1 : 0;
}

/** reset_on_close - set SO_LINGER to 0 */
void reset_on_close(int fd)
{
	struct linger l = { .l_onoff = 1 };

	AGAIN(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
}

/** dial - connect, despite signals; returns a descriptor, or -1 with errno */
int dial(const struct sockaddr_in6 *to)
{
	socklen_t len = to->sin6_family == AF_INET ?
			sizeof(struct sockaddr_in) : sizeof(*to);
	int fd = AGAIN(socket(to->sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	int ret;

	if (fd < 0)
		return -1;
	do {
		ret = connect(fd, (const struct sockaddr *)to, len);
	} while (ret && (again() || errno == EALREADY));
	if (!ret || errno == EISCONN)
		return fd;
	ret = errno;
	close(fd);
	errno = ret;
	return -1;
}
