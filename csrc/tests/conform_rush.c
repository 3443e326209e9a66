// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many connections in a short time, and again after a pause. A supervisor that
 * creates sockets in advance must provide the requested kind. It must report
 * each socket as closed when it is closed, and not before.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>

#include "conform.h"

#define CONNS	60
#define OPEN	8	/* at the same time */

/** quiet - whether there is neither data nor the end of file yet */
static bool quiet(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLRDHUP, 0 };

	return poll(&p, 1, 2) == 0;
}

/** ended - whether the stream ends within the limit */
static bool ended(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char b;

	return poll(&p, 1, LIMIT_MS) == 1 && read(fd, &b, 1) == 0;
}

/** passes - whether one byte arrives from @from at @to */
static bool passes(int from, int to, char b)
{
	struct pollfd p = { to, POLLIN, 0 };
	char got = 0;

	return write(from, &b, 1) == 1 && poll(&p, 1, LIMIT_MS) == 1 &&
	       read(to, &got, 1) == 1 && got == b;
}

/** finish - close the accepted end @a in one of several ways; check that @c notices */
static bool finish(int way, int a, int c)
{
	bool good = true;
	int copy;

	switch (way % 4) {
	case 0:
		close(a);
		break;
	case 1:			/* a copy keeps it open */
		copy = dup(a);
		close(a);
		good = quiet(c) && passes(copy, c, 'c');
		close(copy);
		break;
	case 2:			/* after shutdown() in both directions it is still open */
		shutdown(a, SHUT_RDWR);
		good = ended(c) && port_of(a) > 0;
		close(a);
		return good;
	case 3:			/* the other side closes first */
		shutdown(c, SHUT_WR);
		good = ended(a);
		close(a);
		break;
	}
	return ended(c) && good;
}

/** rush - CONNS connections, OPEN at a time */
static void rush(int family)
{
	int fd_flags = 0, fl_flags = 0, names = 0, bytes = 0, ends = 0, i, j, l, port;
	struct sockaddr_storage ss, peer;
	int a[OPEN], c[OPEN];
	socklen_t len;

	printf("# rush, family %d\n", family);
	l = listener(family, 0, &port);
	for (i = 0; i < CONNS; i += OPEN) {
		for (j = 0; j < OPEN; j++) {
			int n = i + j, flags = (n & 4 ? SOCK_NONBLOCK : 0) |
					       (n & 1 ? SOCK_CLOEXEC : 0);

			len = lo(&ss, family, port);
			c[j] = socket(family, SOCK_STREAM, 0);
			if (connect(c[j], (struct sockaddr *)&ss, len))
				say("connect", -1);
			len = sizeof(peer);
			a[j] = accept4(l, (struct sockaddr *)&peer, &len, flags);
			if (a[j] < 0)
				say("accept", -1);
			names += ntohs(((struct sockaddr_in *)&peer)->sin_port) ==
				 port_of(c[j]);
			fd_flags += fcntl(a[j], F_GETFD) == (n & 1 ? FD_CLOEXEC : 0);
			fl_flags += (fcntl(a[j], F_GETFL) & O_NONBLOCK) ==
				    (n & 4 ? O_NONBLOCK : 0);
		}
		for (j = 0; j < OPEN; j++)
			bytes += passes(c[j], a[j], 'x') && passes(a[j], c[j], 'y');
		for (j = 0; j < OPEN; j++) {
			ends += finish(i + j, a[j], c[j]);
			close(c[j]);
		}
	}
	close(l);
	printf("names %d, close-on-exec %d, non-blocking %d, bytes %d, ends %d\n", names,
	       fd_flags, fl_flags, bytes, ends);
	fflush(stdout);
}

int main(void)
{
	rush(AF_INET);
	rush(AF_INET);
	msleep(200);	/* sockets created in advance are gone by then */
	rush(AF_INET6);
	return 0;
}
