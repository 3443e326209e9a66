// SPDX-License-Identifier: GPL-2.0-only
/*
 * The maker: a process that creates the mirror's namespace, devices and
 * sockets. It also has the ends of network namespaces announced to lklhost.
 *
 * Theory of operation
 *
 * Creating these requires capabilities in the network namespaces on both sides.
 * lklhost gives up these capabilities before it reads a byte from the network
 * (isolation.c). The maker is therefore forked earlier, in lklhost's network
 * namespace. It moves into the mirror's namespace when the target asks for the
 * first packet socket. It answers one request at a time. A request describes a
 * device or a socket; the maker builds the netlink messages itself, so that
 * lklhost can change nothing but the mirror.
 *
 * Ends of namespaces (engine/carrier/space.c): the maker gives a number to a
 * namespace of the target, in lklhost's namespace. When the numbered namespace
 * ends, the host's kernel says so there (RTM_DELNSID). The number does not keep
 * it alive.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/if_addr.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/net_namespace.h>
#include <linux/veth.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "mirror/internal.h"
#include "mirror/mirror.h"
#include "process/process.h"

#define OUR_MARK	0x6c6b6c72	/* "lklr" */
#define MAKE_RIGHTS	(1ull << CAP_SYS_ADMIN)
#define RIGHTS		(1ull << CAP_NET_ADMIN | 1ull << CAP_NET_RAW)

enum what { MAKE, PAIR, TUN, CHANGE, REMOVE, SOCKET, WATCH };

struct request {
	int32_t what;
	int32_t type, proto, flags;	/* for SOCKET */
	int32_t id;			/* for WATCH */
	struct link was, link;
};

static struct rtnl near = { .fd = -1 }, far = { .fd = -1 };
static int far_ns = -1;
static int ours = -1;

#define QUEUE_BYTES	(4 << 20)	/* socket buffers on each side */

const struct mirror_option mirror_options[MIRROR_OPTIONS] = {
	{ SOL_PACKET, PACKET_VNET_HDR, 1 },
	{ SOL_PACKET, PACKET_AUXDATA, 1 },
	{ SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES },
	{ SOL_SOCKET, SO_SNDBUFFORCE, QUEUE_BYTES },
};

/** identity - append name, address and MTU to a request */
static void identity(struct rtnl_msg *m, const struct link *l)
{
	rtnl_attr(m, IFLA_IFNAME, l->name, strlen(l->name) + 1);
	if (l->type == ARPHRD_ETHER)
		rtnl_attr(m, IFLA_ADDRESS, l->mac, sizeof(l->mac));
	rtnl_attr(m, IFLA_MTU, &l->mtu, sizeof(l->mtu));
}

/** set_up - set a link up or down */
static int set_up(const struct rtnl *r, int ifindex, bool up)
{
	struct rtnl_msg m;

	rtnl_link(&m, RTM_NEWLINK, 0, ifindex);
	m.link.ifi_change = IFF_UP;
	m.link.ifi_flags = up ? IFF_UP : 0;
	return rtnl_talk(r, &m);
}

/** remove_pair - remove both ends of the pair of @ifindex */
static int remove_pair(int ifindex)
{
	struct rtnl_msg m;

	if (ifindex == MIRROR_LO)
		return 0;
	rtnl_link(&m, RTM_DELLINK, 0, MIRROR_NEAR + ifindex);
	return rtnl_talk(&near, &m);
}

/** request_pair - send the message that creates a pair */
static int request_pair(const struct link *l)
{
	struct ifinfomsg peer = { .ifi_index = l->ifindex };
	struct rtattr *info, *data, *other;
	char name[IFNAMSIZ];
	struct rtnl_msg m;

	snprintf(name, sizeof(name), "near%d", l->ifindex);
	rtnl_link(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL,
		  MIRROR_NEAR + l->ifindex);
	rtnl_attr(&m, IFLA_IFNAME, name, strlen(name) + 1);
	rtnl_attr(&m, IFLA_MTU, &l->mtu, sizeof(l->mtu));
	info = rtnl_nest(&m, IFLA_LINKINFO, NULL, 0);
	rtnl_attr(&m, IFLA_INFO_KIND, "veth", sizeof("veth"));
	data = rtnl_nest(&m, IFLA_INFO_DATA, NULL, 0);
	other = rtnl_nest(&m, VETH_INFO_PEER, &peer, sizeof(peer));
	identity(&m, l);
	rtnl_attr(&m, IFLA_NET_NS_FD, &far_ns, sizeof(far_ns));
	rtnl_nest_end(&m, other);
	rtnl_nest_end(&m, data);
	rtnl_nest_end(&m, info);
	return rtnl_talk(&near, &m);
}

