// SPDX-License-Identifier: GPL-2.0-only
/*
 * Large reads.
 *
 * Theory of operation
 *
 * The carrier's read comes first: it waits, fails, ends the stream, and brings the
 * bell of a batch. Who has read the bell goes on in the ring. That it was the bell is
 * certain where the batch was on offer before the read, or where the carrier is empty
 * though the bell was rung and nobody else was reading meanwhile. Without a read of the
 * carrier somebody may take from the ring when an earlier one has brought the bell.
 *
 * What a program says that it can do with is what it reads at a time: of a rest that
 * is left the carrier does not tell, and who waits for it by poll() waits until it is
 * taken back.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/socket.h>

#include "internal.h"

/*
 * Batches of 32 KiB are slower than the carrier, by a third; those of 64 KiB are not.
 * Nor is it good to look for a batch before the carrier's read.
 */
#define WANT_MIN	(64u << 10)
#define RUNG_NS		100000	/* how long a bell may be on its way */

/**
 * take - bytes of batch @seq, whose bell is read, to the @off'th place of @op
 * @whole: only if nobody has taken from it: they follow the bell, which we have
 *
 * Returns how many, 0: none.
 */
static size_t take(struct entry *e, uint32_t seq, const struct op *op, size_t off,
		   bool whole)
{
	struct lane *l = e->lane;
	uint32_t at, len, n = 0, state = LANE_OFFERED;
	uint64_t old;

	signals_off(&old);
	if (!swap(&l->rx_state, LANE_OFFERED, LANE_TAKING))
		goto out;
	store(&l->rx_taker, (uint32_t)RAW(gettid));
	at = load(&l->rx_off);
	len = load(&l->rx_len);
	if (load(&l->rx_seq) == seq && at <= len && len <= LANE_RX_SIZE &&
	    !(whole && at)) {
		n = len - at;
		if (n > op->len - off)
			n = (uint32_t)(op->len - off);
		op_scatter(op, off, (const char *)l + LANE_RX_AT + at, n);
		store(&l->rx_off, at + n);
		if (at + n == len)
			state = LANE_NONE;
	}
	store(&l->rx_state, state);
out:
	signals_on(&old);
	fence();
	if (n && state == LANE_NONE && load(&l->rx_waits))
		lane_kick(op->fd);
	return n;
}

/**
 * rung - whether the bell of batch @seq was written
 *
 * Who has been woken by it may be here before lklhost has said so, and on its CPU.
 */
static bool rung(struct lane *l, uint32_t seq)
{
	uint64_t until = 0;

	while (load(&l->rx_rung) != seq) {
		uint64_t now = now_ns();

		if (!until)
			until = now + RUNG_NS;
		if (now > until || load(&l->rx_seq) != seq)
			return false;
		RAW(sched_yield);
	}
	return true;
}

/** tell_want - how much this reader can do with */
static void tell_want(struct entry *e, const struct op *op)
{
	struct lane *l = e->lane;
	uint32_t want = LANE_RX_SIZE + 1;

	if (op->len < LANE_MIN)
		return;		/* a header, say: the next one may be large again */
	if (!e->reading) {
		e->reading = true;
		__atomic_fetch_add(&lanes_read, 1, __ATOMIC_RELAXED);
	}
	if (op->len < want)
		want = op->len < WANT_MIN ? 0 : (uint32_t)op->len;
	if (load(&l->rx_want) != want)
		store(&l->rx_want, want);
}

/** read_lane - of a carrier with a lane; @e is put back */
static ssize_t read_lane(struct entry *e, uint64_t ino, const struct op *op)
{
	struct lane *l = e->lane;
	bool offered = false, alone;
	uint32_t seq = 0, me;
	size_t n;
	ssize_t ret;

	tell_want(e, op);
	if (load(&l->rx_state) == LANE_OFFERED) {
		offered = true;
		seq = load(&l->rx_seq);
		if (load(&l->rx_rung) == seq && !carrier_has(op->fd)) {
			n = take(e, seq, op, 0, false);
			if (n) {
				lane_put(e);
				return (ssize_t)n;
			}
		}
	}
	alone = load(&l->rx_leave) ==
		(me = __atomic_fetch_add(&l->rx_enter, 1, __ATOMIC_SEQ_CST));
	lane_put(e);
	ret = op_native(op);
	e = lane_get(ino);
	if (!e)
		return ret;
	if (ret > 0 && (size_t)ret < op->len &&
	    load(&l->rx_state) == LANE_OFFERED) {
		uint32_t now = load(&l->rx_seq);
		bool bell = offered && now == seq && ret == 1;

		if (!bell)
			bell = alone && load(&l->rx_enter) == me + 1 &&
			       rung(l, now) && !carrier_has(op->fd);
		if (bell)
			ret += (ssize_t)take(e, now, op, (size_t)ret, true);
	}
	__atomic_fetch_add(&l->rx_leave, 1, __ATOMIC_SEQ_CST);
	lane_put(e);
	return ret;
}

/** no_lane - of a carrier with a lane, a read that must find all in the carrier */
static void no_lane(struct entry *e, int fd)
{
	struct lane *l = e->lane;

	if (load(&l->rx_want))
		store(&l->rx_want, 0);
	fence();
	if (load(&l->rx_state) != LANE_NONE)
		RAW(ioctl, fd, LANE_CALL(LANE_BACK), 0);
}

/** lane_read - LANE_MIN bytes or more, or of any size where there are lanes */
ssize_t lane_read(const struct op *op)
{
	struct entry *e = NULL;
	uint64_t ino = 0;
	ssize_t n;

	if (load(&lanes)) {
		ino = sock_ino(op->fd);
		e = ino ? lane_get(ino) : NULL;
		if (e && op->len && !(op->flags & ~MSG_DONTWAIT))
			return read_lane(e, ino, op);
	}
	if (e) {
		no_lane(e, op->fd);
		lane_put(e);
	}
	n = op_native(op);
	if (!e && op->len >= WANT_MIN && n >= (ssize_t)LANE_MIN &&
	    !(op->flags & ~MSG_DONTWAIT)) {
		if (!ino)
			ino = sock_ino(op->fd);
		if (ino)
			lane_note(op->fd, ino);
	}
	return n;
}
