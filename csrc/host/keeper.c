// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keeper: what is left of lklrun's rights when lklrun is gone.
 *
 * Theory of operation
 *
 * Somebody with CAP_NET_ADMIN, and without the right to make namespaces, can have
 * lklrun set up devices and rules on the host. lklhost then moves into a user
 * namespace, or stays, and has no rights on the host any more. So has the target.
 * What is to be undone there when lklrun was killed is undone by a process that
 * was forked before, and only then: it waits for a word, and becomes `lklrun
 * cleanup`. It ends with lklhost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "helper.h"
#include "host.h"

#define RIGHTS	(1ull << CAP_NET_ADMIN | 1ull << CAP_NET_RAW)

static int ours = -1;

/** keep - what happens in the keeper; its descriptors: socket, program, lock */
__attribute__((noreturn))
static void keep(void)
{
	char *argv[] = { (char *)"lklrun", (char *)"cleanup", (char *)"--dir",
			 (char *)host.run_dir, NULL };
	char path[32], word;
	sigset_t none;

	if (read(HELPER_FDS, &word, 1) != 1)
		_exit(0);	/* lklhost is gone: lklrun does it */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", HELPER_FDS + 1);
	fcntl(HELPER_FDS + 2, F_SETFD, 0);	/* the run directory stays ours */
	execv(path, argv);
	_exit(0);
}

/**
 * keeper_start - fork it where it is needed, and let go of its rights
 *
 * 0, also where it is not needed, or a negative errno.
 */
int keeper_start(void)
{
	int sv[2], fds[3];
	pid_t pid;

	if (host.cleanup_fd < 0 || host.lock_fd < 0 ||
	    !caps_have(CAP_NET_ADMIN) || caps_have(CAP_SYS_ADMIN))
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	fds[0] = sv[1];
	fds[1] = host.cleanup_fd;
	fds[2] = host.lock_fd;
	pid = helper_fork("lklhost-keeper", fds, 3);
	if (!pid)
		keep();
	close(sv[1]);
	ours = sv[0];
	if (pid < 0)
		return pid;
	caps_drop(RIGHTS);
	return 0;
}

/** keeper_cleanup - have the host cleaned up; false: that is for us to do */
bool keeper_cleanup(void)
{
	return ours >= 0 && send(ours, "", 1, MSG_NOSIGNAL) == 1;
}
