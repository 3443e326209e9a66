/* SPDX-License-Identifier: GPL-2.0-only */
/* The control side of the preload engine: declarations shared by its files. */
#ifndef PRELOAD_LINK_PRIVATE_H
#define PRELOAD_LINK_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/preload/preload.h"
#include "shared/ctl_proto.h"
#include "shared/preload_link.h"

extern struct link_shared *link_shared;
extern struct preload_stack link_calls;

/* link_base.c */
void link_panicked(void);

/* link_stack.c */
int link_stack_open(const char *path, char *err, size_t errlen);
void link_stack_wake(int fd);

/* link_serve.c */
int link_serve(int fd);
void link_await_go(void);
void link_going(int ret);

/* link_out.c */
extern int link_sock;
void link_send(uint16_t type, int32_t status, const char *text);

#endif
