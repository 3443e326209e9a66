/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface of the supervise engine to the rest of lklhost. See engine.c.
 */
#ifndef LKLHOST_SUPERVISE_H
#define LKLHOST_SUPERVISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* engine.c */
int engine_init(int listener);
int engine_start(void);
void engine_stop(void);
bool engine_drain(uint64_t *mark);
size_t engine_stats(char *buf, size_t len);
size_t engine_account(char *buf, size_t len);
size_t engine_owners(void *buf, size_t len);
bool engine_has_stack_fd(int fd);

/* container.c */
int engine_serve(int fd, int netns, void (*over)(void));

#endif
