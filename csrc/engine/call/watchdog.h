/* SPDX-License-Identifier: GPL-2.0-only */
/* A time limit for the loop's accesses to a target's memory; see watchdog.c. */
#ifndef LKLHOST_WATCHDOG_H
#define LKLHOST_WATCHDOG_H

#include <stdbool.h>

struct call;

void watchdog_enter(const struct call *c, const char *host_call);
void watchdog_enter_run(const struct call *c);
void watchdog_leave(void);
bool watchdog_has_killed(void);

#endif
