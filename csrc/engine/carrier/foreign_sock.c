// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stray sockets: sockets that belong to another network than the stack's.
 *
 * Theory of operation
 *
 * The target cannot create foreign sockets, because its sockets are carriers. But
 * a process outside the run may send one to the target, or the target may take
 * one from such a process (pidfd_getfd(2)). lklhost does not pass foreign sockets
 * to the target (scm_rights.c, getfd.c), and refuses calls on them. Sockets
 * that lklhost or its user has passed to the target are not foreign: packet
 * sockets, and the standard streams of a program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"
#include "process/process.h"

#ifndef SO_COOKIE		/* Linux 4.12 */
#define SO_COOKIE	57
#endif

/*
 * Allowed sockets. Both numbers identify a socket: the kernel reuses inode
 * numbers after some time, and on older kernels, sockets of several network
 * namespaces have the same cookie.
 */
static struct known {
	uint64_t ino, cookie;
} *known;
static size_t n_known;

/** identity - get the numbers of a socket */
static struct known identity(int fd)
{
	struct known k = { .ino = fd_ino(fd) };
	socklen_t len = sizeof(k.cookie);

	(void)getsockopt(fd, SOL_SOCKET, SO_COOKIE, &k.cookie, &len);
	return k;
}

/** option - get the value of an integer option of a socket, or -1 */
static int option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

/** of_network - whether a socket gives access to a network or its state */
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

/** foreign_sock_allow - mark @fd as a socket that the target may have */
void foreign_sock_allow(int fd)
{
	int domain = option(fd, SO_DOMAIN);
	struct known *more;

	if (domain < 0 || !of_network(fd, domain))
		return;
	more = realloc(known, (n_known + 1) * sizeof(*known));
	if (!more)
		return;
	known = more;
	known[n_known++] = identity(fd);
}

/** foreign_sock_is - whether @fd is a foreign socket */
bool foreign_sock_is(int fd, int domain)
{
	struct known k;
	size_t i;

	if (domain < 0 || !of_network(fd, domain))
		return false;
	k = identity(fd);
	for (i = 0; i < n_known; i++)
		if (known[i].ino == k.ino && known[i].cookie == k.cookie)
			return false;
	return true;
}

/**
 * foreign_sock_domain - get the address family of a socket; -1 if it is none
 */
int foreign_sock_domain(int fd)
{
	return option(fd, SO_DOMAIN);
}

/** foreign_sock_refused - count a refused foreign socket, and warn once per process */
void foreign_sock_refused(const struct call *c)
{
	conn_stats.strays++;
	if (task_account(c->task)->strays++)
		return;
	warn_user("%s (pid %d): a socket of the host's network, received from another process, is refused; create the socket inside the run, or see --host-net",
		  task_comm(c->task), task_tgid(c->task));
}
