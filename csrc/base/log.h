/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The log, and lines for the user.
 *
 * The preload library has its own log_console(), log_line() and warn_user(),
 * which pass the text to lklhost (engine/preload/link_base.c).
 */
#ifndef LKLHOST_LOG_H
#define LKLHOST_LOG_H

#include <stddef.h>
#include <stdint.h>

int log_open(const char *dir);
void log_take_stdio(void);
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_console(const char *text, size_t len);
size_t log_ring(char *buf, size_t len);
void warn_user(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void note_user(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Passes a line to the user, as an event; the control server sets it. While it
 * is NULL, lines go to the file only.
 */
extern void (*log_event)(uint32_t kind, uint32_t pid, int64_t arg,
			 const char *text);

#endif
