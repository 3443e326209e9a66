/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel in the target's process (engine "preload"), from lklhost's side.
 */
#ifndef LKLHOST_REMOTE_H
#define LKLHOST_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/control.h"

int remote_init(char *err, size_t errlen);
int remote_child(void);
int remote_ready(char *err, size_t errlen);
int remote_watch(void);
bool remote_takes(uint16_t type);
int remote_request(struct client *cl, const struct ctl_hdr *hdr,
		   const uint8_t *body, size_t len);
void remote_client_gone(struct client *cl);
int remote_sock(void);
void remote_ended(int status);
void remote_ask_end(bool wanted);
void remote_farewell(void);
void remote_log(void);
bool remote_accounted(void);
size_t remote_account(char *buf, size_t len);

#endif
