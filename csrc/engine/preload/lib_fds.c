// SPDX-License-Identifier: GPL-2.0-only
/*
 * The library's own descriptors, which the program can neither close nor replace.
 *
 * They are above the soft descriptor limit if the hard limit allows that. So a
 * program that closes every descriptor it can have does not touch them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "engine/preload/internal.h"

#define OWN_MAX		256
#define OWN_HIGHEST	16384	/* higher numbers make the host's descriptor table large */

/**
 * own_move - give a descriptor a high number
 *
 * Returns the new number, or a negative errno with the descriptor closed.
 */
static long own_move(long fd)
{
	struct rlimit old, lim;
	unsigned long base;
	long ret;

	if (fd < 0)
		return fd;
	ret = RAW4(prlimit64, 0, RLIMIT_NOFILE, 0, &old);
	if (ret)
		goto out;
	lim = old;
	base = old.rlim_cur;
	if (base > OWN_HIGHEST - OWN_MAX)
		base = OWN_HIGHEST - OWN_MAX;
	else if (old.rlim_max >= old.rlim_cur + OWN_MAX)
		lim.rlim_cur += OWN_MAX;
	else
		base -= base > 2 * OWN_MAX ? OWN_MAX : base / 2;
	if (lim.rlim_cur != old.rlim_cur)
		RAW4(prlimit64, 0, RLIMIT_NOFILE, &lim, 0);
	ret = RAW3(fcntl, fd, F_DUPFD_CLOEXEC, base);
	if (lim.rlim_cur != old.rlim_cur)
		RAW4(prlimit64, 0, RLIMIT_NOFILE, &old, 0);
	if (ret >= 0) {
		lock();
		table_set((int)ret, -1, -1, KIND_OWN);
		unlock();
	}
out:
	RAW1(close, fd);
	return ret;
}

/** own_call - handle a call of the library itself */
long own_call(long nr, const long *a)
{
	switch (nr) {
	case SYS_close:
		if (kind_of(a[0]) == KIND_OWN)
			preload_kind[a[0]] = 0;
		break;
	case SYS_io_uring_setup:	/* the same error as from the seccomp filter */
		return -ENOSYS;
	case SYS_openat:
#ifdef SYS_open
	case SYS_open:
#endif
	case SYS_socket:
	case SYS_accept4:
	case SYS_eventfd2:
	case SYS_epoll_create1:
	case SYS_timerfd_create:
	case SYS_memfd_create:
	case SYS_dup:
		if (me.own)
			return own_move(native(nr, a));
		break;
	case SYS_fcntl:
		if (me.own && (a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC))
			return own_move(native(nr, a));
		break;
	}
	return native(nr, a);
}

void preload_own(bool on)
{
	me.own += on ? 1 : -1;
}

int preload_own_fd(int fd)
{
	return (int)own_move(fd);
}
