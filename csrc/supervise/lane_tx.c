// SPDX-License-Identifier: GPL-2.0-only
/*
 * A lane from the program to the stack; include/lane.h has the rules of order.
 *
 * Theory of operation
 *
 * Bytes go from the ring into the stack, and what the stack does not take stays
 * there. The bell's byte is read from the carrier as soon as it is there, and kept
 * until all before it has gone, so that both, and what follows, are one send.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "lane_end.h"
#include "pump.h"

#define SEND_MAX	(256u << 10)	/* at a time, so that others have their turn */

/** waiting_bytes - in the ring, 0 also when the program has spoilt it */
static uint32_t waiting_bytes(const struct lane_end *le)
{
	uint32_t n = LOAD(le->page->tx_head) - le->tail;

	return n > LANE_TX_SIZE || le->bad ? 0 : n;
}

/** carrier_bytes - that lie in our end of the carrier */
static int carrier_bytes(const struct lane_end *le)
{
	int n = 0;

	return ioctl(le->conn->csrc.fd, FIONREAD, &n) ? 0 : n;
}

/**
 * fetch_bell - read the bell's byte, if it is there
 *
 * Returns how many bytes of the @n in the ring may be sent: none behind a bell
 * that has not come, or that waits for another's place: a writer may ring again while
 * the stack takes nothing. It is taken off the page first: see there.
 */
static uint32_t fetch_bell(struct lane_end *le, uint64_t bell, uint32_t n)
{
	uint32_t at = (uint32_t)bell;

	if (bell == LANE_NO_BELL)
		return n;
	if (at - le->tail > n) {
		le->bad = true;
		return 0;
	}
	if (le->have_bell)
		return at - le->tail;
	if (!carrier_bytes(le))
		return le->conn->c_rdhup ? n : at - le->tail;
	STORE(le->page->tx_bell, LANE_NO_BELL);
	if (recv(le->conn->csrc.fd, &le->bell, 1, MSG_DONTWAIT) == 1) {
		le->have_bell = true;
		le->bell_at = at;
	}
	return n;
}

/** piece - append the @n bytes of the ring from position @at */
static int piece(struct lane_end *le, struct iovec *iov, uint32_t at, uint32_t n)
{
	uint32_t off = at % LANE_TX_SIZE, first = LANE_TX_SIZE - off;
	int cnt = 0;

	if (!n)
		return 0;
	if (first > n)
		first = n;
	iov[cnt++] = (struct iovec){ le->tx + off, first };
	if (n > first)
		iov[cnt++] = (struct iovec){ le->tx, n - first };
	return cnt;
}

/** gone - the stack has taken @n bytes */
static void gone(struct lane_end *le, size_t n)
{
	uint32_t before = le->bell_at - le->tail;

	if (le->have_bell && n > before) {
		le->have_bell = false;
		n--;
	}
	le->tail += (uint32_t)n;
	STORE(le->page->tx_tail, le->tail);
	conn_stats.lane_out += n;
}

/**
 * lane_to_stack - send what is in the ring
 *
 * Returns 1: some of it is sent, 0: there is nothing, or a negative errno:
 * -EAGAIN: not now.
 */
int lane_to_stack(struct conn *conn)
{
	struct lane_end *le = conn->lane;
	uint32_t n = LOAD(le->page->tx_head) - le->tail, before;
	uint64_t bell = LOAD(le->page->tx_bell);
	struct iovec iov[5];
	int cnt = 0;
	long sent;

	/*
	 * In this order: what the ring held before there was no bell is before any bell.
	 * The other way round bytes behind a bell rung in between would be sent before it.
	 * Where there is one the ring reaches as far, at least.
	 */
	if (bell != LANE_NO_BELL)
		n = LOAD(le->page->tx_head) - le->tail;
	if (le->bad || n > LANE_TX_SIZE) {
		le->bad = true;
		return -EAGAIN;
	}
	n = fetch_bell(le, bell, n);
	if (le->have_bell && le->bell_at - le->tail > n)
		le->bad = true;	/* what was before the bell is taken back */
	if (le->bad)
		return -EAGAIN;
	if (!n && !le->have_bell)
		return 0;
	if (!conn->s_out)
		return -EAGAIN;
	if (n > SEND_MAX)
		n = SEND_MAX;
	before = le->have_bell ? le->bell_at - le->tail : n;
	if (before > n)
		before = n;
	cnt = piece(le, iov, le->tail, before);
	if (le->have_bell && before == le->bell_at - le->tail) {
		iov[cnt++] = (struct iovec){ &le->bell, 1 };
		cnt += piece(le, iov + cnt, le->bell_at, n - before);
		n++;
	}
	sent = stack_putv(conn, iov, cnt, n);
	if (sent > 0)
		gone(le, (size_t)sent);
	return sent < 0 ? (int)sent : 1;
}

/**
 * lane_carrier_room - how much may be read of what is in the carrier
 * @room: at most
 *
 * Returns 0: nothing is there; -EAGAIN: the ring comes first.
 */
int lane_carrier_room(struct conn *conn, int room)
{
	struct lane_end *le = conn->lane;
	int n = carrier_bytes(le);
	bool bell = LOAD(le->page->tx_bell) != LANE_NO_BELL;

	if (bell ? n > 0 : LOAD(le->page->tx_head) != le->tail)
		return -EAGAIN;
	/* After the end of the stream nothing comes: reading says what end it is. */
	if (conn->c_rdhup || conn->c_err || conn->hup || n > room)
		return room;
	return n;
}

/** lane_unsent - bytes of the program's that are not with the stack, beside the carrier's */
size_t lane_unsent(const struct conn *conn)
{
	const struct lane_end *le = conn->lane;

	return le && !conn->s_broken ? waiting_bytes(le) + le->have_bell : 0;
}

/** lane_tx_off - nothing more is taken: the carrier says why */
void lane_tx_off(struct conn *conn)
{
	struct lane_end *le = conn->lane;

	if (!le || le->off)
		return;
	le->off = true;
	STORE(le->page->tx_off, 1);
	if (conn->s_broken) {
		le->have_bell = false;
		le->tail = LOAD(le->page->tx_head);
	}
}

/** lane_tx_work - whether the pump has something to do */
bool lane_tx_work(const struct lane_end *le)
{
	const struct conn *conn = le->conn;

	return conn->s_out && !conn->s_broken &&
	       LOAD(le->page->tx_head) != le->tail &&
	       LOAD(le->page->tx_bell) == LANE_NO_BELL;
}

/** lane_tx_wake - we look by ourselves */
void lane_tx_wake(struct lane_end *le)
{
	if (!le->idle)
		return;
	le->idle = false;
	STORE(le->page->tx_idle, 0);
	FENCE();
}

/**
 * lane_tx_rest - we look no more
 *
 * Where there is something that cannot go on, be it for the stack or a bell that
 * is on its way, another event says when it can.
 */
void lane_tx_rest(struct lane_end *le)
{
	if (le->idle || le->off || LOAD(le->page->tx_head) != le->tail ||
	    LOAD(le->page->tx_bell) != LANE_NO_BELL)
		return;
	le->idle = true;
	STORE(le->page->tx_idle, 1);
}
