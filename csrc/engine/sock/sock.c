// SPDX-License-Identifier: GPL-2.0-only
/* socket(), bind() and socket names: calls that all kinds of sockets share. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/call/native.h"
#include "engine/call/rights.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/space.h"
#include "engine/dgram/dgram.h"
#include "engine/sock/sock.h"
#include "engine/stream/stream.h"
#include "mirror/mirror.h"
#include "stack/stack.h"

#define TYPE_MASK	0xf		/* SOCK_TYPE_MASK, include/linux/net.h */
#define FIRST_PORT	1		/* of netlink, see keep_port() */

/** give - pass a new carrier to the caller */
static int64_t give(struct call *c, struct conn *conn, int fd, bool cloexec)
{
	int ret;

	carrier_note(conn, fd);
	conn_has_carrier(conn);
	ret = call_addfd_send(c, fd, cloexec);
	close(fd);
	if (ret < 0) {
		conn_free(conn);
		return ret == -ENOENT ? CALL_ANSWERED : ret;
	}
	conn->tfd = ret;
	if (c->left && !(conn->facts & F_SPACE))
		orphan_fd_add(c, ret, conn->carrier_ino, NULL, 0);
	return CALL_ANSWERED;
}

/** refuse - count and log a socket that the stack does not provide */
static int64_t refuse(struct call *c, int domain, int type, int proto,
		      int64_t err)
{
	conn_stats.refused++;
	task_count_socket(c->task, false);
	log_line("%s (pid %d): socket(%d, %d, %d): %s", task_comm(c->task),
		 c->pid, domain, type, proto, strerror((int)-err));
	return err;
}

/**
 * space_socket - create a socket in a space
 * @s: the space; NULL: the run's namespace
 */
static long space_socket(const struct space *s, int domain, int type, int proto)
{
	long ret = space_enter(s);

	if (ret)
		return ret;
	ret = st_socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, proto);
	space_leave();
	return ret;
}

/**
 * sock_make - create a socket of the stack and its carrier
 * @space: as for space_socket(); a space has TCP unless MPTCP is requested
 * @made: set to the connection
 *
 * Returns the carrier, which the caller must pass to the target, or a negative
 * errno.
 */
static int sock_make(struct call *c, const struct space *space, int domain,
		     int type, int proto, int flags, struct conn **made)
{
	enum conn_kind kind = type == SOCK_STREAM ? KIND_STREAM : KIND_DGRAM;
	struct conn *conn;
	bool is_mptcp = false;
	long sfd;
	int fd;

	if (type == SOCK_STREAM && proto != 0 && proto != IPPROTO_TCP &&
	    proto != IPPROTO_MPTCP)
		return (int)refuse(c, domain, type, proto, -EPROTONOSUPPORT);
	conn_sweep_many();
	if (memory_short())
		return -ENOBUFS;
	sfd = space ? space_socket(space, domain, type, proto) :
		      stack_socket(domain, type, proto, &is_mptcp);
	if (sfd < 0)
		return (int)refuse(c, domain, type, proto, sfd);
	task_refresh(c->task);
	conn = conn_new(c, kind, (int)sfd, domain, type, proto);
	if (!conn) {
		st_close(sfd);
		return -ENOMEM;
	}
	flag_set(&conn->facts, F_SPACE, space);
	flag_set(&conn->facts, F_MPTCP, is_mptcp);
	flag_set(&conn->facts, F_MPTCP_ASKED,
		 is_mptcp || proto == IPPROTO_MPTCP);
	fd = carrier_make((kind == KIND_STREAM ? SOCK_STREAM : SOCK_DGRAM) |
			  (flags & SOCK_NONBLOCK), conn->id);
	if (fd < 0) {
		conn_free(conn);
		return fd;
	}
	if (kind == KIND_DGRAM) {
		int ret = dgram_start(dgram_of(conn));
		int size = dgram_sndbuf(domain);

		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		if (!ret && host.shared_netns)
			ret = dgram_attach(dgram_of(conn), fd);
		if (ret) {
			close(fd);
			conn_free(conn);
			return ret;
		}
	}
	conn_stats.made++;
	task_count_socket(c->task, true);
	conn_probe_add(conn);
	*made = conn;
	return fd;
}

