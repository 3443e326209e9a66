// SPDX-License-Identifier: GPL-2.0-only
/* The table of connections by number, and the counters of all connections. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/lklhost.h"
#include "engine/supervise/conn.h"
#include "engine/supervise/kinds.h"
#include "engine/supervise/stream.h"

#define CONN_HASH	4096

_Static_assert(!offsetof(struct stream, conn) && !offsetof(struct dgram, conn),
	       "a connection and what it is part of have the same address");

const struct engine_ops *engine_ops;
struct list conns = LIST_INIT(conns);
struct conn_stats conn_stats;

static uint32_t last_id;
static struct conn *hash[CONN_HASH];

/** lookup - find a connection by number; NULL if the number is free */
static struct conn *lookup(uint32_t id)
{
	struct conn *conn = hash[id % CONN_HASH];

	while (conn && conn->id != id)
		conn = conn->hash_next;
	return conn;
}

/** conn_find - find a connection of a process by number, or NULL */
struct conn *conn_find(uint32_t id)
{
	struct conn *conn = lookup(id);

	return conn && (conn->facts & F_BEGUN) ? conn : NULL;
}

/** number - assign a free number to a connection and add it to the table */
static void number(struct conn *conn)
{
	do {
		/*
		 * If other processes can see names, the next one must be
		 * unpredictable.
		 */
		if (host.shared_netns &&
		    getrandom(&last_id, sizeof(last_id), GRND_NONBLOCK) < 0)
			last_id++;
		conn->id = ++last_id;
	} while (!conn->id || lookup(conn->id));
	conn->hash_next = hash[conn->id % CONN_HASH];
	hash[conn->id % CONN_HASH] = conn;
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
	number(conn);
	conn->sfd = -1;
	conn->csrc.fd = -1;
	conn->tfd = -1;
	return conn;
}

/** conn_unhash - remove a connection from the table of numbers */
void conn_unhash(struct conn *conn)
{
	struct conn **pp = &hash[conn->id % CONN_HASH];

	while (*pp != conn)
		pp = &(*pp)->hash_next;
	*pp = conn->hash_next;
}

/**
 * conn_unmake - free a connection without conn_begin(); its carrier is closed
 */
void conn_unmake(struct conn *conn)
{
	conn_unhash(conn);
	loop_free_later(conn);
}

/** conn_renumber - assign and return a new number, for a new carrier */
uint32_t conn_renumber(struct conn *conn)
{
	conn_unhash(conn);
	number(conn);
	return conn->id;
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
