// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors from outside: received from the accomplice by SCM_RIGHTS, and
 * inherited from the process that started lklrun.
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

/** outside_connect - connect to the accomplice; returns -1 with errno on failure */
int outside_connect(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", setting("OUTSIDE"));
	return connect(fd, (struct sockaddr *)&un, sizeof(un)) ? -1 : fd;
}

/** receive - receive a message by one of three calls */
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

/** get - ask for a descriptor; returns -1 and sets @outcome on failure */
static int get(char letter, long how, const char **outcome)
{
	char room[CMSG_SPACE(sizeof(int))], byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = room,
			      .msg_controllen = sizeof(room) };
	int conn = outside_connect(), fd = -1;

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

/** use_stream - write to the socket and read from it; lklhost is notified of neither */
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

/** use_ioctl - ask a socket for the devices of the namespace in which it was made */
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

/** use - test what the descriptor @fd of kind @letter can reach */
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

/** received - have the accomplice send a descriptor of kind @a, and use it */
static const char *received(const struct attempt *at)
{
	char letter = (char)at->a;
	const char *outcome = "silent";
	int fd = get(letter == 'y' ? 'x' : letter, at->b, &outcome);

	return fd < 0 ? outcome : use(fd, letter, at->name);
}

/** sent - send a carrier to the accomplice; checks whether it is a socket of the host's network */
static const char *sent(const struct attempt *at)
{
	int conn = outside_connect(), fd = socket(AF_INET, SOCK_STREAM, 0);
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

/** inherited - use descriptor @a, with which lklrun was started */
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
		return "withheld";	/* the number belongs to another descriptor */
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