/** socket_inet - create an AF_INET or AF_INET6 socket */
static int64_t socket_inet(struct call *c, const struct space *space, int domain,
			   int type, int proto, int flags)
{
	struct conn *conn = NULL;
	int fd = sock_make(c, space, domain, type, proto, flags, &conn);

	return fd < 0 ? fd : give(c, conn, fd, flags & SOCK_CLOEXEC);
}

/* The netlink protocols that concern the network; @keeper: see keep_port() */
static struct {
	int proto, keeper;
} protocols[] = {
	{ NETLINK_ROUTE, -1 }, { NETLINK_SOCK_DIAG, -1 }, { NETLINK_GENERIC, -1 },
	{ NETLINK_NETFILTER, -1 }, { NETLINK_XFRM, -1 },
};

/** protocol_of - get the index of a protocol in @protocols, or -1 */
static int protocol_of(int proto)
{
	size_t i;

	for (i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
		if (protocols[i].proto == proto)
			return (int)i;
	return -1;
}

/**
 * keep_port - keep the port 1 of a netlink protocol until the target asks for it
 *
 * A socket that asks for no port gets the pid of its process, if that port is
 * free. In the stack, all sockets belong to process 1. However, the first
 * process of a pid namespace asks for port 1.
 */
static void keep_port(int i)
{
	const struct sockaddr_nl nl = { .nl_family = AF_NETLINK,
					.nl_pid = FIRST_PORT };
	int *fd = &protocols[i].keeper;

	if (*fd >= 0)
		return;
	*fd = (int)st_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC,
			     protocols[i].proto);
	if (*fd >= 0 && st_bind(*fd, &nl, sizeof(nl))) {
		st_close(*fd);
		*fd = -1;
	}
}

