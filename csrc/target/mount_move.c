// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mounts that cover a file, a folder or a link. mount(2) follows links; the
 * calls of Linux 5.2 do not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "target/mounts.h"

/* From include/uapi/linux/mount.h, which conflicts with sys/mount.h. */
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE	1
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH	4
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE	0x8000
#endif

/** mounts_copy - copy the mount at @path and those below it; -1 on failure */
int mounts_copy(const char *path)
{
	return (int)syscall(SYS_open_tree, AT_FDCWD, path,
			    OPEN_TREE_CLONE | AT_RECURSIVE | O_CLOEXEC);
}

/** mounts_move - mount the mount @tree at @to; returns 0 or a negative errno */
int mounts_move(int tree, const char *to)
{
	return syscall(SYS_move_mount, tree, "", AT_FDCWD, to,
		       MOVE_MOUNT_F_EMPTY_PATH) ? -errno : 0;
}

/**
 * mounts_place - mount a file or folder at @to
 * @dir, @from: as for openat(2); if @from is empty, @dir itself is mounted
 *
 * Returns 0 on success, or if @to does not exist.
 */
int mounts_place(int dir, const char *from, const char *to)
{
	int tree, ret;

	tree = (int)syscall(SYS_open_tree, dir, from, OPEN_TREE_CLONE |
			    O_CLOEXEC | AT_SYMLINK_NOFOLLOW |
			    (*from ? 0 : AT_EMPTY_PATH));
	if (tree < 0)
		return -errno;
	ret = mounts_move(tree, to);
	close(tree);
	return ret == -ENOENT ? 0 : ret;
}
