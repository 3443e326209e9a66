// SPDX-License-Identifier: GPL-2.0-only
/*
 * Duplicates of descriptors.
 *
 * Theory of operation
 *
 * dup2() exchanges what a number means in one step, and another thread may use that
 * number meanwhile: it gets the file from before or the one from then on, and never a
 * third. But it has looked up the stack's descriptor before its call gets there. So the
 * stack's number stays the same when a socket takes another's place, and when
 * something of the host's does, it is kept beside the descriptor (KIND_PARKED) and names a
 * file without any use, so that no new socket can have it. Who comes there too late
 * is told EBADF and looks again: exchanged(). So does who meets a placeholder, unless
 * entry.S took the descriptor for the host's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "internal.h"

unsigned int dups;	/* how often a socket and something of the host's changed places */

/**
 * dup_to - @newfd has become a duplicate of @fd on the host: here too
 *
 * Returns @newfd, or a negative errno with it closed. What was beside it before
 * has been taken away.
 */
long dup_to(int fd, long newfd)
{
	long sfd;

	if (newfd < 0)
		return newfd;
	if (newfd >= ENTRY_FDS) {
		RAW1(close, newfd);
		return -EMFILE;
	}
	if (kind_of(fd) & KIND_EPOLL) {
		lock();
		shadow_get(entries[fd].sock);
		table_set((int)newfd, entries[fd].sfd, entries[fd].sock,
			  KIND_EPOLL);
		unlock();
		return newfd;
	}
	sfd = STACK(fcntl, entries[fd].sfd, F_DUPFD_CLOEXEC, 3, 0, 0, 0);
	if (sfd < 0) {
		RAW1(close, newfd);
		return sfd;
	}
	lock();
	socks[entries[fd].sock].refs++;
	table_set((int)newfd, (int)sfd, entries[fd].sock, KIND_SOCK);
	unlock();
	return newfd;
}

/** call_dup - dup(2) */
long call_dup(long nr, const long *a)
{
	long ret = native(nr, a);

	if (ret < 0 || likely(!(kind_of(a[0]) & KIND_MASK)) || borrowed())
		return ret;
	return dup_to((int)a[0], ret);
}

/**
 * move_to - let the stack's @sfd mean what @from does
 *
 * Returns a descriptor of what it meant before, to be closed, or a negative errno.
 */
static int move_to(int sfd, int from)
{
	long ret, old = STACK(fcntl, sfd, F_DUPFD_CLOEXEC, 3, 0, 0, 0);

	if (old < 0)
		return (int)old;
	ret = STACK(dup3, from, sfd, O_CLOEXEC, 0, 0, 0);
	if (ret >= 0)
		return (int)old;
	STACK(close, old, 0, 0, 0, 0, 0);
	return (int)ret;
}

/** useless - a file of the stack that no call on a socket takes */
static int useless(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = (int)STACK(openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0, 0, 0);
	return fd;
}

/** put_socket - one descriptor less of @newfd's socket, which is @sfd now. Locked. */
static void put_socket(int newfd, int sfd)
{
	struct sock *s = sock_of(newfd);

	if (s->refs == 1)
		tally_close(s, sfd);
	sock_put(entries[newfd].sock);
}

/**
 * sock_to_sock - one socket of the stack for another. Locked
 * @old: what to close
 */
static long sock_to_sock(long nr, const long *a, int *old)
{
	int fd = (int)a[0], newfd = (int)a[1];
	long ret;

	*old = move_to(entries[newfd].sfd, entries[fd].sfd);
	if (*old < 0)
		return *old;
	ret = native(nr, a);
	if (ret < 0) {		/* as if nothing had been */
		STACK(dup3, *old, entries[newfd].sfd, O_CLOEXEC, 0, 0, 0);
		return ret;
	}
	socks[entries[fd].sock].refs++;
	put_socket(newfd, *old);
	entries[newfd].sock = entries[fd].sock;
	return ret;
}

/**
 * sock_to_host - something of the host's for a socket of the stack. Locked
 * @old: what to close
 *
 * In this order: who has read @dups since sees that it is no socket.
 */
