// SPDX-License-Identifier: GPL-2.0-only
/*
 * Access to ctl.sock: for root and our own user, but not for programs that run
 * on a stack.
 *
 * Theory of operation
 *
 * The target has the uid that the run directory admits. Through the control
 * socket it could get more than lklrun was told to give it, for example a link
 * to the host's loopback. lklhost recognises it by its ancestors. As lklhost is
 * a child subreaper, each process of the target descends from lklhost, even if
 * its parents end. A program on the stack of another run descends from another
 * lklhost, which is the same executable.
 *
 * The pid of a peer may belong to another process by the time lklhost looks. A
 * pidfd from the socket (SO_PEERPIDFD, Linux 6.5) identifies the process that
 * connected. On older kernels, lklhost opens a pidfd first; if that process is
 * still alive at the end, the pid has at least not changed meanwhile. A peer
 * that has ended is refused.
 *
 * A process outside that connects and passes its socket to the target does so
 * on purpose; lklhost does not prevent it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "control/internal.h"
#include "process/process.h"
#include "stack/stack.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD	77
#endif
#define OVERFLOW_ID	65534
#define ANCESTORS_MAX	4096
#define RETRIES		8

/** number - the number after @key in a file of /proc, or -1 */
static long number(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	char line[256];
	long n = -1;

	if (!f)
		return -1;
	while (n < 0 && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), "%ld", &n);
	fclose(f);
	return n;
}

/**
 * parent_of - the parent's pid; 0: none that we can see; -1: no such process
 *
 * With the mount option hidepid= of /proc, processes that we cannot trace are
 * hidden. Such a process does not belong to the target in two cases. Either it
 * belongs to another user: the target cannot become that user unless we are
 * root, and root sees all processes. Or we may trace everything in our user
 * namespace.
 */
static pid_t parent_of(pid_t pid)
{
	char path[64];
	pid_t parent;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	parent = (pid_t)number(path, "PPid:");
	if (parent >= 0)
		return parent;
	if (kill(pid, 0))
		return errno == EPERM ? 0 : -1;
	return host.in_userns && caps_have(CAP_SYS_PTRACE) ? 0 : -1;
}

/** is_named - whether a process has our program's name, which all may read */
static bool is_named(pid_t pid)
{
	char path[64], name[17] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (f && !fgets(name, sizeof(name), f))
		name[0] = '\0';
	if (f)
		fclose(f);
	return !strcmp(name, "lklhost\n");
}

/**
 * is_lklhost - whether a process is this one, or one of the same executable
 *
 * lklhost may not be allowed to read the executable of a process that is in
 * another user namespace or has capabilities. It then compares the name.
 */
static bool is_lklhost(pid_t pid)
{
	struct stat us, them;
	char path[64];

	if (pid == getpid())
		return true;
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (stat(path, &them))
		return is_named(pid);
	return !stat("/proc/self/exe", &us) && us.st_dev == them.st_dev &&
	       us.st_ino == them.st_ino;
}

/**
 * walk - walk up the ancestors to an lklhost or to the end
 *
 * Returns 1 if @pid is below an lklhost, 0 if not, -1 if a process ended
 * meanwhile. As long as a child names its parent, that pid cannot have been
 * reused.
 */
static int walk(pid_t pid)
{
	pid_t parent, grand;
	int n;

	parent = parent_of(pid);
	for (n = 0; n < ANCESTORS_MAX && parent > 0; n++) {
		bool found = is_lklhost(parent);

		grand = parent_of(parent);
		if (grand < 0 || parent_of(pid) != parent)
			return -1;
		if (found)
			return 1;
		pid = parent;
		parent = grand;
	}
	return n == ANCESTORS_MAX ? 1 : parent;
}

/** peer_pidfd - a pidfd of the process that connected, or a negative errno */
static int peer_pidfd(int sock, pid_t pid)
{
	socklen_t len = sizeof(int);
	int fd;

	if (!getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len))
		return fd;
	if (errno != ENOPROTOOPT)
		return -errno;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : fd;
}

/** on_a_stack - whether the peer runs on a stack, or this is unknown */
static bool on_a_stack(int sock, pid_t pid)
{
	struct pollfd p = { .events = POLLIN };
	int i, below = -1;

	if (!pid)	/* in a parent PID namespace: no child of ours */
		return false;
	p.fd = peer_pidfd(sock, pid);
	if (p.fd == -ENOSYS)	/* qemu-user, and kernels before Linux 5.3 */
		p.fd = -1;
	else if (p.fd < 0)
		return true;
	for (i = 0; i < RETRIES && below < 0; i++)
		below = walk(pid);
	if (p.fd >= 0) {
		if (poll(&p, 1, 0))	/* it has ended */
			below = -1;
		close(p.fd);
	}
	return below != 0;
}

/**
 * ctl_peer_allowed - whether a process that connected to ctl.sock may stay
 *
 * In our own user namespace, every foreign uid, including root, appears as the
 * overflow uid. The run directory's mode 0700 has already excluded all but
 * root.
 */
bool ctl_peer_allowed(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	char text[160];

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) ||
	    (cred.uid != 0 && cred.uid != geteuid() &&
	     !(host.in_userns && cred.uid == OVERFLOW_ID)))
		return false;
	if (!on_a_stack(sock, cred.pid))
		return true;
	log_line("process %d, which runs on a stack, may not use the control socket",
		 cred.pid);
	snprintf(text, sizeof(text),
		 "a program that runs on a stack of lklrun may not control %s; run lklctl outside",
		 host.name);
	(void)ctl_fatal(sock, text);
	return false;
}
