/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between the devices (netdev.c) and the thread that writes for
 * them.
 */
#ifndef LKL_WRITER_H
#define LKL_WRITER_H

#include "internal.h"

void writer_count(unsigned int len);
int writer_put(int id, int fd, const struct lkl_iov *iov, int cnt,
	       unsigned int len, void *frame);
int writer_take(int *id, void **frame, int *ret);
int writer_rest(void);
int writer_waited_for(void);
void writer_drain(void);
void writer_settle(void (*take)(void *arg), void *arg);
void writer_stop(void);

#endif
