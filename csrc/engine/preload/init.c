// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sets up the engine: see preload.h.
 *
 * With LKLRUN_PRELOAD_SELFTEST=PATH in the environment, the library boots the
 * stack at PATH by itself, with lo as the only interface. The tests use this.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>

#include "base/trap.h"
#include "engine/preload/internal.h"
#include "engine/preload/signal.h"

bool preload_selftested;

int preload_bind(void *lib, struct preload_stack *st, char *err, size_t errlen)
{
	const struct {
		const char *name;
		void *to;
	} want[] = {
		{ "lkl_syscall", &st->syscall },
		{ "lkl_self", &st->self },
		{ "lkl_interrupt", &st->interrupt },
		{ "lkl_host_watch", &st->host_watch },
		{ "lkl_epoll_watch", &st->watch },
		{ "lkl_set_spin", &st->spin },
		{ "lkl_set_coalesce", &st->coalesce },
		{ "lkl_sys_halt", &st->halt },
	};
	size_t i;

	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		void *p = dlsym(lib, want[i].name);

		if (!p) {
			snprintf(err, errlen,
				 "the stack's library has no %s: --engine preload needs one of lklrun's own",
				 want[i].name);
			return -ENOEXEC;
		}
		memcpy(want[i].to, &p, sizeof(p));
	}
	lkl = *st;	/* the control server needs it first */
	return 0;
}

int preload_prepare(char *err, size_t errlen)
{
	int ret;

	trap_init(native);
	ret = table_init();
	if (!ret)
		ret = threads_init();
	if (ret) {
		snprintf(err, errlen, "allocating memory for tables: %s", strerror(-ret));
		return ret;
	}
	dispatch_init();
	return patch_libc(err, errlen);
}

/**
 * allow_threads - let every thread of the program have a task in the stack
 *
 * The kernel permits only as many as an eighth of its memory has stacks for: 248 with
 * 64 MiB. A blocking call of any other thread would fail with EAGAIN.
 */
static void allow_threads(void)
{
	static const char count[] = "1000000";
	long fd = STACK(openat, AT_FDCWD, "/proc/sys/kernel/threads-max", O_WRONLY, 0, 0, 0);

	if (fd < 0)
		return;
	STACK(write, fd, count, sizeof(count) - 1, 0, 0, 0);
	STACK(close, fd, 0, 0, 0, 0, 0);
}

int preload_install(void)
{
	struct rlimit files = { ENTRY_FDS, ENTRY_FDS };
	int ret;

	ret = proc_init();
	if (!ret)
		ret = thread_ready();
	if (ret)
		return ret;
	/* Only the host's limit applies. */
	STACK(prlimit64, 0, RLIMIT_NOFILE, &files, 0, 0, 0);
	/*
	 * For statistics and the end of the process; it may be mounted already.
	 */
	STACK(mkdirat, AT_FDCWD, "/proc", 0555, 0, 0, 0);
	STACK(mount, "proc", "/proc", "proc", 0, 0, 0);
	allow_threads();
	ret = signal_init(proc_ends, preload_native);
	if (!ret)
		dispatch_on();
	return ret;
}

void preload_mptcp(bool on)
{
	use_mptcp = on;
}

void preload_spin(unsigned int usec)
{
	lkl.spin(usec);
}

void preload_coalesce(unsigned int usec)
{
	lkl.coalesce(usec);
}

int preload_private_files(void)
{
	long args[6] = { CLONE_FILES }, range[6] = { 3, ~0U };
	long ret = lkl.syscall(SYS_unshare, args);

	/* Copies of descriptors would keep the program's sockets open. */
	return (int)(ret ? ret : lkl.syscall(SYS_close_range, range));
}

/** die - end a self-test that cannot start */
__attribute__((noreturn)) static void die(const char *what, const char *why)
{
	dprintf(STDERR_FILENO, "liblklpreload: %s: %s\n", what, why);
	_exit(125);
}

/** selftest - boot the stack for a test: see the top of this file */
__attribute__((constructor)) static void selftest(void)
{
	const char *path = getenv(PRELOAD_SELFTEST);
	int (*init)(void *ops), (*boot)(const char *fmt, ...), (*up)(int ifindex);
	struct preload_stack st;
	char err[256] = "";
	void *lib;
	int ret;

	if (!path)
		return;
	preload_selftested = true;
	if (preload_prepare(err, sizeof(err)))
		die("patching", err);
	preload_own(true);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		die(path, dlerror());
	if (preload_bind(lib, &st, err, sizeof(err)))
		die(path, err);
	*(void **)&init = dlsym(lib, "lkl_init");
	*(void **)&boot = dlsym(lib, "lkl_start_kernel");
	*(void **)&up = dlsym(lib, "lkl_if_up");
	if (!init || !boot || !up)
		die(path, "no stack");
	init(NULL);
	ret = boot("mem=64M loglevel=0");
	if (ret || up(1))
		die("booting", strerror(-ret));
	preload_own(false);
	preload_mptcp(getenv("LKLRUN_PRELOAD_MPTCP"));
	ret = preload_install();
	if (ret)
		die("installing", strerror(-ret));
	unsetenv(PRELOAD_SELFTEST);
	unsetenv("LKLRUN_PRELOAD_MPTCP");
	unsetenv("LD_PRELOAD");
}
