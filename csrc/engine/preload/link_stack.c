// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack library, loaded into the program. The files stack/stack*.c of
 * lklhost do the work; this file replaces the parts of lklhost's loop that they
 * need.
 *
 * Theory of operation
 *
 * The library is in threaded mode: the calling thread runs the kernel. The
 * server's thread needs events of its own descriptors only. These are in the
 * epoll of stack/stack.c, in the stack. The library's hook on that epoll signals
 * an eventfd, from whichever thread causes the wake-up.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/ctl.h"
#include "engine/preload/link.h"
#include "host/host.h"
#include "stack/stack.h"

struct lklhost host = { .ctl_fd = -1, .lock_fd = -1, .cleanup_fd = -1,
			.abi = "native" };
struct loop_stats loop_stats;
const struct stack_ops stack_host_ops;

static struct stack_ops ops;
static int wake_fd = -1;
static int rung;

/** stack_foreign_bind - always fails: upstream's interface offers no such calls */
int stack_foreign_bind(void *lib, bool old, char *err, size_t errlen)
{
	(void)lib;
	(void)old;
	snprintf(err, errlen, "%s: not a stack library of our own, which a program can load: use --engine supervise",
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

/** host_panicked - after a panic: tell lklhost, which kills this process */
void host_panicked(void)
{
	stack_dead();
	link_send(LINK_PANIC, 0, "");
}

/** loop_panic - called from the library's panic; must not return */
void loop_panic(void)
{
	host_panicked();
	for (;;)
		pause();
}

/** woken - the stack's epoll has events; called on any thread */
static void woken(void *arg)
{
	uint64_t one = 1;

	(void)arg;
	if (__atomic_exchange_n(&rung, 1, __ATOMIC_SEQ_CST))
		return;
	if (write(wake_fd, &one, sizeof(one)) < 0)
		return;	/* a full counter wakes the reader as well */
}

/** link_boot - start the kernel, with a high limit of descriptors */
static int link_boot(uint64_t mem, const char *cmdline)
{
	struct rlimit64 files = { 1 << 20, 1 << 20 };
	int ret = stack_native_ops.boot(mem, cmdline);
	long args[6] = { 1, RLIMIT_NOFILE, (long)&files };

	if (ret)
		return ret;
	/* The tasks of the program's threads inherit the limits of pid 1. */
	stack_native_ops.call(SYS_prlimit64, args);
	return preload_private_files();
}

/** link_step - nothing to do: the calling threads run the kernel */
static int64_t link_step(void)
{
	return -1;
}

/** link_watch - have the eventfd signalled */
static int link_watch(int epfd)
{
	return link_calls.watch(epfd, woken, NULL);
}

/** link_asked - whether the epoll has been asked for events */
static bool link_asked(void)
{
	return __atomic_exchange_n(&rung, 0, __ATOMIC_SEQ_CST);
}

/** link_stack_wake - set the eventfd */
void link_stack_wake(int fd)
{
	wake_fd = fd;
}

/**
 * link_stack_open - load the library
 * @path: its file
 * @err: one line for the user on failure
 */
int link_stack_open(const char *path, char *err, size_t errlen)
{
	void *lib;
	int ret;

	host.stack_path = path;
	ret = stack_open(path, host.abi, err, errlen);
	if (ret)
		return ret;
	ops = *stack;
	ops.boot = link_boot;
	ops.step = link_step;
	ops.watch = link_watch;
	ops.asked = link_asked;
	stack = &ops;
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	return preload_bind(lib, &link_calls, err, errlen);
}