/** make_pair - create the pair for @l and set it up */
static int make_pair(const struct link *l)
{
	int ret = request_pair(l);

	if (ret)
		return ret;
	ret = set_up(&near, MIRROR_NEAR + l->ifindex, true);
	if (!ret && l->up)
		ret = set_up(&far, l->ifindex, true);
	if (ret)
		(void)remove_pair(l->ifindex);
	return ret;
}

/**
 * lo_silent - remove the far loopback device's address: nothing answers there
 */
static int lo_silent(void)
{
	const struct {
		struct in_addr addr;
	} local = { { htonl(INADDR_LOOPBACK) } };
	struct rtnl_msg m;
	int ret;

	rtnl_link(&m, RTM_DELADDR, 0, 0);
	m.hdr.nlmsg_len = NLMSG_LENGTH(sizeof(m.addr));
	m.addr = (struct ifaddrmsg){ .ifa_family = AF_INET, .ifa_prefixlen = 8,
				     .ifa_index = MIRROR_LO };
	rtnl_attr(&m, IFA_LOCAL, &local, sizeof(local));
	ret = rtnl_talk(&far, &m);
	return ret == -EADDRNOTAVAIL ? 0 : ret;
}

/** change - change the mirror of @was to the attributes of @l */
static int change(const struct link *was, const struct link *l)
{
	struct rtnl_msg m;
	int ret = 0;

	if (l->type == ARPHRD_ETHER) {
		rtnl_link(&m, RTM_NEWLINK, 0, MIRROR_NEAR + l->ifindex);
		rtnl_attr(&m, IFLA_MTU, &l->mtu, sizeof(l->mtu));
		ret = rtnl_talk(&near, &m);
	}
	/* Before Linux 6.2, a device that is up cannot be renamed. */
	if (!ret && strcmp(was->name, l->name))
		ret = set_up(&far, l->ifindex, false);
	if (ret)
		return ret;
	rtnl_link(&m, RTM_NEWLINK, 0, l->ifindex);
	identity(&m, l);
	ret = rtnl_talk(&far, &m);
	if (!ret)
		ret = set_up(&far, l->ifindex, l->up);
	if (!ret && l->ifindex == MIRROR_LO)
		ret = lo_silent();
	return ret;
}

/** make_tun - create the tun for @l; returns its descriptor */
static int make_tun(const struct link *l)
{
	struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), ret;
	unsigned int number = (unsigned int)l->ifindex;

	if (fd < 0)
		return -errno;
	memcpy(ifr.ifr_name, l->name, sizeof(ifr.ifr_name));
	/* Without offloads, the host's kernel would replace our mark (frames.c). */
	if (ioctl(fd, TUNSETIFINDEX, &number) || ioctl(fd, TUNSETIFF, &ifr) ||
	    ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) ||
	    ioctl(fd, TUNSETLINK, (unsigned long)l->type))
		ret = -errno;
	else
		ret = change(l, l);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/**
 * packet_socket - a packet socket in this namespace that receives nothing yet
 */
static int packet_socket(void)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t i;

	if (fd < 0)
		return -errno;
	/* Buffer sizes are best effort: as large as the host allows. */
	for (i = 0; i < MIRROR_OPTIONS; i++)
		if (setsockopt(fd, mirror_options[i].level,
			       mirror_options[i].name, &mirror_options[i].value,
			       sizeof(int)) &&
		    mirror_options[i].level == SOL_PACKET) {
			int ret = -errno;

			close(fd);
			return ret;
		}
	return fd;
}

