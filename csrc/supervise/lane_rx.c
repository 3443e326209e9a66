// SPDX-License-Identifier: GPL-2.0-only
/*
 * A lane from the stack to the program; include/lane.h has the rules of order.
 *
 * Theory of operation
 *
 * Where a reader can do with much and the stack has as much, and the carrier is
 * empty, the bytes are received into the ring, and offered: the first of them is
 * the bell, the others are the batch. Until they are taken the rest waits in the
 * stack. Where the carrier is not empty it is waited for that for DRAIN_NS.
 *
 * A batch that nobody touches for UNTOUCHED_NS, though its bell is read, is
 * for a reader that knows nothing of it, or comes back by poll; then, and after
 * UNREAD_NS in any case, it is taken back, and goes by the carrier. So does what
 * comes next, for a time that doubles each time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lane_end.h"
#include "pump.h"

#define MS		1000000ull
#define DRAIN_NS	(2 * MS)
#define UNTOUCHED_NS	(2 * MS)
#define UNREAD_NS	(20 * MS)
#define DEAD_NS		(100 * MS)
#define PAUSE_NS	(1 * MS)
#define PAUSE_MAX_NS	(1000 * MS)

/** pause_offers - for a while everything goes by the carrier */
static void pause_offers(struct lane_end *le, uint64_t now)
{
	le->pause = le->pause ? 2 * le->pause : PAUSE_NS;
	if (le->pause > PAUSE_MAX_NS)
		le->pause = PAUSE_MAX_NS;
	le->pause_end = now + le->pause;
}

/** lane_on_offer - whether a batch waits to be taken */
bool lane_on_offer(const struct conn *conn)
{
	struct lane_end *le = conn->lane;

	if (!le || !le->offered)
		return false;
	if (LOAD(le->page->rx_state) != LANE_NONE)
		return true;
	le->offered = false;
	le->pause = le->pause > PAUSE_NS ? le->pause / 2 : 0;
	return false;
}

/** carrier_empty - whether the program has read all that is in the carrier */
static bool carrier_empty(const struct lane_end *le)
{
	int n = 0;

	return !ioctl(le->conn->csrc.fd, SIOCOUTQ, &n) && !n;
}

/** drain - wait for an empty carrier, but not for long */
static void drain(struct lane_end *le)
{
	if (le->draining)
		return;
	le->draining = true;
	le->since = now_ns();
	lane_watch_time(le);
}

/**
 * lane_batch_room - how many bytes may be offered now
 *
 * Returns 0: the carrier shall have them; -EAGAIN: nothing may go there, until the
 * carrier is empty.
 */
int lane_batch_room(struct conn *conn)
{
	struct lane_end *le = conn->lane;
	uint32_t want = LOAD(le->page->rx_want);
	int n = 0;

	if (want < LANE_MIN || conn->low_water || conn->stamps_wanted ||
	    conn->s_urgent || !list_empty(&conn->held))
		return 0;
	if (le->pause_end && now_ns() < le->pause_end)
		return 0;
	le->pause_end = 0;
	if (st_ioctl(conn->sfd, FIONREAD, &n) || n < (int)LANE_MIN)
		return 0;
	if (!carrier_empty(le)) {
		drain(le);
		return -EAGAIN;
	}
	le->draining = false;
	return want < LANE_RX_SIZE ? (int)want : (int)LANE_RX_SIZE;
}

