/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes several frames to a descriptor with one call into the host's kernel.
 */
#ifndef LKL_URING_H
#define LKL_URING_H

#include "internal.h"

int uring_write(int fd, struct lkl_net_out *out, int n);
void uring_prepare(void);
void uring_stop(void);

#endif
