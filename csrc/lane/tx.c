// SPDX-License-Identifier: GPL-2.0-only
/*
 * Large writes.
 *
 * Theory of operation
 *
 * As much as may go into the ring goes there, the rest to the carrier, which
 * blocks, fails or says EAGAIN. A write that blocks and has more to write gives the
 * carrier one piece only and waits until that has been read: lklhost reads the
 * carrier when the ring is empty, so the next bytes can go into the ring again.
 *
 * A thread that may not be interrupted here is one that rings: a handler that
 * leaves by longjmp() would have lklhost sleep on bytes that are in the ring.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "internal.h"

#define LOOK_NS		50000		/* how long to look for room */
#define ENOUGH		(64u << 10)	/* room worth looking for */
#define PIECE		(24u << 10)	/* more than a quarter of the carrier, so poll() waits for its end */
#define WAIT_NS		10000000	/* then the carrier gets all, and blocks as it should */
#define VAIN_MAX	4

/* Why the ring took nothing. */
enum why { FULL, BUSY, OFF };

/** place - copy into the ring */
static void place(struct lane *l, uint32_t pos, const struct op *op, size_t off,
		  size_t n)
{
	char *ring = (char *)l + LANE_TX_AT;
	uint32_t at = pos & (LANE_TX_SIZE - 1);
	size_t first = LANE_TX_SIZE - at < n ? LANE_TX_SIZE - at : n;

	op_gather(op, off, ring + at, first);
	if (n > first)
		op_gather(op, off + first, ring, n - first);
}

/**
 * publish - the @n bytes from @head on are there
 *
 * Returns how many of them lklhost gets: @n, or one less where the bell could not
 * be rung. @kick is set where it must be told by a call.
 */
static size_t publish(struct lane *l, int fd, uint32_t head, size_t n, bool *kick)
{
	const char *ring = (const char *)l + LANE_TX_AT;
	uint32_t last = head + (uint32_t)n - 1;
	char byte = ring[last & (LANE_TX_SIZE - 1)];
	uint64_t old;
	bool rung;

	if (load(&l->tx_idle) && load(&l->tx_bell) == LANE_NO_BELL) {
		store(&l->tx_head, last);
		signals_off(&old);
		if (swap(&l->tx_idle, 1, 0)) {
			store(&l->tx_bell, (uint64_t)last);
			rung = RAW(sendto, fd, &byte, 1,
				   MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == 1;
			if (!rung)
				store(&l->tx_bell, LANE_NO_BELL);
			*kick = !rung;
			signals_on(&old);
			return rung ? n : n - 1;
		}
		signals_on(&old);
	}
	store(&l->tx_head, last + 1);
	fence();
	*kick = load(&l->tx_idle) && swap(&l->tx_idle, 1, 0);
	return n;
}

/**
 * put - into the ring what may go there, from the @off'th byte on
 *
 * Returns bytes; for 0 says @why.
 */
static size_t put(struct lane *l, const struct op *op, size_t off, enum why *why)
{
	size_t left = op->len - off, n = 0;
	uint32_t head, room;
	uint64_t bell;
	bool kick = false;
	int carrier;

	*why = OFF;
	if (load(&l->tx_off) || load(&l->gone) ||
	    !swap(&l->tx_lock, 0, (uint32_t)RAW(gettid)))
		return 0;
	/*
	 * In this order: see struct lane, tx_bell. The other way round the bell could be
	 * read in between, and what weighs as much be a short write that came after it.
	 */
	carrier = carrier_left(op->fd);
	fence();
	bell = load(&l->tx_bell);
	*why = BUSY;
	if (carrier && (bell == LANE_NO_BELL ||
			(uint32_t)carrier != load(&bell_weight)))
		goto out;
	*why = FULL;
	head = load(&l->tx_head);
	room = LANE_TX_SIZE - (head - load(&l->tx_tail));
	if (room > LANE_TX_SIZE || room < 2 || (room < LANE_MIN && room < left))
		goto out;
	n = left < room ? left : room;
	place(l, head, op, off, n);
	n = publish(l, op->fd, head, n, &kick);
out:
	store(&l->tx_lock, 0);
	if (kick)
		lane_kick(op->fd);
	return n;
}

/** look - for a short time, for room; whether there is some */
static bool look(struct entry *e, int fd, size_t left, enum why why)
{
	struct lane *l = e->lane;
	uint32_t want = left < ENOUGH ? (uint32_t)left : ENOUGH;
	uint64_t until;
	int i;

	if (!many_cpus || e->vain >= VAIN_MAX)
		return false;
	until = now_ns() + LOOK_NS;
	do {
		if (why == BUSY) {
			if (!carrier_left(fd))
				return true;
			continue;
		}
		for (i = 0; i < 32; i++) {
			if (LANE_TX_SIZE - (load(&l->tx_head) -
					    load(&l->tx_tail)) >= want)
				return true;
			cpu_relax();
		}
	} while (now_ns() < until && !load(&l->tx_off));
	e->vain++;
	return false;
}

/** blocks - whether a write without room waits */
static bool blocks(const struct op *op)
{
	return !(op->flags & MSG_DONTWAIT) &&
	       !(RAW(fcntl, op->fd, F_GETFL, 0) & O_NONBLOCK);
}

/** wait_room - until the carrier is empty; 1: it is, 0: not yet, < 0: a signal */
static long wait_room(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	struct timespec ts = { .tv_nsec = WAIT_NS };

	return RAW(ppoll, &p, 1, &ts, NULL, 0);
}

/** write_lane - a large write of a carrier with a lane */
static ssize_t write_lane(struct entry *e, uint64_t ino, const struct op *op)
{
	size_t done = 0, piece;
	int wait = -1;		/* whether it blocks; not known yet */
	enum why why;
	ssize_t n;

	for (;;) {
		n = (ssize_t)put(e->lane, op, done, &why);
		done += (size_t)n;
		if (n)
			e->vain = 0;
		if (done == op->len)
			break;
		if (why != OFF) {
			if (wait < 0)
				wait = blocks(op);
			if (wait && look(e, op->fd, op->len - done, why))
				continue;
			/* As if there had been no room: now and then it is tried. */
			if (wait && e->vain >= VAIN_MAX && ++e->vain > 4 * VAIN_MAX)
				e->vain = 0;
		}
		lane_put(e);
		/* The other calls have no limit in time; nor are they repeated. */
		piece = wait > 0 && why != OFF ? PIECE : SIZE_MAX;
		n = op_rest(op, done, piece);
		if (n > 0)
			done += (size_t)n;
		if (n <= 0 || wait <= 0 || why == OFF || done == op->len ||
		    (size_t)n < piece)
			return done ? (ssize_t)done : n;
		n = wait_room(op->fd);
		if (n < 0)
			return (ssize_t)done;
		e = n ? lane_get(ino) : NULL;
		if (!e) {
			n = op_rest(op, done, SIZE_MAX);
			return (ssize_t)done + (n > 0 ? n : 0);
		}
	}
	lane_put(e);
	return (ssize_t)done;
}

/** lane_write - LANE_MIN bytes or more */
ssize_t lane_write(const struct op *op)
{
	uint64_t ino = sock_ino(op->fd);
	struct entry *e = ino && load(&lanes) ? lane_get(ino) : NULL;
	ssize_t n;

	if (e && !(op->flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)))
		return write_lane(e, ino, op);
	if (e)
		lane_put(e);
	n = op_native(op);
	if (ino && !e && n >= (ssize_t)LANE_MIN)
		lane_note(op->fd, ino);
	return n;
}