static long sock_to_host(long nr, const long *a, int *old)
{
	int newfd = (int)a[1], sfd = entries[newfd].sfd;
	long ret = native(nr, a);

	if (ret < 0)
		return ret;
	__atomic_store_n(&preload_kind[newfd], KIND_PARKED, __ATOMIC_RELEASE);
	__atomic_fetch_add(&dups, 1, __ATOMIC_RELEASE);
	*old = move_to(sfd, useless());
	if (*old < 0) {		/* no room: it is closed itself */
		preload_kind[newfd] = 0;
		*old = sfd;
	}
	put_socket(newfd, *old);
	return ret;
}

/**
 * host_to_sock - a socket of the stack for something of the host's. Locked
 * @old: what to close
 *
 * The placeholder comes there last. Who has read @dups since does not meet it.
 */
static long host_to_sock(long nr, const long *a, int *old)
{
	int fd = (int)a[0], newfd = (int)a[1];
	long ret, sfd = kind_of(newfd) & KIND_PARKED ?
		STACK(dup3, entries[fd].sfd, entries[newfd].sfd, O_CLOEXEC, 0, 0, 0) :
		STACK(fcntl, entries[fd].sfd, F_DUPFD_CLOEXEC, 3, 0, 0, 0);

	if (sfd < 0)
		return sfd;
	socks[entries[fd].sock].refs++;
	table_set(newfd, (int)sfd, entries[fd].sock, KIND_SOCK);
	__atomic_fetch_add(&dups, 1, __ATOMIC_RELEASE);
	ret = native(nr, a);
	if (ret < 0)
		*old = table_forget(newfd);
	return ret;
}

/** at_once - dup2() between sockets of the stack and files of the host */
static long at_once(long nr, const long *a)
{
	bool from, to;
	int old = -1;
	long ret = thread_ready();	/* it takes the lock */

	if (ret < 0)
		return ret;
	lock();
	from = is_sock(a[0]);
	to = is_sock(a[1]);
	ret = from && to ? sock_to_sock(nr, a, &old) :
	      from ? host_to_sock(nr, a, &old) :
	      to ? sock_to_host(nr, a, &old) : native(nr, a);
	unlock();
	/* With SO_LINGER it may take its time. */
	if (old >= 0)
		stack_wait(SYS_close, (long[6]){ old }, false);
	return ret;
}

/** in_turn - dup2() with an epoll: what was there is closed first */
static long in_turn(long nr, const long *a)
{
	int fd = (int)a[0], newfd = (int)a[1], sfd = -1;
	unsigned char from = kind_of(fd), to = kind_of(newfd);
	long ret;

	if (to & KIND_OWN)
		return -EBADF;
	/* Whether it is open, before anything is closed. */
	ret = RAW2(fcntl, fd, F_GETFD);
	if (ret < 0)
		return ret;
	if (to) {
		lock();
		sfd = table_forget(newfd);
		unlock();
		if (sfd >= 0)
			stack_wait(SYS_close, (long[6]){ sfd }, false);
	}
	ret = native(nr, a);
	return from & KIND_MASK ? dup_to(fd, ret) : ret;
}

/** call_dup2 - dup2(2) and dup3(2) */
long call_dup2(long nr, const long *a)
{
	unsigned char from = kind_of(a[0]), to = kind_of(a[1]);

	if (likely(!from && !to) || (int)a[0] == (int)a[1] || borrowed())
		return native(nr, a);
	if (((from | to) & ~(KIND_SOCK | KIND_PARKED)) || (unsigned int)a[1] >= ENTRY_FDS)
		return in_turn(nr, a);
	return at_once(nr, a);
}

/**
 * exchanged - whether a call that said @ret came too late, and has to look again
 * @was: dups when it looked
 */
bool exchanged(long ret, unsigned int was)
{
	/* The first is the useless file's, the others are a placeholder's. */
	return unlikely(ret == -EBADF || ret == -EINVAL || ret == -ENOTCONN) &&
	       __atomic_load_n(&dups, __ATOMIC_ACQUIRE) != was;
}
