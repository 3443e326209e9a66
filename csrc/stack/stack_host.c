// SPDX-License-Identifier: GPL-2.0-only
/*
 * Back end "host": the host kernel itself behind the same interface.
 *
 * Theory of operation
 *
 * Calls are the host's own, made in the network namespace in which lklhost was
 * started. This shows the cost of lklhost without a stack, and is the baseline
 * of every comparison. Stack descriptors and lklhost's own share one table
 * here, so the control server lets clients use only those that their calls
 * opened.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/loop.h"
#include "shared/ctl_proto.h"
#include "stack/backend.h"

static bool flag;

/** epoll_ready - the stack's epoll, a host epoll here, has events */
static void epoll_ready(struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	flag = true;
}

static struct source epoll_src = { .fn = epoll_ready, .fd = -1 };

/** host_boot - nothing to start */
static int host_boot(uint64_t mem, const char *cmdline)
{
	(void)mem;
	(void)cmdline;
	return 0;
}

/** host_call - a system call of the host */
static long host_call(long nr, const long a[6])
{
	long ret = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	return ret == -1 ? -errno : ret;
}

/** host_step - nothing to do: the host runs by itself */
static int64_t host_step(void)
{
	return -1;
}

/** host_event - never called: there is no library */
static void host_event(uint64_t data, uint32_t events)
{
	(void)data;
	(void)events;
}

/** host_watch - add the stack's epoll to the loop's */
static int host_watch(int epfd)
{
	epoll_src.fd = epfd;
	return loop_add(&epoll_src, EPOLLIN | EPOLLET);
}

/** host_asked - whether the nested epoll has reported events */
static bool host_asked(void)
{
	bool was = flag;

	flag = false;
	return was;
}

/** host_link_add - not supported: the host's devices are used */
static int host_link_add(int fd, uint32_t kind, uint32_t flags,
			 const uint8_t mac[6], uint16_t mtu)
{
	(void)fd;
	(void)kind;
	(void)flags;
	(void)mac;
	(void)mtu;
	return -EOPNOTSUPP;
}

/** host_link_del - see host_link_add() */
static int host_link_del(int id)
{
	(void)id;
	return -EOPNOTSUPP;
}

/** host_ifindex - see host_link_add() */
static int host_ifindex(int id)
{
	(void)id;
	return 0;
}

/** host_halt - nothing to do */
static void host_halt(void)
{
}

const struct stack_ops stack_host_ops = {
	.abi = CTL_ABI_HOST,
	.boot = host_boot,
	.call = host_call,
	.step = host_step,
	.event = host_event,
	.watch = host_watch,
	.asked = host_asked,
	.link_add = host_link_add,
	.link_del = host_link_del,
	.ifindex = host_ifindex,
	.halt = host_halt,
};
