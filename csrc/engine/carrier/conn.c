// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections: begin, sweep and free. conn_table.c has the table of connections.
 *
 * Theory of operation
 *
 * A connection lives from socket() or accept() until the target has closed the
 * last copy of its carrier and all data written to it is in the stack. For
 * connected streams, EPOLLHUP reports the close. All other connections are in
 * the probe list, and conn_sweep() checks whether their carriers are closed. It
 * runs when a process ends, before EADDRINUSE is reported, when there are many
 * connections, and every SWEEP_MS.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/dgram_conn.h"
#include "engine/carrier/stream_conn.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define SWEEP_MS	500
#define SWEEP_SOON_MS	2
#define FEW_PROBES	256
#define SWEEP_MIN	512	/* with fewer probes, no extra sweep is needed */
#define MS		1000000ull

static struct list probes = LIST_INIT(probes);
static void sweep_due(struct timer *t);
static struct timer sweep_timer = TIMER_INIT(sweep_timer, sweep_due);
static unsigned int n_reachable[KIND_NETLINK + 1];
static unsigned int n_probes, sweep_at = SWEEP_MIN;

/**
 * stack_socket - create a socket in the stack, with MPTCP instead of TCP if
 * requested
 */
long stack_socket(int domain, int type, int proto, bool *is_mptcp)
{
	int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
	long fd;

	*is_mptcp = false;
	if (host.mptcp && type == SOCK_STREAM &&
	    (proto == 0 || proto == IPPROTO_TCP)) {
		fd = st_socket(domain, type | flags, IPPROTO_MPTCP);
		*is_mptcp = fd >= 0;
		/*
		 * The stack has no MPTCP, or MPTCP is disabled. An old stack
		 * does not know the protocol number (EINVAL).
		 */
		if (fd >= 0 || (fd != -EPROTONOSUPPORT && fd != -ENOPROTOOPT &&
				fd != -EINVAL))
			return fd;
	}
	return st_socket(domain, type | flags, proto);
}

/**
 * conn_begin - use the connection for the stack's socket @sfd
 * @c: the call that creates the socket
 */
void conn_begin(struct conn *conn, struct call *c, int sfd, int domain,
		int type, int proto)
{
	conn->facts |= F_STARTED;
	conn->sfd = sfd;
	conn->domain = domain;
	conn->type = type;
	conn->proto = proto;
	conn->pid = c->pid;
	conn->maker = task_tgid(c->task);
	account_begin(conn, task_account(c->task));
	memcpy(conn->comm, task_comm(c->task), sizeof(conn->comm));
	work_init(&conn->work, conn_ops->pump);
	held_init(&conn->held);
	list_init(&conn->probe);
	list_add_tail(&conn->link, &conns);
	conn_stats.open++;
}

/**
 * conn_new - call conn_make() and conn_begin()
 *
 * Returns NULL if memory is exhausted; the caller then still owns @sfd.
 */
struct conn *conn_new(struct call *c, enum conn_kind kind, int sfd, int domain,
		      int type, int proto)
{
	struct conn *conn = conn_make(kind);

	if (conn)
		conn_begin(conn, c, sfd, domain, type, proto);
	return conn;
}

/** conn_event - send CTL_EV_SOCKET to its subscribers */
void conn_event(const struct conn *conn, const char *what)
{
	if (ctl_wants(CTL_EV_SOCKET))
		ctl_event(CTL_EV_SOCKET, (uint32_t)conn->maker, conn->id, what);
}

/** conn_listens - send CTL_EV_LISTEN to its subscribers */
void conn_listens(const struct conn *conn, bool start)
{
	if (ctl_wants(CTL_EV_LISTEN))
		ctl_event(CTL_EV_LISTEN, (uint32_t)conn->maker, start, "");
}

/** conn_watch - add the connection's socket to the stack's epoll */
int conn_watch(struct conn *conn, uint32_t events)
{
	int ret;

	if (conn->stack & S_WATCHED)
		return 0;
	ret = st_watch(conn->sfd, &conn->ssrc, events);
	if (!ret)
		conn->stack |= S_WATCHED;
	return ret;
}

/** chunk_add - allocate room for @len more bytes, at least one, or return NULL */
char *chunk_add(struct chunk *ch, size_t len)
{
	size_t had = ch->off + ch->len;
	char *buf = realloc(ch->buf, had + len);

	if (!buf)
		return NULL;
	ch->buf = buf;
	ch->len += len;
	conn_stats.kept += len;
	return buf + had;
}

/** chunk_keep - store @len bytes until the destination accepts them */
int chunk_keep(struct chunk *ch, const char *data, size_t len)
{
	char *p = chunk_add(ch, len);

	if (!p)
		return -ENOMEM;
	memcpy(p, data, len);
	return 0;
}

/** chunk_sent - remove the first @n bytes, which were sent */
void chunk_sent(struct chunk *ch, size_t n)
{
	ch->off += n;
	ch->len -= n;
	if (!ch->len)
		free(chunk_take(ch));
}

/** chunk_take - empty the chunk; returns its buffer, which the caller frees */
char *chunk_take(struct chunk *ch)
{
	char *buf = ch->buf;

	conn_stats.kept -= ch->off + ch->len;	/* the whole buffer */
	memset(ch, 0, sizeof(*ch));
	return buf;
}

