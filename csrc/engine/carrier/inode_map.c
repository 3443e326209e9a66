// SPDX-License-Identifier: GPL-2.0-only
/*
 * Owners of sockets: map the inode of a socket in the stack to that of its
 * carrier in /proc/PID/fd.
 *
 * Theory of operation
 *
 * Programs that show the process of a socket (ss -p, netstat -p, lsof) search
 * for the socket's inode among the descriptors of all processes. These are
 * descriptors of the host. When the target reads a table of the stack, through
 * sock_diag or a file, the inodes of the stack's sockets are therefore replaced
 * with those of the carriers. A socket without a process gets inode 0, as on
 * any Linux. The stack's inode must not be shown, because another socket on the
 * host could have the same one.
 *
 * Tables are long, so the pairs are sorted once per turn of the loop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/list.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

struct pair {
	uint64_t stack, carrier;
};

static struct {
	struct pair *pairs;
	size_t n, room;
	uint64_t turn, made, open;
} known;

/** by_stack - compare two pairs by the inode in the stack */
static int by_stack(const void *a, const void *b)
{
	uint64_t x = ((const struct pair *)a)->stack;
	uint64_t y = ((const struct pair *)b)->stack;

	return x < y ? -1 : x > y;
}

/** learn - collect all current pairs; returns false if memory is exhausted */
static bool learn(void)
{
	struct list *pos;
	uint64_t made = conn_stats.made + conn_stats.accepted +
			conn_stats.fallbacks;

	if (known.turn == loop_stats.turns && known.made == made &&
	    known.open == conn_stats.open)
		return true;
	if (known.room < conn_stats.open) {
		size_t room = 2 * conn_stats.open;
		struct pair *p = realloc(known.pairs, room * sizeof(*p));

		if (!p)
			return false;
		known.pairs = p;
		known.room = room;
	}
	known.n = 0;
	list_for_each(pos, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);
		struct pair *p = &known.pairs[known.n];

		if (known.n == known.room)
			break;
		p->stack = conn_stack_ino(conn);
		p->carrier = conn->carrier_ino;
		known.n += p->stack && p->carrier;
	}
	if (known.n)
		qsort(known.pairs, known.n, sizeof(*known.pairs), by_stack);
	known.turn = loop_stats.turns;
	known.made = made;
	known.open = conn_stats.open;
	return true;
}

/**
 * conn_carrier_ino - get the inode of the target's end; 0 if there is none
 */
uint64_t conn_carrier_ino(uint64_t stack_ino)
{
	struct pair key = { .stack = stack_ino }, *p;

	if (!stack_ino || !learn() || !known.n)
		return 0;
	p = bsearch(&key, known.pairs, known.n, sizeof(key), by_stack);
	return p ? p->carrier : 0;
}

/**
 * inode_map_translate - replace inodes in a message from the stack
 * @conn: netlink socket of the target that receives the message
 */
void inode_map_translate(const struct conn *conn, char *buf, size_t len)
{
	struct nlmsghdr h;
	struct inet_diag_msg m;
	uint64_t ino;
	size_t at;

	if (conn->kind != KIND_NETLINK || conn->proto != NETLINK_SOCK_DIAG)
		return;
	for (at = 0; at + sizeof(h) <= len; at += NLMSG_ALIGN(h.nlmsg_len)) {
		memcpy(&h, buf + at, sizeof(h));
		if (h.nlmsg_len < sizeof(h))
			return;
		if ((h.nlmsg_type != SOCK_DIAG_BY_FAMILY &&
		     h.nlmsg_type != TCPDIAG_GETSOCK) ||
		    h.nlmsg_len < NLMSG_LENGTH(sizeof(m)) ||
		    at + NLMSG_LENGTH(sizeof(m)) > len)
			continue;
		memcpy(&m, buf + at + NLMSG_HDRLEN, sizeof(m));
		if (m.idiag_family != AF_INET && m.idiag_family != AF_INET6)
			continue;
		ino = conn_carrier_ino(m.idiag_inode);
		if (!ino && stack->abi == CTL_ABI_HOST)
			continue;	/* may belong to another host process */
		m.idiag_inode = (uint32_t)ino;
		memcpy(buf + at + NLMSG_HDRLEN, &m, sizeof(m));
	}
}
