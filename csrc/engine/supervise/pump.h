/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared declarations of both directions of the pump. */
#ifndef LKLHOST_PUMP_H
#define LKLHOST_PUMP_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/supervise/conn.h"

#define PUMP_SIZE	(256 * 1024)	/* bytes that are moved at a time */
#define ROUNDS		4	/* of a direction, before others get a turn */

/* pump.c */
int chunk_keep(struct chunk *ch, const char *data, size_t len);
void chunk_sent(struct chunk *ch, size_t n);
void stack_error(struct conn *conn, int err);

/* pump_in.c */
bool push_target(struct conn *conn, char *buf);

#endif
