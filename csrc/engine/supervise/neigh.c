// SPDX-License-Identifier: GPL-2.0-only
/*
 * End of a run: datagrams that wait for an answer from a neighbour.
 *
 * Theory of operation
 *
 * A program may send its only datagram and exit before ARP or neighbour
 * discovery has an answer. The host's stack would still send the datagram. Our
 * stack is about to halt, so it waits while a neighbour entry is incomplete.
 * Incomplete entries are those with waiting packets. An existing neighbour
 * answers within NEIGH_MS, which includes a second request after one second. It
 * is not worthwhile to wait longer for a missing neighbour.
 */
#define _GNU_SOURCE
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "engine/carrier/conn.h"
#include "engine/supervise/internal.h"
#include "stack/stack.h"

#define NEIGH_MS	1200
#define DUMP_MAX	(64 * 1024)	/* twice the size of a dump message */
#define MS		1000000ull

/**
 * incomplete - whether a dump message contains an incomplete entry
 * @done: set to true if this is the last message
 */
static bool incomplete(const struct nlmsghdr *nh, size_t len, bool *done)
{
	bool found = false;

	for (; NLMSG_OK(nh, len); nh = NLMSG_NEXT(nh, len)) {
		const struct ndmsg *nd = NLMSG_DATA(nh);

		if (nh->nlmsg_type == RTM_NEWNEIGH)
			found |= nd->ndm_state & NUD_INCOMPLETE;
		else
			*done = true;	/* NLMSG_DONE, NLMSG_ERROR */
	}
	return found;
}

/** neigh_asked - whether the stack waits for an answer from a neighbour */
static bool neigh_asked(void)
{
	static const struct {
		struct nlmsghdr nh;
		struct ndmsg nd;
	} req = {
		.nh = { .nlmsg_len = sizeof(req), .nlmsg_type = RTM_GETNEIGH,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
	};
	static union {
		struct nlmsghdr nh;
		char text[DUMP_MAX];
	} buf;
	bool found = false, done = false;
	long fd, n;

	fd = st_socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (fd < 0)
		return false;
	n = st_sendto(fd, &req, sizeof(req), 0, NULL, 0);
	while (n > 0 && !found && !done) {
		n = st_recvfrom(fd, &buf, sizeof(buf), MSG_DONTWAIT, NULL,
				NULL);
		if (n > 0)
			found = incomplete(&buf.nh, (size_t)n, &done);
	}
	st_close(fd);
	return found;
}

/** neigh_pending - whether more datagrams may leave after a short wait */
bool neigh_pending(void)
{
	static uint64_t since;

	if (!conn_stats.dgrams_out)
		return false;
	if (!since)
		since = now_ns();
	return now_ns() - since < NEIGH_MS * MS && neigh_asked();
}
