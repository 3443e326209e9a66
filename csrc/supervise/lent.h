/* SPDX-License-Identifier: GPL-2.0-only */
/* Bytes in a carrier that still lie in the stack; see lent.c. */
#ifndef LKLHOST_LENT_H
#define LKLHOST_LENT_H

#include <stdbool.h>
#include <sys/types.h>

#include "conn.h"

void lent_init(void);
ssize_t lent_put(struct conn *conn, size_t *offered);
void lent_drop(struct conn *conn);
bool lent_never(struct conn *conn);
void lent_stop(void);
bool lent_stopped(void);

/* lent_pass.c */
int lent_passes(const struct call *c);

#endif
