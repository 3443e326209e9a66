/* SPDX-License-Identifier: GPL-2.0-only */
/* The target's own mounts. */
#ifndef LKLHOST_MOUNTS_H
#define LKLHOST_MOUNTS_H

/* For mounts_make(), in place of a descriptor of /dev/fuse. */
#define VIEW_HOSTS	-1000	/* leave what the host has */
#define VIEW_EMPTY	-1001	/* there shall be nothing */

int mounts_place(int dir, const char *from, const char *to);
void mounts_make(int sync, const char *resolv, int fuse);

#endif
