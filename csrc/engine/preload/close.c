// SPDX-License-Identifier: GPL-2.0-only
/* Removes descriptors, and the state that belongs to them, from the table. */
#define _GNU_SOURCE
#include <errno.h>

#include "engine/preload/internal.h"

/** sock_put - drop a reference. Locked. */
void sock_put(int i)
{
	if (--socks[i].refs)
		return;
	fallback_forget(&socks[i]);
	sock_free(i);
}

/**
 * table_forget - remove the entry of @fd; returns the stack's descriptor or -1.
 * Locked.
 */
int table_forget(int fd)
{
	unsigned char kind = preload_kind[fd];
	int sfd = -1;

	if (kind & KIND_SOCK) {
		sfd = entries[fd].sfd;
		if (socks[entries[fd].sock].refs == 1)
			tally_close(&socks[entries[fd].sock], sfd);
		sock_put(entries[fd].sock);
	} else if (kind & KIND_EPOLL) {
		sfd = shadow_put(entries[fd].sock);
	} else if (kind & KIND_PARKED) {
		sfd = entries[fd].sfd;
	}
	__atomic_store_n(&preload_kind[fd], 0, __ATOMIC_RELEASE);
	return sfd;
}

/** call_close - close(2) */
long call_close(long nr, const long *a)
{
	int fd = (int)a[0], sfd;

	if (likely(!kind_of(fd)) || borrowed())
		return native(nr, a);
	if (kind_of(fd) & KIND_OWN)
		return -EBADF;
	lock();
	sfd = table_forget(fd);
	unlock();
	/* Closing may block if SO_LINGER is set. */
	if (sfd >= 0)
		stack_wait(SYS_close, (long[6]){ sfd }, false);
	return native(nr, a);
}

/** call_close_range - close_range(2), except descriptors of the library */
long call_close_range(long nr, const long *a)
{
	unsigned int first = (unsigned int)a[0], last = (unsigned int)a[1];
	long ret;
	int fd, sfd;

	if (first > last || a[2] || borrowed())
		return native(nr, a);
	for (fd = (int)(first < ENTRY_FDS ? first : ENTRY_FDS);
	     fd <= max_fd && (unsigned int)fd <= last; fd++) {
		unsigned char kind = preload_kind[fd];

		if (!kind)
			continue;
		if (kind & KIND_OWN) {
			if ((unsigned int)fd > first) {
				ret = RAW3(close_range, first, fd - 1, 0);
				if (ret)
					return ret;
			}
			first = (unsigned int)fd + 1;
			continue;
		}
		lock();
		sfd = table_forget(fd);
		unlock();
		if (sfd >= 0)
			stack_wait(SYS_close, (long[6]){ sfd }, false);
	}
	return first <= last ? RAW3(close_range, first, last, 0) : 0;
}
