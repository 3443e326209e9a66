/* SPDX-License-Identifier: GPL-2.0-only */
/* The connections of the gateway and their data; only for csrc/gateway. */
#ifndef LKLHOST_RELAY_H
#define LKLHOST_RELAY_H

#include <stdbool.h>
#include <stdint.h>

int relay_start(int sfd, int fd, uint64_t id);
void relay_reset_sockets(int sfd, int fd);
bool relay_drain(void);

struct gateway_msg;
void enter(const struct gateway_msg *m, int fd);
void enter_cancel(uint64_t id);

/* Send a message of a @kind without further fields to lklrun; set by gateway.c. */
extern void (*gateway_tell)(uint32_t kind, uint64_t id);

#endif
