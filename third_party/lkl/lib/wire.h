/* SPDX-License-Identifier: GPL-2.0-only */
/* Devices whose frames go through memory that is shared with other stacks. */
#ifndef LKL_WIRE_H
#define LKL_WIRE_H

#include "internal.h"

struct wire;

struct wire *wire_new(int epfd);
void wire_free(struct wire *w);
int wire_add(struct wire *w, int bell);
unsigned int wire_events(struct wire *w, int *more);
long wire_read(struct wire *w, const struct lkl_iov *iov, int cnt);
long wire_write(struct wire *w, const struct lkl_iov *iov, int cnt);
void wire_flush(struct wire *w);

#endif
