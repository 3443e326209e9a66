// SPDX-License-Identifier: GPL-2.0-only
/* Lines for the user. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/preload/internal.h"

static void (*tell)(const char *line);
static void (*tell_refused)(const char *text);

/** warn_line - print a line for the user; to stderr in a child, which has no link */
void warn_line(const char *fmt, ...)
{
	char line[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if (tell && *alive) {
		tell(line);
		return;
	}
	n = (int)strlen(line);
	line[n++] = '\n';
	RAW3(write, 2, "lklrun: ", 8);
	RAW3(write, 2, line, n);
}

/** warn_refused - report a loopback address that refused a connect */
void warn_refused(const char *text)
{
	if (tell_refused && *alive)
		tell_refused(text);
}

void preload_refused(void (*fn)(const char *text))
{
	tell_refused = fn;
}

void preload_warn(void (*fn)(const char *line))
{
	tell = fn;
}
