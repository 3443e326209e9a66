/* SPDX-License-Identifier: GPL-2.0-only */
/* Sockets of another network than the stack's; see foreign_sock.c. */
#ifndef LKLHOST_FOREIGN_SOCK_H
#define LKLHOST_FOREIGN_SOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/supervise/supervise.h"

struct call;

bool foreign_sock_is(int fd, int domain);
int foreign_sock_domain(int fd);
void foreign_sock_refused(const struct call *c);

/*
 * In scm_rights.c: recvmsg(2) and recvmmsg(2) on a unix socket that is not a
 * carrier.
 */
/* scm_rights.c */
int64_t received_call(struct call *c);

/* getfd.c */
void getfd_init(void);
int64_t getfd_call(struct call *c);

#endif
