/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the pump, and the lanes, have in common. */
#ifndef LKLHOST_PUMP_H
#define LKLHOST_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "conn.h"

#define ROUNDS		4	/* of a direction, before others have their turn */

/* pump.c */
int chunk_keep(struct chunk *ch, const char *data, size_t len);
void chunk_sent(struct chunk *ch, size_t n);
long stack_putv(struct conn *conn, struct iovec *iov, int cnt, size_t len);
void stack_error(struct conn *conn, int err);

/* pump_in.c */
bool push_target(struct conn *conn);

#endif
