// SPDX-License-Identifier: GPL-2.0-only
/*
 * Helper processes of lklhost, which stay in the namespaces in which it was
 * started.
 *
 * None of them belongs to the target's tree, and none keeps a descriptor of the
 * target open. They block the signals that the terminal sends to its foreground
 * processes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process/process.h"

#define HELPERS_MAX	4

static pid_t helpers[HELPERS_MAX];
static unsigned int n_helpers;

/** settle - keep only the descriptors @fds, from HELPER_FDS on */
static bool settle(const int *fds, unsigned int n)
{
	int null = open("/dev/null", O_RDWR), high[4];
	unsigned int i;

	if (null < 0 || n > sizeof(high) / sizeof(high[0]))
		return false;
	/* Move them away first, as their numbers may overlap. */
	for (i = 0; i < n; i++) {
		high[i] = fcntl(fds[i], F_DUPFD, HELPER_FDS + (int)n);
		if (high[i] < 0)
			return false;
	}
	for (i = 0; i < HELPER_FDS; i++)
		if (dup2(null, (int)i) < 0)
			return false;
	for (i = 0; i < n; i++)
		if (dup3(high[i], HELPER_FDS + (int)i, O_CLOEXEC) < 0)
			return false;
	return helper_close_from(HELPER_FDS + n) && !chdir("/");
}

/**
 * helper_close_from - close @first and all descriptors above it
 *
 * Without close_range(), before Linux 5.9, it closes those listed in /proc.
 */
bool helper_close_from(unsigned int first)
{
	struct dirent *e;
	DIR *dir;
	int fd;

	if (!syscall(SYS_close_range, first, ~0u, 0))
		return true;
	if (errno != ENOSYS)
		return false;
	dir = opendir("/proc/self/fd");
	if (!dir)
		return false;
	while ((e = readdir(dir))) {
		fd = atoi(e->d_name);	/* 0 for "." and ".." */
		if (fd >= (int)first && fd != dirfd(dir))
			close(fd);
	}
	closedir(dir);
	return true;
}

/**
 * helper_out_of_reach - keep our memory and descriptors from the target
 *
 * Without a user namespace, the target has our user and our rights, or more.
 * The host's kernel then lets it trace this process and take sockets of the
 * host's network from it, unless this process is not dumpable (ptrace(2)).
 */
void helper_out_of_reach(void)
{
#ifndef __SANITIZE_ADDRESS__	/* its leak detector uses ptrace(2) */
	prctl(PR_SET_DUMPABLE, 0);
#endif
}

/**
 * helper_fork - fork(2) a helper
 * @name: name of the helper
 * @fds: the descriptors that it keeps, as HELPER_FDS, HELPER_FDS + 1 ...
 *
 * Returns the pid or a negative errno; 0 in the helper.
 */
pid_t helper_fork(const char *name, const int *fds, unsigned int n)
{
	pid_t pid, parent = getpid();
	sigset_t all, old;
	int ret;

	if (n_helpers == HELPERS_MAX)
		return -EAGAIN;
	sigfillset(&all);
	sigdelset(&all, SIGSYS);	/* base/trap.c */
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_NAME, name);
		helper_out_of_reach();
		if (!settle(fds, n) || getppid() != parent)
			_exit(0);
		return 0;
	}
	ret = -errno;
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return ret;
	helpers[n_helpers++] = pid;
	return pid;
}

/** helper_add - record a helper that another process cloned as our child */
void helper_add(pid_t pid)
{
	if (n_helpers < HELPERS_MAX)
		helpers[n_helpers++] = pid;
}

/** helper_is - whether a child of ours is a helper */
bool helper_is(pid_t pid)
{
	unsigned int i;

	for (i = 0; i < n_helpers; i++)
		if (helpers[i] == pid)
			return true;
	return false;
}
