/* SPDX-License-Identifier: GPL-2.0-only */
/* Parsers of the stack's files in /proc/net. */
#ifndef LKLHOST_PROC_TEXT_H
#define LKLHOST_PROC_TEXT_H

#include <stddef.h>
#include <stdint.h>

unsigned int text_orphans(char *text, uint64_t *queued);
size_t text_group(char *text, const char *name, char *buf, size_t len);

#endif
