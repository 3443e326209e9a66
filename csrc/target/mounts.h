/* SPDX-License-Identifier: GPL-2.0-only */
/* The target's own mounts. */
#ifndef LKLHOST_MOUNTS_H
#define LKLHOST_MOUNTS_H

/* Values for mounts_make() instead of a descriptor of /dev/fuse. */
#define VIEW_HOSTS	-1000	/* show the host's files */
#define VIEW_EMPTY	-1001	/* show empty folders */

/* mount_move.c */
int mounts_copy(const char *path);
int mounts_move(int tree, const char *to);
int mounts_place(int dir, const char *from, const char *to);

/* mounts.c */
void mounts_make(int sync, const char *resolv, int fuse);

#endif
