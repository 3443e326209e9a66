// SPDX-License-Identifier: GPL-2.0-only
/*
 * The interface of the supervise engine to the rest of lklhost: start, drain,
 * stop and statistics.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/lklhost.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/space.h"
#include "engine/common/proc_text.h"
#include "engine/dgram/dgram.h"
#include "engine/sock/sock.h"
#include "engine/stream/stream.h"
#include "engine/supervise/internal.h"
#include "engine/supervise/supervise.h"
#include "mirror/mirror.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"
#include "view/view.h"

static int listener = -1;	/* seccomp listener of the target's calls */
static char text[256 * 1024];	/* contents of a file in the stack */

static const struct call_ops calls = {
	.handle = dispatch_call,
	.listener_gone = served_gone,
	.task_gone = held_task_gone,
	.pages_gone = paged_forget,
	.task_ended = conn_sweep_soon,
};

static const struct conn_ops kinds = {
	.carrier_event = tcp_carrier_event,
	.pump = pump,
	.outlives = orphan_mptcp_take,
	.fetch = dgram_fetch,
	.failed = dgram_failed,
	.closed = dgram_gone,
	.netlink_closed = sock_netlink_closed,
};

/**
 * engine_init - set up names and tables
 * @fd: the seccomp listener, which engine_stop() closes; -1 if there is none
 */
int engine_init(int fd)
{
	int i;

	calls_init(&calls);
	conn_ops = &kinds;
	listener = fd;
	for (i = 0; i < 3; i++)		/* the target's standard streams */
		foreign_sock_allow(i);
	getfd_init();
	sysfs_init();
	i = space_init();
	return i ? i : carrier_init();
}

/** engine_start - start to receive the target's calls */
int engine_start(void)
{
	return calls_start(listener);
}

/**
 * orphans - count the stack's orphaned sockets with data, see text_orphans()
 */
static unsigned int orphans(const char *path, uint64_t *queued)
{
	if (st_read_file(path, text, sizeof(text)) <= 0)
		return 0;
	return text_orphans(text, queued);
}

/**
 * engine_drain - whether everything that the target sent has reached its peers
 * @mark: set to a value that changes while there is progress
 */
bool engine_drain(uint64_t *mark)
{
	uint64_t queued = 0, out = conn_stats.bytes_out;
	struct list *pos;
	unsigned int n;

	conn_sweep();
	orphan_mptcp_stop();
	*mark = 0;
	if (stack->abi == CTL_ABI_HOST)
		return list_empty(&conns);	/* the host's stack outlives us */
	list_for_each(pos, &conns)
		out += container_of(pos, struct conn, link)->bytes_out;
	n = orphans("/proc/net/tcp", &queued);
	n += orphans("/proc/net/tcp6", &queued);
	n += orphans("/proc/net/mptcp", &queued);
	*mark = out * 31 + queued + n;
	return list_empty(&conns) && !n && !neigh_pending();
}

/**
 * engine_stop - stop receiving notified calls, and free the connections
 *
 * After the listener is closed, the target's remaining calls fail with ENOSYS.
 */
void engine_stop(void)
{
	calls_stop();
	orphan_fd_stop();
	served_stop();
	if (listener >= 0)
		close(listener);
	listener = -1;
	conn_stop();
	orphan_mptcp_stop();
	mirror_stop();
	space_stop();
	peers_stop();
	tasks_stop();
}

/** engine_has_stack_fd - whether @fd of the stack belongs to the engine */
bool engine_has_stack_fd(int fd)
{
	struct list *pos;

	list_for_each(pos, &conns)
		if (container_of(pos, struct conn, link)->sfd == fd)
			return true;
	return mirror_has_stack_fd(fd);
}

/**
 * engine_stats - write counters as lines "name value\n"; returns their length
 */
