/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions shared by the conformance programs, which print the results of socket calls. */
#ifndef CONFORM_H
#define CONFORM_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 3000

/** say - print "name: value", or the error */
static inline long say(const char *name, long ret)
{
	if (ret < 0)
		printf("%s: %s\n", name, strerrorname_np(errno));
	else
		printf("%s: %ld\n", name, ret);
	fflush(stdout);
	return ret;
}

/** msleep - let the other side act */
static inline void msleep(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

/** lo - make the loopback address of a family */
static inline socklen_t lo(struct sockaddr_storage *ss, int family, int port)
{
	memset(ss, 0, sizeof(*ss));
	if (family == AF_INET) {
		struct sockaddr_in *in = (void *)ss;

		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(*in);
	}
	struct sockaddr_in6 *in6 = (void *)ss;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	in6->sin6_addr = in6addr_loopback;
	return sizeof(*in6);
}

/** port_of - return the local port of a socket */
static inline int port_of(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return -1;
	return ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

/** listener - make a listener on a free port */
static inline int listener(int family, int flags, int *port)
{
	struct sockaddr_storage ss;
	socklen_t len = lo(&ss, family, 0);
	int fd = socket(family, SOCK_STREAM | flags, 0);

	if (bind(fd, (struct sockaddr *)&ss, len) || listen(fd, 8))
		say("listener", -1);
	*port = port_of(fd);
	return fd;
}

/** tcp_pair - make a connected pair */
static inline void tcp_pair(int family, int sv[2])
{
	struct sockaddr_storage ss;
	socklen_t len;
	int port, l = listener(family, 0, &port);

	len = lo(&ss, family, port);
	sv[0] = socket(family, SOCK_STREAM, 0);
	if (connect(sv[0], (struct sockaddr *)&ss, len))
		say("pair connect", -1);
	sv[1] = accept(l, NULL, NULL);
	close(l);
}

/**
 * events - print poll bits as text
 * @need: wait for one of these, for @ms at most, because effects of the other
 *	side may be delayed
 * @want: print only these
 */
static inline void events(const char *name, int fd, short need, short want, int ms)
{
	struct pollfd p = { fd, need, 0 };
	int n = poll(&p, 1, ms);

	p.events = want;
	if (n > 0)
		n = poll(&p, 1, 0);

	printf("%s: poll %d%s%s%s%s%s\n", name, n, p.revents & POLLIN ? " IN" : "",
	       p.revents & POLLOUT ? " OUT" : "", p.revents & POLLRDHUP ? " RDHUP" : "",
	       p.revents & POLLHUP ? " HUP" : "", p.revents & POLLERR ? " ERR" : "");
	fflush(stdout);
}

/** wait_for - wait for poll bits of @fd without printing them */
static inline void wait_for(int fd, short want)
{
	struct pollfd p = { fd, want, 0 };

	poll(&p, 1, LIMIT_MS);
}

/** get_int - print an option of type int */
static inline void get_int(const char *name, int fd, int level, int opt)
{
	int v = -1;
	socklen_t len = sizeof(v);

	if (getsockopt(fd, level, opt, &v, &len))
		say(name, -1);
	else
		printf("%s: %d (%u)\n", name, v, len);
}

#endif
