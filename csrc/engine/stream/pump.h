/* SPDX-License-Identifier: GPL-2.0-only */
/* The pump of streams: it moves data, urgent data and ends. */
#ifndef LKLHOST_PUMP_H
#define LKLHOST_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/stream/stream.h"

#define PUMP_SIZE	(256 * 1024)	/* bytes that are moved at a time, at most */
#define ROUNDS		4	/* per direction, before others get a turn */

/* pump.c */
void pump_open(struct stream *s);

/* pump_in.c */
size_t pump_most(void);
bool push_target(struct stream *s, char *buf);

/* urgent.c */
bool urgent_out(struct stream *s);
bool urgent_in(struct stream *s);

/* half_close.c */
size_t last_read(struct stream *s, char *buf, size_t most);

/* shutdown.c */
bool shutdown_pass(struct stream *s);
void shutdown_reset(struct stream *s);
void shutdown_connect(struct stream *s);

#endif
