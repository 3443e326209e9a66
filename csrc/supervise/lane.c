// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes: making, finding and ending them, and when the loop looks at them.
 *
 * Theory of operation
 *
 * See include/lane.h for what is shared. A lane is made when the library in the
 * program asks for it, by a call on the carrier, and lives as long as the carrier.
 *
 * Neither side is told of what the other has done as long as it looks by itself. So
 * after each use a lane joins the list of those that wait: the loop looks at
 * them once a turn and while it polls, and before it sleeps, or after LOOKS, it says
 * in the shared page that it looks no more (lane_look()). From then on a bell in the
 * carrier, or LANE_KICK, says that there is something to do.
 *
 * How the bytes go is in lane_tx.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host.h"
#include "lane_end.h"

#define LANES_MAX	256
#define LOOKS		100
#define CARRIER_SIZE	32768	/* SO_SNDBUF: a writer who finds the ring full waits soon */

static struct list lanes = LIST_INIT(lanes);
static struct list waiting = LIST_INIT(waiting);
static unsigned int n_lanes;

/**
 * lane_look - look at the lanes that wait
 * @sleeps: the loop is about to sleep
 *
 * Returns true when there is something to do, which is in the loop's ready list then.
 */
static bool lane_look(bool sleeps)
{
	struct list *pos, *tmp;
	bool found = false;

	list_for_each_safe(pos, tmp, &waiting) {
		struct lane_end *le = container_of(pos, struct lane_end, wait);
		bool rests = false;

		if (!lane_tx_work(le)) {
			if (!sleeps && ++le->looks < LOOKS)
				continue;
			lane_tx_rest(le);
			FENCE();
			rests = !lane_tx_work(le);
		}
		list_del(&le->wait);
		if (rests)
			continue;
		work_queue(&le->conn->work);
		found = true;
	}
	return found;
}

/** lane_begin - the pump is at work: nobody needs to wake us */
void lane_begin(struct conn *conn)
{
	lane_tx_wake(conn->lane);
}

/** lane_wait - the pump has done what there was to do: the loop shall look */
void lane_wait(struct conn *conn)
{
	struct lane_end *le = conn->lane;

	le->looks = 0;
	if (list_empty(&le->wait))
		list_add_tail(&le->wait, &waiting);
}

/** lane_bad - whether the program has written what cannot be; says so once */
bool lane_bad(const struct conn *conn)
{
	static bool told;

	if (!conn->lane->bad)
		return false;
	if (!told)
		warn_user("%s (pid %d): the memory that it shares with the stack is in disorder, a connection is reset",
			  conn->comm, conn->maker);
	told = true;
	return true;
}

/** memory - a sealed memory file: nobody can cut off what we map */
static int memory(void)
{
	int fd = memfd_create("lklrun-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, LANE_SIZE) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

/** make - the lane of a connection; 0 or a negative errno */
static int make(struct conn *conn)
{
	struct lane_end *le;
	void *p;
	int fd;

	if (n_lanes >= LANES_MAX)
		return -ENOSPC;
	fd = memory();
	if (fd < 0)
		return fd;
	p = mmap(NULL, LANE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	le = p == MAP_FAILED ? NULL : calloc(1, sizeof(*le));
	if (!le) {
		if (p != MAP_FAILED)
			munmap(p, LANE_SIZE);
		close(fd);
		return -ENOMEM;
	}
	le->conn = conn;
	le->page = p;
	le->tx = (char *)p + LANE_TX_AT;
	le->fd = fd;
	/* The positions wrap soon, so that whoever does not know it is found soon. */
	le->tail = 0u - LANE_TX_SIZE;
	le->page->tx_head = le->page->tx_tail = le->tail;
	le->page->tx_bell = LANE_NO_BELL;
	le->page->tx_idle = 1;
	le->idle = true;
	list_init(&le->wait);
	list_add_tail(&le->all, &lanes);
	if (!n_lanes++)
		loop_set_look(lane_look);
	conn->lane = le;
	conn_stats.lanes++;
	return 0;
}

/** lane_drop - the carrier is closed, or nothing goes over it any more */
void lane_drop(struct conn *conn)
{
	struct lane_end *le = conn->lane;

	if (!le)
		return;
	conn->lane = NULL;
	STORE(le->page->tx_off, 1);
	STORE(le->page->gone, 1);
	munmap(le->page, LANE_SIZE);
	close(le->fd);
	list_del(&le->all);
	list_del(&le->wait);
	if (!--n_lanes)
		loop_set_look(NULL);
	free(le);
}

/**
 * lane_look_all - a process has ended: what it has put into a ring, and did not
 * come to tell
 */
void lane_look_all(void)
{
	struct list *pos;

	list_for_each(pos, &lanes)
		work_queue(&container_of(pos, struct lane_end, all)->conn->work);
}

/** attach - LANE_ATTACH: a descriptor of the memory; made the first time */
static int64_t attach(struct call *c)
{
	struct conn *conn = c->conn;
	int size = CARRIER_SIZE, ret;

	if (conn->state == CONN_NEW || conn->state == CONN_CONNECTING)
		return -EAGAIN;
	if (conn->state != CONN_OPEN || conn->csrc.fd < 0)
		return -EOPNOTSUPP;
	if (!conn->lane) {
		ret = make(conn);
		if (ret)
			return ret;
		setsockopt(c->dup, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	}
	ret = call_addfd_send(c, conn->lane->fd, true);
	return ret < 0 ? ret : CALL_ANSWERED;
}

/** lane_call - a program's calls for its lane, on a carrier */
int64_t lane_call(struct call *c)
{
	uint32_t id;

	if (call_dup(c, (int)c->args[0]))
		return CALL_NATIVE;
	if (carrier_identify(c->dup, &id))
		return -ENOTTY;
	c->conn = conn_find(id);
	if (!c->conn)
		return -ENOTCONN;
	c->conn->pid = c->pid;
	c->conn->tfd = (int)c->args[0];
	if (c->conn->kind != KIND_STREAM)
		return -EOPNOTSUPP;
	switch ((uint32_t)c->args[1]) {
	case LANE_ATTACH:
		return attach(c);
	case LANE_KICK:
		work_queue(&c->conn->work);
		return 0;
	}
	return -ENOTTY;
}
