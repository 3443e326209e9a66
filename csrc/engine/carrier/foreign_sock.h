/* SPDX-License-Identifier: GPL-2.0-only */
/* Sockets of another network than the stack's; see foreign_sock.c. */
#ifndef LKLHOST_FOREIGN_SOCK_H
#define LKLHOST_FOREIGN_SOCK_H

#include <stdbool.h>
#include <stdint.h>

struct call;

bool foreign_sock_is(int fd, int domain);
int foreign_sock_domain(int fd);
void foreign_sock_refused(const struct call *c);
void foreign_sock_allow(int fd);

#endif
