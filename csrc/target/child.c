// SPDX-License-Identifier: GPL-2.0-only
/*
 * The target from its fork to its exec: namespaces, filter, mounts and user;
 * see target.c.
 *
 * If lklhost dies, PR_SET_PDEATHSIG ends the child. The child's end of the
 * socket also closes then, which ends the child as well.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/lklhost.h"
#include "engine/link/link.h"
#include "process/process.h"
#include "stack/stack.h"
#include "target/child.h"
#include "target/mounts.h"
#include "trace/trace.h"
#include "view/view.h"

#define EXIT_NOT_EXECUTABLE	126

/** run_command - execute the command, or report the error; never returns */
__attribute__((noreturn))
static void run_command(int sync, char **argv)
{
	int ret;

	execvp(argv[0], argv);
	ret = errno;
	child_report(sync, STEP_EXEC, -ret);
	_exit(ret == ENOENT || ret == ENOTDIR ? EXIT_NOT_FOUND :
	      EXIT_NOT_EXECUTABLE);
}

/**
 * die_with - end when @parent ends
 *
 * A change of credentials undoes this, see prctl(2).
 */
static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NOT_FOUND);
}

/** become_user - change to --user, and keep the setup made so far */
static void become_user(int sync, pid_t parent)
{
	int ret = user_become();

	if (ret) {
		child_report(sync, STEP_USER, ret);
		_exit(EXIT_NOT_FOUND);
	}
	die_with(parent);
}

/**
 * filter_preloaded - install the filter for a target with a preloaded library
 *
 * If the kernel does not support these filters (ENOSYS, EINVAL; also
 * qemu-user), the run relies on the empty network namespace, and the child
 * reports this.
 */
static int filter_preloaded(int sync)
{
	int ret = filter_install_plain();

	if (host.shared_netns || (ret != -ENOSYS && ret != -EINVAL))
		return ret;
	child_report(sync, STEP_UNFILTERED, ret);
	return 0;
}

/**
 * child_preload - run the command with the stack loaded into it; never returns
 */
__attribute__((noreturn))
static void child_preload(int sync, pid_t parent, char **argv)
{
	char resolv[RESOLV_MAX];
	int ret;

	if (snprintf(resolv, sizeof(resolv), "%s/resolv.conf", host.run_dir) >=
	    (int)sizeof(resolv) || faccessat(AT_FDCWD, resolv, F_OK, 0))
		resolv[0] = '\0';
	mounts_make(sync, resolv, VIEW_EMPTY);
	ret = filter_preloaded(sync);
	if (!ret)
		ret = link_child();
	if (ret) {
		child_report(sync, STEP_FILTER, ret);
		_exit(EXIT_NOT_FOUND);
	}
	become_user(sync, parent);
	if (faccessat(AT_FDCWD, host.preload, R_OK, 0) ||
	    faccessat(AT_FDCWD, host.stack_path, R_OK, 0)) {
		child_report(sync, STEP_LIBRARY, -errno);
		_exit(EXIT_NOT_FOUND);
	}
	run_command(sync, argv);
}

/**
 * catch_calls - make lklhost answer the calls of this process
 *
 * lklhost has what it needs when it writes a byte. Returns false on failure,
 * which is reported.
 */
static bool catch_calls(int sync)
{
	struct child_report met = { .step = STEP_MEETING };
	int fd = -1, ret;
	char go;

	if (host.trace) {
		fd = trace_meeting_open();
		met.value = fd < 0 ? fd : 0;
		if (fd_pass_send(sync, &met, sizeof(met), &fd, fd >= 0, 0) < 0 ||
		    fd < 0)
			return false;
		ret = filter_install_trace();
	} else {
		ret = fd = filter_install();
	}
	child_report(sync, STEP_FILTER, ret);
	if (ret < 0 || !child_read(sync, &go, 1))
		return false;
	close(fd);
	return true;
}

/**
 * child_main - main function of the child; never returns
 * @sync: the child's end of the socket pair
 * @zygote: the zygote's end of its own socket pair
 * @parent: pid of lklhost
 * @argv: the command
 */
void child_main(int sync, int zygote, pid_t parent, char **argv)
{
	char resolv[RESOLV_MAX + 1];
	bool userns = false;
	uint32_t len;
	int ret;

	ret = host.shared_netns ? 0 : netns_enter(false);
	if (ret == -EPERM && !host.no_userns) {
		ret = netns_enter(true);
		userns = true;
	}
	if (ret) {
		child_report(sync, STEP_NETNS, ret);
		_exit(EXIT_NOT_FOUND);
	}
	die_with(parent);
	if (userns || host.in_userns || host.shared_netns)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (host.shared_netns)	/* they are rights on the host's network */
		caps_drop(1ull << CAP_NET_ADMIN | 1ull << CAP_NET_RAW);
	if (host.preload)
		child_preload(sync, parent, argv);
	if (!catch_calls(sync))
		_exit(EXIT_NOT_FOUND);

	if (!child_read(sync, &len, sizeof(len)) || len > RESOLV_MAX ||
	    !child_read(sync, resolv, len))
		_exit(EXIT_NOT_FOUND);
	resolv[len] = '\0';
	if (strcmp(host.abi, "host"))
		mounts_make(sync, resolv, view_fd());
	else if (len)
		mounts_make(sync, resolv, VIEW_HOSTS);
	become_user(sync, parent);
	zygote_fork(zygote);
	run_command(sync, argv);
}
