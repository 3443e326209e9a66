// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets of the host's network among those of the stack.
 *
 * Theory of operation
 *
 * A connection whose destination --host-net has chosen goes by a socket of the
 * host's (home.c), which stays here: the target has a carrier, as for any other
 * connection, and so no call of its own by which the socket could reach another
 * destination. The engine knows such a socket by its descriptor with ST_HOST
 * added, and the calls that it makes by name (stack.h) come here then.
 *
 * The rights of the calls are nobody's: what an option or a request needs a
 * capability for is the target's wish, and none of lklhost's own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"
#include "host.h"
#include "loop.h"
#include "stack.h"

#define EVENTS	64	/* fetched at once */

static void beside_ready(struct source *src, uint32_t events);
static struct source ready = { .fn = beside_ready, .fd = -1 };

/** beside_ready - hand out events, as events_fetch() does for the stack's */
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

/** needs_rights - whether a call can ask for more than a socket's own matters */
static bool needs_rights(long nr)
{
	return nr == SYS_setsockopt || nr == SYS_getsockopt || nr == SYS_ioctl ||
	       nr == SYS_sendmsg;
}

/** beside_call - a call on descriptor @a[0], of epoll on @a[2], or what poll says now */
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

/** beside_start - once, before the first socket */
int beside_start(void)
{
	ready.fd = epoll_create1(EPOLL_CLOEXEC);
	if (ready.fd < 0)
		return -errno;
	st_beside = beside_call;
	return loop_add(&ready, EPOLLIN);
}
