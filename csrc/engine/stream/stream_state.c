// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state of a stream. Changes are checked against the table in stream_conn.h.
 *
 * A violation is a bug of lklhost. With the sanitizers (SAN=1, which defines
 * CHECKED), it ends lklhost; otherwise it is only logged.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "engine/carrier/conn.h"
#include "engine/stream/stream.h"

#define VIOLATIONS_MAX	16
#define BIT(state)	(1u << STREAM_##state)

static const char *const names[] = {
	[STREAM_NEW] = "new", [STREAM_CONNECTING] = "connecting",
	[STREAM_OPEN] = "open", [STREAM_LISTENING] = "listening",
	[STREAM_DONE] = "done",
};

/* For each state, the states that may follow it. */
static const unsigned int next[] = {
	[STREAM_NEW] = BIT(CONNECTING) | BIT(OPEN) | BIT(LISTENING) | BIT(NEW),
	[STREAM_CONNECTING] = BIT(OPEN) | BIT(DONE) | BIT(NEW),
	[STREAM_OPEN] = BIT(DONE) | BIT(NEW),
	[STREAM_LISTENING] = BIT(NEW),
	[STREAM_DONE] = BIT(NEW),
};

/**
 * violation - report a change of state or bits that the table does not allow
 *
 * The first ones show the bug; a stream may cause many.
 */
static void violation(const struct stream *s, const char *to)
{
	static unsigned int told;

	if (told++ > VIOLATIONS_MAX)
		return;
	log_line("stream %08x: from %s to %s with carrier %#x, stack %#x",
		 s->conn.id, names[s->state], to, s->conn.carrier,
		 s->conn.stack);
#ifdef CHECKED
	abort();
#endif
}

/** stream_set_state - change the state of a stream */
void stream_set_state(struct stream *s, enum stream_state to)
{
	const struct conn *conn = &s->conn;
	bool idle = !(conn->carrier & ~C_GONE) &&
		    !(conn->stack & ~(S_IN | S_OUT | S_WATCHED));

	if (!(next[s->state] & (1u << to)) || (to != STREAM_DONE && !idle))
		violation(s, names[to]);
	s->state = to;
}

/** needs - whether @bit is clear, or @other is set as well */
static bool needs(unsigned int word, unsigned int bit,
		  unsigned int other_word, unsigned int other)
{
	return !(word & bit) || (other_word & other);
}

/** stream_check - check the bits of a stream in state OPEN */
void stream_check(const struct stream *s)
{
	unsigned int c = s->conn.carrier, st = s->conn.stack;

	if (s->state != STREAM_OPEN || (c & C_CONNECTED) ||
	    !needs(st, S_EOF, st, S_END) ||
	    !needs(st, S_BROKEN, st, S_ERR) ||
	    !needs(c, C_SHUT, st, S_END) ||
	    !needs(st, S_SHUT, c, C_EOF) ||
	    !needs(c, C_HUNG_UP, st, S_BROKEN))
		violation(s, "open");
}

/**
 * stack_error - record that sending to the stack failed
 *
 * Received data are still delivered to the target.
 */
void stack_error(struct stream *s, int err)
{
	struct conn *conn = &s->conn;

	if (err != EPIPE && !conn->so_error)
		conn->so_error = err;
	conn->stack |= S_BROKEN | S_IN | S_ERR;
	free(chunk_take(&conn->to_stack));
}