/** conn_free - close our descriptors and free the connection */
void conn_free(struct conn *conn)
{
	struct stream *s = conn->kind == KIND_STREAM ? stream_of(conn) : NULL;
	struct linger linger = { 0 };
	bool buried;

	if (conn->facts & F_DEAD)
		return;
	assert(!conn->held.waking);
	conn->facts |= F_DEAD;
	conn_unhash(conn);
	sockopt_log_drop(conn);
	account_end(conn);
	held_fail(&conn->held, -EBADF);
	work_cancel(&conn->work);
	conn_probe_del(conn);
	list_del(&conn->link);
	if (s)
		while (s->listener.tokens)
			close(s->listener.token_fd[--s->listener.tokens]);
	else
		list_del(&dgram_of(conn)->late);
	buried = (conn->carrier & C_GONE) && carrier_pool_close(conn);
	carrier_drop(conn);
	conn->ssrc.fn = NULL;
	/* With SO_LINGER, close() would wait even on a non-blocking socket. */
	if (conn->facts & F_LINGER) {
		st_setsockopt(conn->sfd, SOL_SOCKET, SO_LINGER, &linger,
			      sizeof(linger));
		if (s && s->listener.stashed)
			st_setsockopt(s->listener.stash_fd, SOL_SOCKET, SO_LINGER,
				      &linger, sizeof(linger));
	}
	if (s && s->listener.stashed)
		st_close(s->listener.stash_fd);
	if (conn->facts & F_RESET) {
		linger.l_onoff = 1;
		st_setsockopt(conn->sfd, SOL_SOCKET, SO_LINGER, &linger,
			      sizeof(linger));
	}
	if (!(conn->facts & F_HOSTED)) {
		conn_stats.bytes_in += conn->bytes_in;
		conn_stats.bytes_out += conn->bytes_out;
	}
	if (conn->sfd >= 0 && !(s && conn_ops->outlives(s)))
		st_close(conn->sfd);
	if (conn->kind == KIND_NETLINK)
		conn_ops->netlink_closed(conn);
	conn_event(conn, "close");
	if (s && s->state == STREAM_LISTENING)
		conn_listens(conn, false);
	free(chunk_take(&conn->to_stack));
	free(chunk_take(&conn->to_target));
	if (!s)
		free(dgram_of(conn)->last);
	conn_stats.open--;
	if (!buried)
		loop_free_later(conn);
}

/** conn_probe_add - probe a connection whose close causes no event */
void conn_probe_add(struct conn *conn)
{
	if (list_empty(&conn->probe)) {
		list_add_tail(&conn->probe, &probes);
		n_probes++;
	}
	if (list_empty(&sweep_timer.link))
		timer_arm(&sweep_timer, now_ns() + SWEEP_MS * MS);
}

/**
 * conn_probe_del - stop probing a connection whose close now causes an event
 */
void conn_probe_del(struct conn *conn)
{
	if (list_empty(&conn->probe))
		return;
	list_del(&conn->probe);
	n_probes--;
	if (conn->facts & F_REACHABLE)
		n_reachable[conn->kind]--;
	conn->facts &= ~F_REACHABLE;
}

/**
 * conn_reachable - mark a listening or bound socket: other sockets may send to
 * it
 */
void conn_reachable(struct conn *conn)
{
	if (list_empty(&conn->probe) || (conn->facts & F_REACHABLE))
		return;
	conn->facts |= F_REACHABLE;
	n_reachable[conn->kind]++;
}

/**
 * sweep - free connections with a closed carrier
 * @all: check all connections, otherwise only the reachable ones of @kind
 */
static void sweep(bool all, enum conn_kind kind)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &probes) {
		struct conn *conn = container_of(pos, struct conn, probe);

		if (!all && (!(conn->facts & F_REACHABLE) || conn->kind != kind))
			continue;
		held_prune(&conn->held);
		if (carrier_gone(conn)) {
			conn_stats.swept++;
			if (conn->kind == KIND_DGRAM)
				conn_ops->closed(dgram_of(conn));
			else
				conn_free(conn);
		}
	}
}

/**
 * conn_sweep_few - sweep before a connect, if that is cheap
 *
 * connect() must not reach a socket whose carrier the target has just closed.
 * If there are many such sockets, only the next regular sweep finds them.
 */
void conn_sweep_few(enum conn_kind kind)
{
	if (n_reachable[kind] <= FEW_PROBES)
		sweep(false, kind);
}

/** conn_sweep - free the connections with a closed carrier */
void conn_sweep(void)
{
	sweep(true, KIND_STREAM);
	sweep_at = n_probes > SWEEP_MIN / 2 ? 2 * n_probes : SWEEP_MIN;
}

/**
 * conn_sweep_many - sweep before a new socket is created, if there are many
 *
 * A target that opens and closes sockets in a loop creates tens of thousands of
 * them between two regular sweeps, which is more than the descriptor limit.
 * Waiting until there are twice as many as the last sweep left keeps the cost
 * per socket constant.
 */
void conn_sweep_many(void)
{
	if (n_probes >= sweep_at)
		conn_sweep();
}

/**
 * conn_sweep_soon - sweep soon, because a process that may have held carriers
 * ended
 */
void conn_sweep_soon(void)
{
	uint64_t at = now_ns() + SWEEP_SOON_MS * MS;

	if (list_empty(&probes))
		return;
	if (list_empty(&sweep_timer.link) || sweep_timer.at > at)
		timer_arm(&sweep_timer, at);
}

/** sweep_due - run the regular sweep */
static void sweep_due(struct timer *t)
{
	carriers_find_gone();
	conn_sweep();
	if (!list_empty(&probes))
		timer_arm(t, now_ns() + SWEEP_MS * MS);
}

/**
 * conn_stop - reset and free all connections, when the target is gone
 *
 * The data of these connections was not drained, and the stack ends before it
 * could be. close() would send a FIN, which would either wait behind this data
 * forever or make the truncated data look complete. The connections are
 * therefore reset.
 */
void conn_stop(void)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		conn->facts |= F_RESET;
		conn->held.waking = false;	/* it is set after a panic */
		conn_free(conn);
	}
	carrier_pool_stop();
	timer_cancel(&sweep_timer);
	carrier_stop();
}
