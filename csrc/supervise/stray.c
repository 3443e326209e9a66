// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets of a network other than the stack's.
 *
 * Theory of operation
 *
 * The target makes none: its sockets are carriers. But it may be sent one by a
 * process outside the run, or take one out of such a process. A stray socket does
 * not get in (received.c, stray_getfd()), and is refused where it is found. Known
 * are those that lklhost or its user has given the target: packet sockets, and
 * sockets that are a program's standard streams.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "conn.h"
#include "host.h"
#include "stray.h"

static uint64_t *known;		/* inodes */
static size_t n_known;

/** option - an option of a socket that is a number, or -1 */
static int option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

/** of_network - whether a socket of that family reaches a network, or tells of one */
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

/** stray_allow - the target has @fd, if it is such a socket, by right */
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

/** stray_refused - count one, and tell of the first of a process */
void stray_refused(const struct call *c)
{
	conn_stats.strays++;
	if (task_account(c->task)->strays++)
		return;
	warn_user("%s (pid %d): a socket of the host's network, received from another process, is refused: the program's network is the stack; have the socket made inside the run, or see --host-net",
		  task_comm(c->task), task_tgid(c->task));
}

/** pidfd_pid - the process of a pidfd; 0: it is none, or the process has ended */
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
 * Processes of this run have no stray sockets, so what the host's kernel permits
 * there is permitted. A program that may take a descriptor out of another process
 * may also have it do anything, by ptrace(2): no more is needed than that it does
 * not use a socket of the host's unawares.
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
