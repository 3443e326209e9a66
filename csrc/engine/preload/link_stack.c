// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack library, loaded into the program. The files stack/stack*.c of
 * lklhost do the work; link_base.c provides substitutes for the rest of
 * lklhost.
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
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "engine/preload/link.h"
#include "stack/stack.h"

struct preload_stack link_calls;

static struct stack_ops ops;
static int wake_fd = -1;
static int rung;

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

/** link_watch - request a signal on the eventfd */
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
	stack_panicked = link_panicked;
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
