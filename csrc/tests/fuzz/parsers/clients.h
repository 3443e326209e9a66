/* SPDX-License-Identifier: GPL-2.0-only */
/* Control clients of a fuzzer, used by ctl.c and link_host.c. */
#ifndef FUZZ_CLIENTS_H
#define FUZZ_CLIENTS_H

#include "fuzz.h"

void clients_start(void);
void clients_step(struct input *in, uint8_t step);
void clients_end(void);
void clients_init(void);
int clients_add(int fd, bool launcher);
void clients_dropped(void);

/* zygote.c: exec.c with a fuzzer in place of the zygote */
void zygote_start(void);
void zygote_says(struct input *in);
void zygote_end(void);

#endif
