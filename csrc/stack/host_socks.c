// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets of the host's network next to those of the stack.
 *
 * Theory of operation
 *
 * A connection to a destination that --host-net names uses a socket of the host
 * (hostnet_helper.c). This socket stays in lklhost. The target has only a carrier, as for
 * any other connection, so it cannot use the socket to reach another
 * destination. The engine addresses such a socket by its descriptor plus
 * ST_HOST; the calls that the engine makes by name (stack.h) then come here.
 *
 * The calls run without capabilities. The reason: an option or a request that
 * needs a capability comes from the target, not from lklhost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/loop.h"
#include "process/process.h"
#include "stack/stack.h"

#define EVENTS	64	/* fetched per call */

static void beside_ready(struct source *src, uint32_t events);
static struct source ready = { .fn = beside_ready, .fd = -1 };

/** beside_ready - dispatch events, as events_fetch() does for the stack */
static void beside_ready(struct source *src, uint32_t events)
{
	struct epoll_event ev[EVENTS];
	int i, n = epoll_wait(src->fd, ev, EVENTS, 0);

	(void)events;
	for (i = 0; i < n; i++) {
		struct stack_src *to = ev[i].data.ptr;

		if (to->fn)
			to->fn(to, ev[i].events);
	}
}

/** needs_rights - whether a call can affect more than its own socket */
static bool needs_rights(long nr)
{
	return nr == SYS_setsockopt || nr == SYS_getsockopt || nr == SYS_ioctl ||
	       nr == SYS_sendmsg;
}

/** beside_call - a call on descriptor @a[0]; epoll_ctl on @a[2]; or poll */
static long beside_call(long nr, const long a[6])
{
	struct pollfd p = { .fd = (int)a[0], .events = (short)a[1] };
	uint64_t had = 0;
	long ret;

	if (nr == SYS_ppoll)
		return poll(&p, 1, 0) > 0 ? p.revents : 0;
	if (nr == SYS_epoll_ctl)
		ret = epoll_ctl(ready.fd, (int)a[1], (int)a[2], (void *)a[3]);
	else {
		if (needs_rights(nr))
			had = caps_suspend();
		ret = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (had)
			caps_resume(had);
	}
	return ret == -1 ? -errno : ret;
}

/** host_socks_start - set up; called once, before the first socket */
int host_socks_start(void)
{
	ready.fd = epoll_create1(EPOLL_CLOEXEC);
	if (ready.fd < 0)
		return -errno;
	st_host_socks = beside_call;
	return loop_add(&ready, EPOLLIN);
}
