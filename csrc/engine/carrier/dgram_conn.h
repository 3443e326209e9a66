/* SPDX-License-Identifier: GPL-2.0-only */
/* The data of a datagram or netlink socket. */
#ifndef LKLHOST_DGRAM_CONN_H
#define LKLHOST_DGRAM_CONN_H

#include <assert.h>

#include "base/list.h"
#include "engine/carrier/conn.h"

struct origin;

enum dgram_runs {
	D_EXACT = 1 << 0,	/* datagrams must be moved one by one */
	D_GRO = 1 << 1,		/* the stack merges datagrams, without the
				 * target's knowledge */
	D_GRO_ASKED = 1 << 2,	/* the target has set UDP_GRO */
	D_NO_GSO = 1 << 3,	/* the stack has refused to split a message */
};

/**
 * struct dgram - a connection of KIND_DGRAM or KIND_NETLINK
 * @late: entry in the list of sockets whose carrier error is postponed
 * @late_looks: how often the error was postponed
 * @last: origin of all datagrams that our end has sent to a carrier that is
 *	connected to it
 * @kept_size: size of the datagrams in conn.to_target; the last one may be
 *	shorter
 * @rcvbuf: SO_RCVBUF as the target knows it; 0: that of the stack's socket
 * @runs: D_*, see dgram_run.c
 * @ending: UDP_GRO is being cleared
 * @usual: datagrams of a usual size, received since the last other one
 */
struct dgram {
	struct conn conn;
	struct list late;
	unsigned int late_looks;
	struct origin *last;
	size_t kept_size;
	int rcvbuf;
	unsigned char runs;
	bool ending;
	unsigned int usual;
};

/** dgram_of - get the datagram or netlink socket that @conn is part of */
static inline struct dgram *dgram_of(const struct conn *conn)
{
	assert(conn->kind != KIND_STREAM);
	return container_of(conn, struct dgram, conn);
}

#endif
