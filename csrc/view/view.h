/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stack's files in the target's /proc and /sys. The target mounts them
 * before its exec; lklhost serves them in its loop.
 */
#ifndef LKLHOST_VIEW_H
#define LKLHOST_VIEW_H

#include <stddef.h>
#include <stdint.h>

void view_open(uint64_t (*carrier_ino)(uint64_t stack_ino));
int view_fd(void);
void view_mounted(int error);
void view_stop(void);
size_t view_stats(char *buf, size_t len);

#endif
