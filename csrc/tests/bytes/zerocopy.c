// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that explicitly share pages with the stack. A program that gets "not
 * supported" falls back to copying. A program that gets no error would reuse
 * its buffer too early.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bytes.h"

#define OPT_ZEROCOPY		60	/* asm-generic/socket.h */
#define OPT_TCP_ZEROCOPY_RECEIVE 35	/* linux/tcp.h */
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY		0x4000000
#endif

/** say - print the result of a call */
static void say(const char *what, long ret)
{
	printf("%s: %s\n", what, ret < 0 ? strerrorname_np(errno) : "0");
}

/** asked - set SO_ZEROCOPY on a socket */
static void asked(const char *what, int fd)
{
	int one = 1;

	say(what, setsockopt(fd, SOL_SOCKET, OPT_ZEROCOPY, &one, sizeof(one)));
}

/** sent - send with MSG_ZEROCOPY; reuses the buffer at once */
static void sent(int fd, struct stream *s)
{
	static char buf[32 * KB];
	size_t done = 0;

	fill(buf, s->seed, s->pos, sizeof(buf));
	while (done < sizeof(buf)) {
		ssize_t n = send(fd, buf + done, sizeof(buf) - done,
				 MSG_ZEROCOPY | MSG_NOSIGNAL);

		if (n <= 0)
			die("MSG_ZEROCOPY", s->pos + done);
		done += (size_t)n;
	}
	memset(buf, 0, sizeof(buf));
}

/** completed - read the error queue, which would contain a completion */
static void completed(int fd)
{
	char ctl[128];
	struct msghdr mh = { .msg_control = ctl, .msg_controllen = sizeof(ctl) };

	say("error queue", recvmsg(fd, &mh, MSG_ERRQUEUE | MSG_DONTWAIT));
}

/** zerocopy - run all of these tests */
int zerocopy(void)
{
	struct stream s = { .seed = 3 };
	char zc[64] = { 0 };
	socklen_t len = sizeof(zc);
	int sv[2], u = socket(AF_INET, SOCK_DGRAM, 0), i;

	tcp_pair(sv);
	asked("SO_ZEROCOPY, TCP", sv[0]);
	asked("SO_ZEROCOPY, UDP", u);
	say("TCP_ZEROCOPY_RECEIVE",
	    getsockopt(sv[1], IPPROTO_TCP, OPT_TCP_ZEROCOPY_RECEIVE, zc, &len));
	s.fd = sv[1];
	for (i = 0; i < 64; i++) {
		sent(sv[0], &s);
		take("after MSG_ZEROCOPY", &s, 32 * KB);
	}
	printf("MSG_ZEROCOPY: %llu bytes right\n", (unsigned long long)s.pos);
	completed(sv[0]);
	return 0;
}
