/* SPDX-License-Identifier: GPL-2.0-only */
/* Sockets of another network than the stack's; see stray.c. */
#ifndef LKLHOST_STRAY_H
#define LKLHOST_STRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/supervise/supervise.h"

struct call;

bool stray_is(int fd, int domain);
int stray_domain(int fd);
void stray_refused(const struct call *c);
int64_t stray_getfd(struct call *c);

/*
 * In received.c: recvmsg(2) and recvmmsg(2) on a unix socket that is not a
 * carrier.
 */
int64_t received_call(struct call *c);

#endif
