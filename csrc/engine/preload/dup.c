// SPDX-License-Identifier: GPL-2.0-only
/*
 * Duplicates of descriptors.
 *
 * Theory of operation
 *
 * dup2() replaces the file behind a number in one step. Another thread may use
 * that number at the same time; it must get either the old file or the new one,
 * never a third. But that thread has looked up the stack's descriptor before
 * its call arrives there. Therefore:
 *
 * - When a socket replaces a socket, the stack's number stays the same.
 * - When a file of the host replaces a socket, the stack's number is kept
 *   beside the descriptor (KIND_PARKED). It then refers to a file that no
 *   socket call accepts, so that no new socket can get the number.
 * - A thread that arrives too late gets EBADF and looks again: exchanged().
 * - So does a thread that reaches a placeholder, unless entry.S classified the
 *   descriptor as the host's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "engine/preload/internal.h"

unsigned int dups;	/* how often a socket and a file of the host replaced each other */

/**
 * dup_to - record that @newfd has become a duplicate of @fd on the host
 *
 * Returns @newfd, or a negative errno with @newfd closed. The caller has
 * already removed the previous entry of @newfd.
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
 * move_to - let the stack's @sfd refer to the file of @from
 *
 * Returns a descriptor of its previous file, which the caller closes, or a
 * negative errno.
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

/** useless - a file of the stack that no socket call accepts */
static int useless(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = (int)STACK(openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0, 0, 0);
	return fd;
}

/**
 * put_socket - drop a reference to @newfd's socket, whose descriptor is now
 * @sfd. Locked.
 */
static void put_socket(int newfd, int sfd)
{
	struct sock *s = sock_of(newfd);

	if (s->refs == 1)
		tally_close(s, sfd);
	sock_put(entries[newfd].sock);
}

/**
 * sock_to_sock - replace one socket of the stack by another. Locked.
 * @old: descriptor to close
 */
static long sock_to_sock(long nr, const long *a, int *old)
{
	int fd = (int)a[0], newfd = (int)a[1];
	long ret;

	*old = move_to(entries[newfd].sfd, entries[fd].sfd);
	if (*old < 0)
		return *old;
	ret = native(nr, a);
	if (ret < 0) {		/* undo */
		STACK(dup3, *old, entries[newfd].sfd, O_CLOEXEC, 0, 0, 0);
		return ret;
	}
	socks[entries[fd].sock].refs++;
	put_socket(newfd, *old);
	entries[newfd].sock = entries[fd].sock;
	return ret;
}

/**
 * sock_to_host - replace a socket of the stack by a file of the host. Locked.
 * @old: descriptor to close
 *
 * The order matters: a thread that reads the new @dups also sees that the
 * descriptor is no longer a socket.
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
	if (*old < 0) {		/* no descriptor left: close this one */
		preload_kind[newfd] = 0;
		*old = sfd;
	}
	put_socket(newfd, *old);
	return ret;
}

/**
 * host_to_sock - replace a file of the host by a socket of the stack. Locked.
 * @old: descriptor to close
 *
 * The placeholder is put at @newfd last, so a thread that has read the new
 * @dups does not reach it.
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
	long ret = thread_ready();	/* takes the lock itself */

	if (ret < 0)
		return ret;
	lock();
	from = is_sock(a[0]);
	to = is_sock(a[1]);
	ret = from && to ? sock_to_sock(nr, a, &old) :
	      from ? host_to_sock(nr, a, &old) :
	      to ? sock_to_host(nr, a, &old) : native(nr, a);
	unlock();
	/* Closing may block if SO_LINGER is set. */
	if (old >= 0)
		stack_wait(SYS_close, (long[6]){ old }, false);
	return ret;
}

/** in_turn - dup2() that involves an epoll: close the old file first */
static long in_turn(long nr, const long *a)
{
	int fd = (int)a[0], newfd = (int)a[1], sfd = -1;
	unsigned char from = kind_of(fd), to = kind_of(newfd);
	long ret;

	if (to & KIND_OWN)
		return -EBADF;
	/* Check that it is open before anything is closed. */
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
 * exchanged - whether a call that returned @ret came too late and must look
 * again
 * @was: value of dups at its lookup
 */
bool exchanged(long ret, unsigned int was)
{
	/*
	 * The useless file returns the first error, a placeholder the others.
	 */
	return unlikely(ret == -EBADF || ret == -EINVAL || ret == -ENOTCONN) &&
	       __atomic_load_n(&dups, __ATOMIC_ACQUIRE) != was;
}
