// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packet sockets: the target gets real ones of the host's kernel, on devices
 * that mirror those of the stack.
 *
 * Theory of operation
 *
 * Programs that capture packets map memory rings, attach filters and build
 * fanout groups. Only a kernel's own packet socket supports all of these. We
 * therefore create the target's packet sockets in a separate namespace, whose
 * devices look like the stack's and carry copies of their frames:
 *
 *	our namespace		the mirror's namespace
 *	near2  <--- veth --->	eth0	name, number, MAC, MTU and state
 *					as in the stack
 *				lo
 *
 * No process runs in that namespace, its devices have no addresses and it has
 * no IPv6: frames reach packet sockets and nothing else. The target receives
 * the descriptor. It needs no capability for it, just as for the stack's other
 * sockets.
 *
 * Everything is created with the first packet socket and is ready when socket()
 * returns. A helper process that keeps the required capabilities creates it
 * (mirror_helper.c).
 *
 * Frames are copied (frames.c) while the target has a packet socket: the
 * namespace's own table of packet sockets shows when the last one is closed.
 * Devices (links.c) follow the stack's while frames are copied.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "mirror/internal.h"
#include "mirror/mirror.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define LOOK_NS		1000000000ull	/* interval of reading the table */
#define OUR_SOCKETS	1		/* entries of ours in the table */

static void look(struct timer *t);
static struct timer look_timer = TIMER_INIT(look_timer, look);

/*
 * @table: /proc/net/packet of the namespace; @failed: the error of the attempt
 *	to create it, which is not repeated
 */
static struct {
	int table;
	int failed;
} mirror = { .table = -1 };

static struct rtnl news = { .fd = -1 };
static struct stack_src news_src;

/** make - create the namespace and open our descriptors in it */
static int make(void)
{
	int fds[MIRROR_FDS], ret = maker_make(fds);

	if (ret)
		return ret;
	mirror.table = fds[MIRROR_TABLE];
	return frames_open(fds[MIRROR_NEAR_SOCKET], fds[MIRROR_FAR_SOCKET]);
}

/** unmake - undo make() */
static void unmake(void)
{
	links_close();
	frames_close();
	if (mirror.table >= 0)
		close(mirror.table);
	mirror.table = -1;
}

/** off - stop copying frames */
static void off(void)
{
	timer_cancel(&look_timer);
	frames_stop();
	if (news.fd < 0)
		return;
	st_unwatch(news.fd, &news_src);
	rtnl_close(&news);
}

/** in_use - whether the target has a packet socket */
static bool in_use(void)
{
	char buf[4096];
	ssize_t n, i;
	off_t at = 0;
	int rows = -1;	/* do not count the header line */

	while ((n = pread(mirror.table, buf, sizeof(buf), at)) > 0) {
		for (i = 0; i < n; i++)
			rows += buf[i] == '\n';
		at += n;
	}
	return n < 0 || rows > OUR_SOCKETS;
}

/** look - stop copying when the target's last packet socket is closed */
static void look(struct timer *t)
{
	if (in_use())
		timer_arm(t, now_ns() + LOOK_NS);
	else
		off();
}

/** links_changed - the stack reports a change of its devices */
static void links_changed(struct stack_src *src, uint32_t events)
{
	(void)src;
	(void)events;
	rtnl_drain(&news);
	(void)links_sync();
}

/** on - synchronise the devices with the stack and copy frames */
static int on(void)
{
	int ret = frames_start();

	if (!ret && news.fd < 0) {
		ret = rtnl_open(&news, true, RTMGRP_LINK);
		news_src.fn = links_changed;
		if (!ret)
			ret = st_watch(news.fd, &news_src, EPOLLIN);
	}
	if (!ret)
		ret = links_sync();
	if (ret)
		off();
	else if (list_empty(&look_timer.link))
		timer_arm(&look_timer, now_ns() + LOOK_NS);
	return ret;
}

/** ready - prepare the mirror for a new packet socket */
static int ready(void)
{
	if (!host.private_netns)
		return -EAFNOSUPPORT;
	if (mirror.failed)
		return mirror.failed;
	if (mirror.table < 0) {
		int ret = make();

		if (ret) {
			unmake();
			warn_user("packet sockets are not available: creating a namespace for them: %s",
				  strerror(-ret));
			mirror.failed = -EAFNOSUPPORT;
			return mirror.failed;
		}
	}
	return on();
}

/**
 * mirror_socket - socket(AF_PACKET, ...)
 * @flags: SOCK_NONBLOCK, SOCK_CLOEXEC
 *
 * Returns a descriptor that lklhost passes to the target, or a negative errno.
 * With the host's stack it is a packet socket on the host's devices.
 */
int mirror_socket(int type, int proto, int flags)
{
	int fd, ret;

	if (stack->abi == CTL_ABI_HOST) {
		fd = socket(AF_PACKET, type | SOCK_CLOEXEC |
			    (flags & SOCK_NONBLOCK), proto);
		fd = fd < 0 ? -errno : fd;
	} else {
		ret = ready();
		fd = ret ? ret : maker_socket(type, proto, flags);
	}
	if (fd >= 0)
		mirror_stats.sockets++;
	return fd;
}

/** mirror_has_stack_fd - whether @fd of the stack belongs to the mirror */
bool mirror_has_stack_fd(int fd)
{
	return fd >= 0 && (fd == news.fd || fd == frames_stack_fd());
}

/** mirror_stop - stop the mirror at the end of the run */
void mirror_stop(void)
{
	off();
	unmake();
}
