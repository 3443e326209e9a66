// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioctl() requests of sockets, answered by the stack: interfaces, their
 * addresses, routes and neighbours. ifconfig, route, arp and ethtool make these
 * requests.
 *
 * The C library and many tools make them on a unix or packet socket. A request
 * on a socket that is not a carrier is therefore made on a socket of our own in
 * the caller's network namespace of the stack. No request about devices is ever
 * left to the host's kernel (native.h). The data that a request points to are
 * copied to the stack and back. A request that is not listed here is refused: private requests of a
 * kind of device may contain pointers anywhere, which the stack would use as
 * pointers into our memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/call/native.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"
#include "engine/carrier/space.h"
#include "engine/sock/sock.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

#define CONF_MAX	(512 * sizeof(struct ifreq))
#define DATA_MAX	(64 * 1024)	/* bytes that ifr_data points to */

/* First request of wireless devices, which the stack lacks (wireless.h). */
#define SIOCIWFIRST	0x8b00

/* Type of the data that the argument points to. */
enum shape {
	FLAT,		/* a structure without pointers */
	NAME,		/* the name of a device */
	DATA,		/* a struct ifreq whose ifr_data is a pointer */
	ROUTE,		/* a struct rtentry, or in6_rtmsg on an IPv6 socket */
	CONF,		/* a struct ifconf */
};

static const struct {
	unsigned int cmd;
	enum shape shape;
	size_t size;
} requests[] = {
	{ SIOCGSTAMP_OLD, FLAT, 2 * sizeof(long) },
	{ SIOCGSTAMPNS_OLD, FLAT, 2 * sizeof(long) },
	{ SIOCGIFNAME, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFNAME, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFFLAGS, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFFLAGS, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCDIFADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFDSTADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFDSTADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFBRDADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFBRDADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFNETMASK, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFNETMASK, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFMETRIC, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFMETRIC, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFMTU, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFMTU, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFHWADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFHWADDR, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFHWBROADCAST, FLAT, sizeof(struct ifreq) },
	{ SIOCADDMULTI, FLAT, sizeof(struct ifreq) },
	{ SIOCDELMULTI, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFINDEX, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFTXQLEN, FLAT, sizeof(struct ifreq) },
	{ SIOCSIFTXQLEN, FLAT, sizeof(struct ifreq) },
	{ SIOCGIFMAP, FLAT, sizeof(struct ifreq) },
	{ SIOCGMIIPHY, FLAT, sizeof(struct ifreq) },
	{ SIOCGMIIREG, FLAT, sizeof(struct ifreq) },
	{ SIOCBRADDIF, FLAT, sizeof(struct ifreq) },
	{ SIOCBRDELIF, FLAT, sizeof(struct ifreq) },
	{ SIOCGARP, FLAT, sizeof(struct arpreq) },
	{ SIOCSARP, FLAT, sizeof(struct arpreq) },
	{ SIOCDARP, FLAT, sizeof(struct arpreq) },
	{ SIOCGIFVLAN, FLAT, sizeof(struct vlan_ioctl_args) },
	{ SIOCSIFVLAN, FLAT, sizeof(struct vlan_ioctl_args) },
	{ SIOCBRADDBR, NAME, IFNAMSIZ },
	{ SIOCBRDELBR, NAME, IFNAMSIZ },
	{ SIOCETHTOOL, DATA, 0 },
	{ SIOCGHWTSTAMP, DATA, 0 },
	{ SIOCSHWTSTAMP, DATA, 0 },
	{ SIOCADDRT, ROUTE, 0 },
	{ SIOCDELRT, ROUTE, 0 },
	{ SIOCGIFCONF, CONF, 0 },
};

/** ioctl_conf - get the list of interfaces (SIOCGIFCONF) */
static int64_t ioctl_conf(struct call *c, int sfd)
{
	struct ifconf user, conf;
	int64_t ret;

	ret = mem_read(c, c->args[2], &user, sizeof(user));
	if (ret)
		return ret;
	/*
	 * A caller that requests only the length need not set ifc_len, see
	 * net/core/dev_ioctl.c.
	 */
	if (!user.ifc_buf)
		user.ifc_len = 0;
	if (user.ifc_len < 0)
		return -EINVAL;
	conf.ifc_len = user.ifc_len > (int)CONF_MAX ? (int)CONF_MAX :
						     user.ifc_len;
	conf.ifc_buf = user.ifc_buf ? c->buf : NULL;
	ret = st_ioctl(sfd, SIOCGIFCONF, &conf);
	if (ret < 0)
		return ret;
	if (user.ifc_buf) {
		ret = mem_write(c, (uint64_t)(uintptr_t)user.ifc_buf,
				c->buf, (size_t)conf.ifc_len);
		if (ret)
			return ret;
	}
	user.ifc_len = conf.ifc_len;
	return mem_write(c, c->args[2], &user, sizeof(user));
}

