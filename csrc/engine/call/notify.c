// SPDX-License-Identifier: GPL-2.0-only
/*
 * Seccomp notifications: receive the caught calls of the target. With the
 * engine trace, the calls come from backend_ptrace.c instead.
 *
 * SYNC_WAKE_UP tells the scheduler that this thread sleeps right after the
 * answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/lklhost.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/catch.h"
#include "engine/call/paged_access.h"

#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP	/* Linux 6.6 */
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP	(1UL << 0)
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS		SECCOMP_IOW(4, __u64)
#endif

static struct source listener = { .fd = -1 };

/** notified - receive and handle a notification */
static void notified(struct source *src, uint32_t events)
{
	struct seccomp_notif req;
	struct call c = { 0 };

	if (!(events & EPOLLIN)) {
		loop_del(src);	/* the last process with the filter has ended */
		if (src != &listener)
			call_ops->listener_gone(src);
		return;
	}
	memset(&req, 0, sizeof(req));
	if (ioctl(src->fd, SECCOMP_IOCTL_NOTIF_RECV, &req))
		return;		/* ENOENT: the caller is gone */
	c.id = req.id;
	c.listener = src->fd;
	c.served = src != &listener;
	c.pid = (pid_t)req.pid;
	c.nr = req.data.nr;
	memcpy(c.args, req.data.args, sizeof(c.args));
#ifdef __arm__
	if (c.nr == SYS_recv) {		/* recvfrom() without an address */
		c.nr = SYS_recvfrom;
		c.args[4] = c.args[5] = 0;
	}
#endif
	call_ops->handle(&c, req.data.arch != NOTIFY_ARCH);
}

/**
 * notify_add - receive the notifications of a listener
 * @src: stays in use until the listener hangs up, or calls_stop()
 */
int notify_add(struct source *src, int fd)
{
	/* The flag requires Linux 6.6. It is optional and improves speed. */
	(void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS,
		    SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	src->fn = notified;
	src->fd = fd;
	return loop_add(src, EPOLLIN);
}

/** calls_init - choose how this run catches calls, and who handles them */
void calls_init(const struct call_ops *ops)
{
	call_ops = ops;
	call_set_way(host.trace ? &catch_by_trace : &catch_by_notify);
}

/**
 * calls_start - start to receive the target's calls
 * @fd: its seccomp listener; -1 if there is none
 */
int calls_start(int fd)
{
	paged_start();
	reserve_fill();
	if (host.trace) {
		by_trace_start();
		return 0;
	}
	call_probe(fd);
	return notify_add(&listener, fd);
}

/** calls_stop - answer the held calls and stop receiving calls */
void calls_stop(void)
{
	held_stop();
	mem_close();
	if (listener.fd >= 0)
		loop_del(&listener);
	if (host.trace)
		by_trace_stop();
}
