/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stack's files in the target's /proc and /sys. The target mounts them
 * before its exec; lklhost serves them in its loop.
 */
#ifndef LKLHOST_VIEW_H
#define LKLHOST_VIEW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * struct view_ops - functions of the engine that the view calls
 * @carrier_ino: the inode that the target knows of a socket with the inode
 *	@stack_ino, 0 if it has none
 * @enter: let the following calls in the stack use the network namespace of a
 *	thread of the target; 0: that of the run, 1: another one, or a negative errno
 * @leave: ends this
 */
struct view_ops {
	uint64_t (*carrier_ino)(uint64_t stack_ino);
	int (*enter)(pid_t tid);
	void (*leave)(void);
};

void view_open(const struct view_ops *ops);
int view_fd(void);
void view_mounted(int error);
void view_stop(void);
size_t view_stats(char *buf, size_t len);

#endif
