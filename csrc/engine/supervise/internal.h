/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions that only the files of engine/supervise call. */
#ifndef LKLHOST_SUPERVISE_INTERNAL_H
#define LKLHOST_SUPERVISE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct call;
struct source;

/* dispatch.c */
void dispatch_call(struct call *c, bool foreign);

/* container.c */
void served_gone(struct source *src);
void served_stop(void);

/* sysfs.c */
void sysfs_init(void);
int64_t sysfs_call(const struct call *c);

/* neigh.c */
bool neigh_pending(void);

#endif
