/* SPDX-License-Identifier: GPL-2.0-only */
/* Chosen destinations: what hostnet.c asks of hostnet_rules.c. */
#ifndef LKLHOST_HOSTNET_H
#define LKLHOST_HOSTNET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct task;

bool hostnet_chosen(const struct sockaddr_storage *ss, int64_t len);
void hostnet_count(struct task *t, const struct sockaddr_storage *ss);

#endif
