/* SPDX-License-Identifier: GPL-2.0-only */
/* Test Anything Protocol: one line a test, the plan at the end. */
#ifndef LKLHOST_TAP_H
#define LKLHOST_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int tap_n, tap_bad;

/** ok - report one test */
__attribute__((format(printf, 2, 3)))
static inline bool ok(bool good, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", good ? "" : "not ", ++tap_n);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	tap_bad += !good;
	return good;
}

/** tap_end - print the plan; returns the exit status */
static inline int tap_end(void)
{
	printf("1..%d\n", tap_n);
	return tap_bad != 0;
}

#endif
