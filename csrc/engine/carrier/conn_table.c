// SPDX-License-Identifier: GPL-2.0-only
/* The table of connections by number, and the counters of all connections. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#ifndef STATX_TYPE		/* musl before 1.2.5 */
#include <linux/stat.h>
#endif

#include "base/lklhost.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/dgram_conn.h"
#include "engine/carrier/stream_conn.h"

#ifndef SO_COOKIE		/* Linux 4.12 */
#define SO_COOKIE	57
#endif

#ifndef AT_STATX_DONT_SYNC
#define AT_STATX_DONT_SYNC	0x4000
#endif

#define CONN_HASH	4096

_Static_assert(!offsetof(struct stream, conn) && !offsetof(struct dgram, conn),
	       "a connection and what it is part of have the same address");

const struct conn_ops *conn_ops;
struct list conns = LIST_INIT(conns);
struct conn_stats conn_stats;

static uint32_t last_id;
static struct conn *hash[CONN_HASH];
static struct conn *by_ino[CONN_HASH];

/** lookup - find a connection by number; NULL if the number is free */
static struct conn *lookup(uint32_t id)
{
	struct conn *conn = hash[id % CONN_HASH];

	while (conn && conn->id != id)
		conn = conn->hash_next;
	return conn;
}

/** conn_by_ino - find a connection by the inode number of its carrier, or NULL */
struct conn *conn_by_ino(uint64_t ino)
{
	struct conn *conn = by_ino[ino % CONN_HASH];

	while (conn && conn->carrier_ino != ino)
		conn = conn->ino_next;
	return conn;
}

/**
 * fd_stat - get the type, the inode and the device numbers of @fd
 *
 * The target may have a file whose file system never answers. This does not ask
 * it, where the kernel has statx(2) (Linux 4.11).
 */
bool fd_stat(int fd, struct stat *st)
{
	struct statx sx;

	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		    STATX_TYPE | STATX_INO, &sx))
		return errno != EBADF && !fstat(fd, st);
	st->st_mode = sx.stx_mode;
	st->st_ino = sx.stx_ino;
	st->st_dev = makedev(sx.stx_dev_major, sx.stx_dev_minor);
	st->st_rdev = makedev(sx.stx_rdev_major, sx.stx_rdev_minor);
	return true;
}

/** fd_ino - inode number of @fd, or 0 if unknown */
uint64_t fd_ino(int fd)
{
	struct stat st;

	return fd_stat(fd, &st) ? (uint64_t)st.st_ino : 0;
}

/** fd_cookie - get the number that the kernel has given to a socket; 0: none */
uint64_t fd_cookie(int fd)
{
	uint64_t value = 0;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &value, &len) ? 0 : value;
}

/** conn_of_carrier - get the connection whose carrier is @fd, or NULL */
struct conn *conn_of_carrier(int fd)
{
	struct conn *conn = conn_by_ino(fd_ino(fd));

	return conn && conn->carrier_cookie == fd_cookie(fd) ? conn : NULL;
}

/** conn_has_carrier - add a connection to the table of inode numbers */
void conn_has_carrier(struct conn *conn)
{
	struct conn **head = &by_ino[conn->carrier_ino % CONN_HASH];

	conn->ino_next = *head;
	*head = conn;
}

/** conn_free_number - get a number that no connection has */
uint32_t conn_free_number(void)
{
	do {
		/*
		 * If other processes can see names, the next one must be
		 * unpredictable.
		 */
		if (host.shared_netns &&
		    getrandom(&last_id, sizeof(last_id), GRND_NONBLOCK) < 0)
			last_id++;
		last_id++;
	} while (!last_id || lookup(last_id));
	return last_id;
}

/** conn_number - assign a free number to a connection and add it to the table */
static void conn_number(struct conn *conn, uint32_t id)
{
	conn->id = id;
	conn->hash_next = hash[id % CONN_HASH];
	hash[id % CONN_HASH] = conn;
}

/**
 * conn_make - create a connection that has only a number
 *
 * Returns NULL if memory is exhausted.
 */
struct conn *conn_make(enum conn_kind kind)
{
	struct conn *conn = calloc(1, kind == KIND_STREAM ?
				   sizeof(struct stream) : sizeof(struct dgram));

	if (!conn)
		return NULL;
	conn->kind = kind;
	if (kind != KIND_STREAM)
		list_init(&dgram_of(conn)->late);
	conn_number(conn, conn_free_number());
	conn->sfd = -1;
	conn->csrc.fd = -1;
	conn->tfd = -1;
	return conn;
}

/** conn_unhash - remove a connection from the tables */
void conn_unhash(struct conn *conn)
{
	struct conn **pp = &hash[conn->id % CONN_HASH];

	while (*pp != conn)
		pp = &(*pp)->hash_next;
	*pp = conn->hash_next;
	pp = &by_ino[conn->carrier_ino % CONN_HASH];
	while (*pp && *pp != conn)
		pp = &(*pp)->ino_next;
	if (*pp)
		*pp = conn->ino_next;
}

/**
 * conn_unmake - free a connection without conn_begin(); its carrier is closed
 */
void conn_unmake(struct conn *conn)
{
	conn_unhash(conn);
	loop_free_later(conn);
}

/** conn_renumber - give a connection another number, of a new carrier */
void conn_renumber(struct conn *conn, uint32_t id)
{
	conn_unhash(conn);
	conn_number(conn, id);
}

/**
 * conn_stack_ino - get the inode number of the stack's socket, or 0 if unknown
 */
uint64_t conn_stack_ino(struct conn *conn)
{
	struct stat st;

	if (conn->sfd < 0 || (conn->facts & F_HOSTED))
		return 0;
	if (conn->stack_ino && conn->ino_fd == conn->sfd)
		return conn->stack_ino;
	memset(&st, 0, sizeof(st));
	if (st_stat(conn->sfd, "", AT_EMPTY_PATH, &st))
		return 0;
	conn->ino_fd = conn->sfd;
	conn->stack_ino = (uint64_t)st.st_ino;
	return conn->stack_ino;
}
