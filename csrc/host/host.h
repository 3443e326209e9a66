/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The top level of lklhost, which uses all other directories: start, isolation,
 * the requests of control clients, and the end of the run.
 */
#ifndef LKLHOST_HOST_H
#define LKLHOST_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "control/control.h"
#include "target/target.h"

/* isolation.c: drop privileges before lklhost reads data from the network */
void isolate_descriptors(void);
void isolate(void);

/* lifecycle.c: events that end the run */
extern const struct target_ops host_target_ops;
void host_panicked(void);
void host_stop(int sig, uint32_t grace_ms);
void host_launcher_gone(void);
void host_farewell_done(void);

/* gateway_mode.c: be a gateway from now on; returns a negative errno */
int gateway_start(char *err, size_t errlen);

/* requests.c */
extern const struct ctl_ops host_ctl_ops;

#endif