/** sock_keep_ports - call keep_port() for all protocols, after the boot */
void sock_keep_ports(void)
{
	size_t i;

	for (i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
		keep_port((int)i);
}

/**
 * sock_netlink_closed - call keep_port(), because a closed socket may have had the
 * port
 *
 * Otherwise a socket of a control client could get the port until the run ends.
 */
void sock_netlink_closed(const struct conn *conn)
{
	int i = conn->facts & F_SPACE ? -1 : protocol_of(conn->proto);

	if (i >= 0)
		keep_port(i);
}

/** socket_netlink - create a netlink socket whose protocol concerns the network */
static int64_t socket_netlink(struct call *c, const struct space *space, int type,
			      int proto, int flags)
{
	int domain = AF_NETLINK, sv[2], ret;
	struct conn *conn;
	long sfd;

	conn_sweep_many();
	if (!space)
		keep_port(protocol_of(proto));
	sfd = space_socket(space, domain, type, proto);
	if (sfd < 0)
		return refuse(c, domain, type, proto, sfd);
	conn = conn_new(c, KIND_NETLINK, (int)sfd, domain, type, proto);
	if (!conn) {
		st_close(sfd);
		return -ENOMEM;
	}
	ret = carrier_pair(SOCK_SEQPACKET | (flags & SOCK_NONBLOCK), conn->id,
			   sv);
	if (ret) {
		conn_free(conn);
		return ret;
	}
	flag_set(&conn->facts, F_SERVED, c->served);
	flag_set(&conn->facts, F_SPACE, space);
	ret = netlink_start(dgram_of(conn), sv[0]);
	if (ret) {
		close(sv[1]);
		conn_free(conn);
		return ret;
	}
	return give(c, conn, sv[1], flags & SOCK_CLOEXEC);
}

/**
 * socket_packet - create an AF_PACKET socket, a real one: see mirror/mirror.c
 */
static int64_t socket_packet(struct call *c, int type, int proto, int flags)
{
	int fd = -EPERM, ret;
	uint64_t had;

	if (rights_include(c->rights, CAP_NET_RAW)) {
		/* The mirror uses sockets of its own in the stack. */
		rights_set(RIGHTS_ALL, &had);
		fd = mirror_socket(type, proto, flags);
		rights_set(had, NULL);
	}
	if (fd < 0)
		return refuse(c, AF_PACKET, type, proto, fd);
	foreign_sock_allow(fd);
	ret = call_addfd_send(c, fd, flags & SOCK_CLOEXEC);
	if (c->left)
		orphan_fd_add(c, ret, fd_ino(fd), NULL, 0);
	close(fd);
	if (ret < 0)
		return ret == -ENOENT ? CALL_ANSWERED : ret;
	conn_stats.made++;
	task_refresh(c->task);
	task_count_socket(c->task, true);
	return CALL_ANSWERED;
}

/** sock_socket - handle socket(2) */
int64_t sock_socket(struct call *c)
{
	int domain = (int)c->args[0], type = (int)c->args[1] & TYPE_MASK;
	int flags = (int)c->args[1] & ~TYPE_MASK, proto = (int)c->args[2];
	struct orphan_fd *left;
	struct space *space;
	int ret;

	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return -EINVAL;
	if (domain == AF_NETLINK && type != SOCK_RAW && type != SOCK_DGRAM)
		return -ESOCKTNOSUPPORT;
	/* Others (audit, uevent, ...) show nothing of the host in an empty namespace. */
	if (domain == AF_NETLINK && protocol_of(proto) < 0)
		return host.shared_netns && proto != NETLINK_KOBJECT_UEVENT ?
		       -EPROTONOSUPPORT : call_native(NATIVE_LOCAL_NETLINK);
	ret = space_of(c, &space);
	if (ret)
		return refuse(c, domain, type, proto, ret);
	left = space ? NULL : orphan_fd_find(c);
	if (left)
		return orphan_fd_give(c, left);
	switch (domain) {
	case AF_INET:
	case AF_INET6:
		if (type == SOCK_STREAM || type == SOCK_DGRAM ||
		    type == SOCK_RAW)
			return socket_inet(c, space, domain, type, proto, flags);
		return refuse(c, domain, type, proto, -ESOCKTNOSUPPORT);
	case AF_NETLINK:
		return socket_netlink(c, space, type, proto, flags);
	case AF_PACKET:
		if (space)	/* the mirror has only the devices of the run */
			return refuse(c, domain, type, proto, -ENETDOWN);
		return socket_packet(c, type, proto, flags);
	}
	return refuse(c, domain, type, proto, -EAFNOSUPPORT);
}

/** give_port - release a port that keep_port() keeps, if the target asks for it */
static void give_port(const struct conn *conn, const struct sockaddr_storage *ss)
{
	int i = conn->kind == KIND_NETLINK && !(conn->facts & F_SPACE) &&
		((const struct sockaddr_nl *)ss)->nl_pid == FIRST_PORT ?
		protocol_of(conn->proto) : -1;

	if (i < 0 || protocols[i].keeper < 0)
		return;
	st_close(protocols[i].keeper);
	protocols[i].keeper = -1;
}

/** sock_bind - handle bind(2) */
int64_t sock_bind(struct call *c)
{
	struct sockaddr_storage ss;
	int64_t len = addr_read(c, c->args[1], c->args[2], &ss);
	int64_t ret;

	if (len < 0)
		return len;
	ret = hostnet_serve(c);
	if (ret)
		return ret;
	give_port(c->conn, &ss);
	ret = st_bind(c->conn->sfd, &ss, len);
	if (ret == -EADDRINUSE) {
		/*
		 * A socket whose carrier is closed may still use the address.
		 */
		conn_sweep();
		ret = st_bind(c->conn->sfd, &ss, len);
	}
	if (ret)
		return ret;
	conn_event(c->conn, "bind");
	if (c->conn->kind == KIND_DGRAM)
		conn_reachable(c->conn);
	return 0;
}

/** sock_name - handle getsockname(2) and getpeername(2) */
int64_t sock_name(struct call *c, bool peer)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	long ret;

	ret = peer ? st_getpeername(c->conn->sfd, &ss, &len) :
		     st_getsockname(c->conn->sfd, &ss, &len);
	if (ret < 0)
		return ret;
	return addr_write(c, c->args[1], c->args[2], &ss, len);
}

/** control_fd - get a socket of our own in the run's namespace of the stack */
int control_fd(int domain)
{
	static int control[2] = { -1, -1 };
	int *fd = &control[domain == AF_INET6];

	if (*fd < 0)
		*fd = (int)st_socket(domain, SOCK_DGRAM | SOCK_NONBLOCK |
				     SOCK_CLOEXEC, 0);
	return *fd;
}
