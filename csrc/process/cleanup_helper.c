// SPDX-License-Identifier: GPL-2.0-only
/*
 * The keeper: it keeps lklrun's rights after lklrun is gone.
 *
 * Theory of operation
 *
 * If lklrun is killed, lklhost has `lklrun cleanup` undo the changes that
 * lklrun made on the host. But lklhost cannot run that command itself: lklhost
 * gives up its rights, the host's mounts and execve(2) before it reads a byte
 * from the network (isolation.c). The keeper is forked before that. It keeps
 * the rights, the mounts and the network namespace of lklrun, and has one task:
 * it waits for one byte and becomes `lklrun cleanup`. It reads nothing else,
 * and ends with lklhost.
 *
 * The keeper also holds the lock of the run directory, which shows that the run
 * is alive, and passes it on to `lklrun cleanup`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "process/process.h"

#define RIGHTS	(1ull << CAP_NET_ADMIN | 1ull << CAP_NET_RAW)

static int ours = -1;

/** keep - main function of the keeper; descriptors: socket, program, lock */
__attribute__((noreturn))
static void keep(void)
{
	char *argv[] = { (char *)"lklrun", (char *)"cleanup", (char *)"--dir",
			 (char *)host.run_dir, NULL };
	char path[32], word;
	sigset_t none;

	if (read(HELPER_FDS, &word, 1) != 1)
		_exit(0);	/* lklhost is gone: lklrun cleans up */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", HELPER_FDS + 1);
	fcntl(HELPER_FDS + 2, F_SETFD, 0);	/* keep the lock held */
	execv(path, argv);
	_exit(0);
}

/** hand_over - close the descriptors that only the keeper needs */
static void hand_over(int theirs)
{
	close(theirs);
	close(host.cleanup_fd);
	close(host.lock_fd);
	host.cleanup_fd = host.lock_fd = -1;
}

/**
 * keeper_start - fork the keeper, if there is something to clean up
 *
 * lklhost then drops the capabilities for the host's network, unless it needs
 * them for namespaces. Returns 0 or a negative errno.
 */
int keeper_start(void)
{
	int sv[2], fds[3];
	pid_t pid;

	if (host.cleanup_fd < 0 || host.lock_fd < 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	fds[0] = sv[1];
	fds[1] = host.cleanup_fd;
	fds[2] = host.lock_fd;
	pid = helper_fork("lklhost-keeper", fds, 3);
	if (!pid)
		keep();
	hand_over(sv[1]);
	ours = sv[0];
	if (pid < 0)
		return pid;
	if (!caps_have(CAP_SYS_ADMIN))	/* otherwise needed for namespaces */
		caps_drop(RIGHTS);
	return 0;
}

/** keeper_cleanup - start the cleanup; false if there is no keeper */
bool keeper_cleanup(void)
{
	return ours >= 0 && send(ours, "", 1, MSG_NOSIGNAL) == 1;
}