size_t engine_stats(char *buf, size_t len)
{
	const struct conn_stats *s = &conn_stats;
	uint64_t in = s->bytes_in, out = s->bytes_out;
	struct list *pos;
	int n;

	list_for_each(pos, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		if (conn->facts & F_HOSTED)
			continue;
		in += conn->bytes_in;
		out += conn->bytes_out;
	}
	n = snprintf(buf, len,
		     "loop.turns %llu\nloop.sleeps %llu\nloop.spins %llu\nloop.steps %llu\n"
		     "calls.notified %llu\ncalls.native %llu\ncalls.held %llu\n"
		     "calls.interrupted %llu\ncalls.gone %llu\ncalls.left %llu\n"
		     "sockets.stack %llu\nsockets.refused %llu\nsockets.foreign %llu\nsockets.open %llu\nsockets.peers %u\n"
		     "sockets.connected %llu\nsockets.accepted %llu\nsockets.resets %llu\n"
		     "sockets.swept %llu\nsockets.fallback %llu\nbytes.received %llu\nbytes.sent %llu\n"
		     "datagrams.received %llu\ndatagrams.sent %llu\ndatagrams.dropped %llu\n"
		     "packets.sockets %llu\npackets.shown %llu\npackets.sent %llu\npackets.lost %llu\n",
		     (unsigned long long)loop_stats.turns,
		     (unsigned long long)loop_stats.sleeps,
		     (unsigned long long)loop_stats.spins,
		     (unsigned long long)loop_stats.steps,
		     (unsigned long long)notify_stats.calls,
		     (unsigned long long)notify_stats.native,
		     (unsigned long long)notify_stats.held,
		     (unsigned long long)notify_stats.interrupted,
		     (unsigned long long)notify_stats.gone,
		     (unsigned long long)notify_stats.left,
		     (unsigned long long)s->made, (unsigned long long)s->refused,
		     (unsigned long long)s->strays,
		     (unsigned long long)s->open, peers_count(),
		     (unsigned long long)s->connected,
		     (unsigned long long)s->accepted,
		     (unsigned long long)s->resets, (unsigned long long)s->swept,
		     (unsigned long long)s->fallbacks,
		     (unsigned long long)in, (unsigned long long)out,
		     (unsigned long long)s->dgrams_in,
		     (unsigned long long)s->dgrams_out,
		     (unsigned long long)s->dgrams_dropped,
		     (unsigned long long)mirror_stats.sockets,
		     (unsigned long long)mirror_stats.shown,
		     (unsigned long long)mirror_stats.sent,
		     (unsigned long long)mirror_stats.lost);
	if (n < 0 || (size_t)n >= len)
		return 0;
	if (stack->stats)
		n += (int)stack->stats(buf + n, len - (size_t)n);
	n += (int)hostnet_stats(buf + n, len - (size_t)n);
	n += (int)view_stats(buf + n, len - (size_t)n);
	account_fold_all();
	return (size_t)n + tasks_stats(buf + n, len - (size_t)n);
}

/**
 * engine_account - write the account that is sent when the target ends
 *
 * It contains the stack's MPTCP counters and our own counters. The list of
 * processes comes last, because it may not fit into @len.
 */
size_t engine_account(char *buf, size_t len)
{
	size_t n = 0;

	if (stack_alive() && stack->abi != CTL_ABI_HOST &&
	    st_read_file("/proc/net/netstat", text, sizeof(text)) > 0)
		n = text_group(text, "MPTcpExt", buf, len);
	return n + engine_stats(buf + n, len - n);
}

/**
 * engine_owners - write a struct ctl_owner for each connection
 *
 * Returns the number of bytes written.
 */
size_t engine_owners(void *buf, size_t len)
{
	struct ctl_owner *o = buf;
	struct list *pos;
	size_t n = 0;

	list_for_each(pos, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		if ((n + 1) * sizeof(*o) > len)
			break;
		memset(&o[n], 0, sizeof(*o));
		o[n].stack_ino = conn_stack_ino(conn);
		o[n].carrier_ino = conn->carrier_ino;
		o[n].pid = (uint32_t)conn->maker;
		o[n].conn = conn->id;
		o[n].stack_fd = (conn->facts & F_HOSTED) ? -1 : conn->sfd;
		memcpy(o[n].comm, conn->comm, sizeof(o[n].comm));
		n++;
	}
	return n * sizeof(*o);
}
