// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of connections: making, finding, sweeping, freeing.
 *
 * Theory of operation
 *
 * A connection lives from socket() or accept() until the target has closed the
 * last copy of its carrier and everything it had written is with the stack. For
 * connected streams EPOLLHUP tells that; the rest lie in the probe list, and
 * conn_sweep() tries their names: when a process ends, before EADDRINUSE is
 * reported, and every SWEEP_MS.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conn.h"
#include "ctl_proto.h"
#include "host.h"
#include "loop.h"

#define CONN_HASH	4096
#define SWEEP_MS	500
#define SWEEP_SOON_MS	2
#define FEW_PROBES	256
#define MS		1000000ull

struct list conns = LIST_INIT(conns);
struct conn_stats conn_stats;
char shared_buf[SHARED_SIZE];

static struct conn *hash[CONN_HASH];
static struct list probes = LIST_INIT(probes);
static void sweep_due(struct timer *t);
static struct timer sweep_timer = TIMER_INIT(sweep_timer, sweep_due);
static uint32_t last_id;
static unsigned int n_reachable[KIND_NETLINK + 1];

/** lookup - by number; NULL when nobody has it */
static struct conn *lookup(uint32_t id)
{
	struct conn *conn = hash[id % CONN_HASH];

	while (conn && conn->id != id)
		conn = conn->hash_next;
	return conn;
}

/** conn_find - by number; NULL when there is none */
struct conn *conn_find(uint32_t id)
{
	struct conn *conn = lookup(id);

	return conn && conn->begun ? conn : NULL;
}

/** number - give it a number that is free, and put it into the table */
static void number(struct conn *conn)
{
	do {
		/* Where names are seen, nobody shall know the next one. */
		if (host.shared_netns &&
		    getrandom(&last_id, sizeof(last_id), GRND_NONBLOCK) < 0)
			last_id++;
		conn->id = ++last_id;
	} while (!conn->id || lookup(conn->id));
	conn->hash_next = hash[conn->id % CONN_HASH];
	hash[conn->id % CONN_HASH] = conn;
}

/** conn_make - one that has a number, and is nobody's; NULL without memory */
struct conn *conn_make(void)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	number(conn);
	conn->sfd = -1;
	conn->csrc.fd = -1;
	conn->tfd = -1;
	return conn;
}

/**
 * conn_begin - it is for the socket @sfd of the stack
 * @c: the call that makes it
 */
void conn_begin(struct conn *conn, struct call *c, enum conn_kind kind, int sfd,
		int domain, int type, int proto)
{
	conn->begun = true;
	conn->kind = kind;
	conn->sfd = sfd;
	conn->domain = domain;
	conn->type = type;
	conn->proto = proto;
	conn->pid = c->pid;
	conn->maker = task_tgid(c->task);
	account_begin(conn, task_account(c->task));
	memcpy(conn->comm, task_comm(c->task), sizeof(conn->comm));
	work_init(&conn->work, pump);
	list_init(&conn->held);
	list_init(&conn->late);
	list_init(&conn->probe);
	list_add_tail(&conn->link, &conns);
	conn_stats.open++;
}

/** conn_new - both; NULL without memory, @sfd is then still the caller's */
struct conn *conn_new(struct call *c, enum conn_kind kind, int sfd, int domain,
		      int type, int proto)
{
	struct conn *conn = conn_make();

	if (conn)
		conn_begin(conn, c, kind, sfd, domain, type, proto);
	return conn;
}

/** unhash - take it out of the table of numbers */
static void unhash(struct conn *conn)
{
	struct conn **pp = &hash[conn->id % CONN_HASH];

	while (*pp != conn)
		pp = &(*pp)->hash_next;
	*pp = conn->hash_next;
}

/** conn_unmake - forget one that was made and not begun; its carrier is closed */
void conn_unmake(struct conn *conn)
{
	unhash(conn);
	loop_free_later(conn);
}

/** conn_renumber - a new number, for a new carrier; returns it */
uint32_t conn_renumber(struct conn *conn)
{
	unhash(conn);
	number(conn);
	return conn->id;
}

/** conn_event - tell those who listen for CTL_EV_SOCKET */
void conn_event(const struct conn *conn, const char *what)
{
	if (ctl_wants(CTL_EV_SOCKET))
		ctl_event(CTL_EV_SOCKET, (uint32_t)conn->maker, conn->id, what);
}

/** conn_watch - have the stack's epoll report on the socket */
int conn_watch(struct conn *conn, uint32_t events)
{
	int ret;

	if (conn->watched)
		return 0;
	ret = st_watch(conn->sfd, &conn->ssrc, events);
	if (!ret)
		conn->watched = true;
	return ret;
}

