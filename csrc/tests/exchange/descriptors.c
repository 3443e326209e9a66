// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exchange the file behind a descriptor while calls use its number, and the
 * memory that a call reads. See main.c.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "exchange.h"

#define SHARED	60	/* the number that is exchanged */
#define KINDS	8
#define LOW	12	/* a little above the lowest free number */

static int files[KINDS];

/** set_up_descriptors - open what takes turns; -1 means closed */
static void set_up_descriptors(void)
{
	int p[2], pair[2];

	if (pipe2(p, O_NONBLOCK) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
		_exit(1);
	files[0] = p[0];
	files[1] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	files[2] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	files[3] = outside_connect();
	files[4] = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
	files[5] = (int)syscall(SYS_pidfd_open, getpid(), 0);
	files[6] = pair[0];
	files[7] = -1;
}

/** read_device - read the address of the host's device */
static void read_device(int fd)
{
	const char *mac = getenv("EXCHANGE_MAC"), *device = getenv("EXCHANGE_DEVICE");
	struct ifreq ifr = { 0 };
	unsigned char *b = (unsigned char *)ifr.ifr_hwaddr.sa_data;
	char text[18];

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", device ? device : "");
	if (ioctl(fd, SIOCGIFHWADDR, &ifr))
		return;
	snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x",
		 b[0], b[1], b[2], b[3], b[4], b[5]);
	if (mac && !strcmp(text, mac))
		escaped("an ioctl() has read a device of the host");
}

/** call_on - make a random call on the exchanged number */
static void call_on(void)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);
	int value;

	switch (below(9)) {
	case 0 ... 2:
		receive(SHARED, false);
		break;
	case 3:
		receive(SHARED, true);
		break;
	case 4:
		read_device(SHARED);
		break;
	case 5:
		local_address(&in);
		connect(SHARED, (struct sockaddr *)&in, sizeof(in));
		break;
	case 6:
		len = sizeof(value);
		getsockopt(SHARED, SOL_SOCKET, SO_TYPE, &value, &len);
		break;
	case 7:
		value = (int)syscall(SYS_pidfd_getfd, SHARED, below(LOW), 0);
		if (value >= 0)
			close(value);
		break;
	case 8:		/* gets a descriptor */
		close(socket(AF_INET, SOCK_DGRAM, 0));
		break;
	}
}

/** exchange_file - let another file have the number, or one that a call needs */
static void exchange_file(void)
{
	int file = files[below(KINDS)], i;

	/* Numbers of the calls that lklhost itself makes in the caller. */
	if (!below(16)) {
		dup2(files[3], LOW + (int)below(4));
		for (i = LOW; i < LOW + 6; i++)
			tell(i);
		for (i = LOW; i < LOW + 6; i++)
			close(i);
	} else if (file < 0) {
		close(SHARED);
	} else {
		dup2(file, SHARED);
	}
}

const struct kind descriptors = { "descriptors", set_up_descriptors, call_on,
				  exchange_file, 0 };

/* Memory that the calls of thread A read, and that thread B changes. */
static struct {
	struct msghdr mh;
	struct iovec iov[2];
	union {
		struct sockaddr_in in;
		struct sockaddr_un un;
		unsigned char bytes[sizeof(struct sockaddr_un)];
	} addr;
	unsigned char ctl[CMSG_SPACE(4 * sizeof(int))];
	char data[64];
} shared;

/** fill - write valid arguments */
static void fill(void)
{
	if (below(2)) {
		local_address(&shared.addr.in);
	} else {
		shared.addr.un.sun_family = AF_UNIX;
		snprintf(shared.addr.un.sun_path, sizeof(shared.addr.un.sun_path),
			 "%s", getenv("EXCHANGE_OUTSIDE"));
	}
	shared.iov[0] = shared.iov[1] = (struct iovec){ shared.data, 8 };
	shared.mh = (struct msghdr){ .msg_name = &shared.addr, .msg_namelen = 16,
				     .msg_iov = shared.iov, .msg_iovlen = 2,
				     .msg_control = shared.ctl,
				     .msg_controllen = sizeof(shared.ctl) };
}

/** call_with - make a random call with the shared memory */
static void call_with(void)
{
	int fd = files[1 + below(4)];

	switch (below(4)) {
	case 0:
		sendmsg(fd, &shared.mh, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 1:
		recvmsg(fd, &shared.mh, MSG_DONTWAIT);
		break;
	case 2:
		fd = socket(below(2) ? AF_INET : AF_UNIX,
			    SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fd, (struct sockaddr *)&shared.addr, sizeof(shared.addr));
		tell(fd);
		close(fd);
		break;
	case 3:
		bind(fd, (struct sockaddr *)&shared.addr, sizeof(shared.addr));
		break;
	}
}

/** exchange_bytes - write arguments anew, or change some of their bytes */
static void exchange_bytes(void)
{
	volatile unsigned char *p = (volatile unsigned char *)&shared;

	if (below(4))
		fill();
	else
		p[below(sizeof(shared))] = (unsigned char)rnd();
	for (int fd = LOW; fd < LOW + 8; fd++)
		tell(fd);
}

/** set_up_memory - open the sockets, and write valid arguments */
static void set_up_memory(void)
{
	set_up_descriptors();
	fill();
}

const struct kind memory = { "memory", set_up_memory, call_with, exchange_bytes,
			     0 };

/*
 * The page in which lklhost writes the arguments of the calls that a traced
 * thread makes for it. Until thread B changed it, it named lklhost's socket.
 */
static struct {
	uint64_t cookie;
	struct sockaddr_un un;
} *page;
static struct sockaddr_un meeting;
static const char *accomplice;		/* in the working directory */

/** set_up_channel - find the page */
static void set_up_channel(void)
{
	const char *slash = strrchr(outside_path(), '/');
	unsigned long from, to;
	char line[256], mode[5];
	FILE *f = fopen("/proc/self/maps", "re");

	if (!f || !slash || chdir(strndupa(outside_path(), (size_t)(slash - outside_path()))))
		_exit(1);
	accomplice = slash + 1;
	close(socket(AF_INET, SOCK_DGRAM, 0));
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) != 3 || strcmp(mode, "rw-p"))
			continue;
		for (; from < to; from += 4096)
			if (!memcmp(((typeof(page))from)->un.sun_path + 1, "lklrun", 6))
				page = (typeof(page))from;
	}
	if (page)
		meeting = page->un;
	fclose(f);
}

/** call_socket - get a descriptor */
static void call_socket(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	tell(fd);
	close(fd);
}

/**
 * exchange_address - lead the thread to the accomplice, and let lklhost find a
 * connection of the same process
 */
static void exchange_address(void)
{
	static int queued[8], n;
	int *fd = &queued[n++ % 8], i;

	if (!page)
		return;
	if (*fd > 0)
		close(*fd);
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
	connect(*fd, (struct sockaddr *)&meeting,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			    strlen(meeting.sun_path + 1)));
	for (i = 0; i < 20000; i++) {
		page->un.sun_family = AF_UNIX;
		snprintf(page->un.sun_path, sizeof(page->un.sun_path), "%sq", accomplice);
	}
}

const struct kind channel = { "channel", set_up_channel, call_socket,
			      exchange_address, OWN_FILES };
