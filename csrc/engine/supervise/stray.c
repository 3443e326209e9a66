// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets of another network than the stack's.
 *
 * Theory of operation
 *
 * The target cannot create such sockets: its sockets are carriers. But a
 * process outside the run may send it one, or it may take one from such a
 * process. Such a stray socket is not let in (received.c, stray_getfd()), and
 * calls on it are refused. Not stray are the sockets that lklhost or its user
 * has given to the target: packet sockets, and sockets that are standard
 * streams of a program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "engine/supervise/carrier.h"
#include "engine/supervise/conn.h"
#include "engine/supervise/notify.h"
#include "engine/supervise/stray.h"
#include "process/process.h"

static uint64_t *known;		/* inodes of allowed sockets */
static size_t n_known;

/** option - the value of an integer option of a socket, or -1 */
static int option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

/** of_network - whether sockets of this family access a network or its state */
static bool of_network(int fd, int domain)
{
	switch (domain) {
	case AF_UNIX:
	case AF_ALG:
		return false;
	case AF_NETLINK:
		switch (option(fd, SO_PROTOCOL)) {
		case NETLINK_ROUTE:
		case NETLINK_SOCK_DIAG:
		case NETLINK_GENERIC:
		case NETLINK_NETFILTER:
		case NETLINK_XFRM:
			return true;
		}
		return false;
	}
	return true;
}

/** stray_allow - allow the target to have @fd */
void stray_allow(int fd)
{
	int domain = option(fd, SO_DOMAIN);
	uint64_t *more;

	if (domain < 0 || !of_network(fd, domain))
		return;
	more = realloc(known, (n_known + 1) * sizeof(*known));
	if (!more)
		return;
	known = more;
	known[n_known++] = fd_ino(fd);
}

/** stray_is - whether @fd is a stray socket */
bool stray_is(int fd, int domain)
{
	uint64_t ino;
	size_t i;

	if (domain < 0 || !of_network(fd, domain))
		return false;
	ino = fd_ino(fd);
	for (i = 0; i < n_known; i++)
		if (known[i] == ino)
			return false;
	return true;
}

/** stray_domain - the family of a socket, -1 for other descriptors */
int stray_domain(int fd)
{
	return option(fd, SO_DOMAIN);
}

/** stray_refused - count a stray socket; report the first of each process */
void stray_refused(const struct call *c)
{
	conn_stats.strays++;
	if (task_account(c->task)->strays++)
		return;
	warn_user("%s (pid %d): a socket of the host's network, received from another process, is refused; create the socket inside the run, or see --host-net",
		  task_comm(c->task), task_tgid(c->task));
}

/**
 * pidfd_pid - the process of a pidfd; 0 if it is none, or the process has ended
 */
static pid_t pidfd_pid(int fd)
{
	char path[48], line[128];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid > 0 ? pid : 0;
}

/**
 * stray_getfd - pidfd_getfd(2)
 *
 * Processes of this run have no stray sockets, so the host's kernel may decide
 * about these. A program that may take a descriptor from another process may
 * also make that process do anything, by ptrace(2). It is therefore enough that
 * it does not use a socket of the host unknowingly.
 */
int64_t stray_getfd(struct call *c)
{
	pid_t pid;

	if (call_dup(c, (int)c->args[0]))
		return CALL_NATIVE;
	pid = pidfd_pid(c->dup);
	if (!pid || tree_has(pid))
		return CALL_NATIVE;
	stray_refused(c);
	return -EPERM;
}
