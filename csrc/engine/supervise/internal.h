/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions that only the files of engine/supervise call. */
#ifndef LKLHOST_SUPERVISE_INTERNAL_H
#define LKLHOST_SUPERVISE_INTERNAL_H

#include <stdbool.h>

struct call;
struct source;

/* dispatch.c */
void dispatch_call(struct call *c, bool foreign);

/* container.c */
void served_gone(struct source *src);
void served_stop(void);

/* neigh.c */
bool neigh_pending(void);

#endif