/** conn_free - close what is ours and forget it */
void conn_free(struct conn *conn)
{
	struct linger linger = { 0 };
	bool buried;

	if (conn->dead)
		return;
	conn->dead = true;
	unhash(conn);
	fallback_forget(conn);
	account_end(conn);
	held_fail(&conn->held, -EBADF);
	work_cancel(&conn->work);
	conn_probe_del(conn);
	list_del(&conn->link);
	list_del(&conn->late);
	while (conn->tokens)
		close(conn->token_fd[--conn->tokens]);
	buried = conn->gone && ahead_bury(conn);
	carrier_drop(conn);
	carrier_forget(conn);
	conn->ssrc.fn = NULL;
	/* With SO_LINGER close() would wait, even on a non-blocking socket. */
	if (conn->linger) {
		st_setsockopt(conn->sfd, SOL_SOCKET, SO_LINGER, &linger,
			      sizeof(linger));
		if (conn->stashed)
			st_setsockopt(conn->stash_fd, SOL_SOCKET, SO_LINGER,
				      &linger, sizeof(linger));
	}
	if (conn->stashed)
		st_close(conn->stash_fd);
	if (conn->reset_out) {
		linger.l_onoff = 1;
		st_setsockopt(conn->sfd, SOL_SOCKET, SO_LINGER, &linger,
			      sizeof(linger));
	}
	if (!conn->hosted) {
		conn_stats.bytes_in += conn->bytes_in;
		conn_stats.bytes_out += conn->bytes_out;
	}
	if (conn->sfd >= 0 && !leaver_take(conn))
		st_close(conn->sfd);
	conn_event(conn, "close");
	free(conn->to_stack.buf);
	free(conn->to_target.buf);
	free(conn->last);
	conn_stats.open--;
	if (!buried)
		loop_free_later(conn);
}

/** conn_stack_ino - inode number of the socket in the stack, 0: unknown */
uint64_t conn_stack_ino(struct conn *conn)
{
	struct stat st;

	if (conn->sfd < 0 || conn->hosted)
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

/** conn_probe_add - no event will tell of its closing */
void conn_probe_add(struct conn *conn)
{
	if (list_empty(&conn->probe))
		list_add_tail(&conn->probe, &probes);
	if (list_empty(&sweep_timer.link))
		timer_arm(&sweep_timer, now_ns() + SWEEP_MS * MS);
}

/** conn_probe_del - an event will */
void conn_probe_del(struct conn *conn)
{
	if (list_empty(&conn->probe))
		return;
	list_del(&conn->probe);
	if (conn->reachable)
		n_reachable[conn->kind]--;
	conn->reachable = false;
}

/** conn_reachable - others may send to it: it listens, or is bound */
void conn_reachable(struct conn *conn)
{
	if (list_empty(&conn->probe) || conn->reachable)
		return;
	conn->reachable = true;
	n_reachable[conn->kind]++;
}

/** sweep - free those whose carrier is closed: all, or the reachable of a kind */
static void sweep(bool all, enum conn_kind kind)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &probes) {
		struct conn *conn = container_of(pos, struct conn, probe);

		if ((all || (conn->reachable && conn->kind == kind)) &&
		    carrier_gone(conn)) {
			conn_stats.swept++;
			if (conn->kind == KIND_DGRAM)
				dgram_gone(conn);
			else
				conn_free(conn);
		}
	}
}

/**
 * conn_sweep_few - before a connect: nobody shall reach a socket whose carrier
 * the target has just closed
 *
 * Only where it costs little; else the next sweep does it.
 */
void conn_sweep_few(enum conn_kind kind)
{
	if (n_reachable[kind] <= FEW_PROBES)
		sweep(false, kind);
}

/** conn_sweep - free those whose carrier is closed */
void conn_sweep(void)
{
	sweep(true, KIND_STREAM);
}

/** conn_sweep_soon - a process has ended, it may have held carriers */
void conn_sweep_soon(void)
{
	uint64_t at = now_ns() + SWEEP_SOON_MS * MS;

	if (list_empty(&probes))
		return;
	if (list_empty(&sweep_timer.link) || sweep_timer.at > at)
		timer_arm(&sweep_timer, at);
}

/** sweep_due - the slow sweep */
static void sweep_due(struct timer *t)
{
	conn_sweep();
	if (!list_empty(&probes))
		timer_arm(t, now_ns() + SWEEP_MS * MS);
}

/**
 * conn_stop - free all; the target is gone
 *
 * What is here now was not drained, and the stack ends before it could be: the FIN of
 * close() would wait behind it for ever, or be taken for the end of something whole.
 */
void conn_stop(void)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &conns) {
		struct conn *conn = container_of(pos, struct conn, link);

		conn->reset_out = true;
		conn_free(conn);
	}
	ahead_stop();
	timer_cancel(&sweep_timer);
	carrier_stop();
}
