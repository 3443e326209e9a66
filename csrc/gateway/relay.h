/* SPDX-License-Identifier: GPL-2.0-only */
/* The connections of the gateway and their data; only for csrc/gateway. */
#ifndef LKLHOST_RELAY_H
#define LKLHOST_RELAY_H

#include <stdbool.h>
#include <stdint.h>

int relay_start(int sfd, int fd, uint64_t id);
void relay_end(uint64_t id, bool reset);
void relay_hold(uint64_t id);
void relay_replace(uint64_t id, int fd);
void relay_reset_sockets(int sfd, int fd);
bool relay_drain(void);

struct gateway_msg;
void enter(const struct gateway_msg *m, int fd);
void enter_cancel(uint64_t id);

/* tell.c: messages to lklrun. */
struct source;
void tell_start(struct source *lklrun);
void tell(const struct gateway_msg *m);
void tell_of(uint32_t kind, uint64_t id, uint32_t verdict);
bool tell_waits(void);
bool tell_rest(void);

#endif
