// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors that come from outside: by SCM_RIGHTS from the accomplice, and
 * inherited from whoever started lklrun.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"

enum { BY_RECVMSG, BY_RECVMMSG, BY_BARE_RECVMSG };

/** accomplice - a connection to it; -1 and errno */
static int accomplice(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", setting("OUTSIDE"));
	return connect(fd, (struct sockaddr *)&un, sizeof(un)) ? -1 : fd;
}

/** receive - a message by one of three calls */
static long receive(int conn, struct msghdr *msg, long how)
{
	struct mmsghdr m = { .msg_hdr = *msg };
	long ret;

	if (how == BY_RECVMSG)
		return recvmsg(conn, msg, 0);
	if (how == BY_BARE_RECVMSG)
		return RAW(SYS_recvmsg, conn, msg, 0);
	ret = recvmmsg(conn, &m, 1, 0, NULL);
	*msg = m.msg_hdr;
	return ret;
}

/** get - ask for a descriptor; -1 and what happened instead */
static int get(char letter, long how, const char **outcome)
{
	char room[CMSG_SPACE(sizeof(int))], byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = room,
			      .msg_controllen = sizeof(room) };
	int conn = accomplice(), fd = -1;

	if (conn < 0 || write(conn, &letter, 1) != 1 ||
	    receive(conn, &msg, how) < 0)
		*outcome = failure(errno);
	else if (byte == '-')
		*outcome = "absent";	/* the accomplice cannot make one */
	else if (!CMSG_FIRSTHDR(&msg))
		*outcome = "withheld";
	else
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/** use_stream - write to it, and read: neither is notified */
static const char *use_stream(int fd, const char *name)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "lklrun-escape %s\n", name);

	return write(fd, text, (size_t)n) < 0 ? failure(errno) : "reached";
}

/** use_netlink - ask the host for its devices, by write and read */
static const char *use_netlink(int fd)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg m;
	} req = { .h = { .nlmsg_len = sizeof(req), .nlmsg_type = RTM_GETLINK,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
	static char buf[65536];
	ssize_t n;

	if (write(fd, &req, sizeof(req)) < 0)
		return failure(errno);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		if (memmem(buf, (size_t)n, setting("LINK"), strlen(setting("LINK"))))
			return "reached";
	return "stack";
}

/** use_ioctl - ask it for the devices of the namespace it was made in */
static const char *use_ioctl(int fd, bool bare)
{
	struct ifreq ifr[64];
	struct ifconf conf = { .ifc_len = sizeof(ifr), .ifc_req = ifr };
	long ret = bare ? RAW(SYS_ioctl, fd, SIOCGIFCONF, &conf) :
			  ioctl(fd, SIOCGIFCONF, &conf);
	size_t i;

	if (ret < 0)
		return failure(errno);
	for (i = 0; i < (size_t)conf.ifc_len / sizeof(ifr[0]); i++)
		if (!strcmp(ifr[i].ifr_name, setting("LINK")))
			return "reached";
	return "stack";
}

/** use - what the descriptor @fd, which @letter stands for, is good for */
static const char *use(int fd, char letter, const char *name)
{
	switch (letter) {
	case 'i':
	case 'u':
	case 'l':
		return use_stream(fd, name);
	case 'n':
		return use_netlink(fd);
	case 'x':
		return use_ioctl(fd, false);
	case 'y':
		return use_ioctl(fd, true);
	case 's':
		return setns(fd, CLONE_NEWNET) ? failure(errno) : "reached";
	}
	return fcntl(fd, F_GETFD) < 0 ? failure(errno) : "reached";
}

/** received - have the accomplice send what @a stands for, and use it */
static const char *received(const struct attempt *at)
{
	char letter = (char)at->a;
	const char *outcome = "silent";
	int fd = get(letter == 'y' ? 'x' : letter, at->b, &outcome);

	return fd < 0 ? outcome : use(fd, letter, at->name);
}

/** sent - send a carrier out: is it a socket of the host's network? */
static const char *sent(const struct attempt *at)
{
	int conn = accomplice(), fd = socket(AF_INET, SOCK_STREAM, 0);
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u = { .h = { .cmsg_len = CMSG_LEN(sizeof(int)),
		       .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { "+", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = &u,
			      .msg_controllen = sizeof(u.room) };
	char answer = 0;

	(void)at;
	if (conn < 0 || fd < 0)
		return failure(errno);
	memcpy(CMSG_DATA(&u.h), &fd, sizeof(fd));
	if (write(conn, "o", 1) != 1 || sendmsg(conn, &msg, 0) < 0 ||
	    read(conn, &answer, 1) != 1)
		return failure(errno);
	return answer == 'u' ? "own" : answer == 'i' ? "reached" : "withheld";
}

/** inherited - descriptor @a, which lklrun was started with */
static const char *inherited(const struct attempt *at)
{
	socklen_t len = sizeof(int);
	int domain = -1, type = -1;

	if (RAW(SYS_getsockopt, at->a, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 &&
	    errno == EBADF)
		return failure(errno);
	RAW(SYS_getsockopt, at->a, SOL_SOCKET, SO_TYPE, &type, &len);
	if (domain != (at->b == 'i' ? AF_INET : AF_UNIX) ||
	    (at->b == 'l' && type != SOCK_SEQPACKET))
		return "withheld";	/* the number is another descriptor's */
	return use((int)at->a, (char)at->b, at->name);
}

const struct attempt fd_attempts[] = {
	{ "receive-inet", received, 'i', BY_RECVMSG },
	{ "receive-inet-recvmmsg", received, 'i', BY_RECVMMSG },
	{ "receive-inet-bare", received, 'i', BY_BARE_RECVMSG },
	{ "receive-inet6-dgram", received, 'u', BY_RECVMSG },
	{ "receive-netlink", received, 'n', BY_RECVMSG },
	{ "receive-vsock", received, 'v', BY_RECVMSG },
	{ "receive-packet", received, 'p', BY_RECVMSG },
	{ "receive-namespace", received, 's', BY_RECVMSG },
	{ "receive-unix-ioctl", received, 'x', BY_RECVMSG },
	{ "receive-unix-bare-ioctl", received, 'y', BY_RECVMSG },
	{ "send-socket", sent, 0, 0 },
	{ "inherit-link", inherited, 3, 'l' },
	{ "inherit-inet", inherited, 4, 'i' },
	{ "inherit-unix-ioctl", inherited, 5, 'x' },
	{ NULL, NULL, 0, 0 },
};