/** lane_receive - from the stack, @room bytes at most, a bell and a batch */
long lane_receive(struct conn *conn, int room)
{
	struct lane_end *le = conn->lane;
	struct iovec iov[2] = { { &le->rx_bell, 1 },
				{ le->rx, (size_t)room - 1 } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	return st_recvmsg(conn->sfd, &mh, MSG_DONTWAIT);
}

/**
 * withdraw - nobody takes it: what is left is for the carrier
 * @off: the first byte that is
 */
static void withdraw(struct lane_end *le, uint32_t off)
{
	struct conn *conn = le->conn;
	uint32_t rest = le->len - off;

	if (off > le->len)
		le->bad = true;
	else if (rest && chunk_keep(&conn->to_target, le->rx + off, rest))
		stack_error(conn, ENOMEM);
	STORE(le->page->rx_state, LANE_NONE);
	le->offered = false;
	conn_stats.lane_back++;
	if (le->bad)
		return;
	conn->bytes_in -= rest;
	conn_stats.lane_in -= rest;
}

/** take_back - unless somebody is at it; true: it is done */
static bool take_back(struct lane_end *le, uint64_t now)
{
	uint32_t was = LANE_OFFERED;

	if (!__atomic_compare_exchange_n(&le->page->rx_state, &was, LANE_TAKING,
					 false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return false;
	STORE(le->page->rx_taker, (uint32_t)getpid());
	pause_offers(le, now);
	withdraw(le, LOAD(le->page->rx_off));
	return true;
}

/** no_bell - it cannot be rung: all is for the carrier, the bell's byte first */
static void no_bell(struct lane_end *le)
{
	uint32_t was = LANE_OFFERED, n = le->len;

	if (!__atomic_compare_exchange_n(&le->page->rx_state, &was, LANE_TAKING,
					 false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST)) {
		le->bad = true;
		return;
	}
	memmove(le->rx + 1, le->rx, n);	/* there is room: lane_batch_room() */
	le->rx[0] = le->rx_bell;
	le->len = n + 1;
	withdraw(le, 0);
}

/**
 * lane_offer - what lane_receive() has brought, @n bytes
 *
 * Returns 0, or a negative errno of the carrier's: it will have them when it can.
 */
int lane_offer(struct conn *conn, size_t n)
{
	struct lane_end *le = conn->lane;
	struct lane *page = le->page;
	int ret;

	le->len = (uint32_t)n - 1;
	le->seen = 0;
	le->offered = true;
	le->since = now_ns();
	lane_watch_time(le);
	conn->bytes_in += n;
	conn_stats.lane_in += n;
	conn_stats.lane_batches++;
	STORE(page->rx_len, le->len);
	STORE(page->rx_off, 0);
	STORE(page->rx_seq, ++le->seq);
	STORE(page->rx_state, LANE_OFFERED);
	if (send(conn->csrc.fd, &le->rx_bell, 1,
		 MSG_DONTWAIT | MSG_NOSIGNAL) == 1) {
		STORE(page->rx_rung, le->seq);
		return 0;
	}
	ret = -errno;
	no_bell(le);
	return ret;
}

/** lane_back - take back what is on offer, for the carrier, at once */
void lane_back(struct conn *conn)
{
	if (lane_on_offer(conn) && take_back(conn->lane, now_ns()))
		pump_flush(conn);
}

/** taker_dead - whether who takes the batch is no more */
static bool taker_dead(const struct lane_end *le)
{
	pid_t tid = (pid_t)LOAD(le->page->rx_taker);

	return tid <= 0 || tid == getpid() || (kill(tid, 0) && errno == ESRCH);
}

/** batch_time - the same as lane_rx_time() while a batch is on offer */
static bool batch_time(struct lane_end *le, uint64_t now)
{
	uint32_t off = LOAD(le->page->rx_off);
	uint64_t age;

	if (off != le->seen) {
		le->seen = off;
		le->since = now;
	}
	age = now - le->since;
	switch (LOAD(le->page->rx_state)) {
	case LANE_NONE:
		return false;
	case LANE_OFFERED:
		if ((age < UNTOUCHED_NS || !carrier_empty(le)) &&
		    age < UNREAD_NS)
			return true;
		STORE(le->page->rx_want, 0);	/* who still reads so says it again */
		return !take_back(le, now);
	case LANE_TAKING:
		if (age < DEAD_NS || !taker_dead(le))
			return true;
		STORE(le->page->rx_state, LANE_NONE);
		return false;
	}
	le->bad = true;
	return false;
}

/** lane_rx_time - look whether something has taken too long; false: look no more */
bool lane_rx_time(struct lane_end *le, uint64_t now)
{
	if (le->offered)
		return batch_time(le, now);
	if (!le->draining)
		return false;
	if (now - le->since < DRAIN_NS)
		return true;
	le->draining = false;
	le->conn->c_out = true;
	pause_offers(le, now);
	return false;
}

/** lane_rx_work - whether the pump has something to do */
bool lane_rx_work(const struct lane_end *le)
{
	return le->offered && le->conn->s_in && !le->conn->c_deaf &&
	       LOAD(le->page->rx_state) == LANE_NONE;
}

/** lane_rx_wake - we look by ourselves */
void lane_rx_wake(struct lane_end *le)
{
	if (!le->waits)
		return;
	le->waits = false;
	STORE(le->page->rx_waits, 0);
}

/** lane_rx_rest - we look no more: who takes the batch shall tell, if there is more */
void lane_rx_rest(struct lane_end *le)
{
	if (!le->offered || !le->conn->s_in)
		return;
	le->waits = true;
	STORE(le->page->rx_waits, 1);
}

/** lane_rx_drop - the carrier is closed; what was not taken was not read */
void lane_rx_drop(struct lane_end *le)
{
	if (le->offered && LOAD(le->page->rx_state) != LANE_NONE)
		le->conn->reset_out = true;
}
