// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioctl() of the socket range: interfaces and their addresses, as ifconfig and
 * if_nametoindex() ask for them, from the stack.
 *
 * The C library asks on a unix socket too, so those that are no carrier are
 * answered through a socket of our own in the stack. Requests with further
 * pointers inside are refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "conn.h"

#define CONF_MAX	(512 * sizeof(struct ifreq))

static int control = -1;

/** control_fd - a socket in the stack that belongs to nobody */
static int control_fd(void)
{
	if (control < 0)
		control = (int)st_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK |
					 SOCK_CLOEXEC, 0);
	return control;
}

/** is_plain - whether the request is a struct ifreq without pointers */
static bool is_plain(unsigned int cmd)
{
	switch (cmd) {
	case SIOCGIFNAME:
	case SIOCGIFFLAGS:
	case SIOCSIFFLAGS:
	case SIOCGIFADDR:
	case SIOCSIFADDR:
	case SIOCGIFDSTADDR:
	case SIOCGIFBRDADDR:
	case SIOCSIFBRDADDR:
	case SIOCGIFNETMASK:
	case SIOCSIFNETMASK:
	case SIOCGIFMETRIC:
	case SIOCGIFMTU:
	case SIOCSIFMTU:
	case SIOCGIFHWADDR:
	case SIOCGIFINDEX:
	case SIOCGIFTXQLEN:
	case SIOCGIFMAP:
		return true;
	}
	return false;
}

/** ioctl_conf - SIOCGIFCONF, the list of interfaces */
static int64_t ioctl_conf(struct call *c, int sfd)
{
	struct ifconf user, conf;
	int64_t ret;

	ret = mem_read(c, c->args[2], &user, sizeof(user));
	if (ret)
		return ret;
	if (user.ifc_len < 0)
		return -EINVAL;
	conf.ifc_len = user.ifc_len > (int)CONF_MAX ? (int)CONF_MAX :
						     user.ifc_len;
	conf.ifc_buf = user.ifc_buf ? shared_buf : NULL;
	ret = st_ioctl(sfd, SIOCGIFCONF, &conf);
	if (ret < 0)
		return ret;
	if (user.ifc_buf) {
		ret = mem_write(c, (uint64_t)(uintptr_t)user.ifc_buf,
				shared_buf, (size_t)conf.ifc_len);
		if (ret)
			return ret;
	}
	user.ifc_len = conf.ifc_len;
	return mem_write(c, c->args[2], &user, sizeof(user));
}

/** sock_ioctl - ioctl(2), requests 0x89xx */
int64_t sock_ioctl(struct call *c)
{
	unsigned int cmd = (unsigned int)c->args[1];
	int sfd, domain, value;
	socklen_t len = sizeof(domain);
	struct ifreq ifr;
	uint32_t id;
	int64_t ret;

	if (cmd == SIOCATMARK || cmd >= SIOCPROTOPRIVATE)
		return CALL_NATIVE;
	if (call_dup(c, (int)c->args[0]))
		return CALL_NATIVE;
	if (!carrier_identify(c->dup, &id)) {
		c->conn = conn_find(id);
		if (!c->conn)
			return -ENOTCONN;
		sfd = c->conn->sfd;
	} else {
		if (getsockopt(c->dup, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
		    domain != AF_UNIX)
			return CALL_NATIVE;
		sfd = control_fd();
		if (sfd < 0)
			return sfd;
	}
	if (cmd == SIOCGIFCONF)
		return ioctl_conf(c, sfd);
	if (cmd == SIOCOUTQNSD && c->conn) {
		ret = st_ioctl(sfd, cmd, &value);
		return ret ? ret : mem_write(c, c->args[2], &value,
					     sizeof(value));
	}
	if (!is_plain(cmd))
		return -EOPNOTSUPP;
	ret = mem_read(c, c->args[2], &ifr, sizeof(ifr));
	if (ret)
		return ret;
	ret = st_ioctl(sfd, cmd, &ifr);
	if (ret < 0)
		return ret;
	return mem_write(c, c->args[2], &ifr, sizeof(ifr));
}
