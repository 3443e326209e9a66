/* SPDX-License-Identifier: GPL-2.0-only */
/* The stack's memory: when no more of it is given away. */
#ifndef LKLHOST_MEMORY_H
#define LKLHOST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/sysinfo.h>

#define MEMORY_TEXT	224

bool memory_exhausted(const struct sysinfo *info, uint64_t sockets, char text[MEMORY_TEXT]);

#endif