/** ioctl_flat - make a request whose structure is copied in both directions */
static int64_t ioctl_flat(struct call *c, int sfd, unsigned int cmd,
			  size_t size)
{
	int64_t ret = mem_read(c, c->args[2], c->buf, size);

	if (ret)
		return ret;
	ret = st_ioctl(sfd, cmd, c->buf);
	if (ret < 0)
		return ret;
	return mem_write(c, c->args[2], c->buf, size);
}

/** ioctl_name - make a request whose argument is a string */
static int64_t ioctl_name(struct call *c, int sfd, unsigned int cmd)
{
	char name[IFNAMSIZ] = "";
	size_t i;

	for (i = 0; i < sizeof(name) - 1; i++) {
		int64_t ret = mem_read(c, c->args[2] + i, name + i, 1);

		if (ret || !name[i])
			return ret ? ret : st_ioctl(sfd, cmd, name);
	}
	return -EINVAL;
}

/**
 * ioctl_data - make a request whose ifr_data points to data
 *
 * The data are copied in both directions. Only the stack can determine their
 * length from the contents. The stack therefore gets a copy of all readable
 * bytes at the address, and the bytes that it changes are copied back.
 */
static int64_t ioctl_data(struct call *c, int sfd, unsigned int cmd)
{
	char *data = c->buf, *was = c->buf + DATA_MAX;
	struct iovec r = { NULL, DATA_MAX };
	struct ifreq ifr;
	size_t from = 0, to;
	int64_t ret, len;

	_Static_assert(CALL_BUF_SIZE >= 2 * DATA_MAX, "room for both copies");
	ret = mem_read(c, c->args[2], &ifr, sizeof(ifr));
	if (ret)
		return ret;
	r.iov_base = ifr.ifr_data;
	len = mem_readv(c, &r, 1, data, DATA_MAX);
	if (len <= 0)
		return -EFAULT;
	memset(data + len, 0, (size_t)(DATA_MAX - len));
	memcpy(was, data, DATA_MAX);
	ifr.ifr_data = data;
	ret = st_ioctl(sfd, cmd, &ifr);
	/*
	 * Some requests, such as ETHTOOL_GLINKSETTINGS, return data even on
	 * errors.
	 */
	for (to = DATA_MAX; to > 0 && data[to - 1] == was[to - 1]; to--)
		;
	while (from < to && data[from] == was[from])
		from++;
	if (to > from && mem_write(c, (uint64_t)(uintptr_t)r.iov_base + from,
				   data + from, to - from))
		return -EFAULT;
	return ret;
}

/** ioctl_route - add or remove a route, for route(8) */
static int64_t ioctl_route(struct call *c, int sfd, unsigned int cmd,
			   int domain)
{
	char dev[IFNAMSIZ] = "";
	struct rtentry rt;
	int64_t ret;
	size_t i;

	if (domain == AF_INET6)
		return ioctl_flat(c, sfd, cmd, sizeof(struct in6_rtmsg));
	ret = mem_read(c, c->args[2], &rt, sizeof(rt));
	if (ret || !rt.rt_dev)
		return ret ? ret : st_ioctl(sfd, cmd, &rt);
	/* Copy byte by byte: the name may end at the end of a page. */
	for (i = 0; i < sizeof(dev) - 1 && !ret; i++) {
		ret = mem_read(c, (uint64_t)(uintptr_t)rt.rt_dev + i, dev + i,
			       1);
		if (!dev[i])
			break;
	}
	rt.rt_dev = dev;
	return ret ? ret : st_ioctl(sfd, cmd, &rt);
}

/**
 * by_stack - make a request of the stack
 * @sfd: socket in the stack, or a negative errno
 * @domain: its address family
 */
static int64_t by_stack(struct call *c, int sfd, unsigned int cmd, int domain)
{
	size_t i;

	if (sfd < 0)
		return sfd;
	for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		if (requests[i].cmd == cmd)
			break;
	if (i == sizeof(requests) / sizeof(requests[0]))
		return cmd >= SIOCPROTOPRIVATE && cmd < SIOCIWFIRST ?
		       -ENOTTY : -EOPNOTSUPP;
	switch (requests[i].shape) {
	case FLAT:
		return ioctl_flat(c, sfd, cmd, requests[i].size);
	case NAME:
		return ioctl_name(c, sfd, cmd);
	case DATA:
		return ioctl_data(c, sfd, cmd);
	case ROUTE:
		return ioctl_route(c, sfd, cmd, domain);
	case CONF:
		break;
	}
	return ioctl_conf(c, sfd);
}

