/* SPDX-License-Identifier: GPL-2.0-only */
/* The data of the gateway's connections; only for csrc/gateway. */
#ifndef LKLHOST_RELAY_H
#define LKLHOST_RELAY_H

#include <stdbool.h>
#include <stdint.h>

int relay_start(int sfd, int fd, uint64_t id);
void relay_reset_sockets(int sfd, int fd);
bool relay_drain(void);

/* A relay has ended; set by gateway.c. */
extern void (*relay_ended)(uint64_t id);

#endif
