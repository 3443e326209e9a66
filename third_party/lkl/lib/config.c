// SPDX-License-Identifier: GPL-2.0-only
/*
 * Addresses, routes and sysctls, which every user needs first; uses ordinary
 * system calls into the stack.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/ipv6_route.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static long call(long no, long a, long b, long c, long d, long e)
{
	long params[6] = { a, b, c, d, e, 0 };

	return lkl_syscall(no, params);
}

static int control_socket(void)
{
	return call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0, 0);
}

/* Makes an ioctl on the interface with that index. */
static int if_ioctl(int ifindex, unsigned long get, unsigned long set,
		    short flags_on, short flags_off, int mtu)
{
	struct ifreq ifr;
	int fd = control_socket();
	long ret;

	if (fd < 0)
		return fd;
	memset(&ifr, 0, sizeof(ifr));
	ifr.ifr_ifindex = ifindex;
	ret = call(SYS_ioctl, fd, SIOCGIFNAME, (long)&ifr, 0, 0);
	if (ret < 0)
		goto out;
	if (get) {
		ret = call(SYS_ioctl, fd, get, (long)&ifr, 0, 0);
		if (ret < 0)
			goto out;
		ifr.ifr_flags = (ifr.ifr_flags | flags_on) & ~flags_off;
	} else {
		ifr.ifr_mtu = mtu;
	}
	ret = call(SYS_ioctl, fd, set, (long)&ifr, 0, 0);
out:
	call(SYS_close, fd, 0, 0, 0, 0);
	return ret;
}

API int lkl_if_up(int ifindex)
{
	return if_ioctl(ifindex, SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP, 0, 0);
}

API int lkl_if_down(int ifindex)
{
	return if_ioctl(ifindex, SIOCGIFFLAGS, SIOCSIFFLAGS, 0, IFF_UP, 0);
}

API int lkl_if_set_mtu(int ifindex, int mtu)
{
	return if_ioctl(ifindex, 0, SIOCSIFMTU, 0, 0, mtu);
}

struct request {
	struct nlmsghdr n;
	union {
		struct ifaddrmsg ifa;
		struct rtmsg rt;
	};
	char attrs[64];
};

static void add_attr(struct request *r, int type, const void *data, int len)
{
	struct rtattr *a = (struct rtattr *)((char *)r + NLMSG_ALIGN(r->n.nlmsg_len));

	a->rta_type = type;
	a->rta_len = RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	r->n.nlmsg_len = NLMSG_ALIGN(r->n.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

/* Sends an rtnetlink request and returns the kernel's answer. */
static int rtnl(struct request *r)
{
	struct {
		struct nlmsghdr n;
		struct nlmsgerr e;
		char rest[256];
	} ack;
	long fd, ret;

	fd = call(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE,
		  0, 0);
	if (fd < 0)
		return fd;
	r->n.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	ret = call(SYS_write, fd, (long)r, r->n.nlmsg_len, 0, 0);
	if (ret > 0)
		ret = call(SYS_read, fd, (long)&ack, sizeof(ack), 0, 0);
	call(SYS_close, fd, 0, 0, 0, 0);
	if (ret < 0)
		return ret;
	if (ret < (long)(sizeof(ack.n) + sizeof(ack.e)) ||
	    ack.n.nlmsg_type != NLMSG_ERROR)
		return -EPROTO;
	return ack.e.error;
}

static int add_address(int ifindex, int family, const void *addr, int len,
		       unsigned int prefix)
{
	struct request r;

	if (prefix > (unsigned int)len * 8)
		return -EINVAL;
	memset(&r, 0, sizeof(r));
	r.n.nlmsg_len = NLMSG_LENGTH(sizeof(r.ifa));
	r.n.nlmsg_type = RTM_NEWADDR;
	r.n.nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE;
	r.ifa.ifa_family = family;
	r.ifa.ifa_prefixlen = prefix;
	r.ifa.ifa_index = ifindex;
	/* skip duplicate address detection, as upstream does */
	if (family == AF_INET6)
		r.ifa.ifa_flags = IFA_F_NODAD;
	add_attr(&r, IFA_LOCAL, addr, len);
	add_attr(&r, IFA_ADDRESS, addr, len);
	return rtnl(&r);
}

API int lkl_if_set_ipv4(int ifindex, unsigned int addr, unsigned int netmask_len)
{
	return add_address(ifindex, AF_INET, &addr, 4, netmask_len);
}

API int lkl_if_set_ipv6(int ifindex, void *addr, unsigned int netprefix_len)
{
	return add_address(ifindex, AF_INET6, addr, 16, netprefix_len);
}

static int add_gateway(int family, const void *addr, int len)
{
	struct request r;

	memset(&r, 0, sizeof(r));
	r.n.nlmsg_len = NLMSG_LENGTH(sizeof(r.rt));
	r.n.nlmsg_type = RTM_NEWROUTE;
	r.n.nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE;
	r.rt.rtm_family = family;
	r.rt.rtm_table = RT_TABLE_MAIN;
	r.rt.rtm_protocol = RTPROT_BOOT;
	r.rt.rtm_scope = RT_SCOPE_UNIVERSE;
	r.rt.rtm_type = RTN_UNICAST;
	add_attr(&r, RTA_GATEWAY, addr, len);
	return rtnl(&r);
}

API int lkl_set_ipv4_gateway(unsigned int addr)
{
	return add_gateway(AF_INET, &addr, 4);
}

API int lkl_set_ipv6_gateway(void *addr)
{
	return add_gateway(AF_INET6, addr, 16);
}

/*
 * Whether a file system is mounted there: its device differs from the root's.
 */
static int is_mount(const char *dir)
{
	struct statx root, st;

	return !call(SYS_statx, AT_FDCWD, (long)"/", 0, STATX_TYPE, (long)&root) &&
	       !call(SYS_statx, AT_FDCWD, (long)dir, 0, STATX_TYPE, (long)&st) &&
	       (st.stx_dev_major != root.stx_dev_major ||
		st.stx_dev_minor != root.stx_dev_minor);
}

API int lkl_mount_fs(char *fstype)
{
	char dir[64];
	long ret;

	if (snprintf(dir, sizeof(dir), "/%s", fstype) >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	ret = call(SYS_mkdirat, AT_FDCWD, (long)dir, 0755, 0, 0);
	if (ret < 0 && ret != -EEXIST)
		return ret;
	/*
	 * every mount of proc is a new one, so the kernel would not refuse it
	 */
	if (is_mount(dir))
		return 1;
	return call(SYS_mount, (long)"none", (long)dir, (long)fstype, 0, 0);
}

API int lkl_sysctl(const char *path, const char *value)
{
	char file[256];
	long fd, ret;
	char *p;

	ret = lkl_mount_fs("proc");
	if (ret < 0)
		return ret;
	if (snprintf(file, sizeof(file), "/proc/sys/%s", path) >=
	    (int)sizeof(file))
		return -ENAMETOOLONG;
	/* with slashes, dots are part of a name: conf/eth0.5/forwarding */
	if (!strchr(path, '/'))
		for (p = file + 10; *p; p++)
			if (*p == '.')
				*p = '/';
	fd = call(SYS_openat, AT_FDCWD, (long)file, O_WRONLY, 0, 0);
	if (fd < 0)
		return fd;
	ret = call(SYS_write, fd, (long)value, strlen(value), 0, 0);
	call(SYS_close, fd, 0, 0, 0, 0);
	return ret < 0 ? ret : 0;
}
