// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of descriptors that represent sockets of the stack.
 *
 * Theory of operation
 *
 * A placeholder is an unconnected unix stream socket. fstat(2) reports
 * S_IFSOCK, /proc/PID/fd shows an inode of its own, and a read or write by
 * mistake fails at once, for instance in a program that inherits it through
 * exec. Each descriptor of the host has its own descriptor in the stack, so the
 * stack handles what duplicates mean for epoll and close.
 *
 * preload_kind[] is read without a lock; changes need the lock. Entries are
 * removed before the host's descriptor is closed and added after it is opened,
 * so no thread finds an entry of another file. dup2() replaces a file in one
 * step, so it follows an order of its own (dup.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "engine/preload/internal.h"

#define SOCKS_MAX	0x40000

unsigned char *preload_kind;
struct entry *entries;
struct sock *socks;
int max_fd;

static int free_sock = -1, n_socks;
static uint32_t last_id;
static int locked;

/** lock - lock the tables; the caller is inside until unlock() */
void lock(void)
{
	enter();
	while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
		RAW0(sched_yield);
}

void unlock(void)
{
	__atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
	leave();
}

/** table_init - make the tables */
int table_init(void)
{
	/* Unused pages cost nothing. */
	preload_kind = pages(ENTRY_FDS);
	entries = pages(ENTRY_FDS * sizeof(*entries));
	socks = pages(SOCKS_MAX * sizeof(*socks));
	return preload_kind && entries && socks ? 0 : -ENOMEM;
}

/**
 * sock_alloc - allocate a socket with one reference
 *
 * Returns its index or -ENFILE. Locked.
 */
int sock_alloc(int domain, int type, int proto)
{
	int i = free_sock;
	struct sock *s;

	if (i >= 0)
		free_sock = socks[i].next_free;
	else if (n_socks < SOCKS_MAX)
		i = n_socks++;
	else
		return -ENFILE;
	s = &socks[i];
	*s = (struct sock){ .refs = 1, .domain = domain, .type = type,
			    .proto = proto, .fresh = true, .id = ++last_id };
	counts.open += domain != 0;
	return i;
}

/** sock_put - drop a reference. Locked. */
void sock_put(int i)
{
	struct sock *s = &socks[i];

	if (--s->refs)
		return;
	fallback_forget(s);
	s->next_free = free_sock;
	free_sock = i;
	counts.open -= s->domain != 0;
}

/** table_set - set the entry of a descriptor. Locked. */
void table_set(int fd, int sfd, int sock, unsigned char kind)
{
	if (unlikely((preload_kind[fd] & KIND_PARKED) && entries[fd].sfd != sfd))
		STACK(close, entries[fd].sfd, 0, 0, 0, 0, 0);
	entries[fd] = (struct entry){ .sfd = sfd, .sock = sock };
	if (fd > max_fd)
		max_fd = fd;
	__atomic_store_n(&preload_kind[fd], kind, __ATOMIC_RELEASE);
}

/** table_reserve - make a placeholder */
int table_reserve(int type_flags)
{
	long fd = RAW3(socket, AF_UNIX,
		       SOCK_STREAM | (type_flags & SOCK_CLOEXEC), 0);

	if (fd >= ENTRY_FDS) {
		RAW1(close, fd);
		return -EMFILE;
	}
	return (int)fd;
}

/** inode - the inode of a descriptor */
static uint64_t inode(int fd)
{
	struct stat st;

	return RAW4(newfstatat, fd, "", &st, AT_EMPTY_PATH) ? 0 : st.st_ino;
}

/**
 * table_give - let the placeholder @fd represent @sfd
 *
 * Returns @fd, or a negative errno with both closed.
 */
int table_give(int fd, int sfd, int domain, int type, int proto)
{
	uint64_t ino = inode(fd);
	struct stat st;
	int i;

	if (STACK(fstat, sfd, &st, 0, 0, 0, 0))
		st.st_ino = 0;

	lock();
	i = sock_alloc(domain, type, proto);
	if (i >= 0) {
		socks[i].ino = ino;
		socks[i].stack_ino = st.st_ino;
		table_set(fd, sfd, i, KIND_SOCK);
	}
	unlock();
	if (i >= 0)
		return fd;
	STACK(close, sfd, 0, 0, 0, 0, 0);
	RAW1(close, fd);
	return i;
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