/** far_socket - the socket at the far ends */
static int far_socket(void)
{
	/*
	 * Skip outgoing frames: with PACKET_QDISC_BYPASS, some of them bypass
	 * this socket. Incoming frames never do.
	 */
	struct sock_filter others[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 3, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_MARK),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_MARK, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog prog = { .len = 6, .filter = others };
	const int our_mark = OUR_MARK;
	int fd = packet_socket();

	if (fd < 0)
		return fd;
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) ||
	    setsockopt(fd, SOL_SOCKET, SO_MARK, &our_mark, sizeof(our_mark))) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

/** setup_netns - set up the mirror's namespace; @fds: its socket and table */
static int setup_netns(int *fds)
{
	int ret;

	far_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (far_ns < 0)
		return -errno;
	ret = netns_no_ipv6();
	if (!ret)
		ret = rtnl_open(&far, false, 0);
	if (ret)
		return ret;
	fds[0] = far_socket();
	if (fds[0] < 0)
		return fds[0];
	fds[1] = open("/proc/self/net/packet", O_RDONLY | O_CLOEXEC);
	return fds[1] < 0 ? -errno : 0;
}

/** near_open - open our socket in the namespace of the near ends */
static int near_open(void)
{
	return near.fd < 0 ? rtnl_open(&near, false, 0) : 0;
}

/** assign_nsid - give a number to the namespace @ns, see the top of this file */
static int assign_nsid(int ns, int32_t id)
{
	struct rtnl_msg m;
	int ret = near_open();

	if (ret)
		return ret;
	rtnl_link(&m, RTM_NEWNSID, 0, 0);
	m.hdr.nlmsg_len = NLMSG_SPACE(sizeof(struct rtgenmsg));
	rtnl_attr(&m, NETNSA_NSID, &id, sizeof(id));
	rtnl_attr(&m, NETNSA_FD, &ns, sizeof(ns));
	return rtnl_talk(&near, &m);
}

/** make - create the namespace; @fds: for lklhost, see enum mirror_fd */
static int make(int *fds)
{
	int ret = netns_no_ipv6();

	if (!ret)
		ret = near_open();
	if (ret)
		return ret;
	fds[MIRROR_NEAR_SOCKET] = packet_socket();
	if (fds[MIRROR_NEAR_SOCKET] < 0)
		return fds[MIRROR_NEAR_SOCKET];
	if (unshare(CLONE_NEWNET))
		return -errno;
	ret = setup_netns(fds + MIRROR_FAR_SOCKET);
	caps_limit(RIGHTS);
	return ret;
}

/** target_socket - create a packet socket for the target */
static int target_socket(const struct request *r)
{
	int fd = socket(AF_PACKET, r->type | SOCK_CLOEXEC |
			(r->flags & SOCK_NONBLOCK), r->proto);

	return fd < 0 ? -errno : fd;
}

/**
 * run_job - carry out a request
 * @fds, @n: the received descriptors; set to those of the answer
 */
static int run_job(struct request *r, int *fds, unsigned int *n)
{
	int ret = -EINVAL;

	if (r->what == WATCH && *n)
		ret = assign_nsid(fds[0], r->id);
	while (*n)
		close(fds[--*n]);
	r->was.name[IFNAMSIZ - 1] = r->link.name[IFNAMSIZ - 1] = '\0';
	switch (r->what) {
	case MAKE:
		ret = far_ns < 0 ? make(fds) : -EEXIST;
		*n = ret ? 0 : MIRROR_FDS;
		return ret;
	case SOCKET:
		fds[0] = far_ns < 0 ? -ENONET : target_socket(r);
		*n = fds[0] >= 0;
		return *n ? 0 : fds[0];
	case PAIR:
		return make_pair(&r->link);
	case TUN:
		fds[0] = far_ns < 0 ? -ENONET : make_tun(&r->link);
		*n = fds[0] >= 0;
		return *n ? 0 : fds[0];
	case CHANGE:
		return change(&r->was, &r->link);
	case REMOVE:
		return remove_pair(r->link.ifindex);
	case WATCH:
		return ret;
	}
	return -EINVAL;
}

