/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel in the target's process (engine "preload"), from lklhost's side.
 */
#ifndef LKLHOST_LINK_H
#define LKLHOST_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/control.h"

int link_init(char *err, size_t errlen);
int link_child(void);
int link_ready(char *err, size_t errlen);
int link_watch(void);
bool link_takes(uint16_t type);
int link_request(struct client *cl, const struct ctl_hdr *hdr,
		 const uint8_t *body, size_t len);
void link_client_gone(struct client *cl);
int link_fd(void);
void link_ended(int status);
void link_ask_end(bool wanted);
void link_farewell(void);
void link_log(void);
bool link_accounted(void);
size_t link_account(char *buf, size_t len);

#endif
