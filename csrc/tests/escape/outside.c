// SPDX-License-Identifier: GPL-2.0-only
/*
 * The accomplice: a process of the target's user on the host, not in a run.
 *
 * It has a connection to the test's listener, which must stay silent, and
 * memory that must stay as it is. On a unix socket it hands out descriptors of
 * the host and accepts one from the run. It prints one line with its pid,
 * addresses and descriptors, and serves until its standard input ends. It then
 * prints whether its memory is intact.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"

static char cell[32] = "intact";
static int connections;
static char text[] = "lklrun-escape !\n";

#ifdef __x86_64__
void stub(void);
__asm__(".pushsection .text\n.globl stub\nstub: syscall\nint3\n.popsection");
#else
static void stub(void) { }
#endif

/** connected - make a socket that is connected to the test's */
static int connected(int family, int type)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	uint16_t port = htons((uint16_t)number(type == SOCK_STREAM ? "TCP" : "UDP"));
	int fd = socket(family, type | SOCK_CLOEXEC, 0);
	int ret;

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in.sin_port = in6.sin6_port = port;
	ret = family == AF_INET ?
	      connect(fd, (struct sockaddr *)&in, sizeof(in)) :
	      connect(fd, (struct sockaddr *)&in6, sizeof(in6));
	connections += type == SOCK_STREAM;
	return ret ? -1 : fd;
}

/** wanted - return the descriptor that a letter stands for */
static int wanted(char letter)
{
	switch (letter) {
	case 'i':
	case 'f':
		return connected(AF_INET, SOCK_STREAM);
	case 'u':
		return connected(AF_INET6, SOCK_DGRAM);
	case 'n':
		return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	case 'v':
		return socket(AF_VSOCK, SOCK_STREAM, 0);
	case 'p':
		return socket(AF_PACKET, SOCK_RAW, htons(3));
	case 'x':
		return socket(AF_UNIX, SOCK_DGRAM, 0);
	case 's':
		return open("/proc/self/ns/net", O_RDONLY);
	}
	return -1;
}

/** give - send a descriptor, or "-" when there is none; false: the client has left */
static bool give(int conn, int fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u = { .h = { .cmsg_len = CMSG_LEN(sizeof(int)),
		       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { fd < 0 ? "-" : "+", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = &u,
			      .msg_controllen = sizeof(u.room) };

	memcpy(CMSG_DATA(&u.h), &fd, sizeof(fd));
	if (fd < 0) {
		msg.msg_control = NULL;
		msg.msg_controllen = 0;
	}
	return sendmsg(conn, &msg, MSG_NOSIGNAL) >= 0;
}

/** take - receive a descriptor and print its family */
static void take(int conn)
{
	char room[CMSG_SPACE(sizeof(int))], byte, answer = '-';
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = room,
			      .msg_controllen = sizeof(room) };
	int fd, family;
	socklen_t len = sizeof(family);

	if (recvmsg(conn, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg)) {
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
		getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len);
		answer = family == AF_UNIX ? 'u' : 'i';
		close(fd);
	}
	if (write(conn, &answer, 1) != 1)
		perror("answering");
}

/** flood - send one connection in many messages, until the client has left */
static void flood(int conn, int fd)
{
	while (give(conn, fd))
		;
}

/** serve - serve one client */
static void serve(int listener)
{
	int conn = accept4(listener, NULL, NULL, SOCK_CLOEXEC), fd;
	struct pollfd p = { .fd = conn, .events = POLLIN };
	char letter = 0;

	if (poll(&p, 1, 2000) == 1 && read(conn, &letter, 1) == 1) {
		if (letter == 'o') {
			take(conn);
		} else {
			fd = wanted(letter);
			give(conn, fd);
			if (letter == 'f')
				flood(conn, fd);
			if (fd >= 0 && letter != 'i' && letter != 'f' && letter != 'u')
				close(fd);
		}
	}
	close(conn);
}

/** listen_at - make a listener that every user may connect to */
static int listen_at(const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	if (bind(fd, (struct sockaddr *)&un, sizeof(un)) ||
	    chmod(path, 0666) || listen(fd, 16))
		return -1;
	return fd;
}

/** outside - see above */
int outside(void)
{
	int fd = connected(AF_INET, SOCK_STREAM);
	struct pollfd p[2] = { { .fd = 0, .events = POLLIN },
			       { .fd = listen_at(setting("OUTSIDE")),
				 .events = POLLIN } };

	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);	/* as for any ordinary program of a user */
	if (fd < 0 || p[1].fd < 0) {
		perror("setting up");
		return 1;
	}
	printf("ESCAPE_PID=%d ESCAPE_FD=%d ESCAPE_CELL=%#lx ESCAPE_STUB=%#lx ESCAPE_TEXT=%#lx\n",
	       getpid(), fd, (unsigned long)cell, (unsigned long)&stub,
	       (unsigned long)text);
	fflush(stdout);
	while (poll(p, 2, -1) > 0 && !p[0].revents)
		if (p[1].revents)
			serve(p[1].fd);
	printf("memory %s, %d connections\n", strcmp(cell, "intact") ?
	       "changed" : "intact", connections);
	return 0;
}
