// SPDX-License-Identifier: GPL-2.0-only
/*
 * Substitutes for parts of lklhost that this library does not contain: the log,
 * the state, the loop, and the back ends that a program cannot load. The files
 * that the library shares with lklhost call them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/preload/link.h"
#include "stack/stack.h"

struct lklhost host = { .ctl_fd = -1, .lock_fd = -1, .cleanup_fd = -1, .gateway_fd = -1,
			.abi = "native" };
const struct stack_ops stack_host_ops;

/** stack_foreign_bind - always fails: upstream's interface offers no such calls */
int stack_foreign_bind(void *lib, bool old, char *err, size_t errlen)
{
	(void)lib;
	(void)old;
	snprintf(err, errlen, "%s: not one of lklrun's own stack libraries, which --engine preload requires; use --engine supervise",
		 host.stack_path);
	return -ENOEXEC;
}

/** loop_epfd - none in threaded mode */
int loop_epfd(void)
{
	return -1;
}

/** log_console - write the kernel's log, which lklhost reads */
void log_console(const char *text, size_t len)
{
	uint64_t end = link_shared->ring_end;

	while (len--)
		link_shared->ring[end++ % LINK_RING] = *text++;
	__atomic_store_n(&link_shared->ring_end, end, __ATOMIC_RELEASE);
}

/** log_line - add a line of our own to the same log */
void log_line(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	strcat(text, "\n");
	log_console(text, strlen(text));
}

/** warn_user - print a line for the user */
void warn_user(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	link_send(LINK_WARN, 0, text);
}

/** link_panicked - after a panic: tell lklhost, which kills this process */
void link_panicked(void)
{
	stack_dead();
	link_send(LINK_PANIC, 0, "");
}

/** loop_panic - called from the library's panic; must not return */
void loop_panic(void)
{
	link_panicked();
	for (;;)
		pause();
}