/**
 * ioctl_here - make a request on the caller's own file, by our duplicate
 *
 * This serves packet sockets, whose device numbers the mirror defines
 * (mirror/), and attached tun devices.
 */
static int64_t ioctl_here(struct call *c, unsigned int cmd)
{
	struct ifreq ifr;
	int64_t ret = mem_read(c, c->args[2], &ifr, sizeof(ifr));

	if (ret)
		return ret;
	return ioctl(c->dup, cmd, &ifr) ? -errno :
	       mem_write(c, c->args[2], &ifr, sizeof(ifr));
}

/** is_native - whether the request concerns the descriptor, not the network */
static bool is_native(unsigned int cmd)
{
	switch (cmd) {
	case FIOSETOWN:
	case SIOCSPGRP:
	case FIOGETOWN:
	case SIOCGPGRP:
		return true;
	}
	return false;
}

/** is_state - whether the request is about a socket's data, of any family */
static bool is_state(unsigned int cmd)
{
	return cmd == SIOCOUTQ || cmd == SIOCOUTQNSD || cmd == SIOCATMARK ||
	       cmd == SIOCGSTAMP_OLD || cmd == SIOCGSTAMPNS_OLD;
}

/** by_other - answer a request on a descriptor that is not a carrier */
static int64_t by_other(struct call *c, unsigned int cmd)
{
	struct space *space;
	int domain, ret;

	if (is_state(cmd))
		return call_native(NATIVE_OWN_FILE);
	domain = foreign_sock_domain(c->dup);
	if (domain < 0 && errno == EBADF)	/* O_PATH */
		return -EBADF;
	if (domain < 0)
		return (cmd == SIOCGIFHWADDR || cmd == SIOCSIFHWADDR) &&
		       is_tun(c->dup) ? ioctl_here(c, cmd) : -ENOTTY;
	if (domain == AF_PACKET && (cmd == SIOCGIFINDEX || cmd == SIOCGIFNAME))
		return ioctl_here(c, cmd);
	ret = space_of(c, &space);
	if (ret)
		return ret;
	domain = domain == AF_INET6 ? AF_INET6 : AF_INET;
	return by_stack(c, space ? space_control_fd(space, domain) :
				   control_fd(domain), cmd, domain);
}

/**
 * ioctl_unsent - get the number of unacknowledged or unsent bytes
 *
 * This includes the bytes that the carrier and the engine hold.
 */
static int64_t ioctl_unsent(struct call *c, unsigned int cmd)
{
	struct conn *conn = c->conn;
	int64_t ret;
	int value;

	ret = st_ioctl(conn->sfd, cmd, &value);
	if (ret < 0)
		return ret;
	if (conn->kind == KIND_STREAM)
		value += (int)pump_unsent(stream_of(conn));
	return mem_write(c, c->args[2], &value, sizeof(value));
}

/**
 * sock_ioctl - handle ioctl(2)
 *
 * The filter notifies requests 0x89xx, 0x8bxx, SIOCOUTQ and those of tun devices.
 * Terminals also have SIOCOUTQ.
 */
int64_t sock_ioctl(struct call *c)
{
	unsigned int cmd = (unsigned int)c->args[1];
	struct conn *conn;
	int ret;

	/* musl has no _IOC_TYPE(), and asm/ioctl.h conflicts with its header. */
	if ((cmd >> 8 & 0xff) == 'T' && cmd != SIOCOUTQ)
		return tun_ioctl(c);
	if (is_native(cmd))
		return call_native(NATIVE_OWN_FILE);
	ret = call_dup(c, (int)c->args[0]);
	if (ret)
		return ret;
	c->conn = conn = conn_of_carrier(c->dup);
	if (!conn)
		return carrier_is_old(c->dup) ? -ENOTCONN : by_other(c, cmd);
	if (cmd == SIOCOUTQ || cmd == SIOCOUTQNSD)
		return ioctl_unsent(c, cmd);
	if (cmd == SIOCATMARK)
		return conn->kind == KIND_STREAM ?
		       call_native(NATIVE_OWN_FILE) : -ENOTTY;
	/* The devices are those of the stack, even if the socket is the host's. */
	return by_stack(c, conn->facts & F_HOSTED ? control_fd(conn->domain) :
			   conn->sfd, cmd, conn->domain);
}
