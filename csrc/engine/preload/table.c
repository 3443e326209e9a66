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
 * stack handles the effects of duplicates on epoll and close.
 *
 * preload_kind[] is read without a lock; changes need the lock. Entries are
 * removed before the host's descriptor is closed and added after it is opened,
 * so no thread finds an entry of another file. dup2() replaces a file in one
 * step, so it follows an order of its own (dup.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "engine/preload/internal.h"

#define SOCKS_MAX	0x40000

static int free_sock = -1, n_socks;
static uint32_t last_id;

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
static int sock_alloc(int domain, int type, int proto)
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

/** sock_free - free a socket without references. Locked. */
void sock_free(int i)
{
	socks[i].next_free = free_sock;
	free_sock = i;
	counts.open -= socks[i].domain != 0;
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
