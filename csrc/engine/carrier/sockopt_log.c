// SPDX-License-Identifier: GPL-2.0-only
/*
 * Record the options of a socket that another socket may replace, see
 * fallback.c and hostnet.c.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/call/rights.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/stream_conn.h"
#include "stack/stack.h"

#define NOTES_MAX	64
#define VALUE_MAX	256

/**
 * struct sockopt_note - an option that the target has set
 * @next: the option that was set before this one
 */
struct sockopt_note {
	struct sockopt_note *next;
	int level, name;
	int len;
	char value[];
};

/** sockopt_log_add - record an option of a socket that may be replaced */
void sockopt_log_add(struct conn *conn, int level, int name, const void *value,
		   int len)
{
	struct sockopt_note *o;

	if ((!(conn->facts & F_MPTCP) && !hostnet_any()) ||
	    (conn->kind == KIND_STREAM &&
	     stream_of(conn)->state != STREAM_NEW) || len > VALUE_MAX ||
	    conn->n_notes >= NOTES_MAX)
		return;
	o = malloc(sizeof(*o) + (size_t)len);
	if (!o)
		return;
	o->level = level;
	o->name = name;
	o->len = len;
	if (len)
		memcpy(o->value, value, (size_t)len);
	o->next = conn->notes;
	conn->notes = o;
	conn->n_notes++;
}

/** sockopt_log_drop - free the recorded options */
void sockopt_log_drop(struct conn *conn)
{
	while (conn->notes) {
		struct sockopt_note *o = conn->notes;

		conn->notes = o->next;
		free(o);
	}
	conn->n_notes = 0;
}

/** replay - set the recorded options on @sfd, oldest first */
static void replay(const struct conn *conn, const struct sockopt_note *o, int sfd)
{
	if (!o)
		return;
	replay(conn, o->next, sfd);
	if (hostnet_option(conn, o->level, o->name))
		st_setsockopt(sfd, o->level, o->name, o->value, o->len);
}

/**
 * sockopt_log_replay - set the recorded options on @sfd
 *
 * The process that set an option had the right to set it. The process that
 * makes the current call may lack this right.
 */
void sockopt_log_replay(const struct conn *conn, int sfd)
{
	uint64_t had;

	rights_set(RIGHTS_ALL, &had);
	replay(conn, conn->notes, sfd);
	rights_set(had, NULL);
}
