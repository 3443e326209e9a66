// SPDX-License-Identifier: GPL-2.0-only
/* fork(): a child has no kernel. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"

/* Whether a child has warned; shared by all, as a server may fork for each connection. */
static int *child_said;

bool preload_alive(void)
{
	return alive && *alive;
}

/*
 * glibc and bionic have the first, musl the second: glibc's shared library does
 * not export pthread_atfork().
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
			     void (*child)(void), void *dso) __attribute__((weak));
#ifndef __GLIBC__
#pragma weak pthread_atfork
#endif

/** after_fork - in a child, do what the kernel does when it wipes the page */
static void after_fork(void)
{
	*alive = 0;
}

/** at_fork - register after_fork() with the C library */
static int at_fork(void)
{
	if (__register_atfork)
		return -__register_atfork(NULL, NULL, after_fork, NULL);
#ifndef __GLIBC__
	if (pthread_atfork)
		return -pthread_atfork(NULL, NULL, after_fork);
#endif
	return 0;
}

/**
 * proc_init - mark this process as the one that has the kernel
 *
 * Linux 4.14 or later wipes the page in any child (madvise(2)). A system
 * without this feature, or one that reports success and does nothing
 * (qemu-user), relies on the C library's fork().
 */
int proc_init(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED ||
	    (madvise(p, 4096, MADV_WIPEONFORK) && errno != EINVAL))
		return -errno;
	alive = p;
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	child_said = p;
	if (at_fork())
		return -ENOMEM;
	*alive = 1;
	owner_pid = (int)RAW0(getpid);
	return 0;
}

/** refuse_child - fail without a stack in a child after fork(); warn once */
static long refuse_child(void)
{
	if (!__atomic_exchange_n(child_said, 1, __ATOMIC_RELAXED))
		warn_line("process %ld: a child after fork() has no network stack with --engine preload; use --engine supervise",
			  RAW0(getpid));
	return -ENETDOWN;
}

/** child_call - handle a call in a child after fork() */
long child_call(long nr, const long *a)
{
	long ret;

	switch (nr) {
	case SYS_socket:
		if (a[0] == AF_INET || a[0] == AF_INET6 || a[0] == AF_PACKET)
			return refuse_child();
		return native(nr, a);
	case SYS_rt_sigaction:
		return call_sigaction(nr, a);
	case SYS_close:
		if ((unsigned int)a[0] < ENTRY_FDS)
			preload_kind[a[0]] = 0;
		return native(nr, a);
#ifdef SYS_dup2
	case SYS_dup2:
#endif
	case SYS_dup3:
		ret = native(nr, a);
		if (ret >= 0 && ret < ENTRY_FDS)
			preload_kind[ret] = kind_of(a[0]);
		return ret;
	case SYS_dup:
	case SYS_fcntl:
		ret = native(nr, a);
		if ((nr == SYS_dup || a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC) &&
		    ret >= 0 && ret < ENTRY_FDS)
			preload_kind[ret] = kind_of(a[0]);
		return ret;
	case SYS_io_uring_setup:
		return -ENOSYS;
	case SYS_close_range:
		if (!a[2] && a[0] <= max_fd && a[0] >= 0)
			memset(preload_kind + a[0], 0, (size_t)((a[1] < max_fd && a[1] >= a[0] ? a[1] : max_fd) - a[0] + 1));
		return native(nr, a);
#ifdef SYS_poll
	case SYS_poll:
	case SYS_select:
	case SYS_epoll_wait:
#endif
	case SYS_ppoll:
	case SYS_pselect6:
	case SYS_epoll_ctl:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_exit_group:
		return native(nr, a);
	}
	return is_sock(a[0]) ? refuse_child() : native(nr, a);
}
