// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packet sockets: the target has real ones, of the host's kernel, on devices
 * that mirror those of the stack.
 *
 * Theory of operation
 *
 * Programs that capture packets map rings of memory, attach filters and build
 * fanout groups; only a kernel's own packet socket has all of that. So the
 * target's are made in a namespace of their own, whose devices look like the
 * stack's and carry copies of their frames:
 *
 *	our namespace		the mirror's namespace
 *	near2  <--- veth --->	eth0	name, number, MAC, MTU, state as in the stack
 *				lo
 *
 * Nobody is in that namespace, its devices have no addresses and there is no
 * IPv6: frames go to packet sockets and nowhere else. The target is handed the
 * descriptor; it needs no right for it, as it needs none for the stack's other
 * sockets.
 *
 * All is made when the first packet socket is, and ready when socket() returns; a
 * process that keeps the rights for it makes it (maker.c).
 * Frames are copied (frames.c) while there is one: the namespace's own table of
 * packet sockets tells when the last has been closed. Devices (links.c)
 * follow the stack's while frames are copied.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "conn.h"
#include "ctl_proto.h"
#include "host.h"
#include "loop.h"
#include "mirror.h"
#include "stack.h"

#define LOOK_NS		1000000000ull	/* how often the table is read */
#define OUR_SOCKETS	1		/* in it */

static void look(struct timer *t);
static struct timer look_timer = TIMER_INIT(look_timer, look);

/*
 * @table: the namespace's /proc/net/packet; @failed: it could not be made, and is
 * not tried again
 */
static struct {
	int table;
	int failed;
} mirror = { .table = -1 };

static struct rtnl news = { .fd = -1 };
static struct stack_src news_src;

/** make - the namespace and what is needed to work with it */
static int make(void)
{
	int fds[MIRROR_FDS], ret = maker_make(fds);

	if (ret)
		return ret;
	mirror.table = fds[MIRROR_TABLE];
	return frames_open(fds[MIRROR_NEAR_SOCKET], fds[MIRROR_FAR_SOCKET]);
}

/** unmake - all of it */
static void unmake(void)
{
	links_close();
	frames_close();
	if (mirror.table >= 0)
		close(mirror.table);
	mirror.table = -1;
}

/** off - copy nothing any more */
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
	int rows = -1;	/* the first line is a head */

	while ((n = pread(mirror.table, buf, sizeof(buf), at)) > 0) {
		for (i = 0; i < n; i++)
			rows += buf[i] == '\n';
		at += n;
	}
	return n < 0 || rows > OUR_SOCKETS;
}

/** look - whether anybody still listens */
static void look(struct timer *t)
{
	if (in_use())
		timer_arm(t, now_ns() + LOOK_NS);
	else
		off();
}

/** links_changed - the stack's devices did */
static void links_changed(struct stack_src *src, uint32_t events)
{
	(void)src;
	(void)events;
	rtnl_drain(&news);
	(void)links_sync();
}

/** on - have the mirror as the stack is, and frames copied */
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

/** ready - the mirror as it must be when a packet socket is made */
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
			warn_user("packet sockets are not available: making a namespace for them: %s",
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
 * Returns a descriptor of ours for the target, or a negative errno. With the
 * host's stack it is a packet socket on the host's devices.
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

/** mirror_has_stack_fd - whether @fd of the stack is the mirror's */
bool mirror_has_stack_fd(int fd)
{
	return fd >= 0 && (fd == news.fd || fd == frames_stack_fd());
}

/** mirror_stop - the run ends */
void mirror_stop(void)
{
	off();
	unmake();
}