/** serve - main loop of the maker; never returns */
__attribute__((noreturn))
static void serve(int sock)
{
	int fds[FD_PASS_MAX];
	struct request r;
	unsigned int n;
	int32_t ret;

	caps_limit(MAKE_RIGHTS | RIGHTS);
	while (fd_pass_recv(sock, &r, sizeof(r), fds, &n) ==
	       (ssize_t)sizeof(r)) {
		ret = run_job(&r, fds, &n);
		if (fd_pass_send(sock, &ret, sizeof(ret), fds, n, 0) < 0)
			break;
		while (n)
			close(fds[--n]);
	}
	_exit(0);	/* lklhost is gone */
}

/** maker_start - fork the maker, in the network namespace of the near ends */
int maker_start(void)
{
	pid_t pid;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	pid = helper_fork("lklhost-maker", &sv[1], 1);
	if (!pid)
		serve(HELPER_FDS);
	close(sv[1]);
	ours = sv[0];
	return pid < 0 ? pid : 0;
}

/**
 * ask - send a request to the maker and wait for its answer
 * @fds: room for FD_PASS_MAX; @n of them go with the request
 *
 * The wait takes as long as the host's kernel needs for the request. Returns
 * the number of descriptors received, or a negative errno.
 */
static int ask(const struct request *r, int *fds, unsigned int n)
{
	int32_t ret;

	if (ours < 0 || fd_pass_send(ours, r, sizeof(*r), fds, n, 0) < 0 ||
	    fd_pass_recv(ours, &ret, sizeof(ret), fds, &n) !=
	    (ssize_t)sizeof(ret))
		return -ESRCH;
	return ret ? ret : (int)n;
}

/** one - send a request whose answer is a descriptor; returns it or an errno */
static int one(const struct request *r)
{
	int fds[FD_PASS_MAX], ret = ask(r, fds, 0);

	return ret == 1 ? fds[0] : ret < 0 ? ret : -EPROTO;
}

/** maker_make - create the mirror's namespace; @fds: see enum mirror_fd */
int maker_make(int fds[MIRROR_FDS])
{
	const struct request r = { .what = MAKE };
	int got[FD_PASS_MAX], ret = ask(&r, got, 0);

	if (ret < 0)
		return ret;
	if (ret != MIRROR_FDS)
		return -EPROTO;
	memcpy(fds, got, MIRROR_FDS * sizeof(*fds));
	return 0;
}

/** device - send a request about a device */
static int device(enum what what, const struct link *was, const struct link *l)
{
	struct request r = { .what = what, .link = *l };
	int fds[FD_PASS_MAX];

	if (was)
		r.was = *was;
	return ask(&r, fds, 0);
}

/** maker_pair - create the mirror of a device of the stack */
int maker_pair(const struct link *l)
{
	return device(PAIR, NULL, l);
}

/** maker_tun - create the tun of a device of the stack; a descriptor or an errno */
int maker_tun(const struct link *l)
{
	const struct request r = { .what = TUN, .link = *l };

	return one(&r);
}

/** maker_change - change the mirror of @was to the attributes of @l */
int maker_change(const struct link *was, const struct link *l)
{
	return device(CHANGE, was, l);
}

/** maker_remove - remove the mirror of a device; ignores errors */
void maker_remove(const struct link *l)
{
	(void)device(REMOVE, NULL, l);
}

/** maker_socket - a packet socket for the target; a descriptor or an errno */
int maker_socket(int type, int proto, int flags)
{
	const struct request r = { .what = SOCKET, .type = type,
				   .proto = proto, .flags = flags };

	return one(&r);
}

/**
 * maker_watch - announce the end of a network namespace of the host, by
 * RTM_DELNSID in the namespace of lklhost
 * @ns: the namespace
 * @id: its number in the message, not below MIRROR_NEAR
 */
int maker_watch(int ns, int id)
{
	const struct request r = { .what = WATCH, .id = id };
	int fds[FD_PASS_MAX] = { ns };

	return ask(&r, fds, 1);
}
