// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices without link layer and devices on packet sockets, with the host's
 * kernel as the peer: complete data both ways over IPv4 and IPv6, with and
 * without a virtio-net header; VLAN tags that the host strips; a device that
 * goes down, comes up and is deleted.
 */
#include "nl.h"
#include "peer.h"

#include <poll.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

#define HOST	"10.73.0.1"
#define OURS	"10.73.0.2"
#define HOST6	"fd73::1"
#define OURS6	"fd73::2"

#ifndef PACKET_VNET_HDR_SZ
#define PACKET_VNET_HDR_SZ 24
#endif

/* How the stack is attached to lt0, whose other end is lt1, the host's */
static const struct way {
	const char *name;
	int tun;	/* lt0 is a tun of ours; otherwise a veth, or a relayed tun */
	int relay;	/* lt0 and lt1 are tuns with a relay between them */
	int type;	/* of the packet socket */
	int vnet;	/* size of the virtio-net header */
	int flags;	/* additional LKL_NETDEV_* */
} ways[] = {
	{ "tun with header", 1, 0, 0, 12, 0 },
	{ "tun without", 1, 0, 0, 0, 0 },
	{ "raw with a header of 12", 0, 0, SOCK_RAW, 12, 0 },
	{ "raw with a header of 10", 0, 0, SOCK_RAW, 10, 0 },
	{ "raw without", 0, 0, SOCK_RAW, 0, 0 },
	{ "cooked", 0, 1, SOCK_DGRAM, 0, 0 },
	{ "raw IP with a header", 0, 1, SOCK_RAW, 12, LKL_NETDEV_RAWIP },
};

static const struct way *way;

static int open_tun(const char *name, int vnet)
{
	struct ifreq ifr = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC), len = 12;

	strcpy(ifr.ifr_name, name);
	if (vnet)
		ifr.ifr_flags |= IFF_VNET_HDR;
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) ||
	    (vnet && ioctl(fd, TUNSETVNETHDRSZ, &len)))
		return -1;
	return fd;
}

/* Copies packets, aggregated ones too, between two tuns until it is killed */
static void relay(int a, int b)
{
	struct pollfd p[2] = { { .fd = a, .events = POLLIN },
			       { .fd = b, .events = POLLIN } };
	static char buf[70000];
	ssize_t n;
	int i;

	while (poll(p, 2, -1) > 0)
		for (i = 0; i < 2; i++)
			if (p[i].revents & POLLIN) {
				n = read(p[i].fd, buf, sizeof(buf));
				if (n > 0 && write(p[!i].fd, buf, n) < 0 && errno != EIO)
					_exit(1);
			}
	_exit(0);
}

static pid_t start_relay(void)
{
	unsigned int off = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
	int a = open_tun("lt0", 1), b = open_tun("lt1", 1);
	pid_t pid;

	if (a < 0 || b < 0 || ioctl(a, TUNSETOFFLOAD, off) ||
	    ioctl(b, TUNSETOFFLOAD, off))
		return -1;
	pid = fork_tied();
	if (!pid)
		relay(a, b);
	close(a);
	close(b);
	return pid;
}

static int ifindex_of(const char *name)
{
	struct ifreq ifr = { 0 };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ret;

	strcpy(ifr.ifr_name, name);
	ret = ioctl(s, SIOCGIFINDEX, &ifr);
	close(s);
	return ret ? -1 : ifr.ifr_ifindex;
}

static int open_packet(const char *name, int type, int vnet)
{
	struct sockaddr_ll sll = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = ifindex_of(name),
	};
	struct packet_mreq promisc = {
		.mr_ifindex = sll.sll_ifindex, .mr_type = PACKET_MR_PROMISC,
	};
	int fd = socket(AF_PACKET, type | SOCK_CLOEXEC, 0), one = 1, room = 4 << 20;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	if (type == SOCK_RAW &&
	    setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promisc, sizeof(promisc)))
		return -1;
	/* since Linux 6.4; older kernels have only headers of 10 bytes */
	if (vnet == 12 && !setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR_SZ, &vnet, 4))
		vnet = 0;
	else if (vnet == 12)
		printf("# no header of 12 on this kernel: one of 10\n");
	if (vnet && setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, 4))
		return -1;
	return bind(fd, (struct sockaddr *)&sll, sizeof(sll)) ? -1 : fd;
}

static int attach(int *id)
{
	int fd = way->tun ? open_tun("lt0", way->vnet) :
			    open_packet("lt0", way->type, way->vnet);
	struct lkl_netdev *nd;
	struct in6_addr six;
	int ifindex;

	if (fd < 0)
		return -errno;
	/* the peer must not send what the tun's user has not requested */
	nd = lkl_netdev_fd_create(fd, way->flags | (way->vnet ? LKL_NETDEV_VNET_HDR |
				  LKL_NETDEV_OFFLOAD : 0));
	if (!nd)
		return -errno;
	*id = lkl_netdev_add(nd, NULL);
	ifindex = lkl_netdev_get_ifindex(*id);
	if (ifindex < 0)
		return ifindex;
	lkl_if_up(ifindex);
	inet_pton(AF_INET6, OURS6, &six);
	lkl_if_set_ipv4(ifindex, inet_addr(OURS), 24);
	lkl_if_set_ipv6(ifindex, &six, 64);
	/* a tun of ours exists only now */
	if (way->tun && sh("ip link set lt0 up; ip addr add " HOST "/24 dev lt0; "
			   "ip addr add " HOST6 "/64 dev lt0 nodad"))
		return -EIO;
	return ifindex;
}

/* Runs fn in a process with a kernel of its own */
static int with_kernel(int (*fn)(int ifindex, int id))
{
	int status, ifindex, id = -1;
	pid_t pid = fork_tied();

	if (!pid) {
		alarm(slow(60));
		boot("mem=64M loglevel=0");
		lkl_mount_fs("proc");
		lkl_sysctl("net.ipv6.conf.default.dad_transmits", "0");
		ifindex = attach(&id);
		if (ifindex < 0) {
			printf("# attach: %s\n", lkl_strerror(ifindex));
			_exit(9);
		}
		status = fn(ifindex, id);
		_exit(lkl_sys_halt() ? 8 : status);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int both_ways(int ifindex, int id)
{
	static const char *const peers[] = { HOST, HOST6 };
	static const int all[] = { 1, 256, 257, 1452, 1473, 30000, 65000 };
	unsigned int i, k, mb = slow(1) > 1 ? 3 : 30;
	uint64_t s, r;

	(void)ifindex;
	(void)id;
	for (i = 0; i < 2; i++) {
		peer_ip = peers[i];
		for (k = 0; k < sizeof(all) / sizeof(all[0]); k++)
			if (!echo(all[k])) {
				printf("# %s: no datagram of %d\n", peer_ip, all[k]);
				return 1;
			}
		s = send_mb(mb);
		r = recv_mb(mb);
		if (s != mb || r != mb) {
			printf("# %s: sent %llu received %llu\n", peer_ip,
			       (unsigned long long)s, (unsigned long long)r);
			return 2;
		}
	}
	return 0;
}

static void read_flags(struct nlmsghdr *h, void *arg)
{
	struct ifinfomsg *m = NLMSG_DATA(h);

	if (h->nlmsg_type == RTM_NEWLINK && m->ifi_index == ((struct ifinfomsg *)arg)->ifi_index)
		*(struct ifinfomsg *)arg = *m;
}

/* The type of the device, and that it got no made-up address */
static int kind(int ifindex, int id)
{
	struct ifinfomsg want = { .ifi_index = ifindex }, *m;
	char buf[4096];
	struct nlmsg req;

	(void)id;
	m = nl_start(&req, RTM_GETLINK, NLM_F_DUMP, sizeof(*m));
	m->ifi_family = AF_UNSPEC;
	nl_talk(NETLINK_ROUTE, &req, read_flags, &want);
	if (want.ifi_type != 0xFFFE /* ARPHRD_NONE */ ||
	    (want.ifi_flags & (IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST | IFF_UP)) !=
	    (IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST | IFF_UP))
		return 1;
	if (lread_file("/proc/net/if_inet6", buf, sizeof(buf)) < 0)
		return 2;
	return strstr(buf, "fe80") ? 3 : 0;
}

static int wait_for_carrier(int want)
{
	uint64_t t = now_ns();

	while (carrier() != want && now_ns() - t < slow(8e9))
		sched_yield();
	return carrier() == want;
}

/* Almost no CPU time is used for a second; on an emulated CPU: not all of it */
static int idle(void)
{
	double c = cpu_s(), most = slow(1) > 1 ? 0.5 : 0.05;
	uint64_t t;

	for (t = now_ns(); now_ns() - t < 1e9;)
		poll(NULL, 0, 1000);
	c = cpu_s() - c;
	if (c >= most)
		printf("# %.3f s of a second\n", c);
	return c < most;
}

static int set_carrier(int ifindex, unsigned char on)
{
	struct ifinfomsg *m;
	struct nlmsg req;

	m = nl_start(&req, RTM_SETLINK, 0, sizeof(*m));
	m->ifi_index = ifindex;
	nl_put(&req, IFLA_CARRIER, &on, 1);
	return nl_talk(NETLINK_ROUTE, &req, NULL, NULL);
}

static int down_up(int ifindex, int id)
{
	uint64_t t;

	(void)id;
	peer_ip = HOST;
	if (!echo(100))
		return 1;
	sh("ip link set lt0 down");
	if (!wait_for_carrier(0))
		return 2;
	if (!idle() || carrier())
		return 3;
	sh("ip link set lt0 up");
	if (!wait_for_carrier(1))
		return 4;
	for (t = now_ns(); !echo(100);)
		if (now_ns() - t > slow(10e9))
			return 5;
	if (send_mb(10) != 10)
		return 6;
	/*
	 * set off by hand, it stays off for longer than the period of the check
	 */
	if (set_carrier(ifindex, 0) || !idle() || !idle() || carrier())
		return 7;
	if (set_carrier(ifindex, 1) || !wait_for_carrier(1) || !echo(100))
		return 8;
	return 0;
}

static int deleted(int ifindex, int id)
{
	(void)ifindex;
	peer_ip = HOST;
	if (!echo(100))
		return 1;
	sh("ip link del lt0");
	if (!wait_for_carrier(0))
		return 2;
	if (!idle())
		return 3;
	lkl_netdev_remove(id);
	return lkl_netdev_get_ifindex(id) < 0 && L0(getpid) == 1 ? 0 : 4;
}

static void vlan_five(struct nlmsg *m)
{
	unsigned short five = 5;

	nl_put(m, 1 /* IFLA_VLAN_ID */, &five, sizeof(five));
}

/* A stack on a veth's end with a VLAN; @server: echoes until killed */
static int vlan_end(const char *dev, const char *ip, int server, int ready)
{
	static char buf[65536];
	struct sockaddr_in sa;
	struct lkl_netdev *nd;
	struct pollfd go = { .fd = ready, .events = POLLIN };
	int ifindex, vlan, fd = open_packet(dev, SOCK_RAW, 12), i;
	unsigned int len = sizeof(sa);
	long s, n;

	boot("mem=64M loglevel=0");
	nd = fd < 0 ? NULL : lkl_netdev_fd_create(fd, LKL_NETDEV_VNET_HDR |
						  LKL_NETDEV_OFFLOAD);
	ifindex = nd ? lkl_netdev_get_ifindex(lkl_netdev_add(nd, NULL)) : -1;
	if (ifindex < 0 || lkl_if_up(ifindex) || link_add("v5", "vlan", vlan_five, ifindex))
		return 1;
	vlan = ifindex + 1;
	if (lkl_if_set_ipv4(vlan, inet_addr(ip), 24) || lkl_if_up(vlan))
		return 2;
	s = L3(socket, AF_INET, SOCK_DGRAM, 0);
	sa = addr4("0.0.0.0", PORT);
	if (server) {
		L3(bind, s, &sa, sizeof(sa));
		if (write(ready, "", 1) != 1)
			return 3;
		while ((n = L6(recvfrom, s, buf, sizeof(buf), 0, &sa, &len)) > 0)
			L6(sendto, s, buf, n, 0, &sa, sizeof(sa));
		return 4;
	}
	if (poll(&go, 1, slow(20000)) != 1)
		return 5;
	peer_ip = "10.75.0.1";
	for (i = 1; i <= 30000; i *= 10)
		if (!echo(i))
			return 6;
	return 0;
}

static int vlans(void)
{
	pid_t server, client;
	int p[2], status;

	if (sh("ip link add lt0 type veth peer name lt1 && ip link set lt0 up && "
	       "ip link set lt1 up") || pipe(p))
		return 9;
	server = fork_tied();
	if (!server)
		_exit(vlan_end("lt1", "10.75.0.1", 1, p[1]));
	client = fork_tied();
	if (!client) {
		alarm(slow(40));
		_exit(vlan_end("lt0", "10.75.0.2", 0, p[0]));
	}
	waitpid(client, &status, 0);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	close(p[0]);
	close(p[1]);
	sh("ip link del lt0");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Descriptors that are refused as devices */
static int refused(void)
{
	int tun, veth, cooked, loose;

	sh("ip link add lt2 type veth peer name lt3");
	tun = open_tun("lt4", 1);
	veth = open_packet("lt2", SOCK_RAW, 12);
	cooked = open_packet("lt2", SOCK_DGRAM, 0);
	loose = socket(AF_PACKET, SOCK_RAW, 0);
	if (tun < 0 || veth < 0 || cooked < 0 || loose < 0)
		return 9;
	if (lkl_netdev_fd_create(tun, 0) || lkl_netdev_fd_create(veth, 0) ||
	    lkl_netdev_fd_create(cooked, LKL_NETDEV_VNET_HDR))
		return 1;
	if (lkl_netdev_fd_create(loose, 0) || errno != EINVAL)
		return 2;
	sh("ip link del lt2");
	return 0;
}

/*
 * qemu-user does not support the options of packet sockets that a device needs.
 */
static int have_options(void)
{
	int s = socket(AF_PACKET, SOCK_RAW, 0), one = 1, ret;

	ret = setsockopt(s, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one));
	close(s);
	return !ret;
}

int main(void)
{
	pid_t pids[2], relaying = 0;
	unsigned int i;
	int ret, all;

	start(280);
	if (own_netns()) {
		skip("no namespace");
		return finish();
	}
	host_server(pids);
	all = have_options();
	ok(all || slow(1) > 1, "packet sockets have their options");
	if (!all)
		printf("# an emulator's: only what has no packet socket is tried\n");
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		way = &ways[i];
		if (!all && !way->tun)
			continue;
		if (way->relay)
			relaying = start_relay();
		else if (!way->tun)
			sh("ip link add lt0 type veth peer name lt1");
		if (!way->tun && sh("ip link set lt0 up && ip link set lt1 up && "
				    "ip addr add " HOST "/24 dev lt1 && "
				    "ip addr add " HOST6 "/64 dev lt1 nodad")) {
			ok(0, "%s: the host's devices", way->name);
			break;
		}
		ret = with_kernel(both_ways);
		ok(ret == 0, "%s: 30 MB each way by IPv4 and IPv6: %d", way->name, ret);
		if (way->tun || way->relay) {
			ret = with_kernel(kind);
			ok(ret == 0, "%s: no link layer: %d", way->name, ret);
		}
		if (way->vnet == 12 && !way->tun) {	/* the others are alike */
			ret = with_kernel(down_up);
			ok(ret == 0, "%s: set down and up: %d", way->name, ret);
			ret = with_kernel(deleted);
			ok(ret == 0, "%s: deleted: %d", way->name, ret);
		}
		if (relaying) {
			kill(relaying, SIGKILL);
			waitpid(relaying, NULL, 0);
			relaying = 0;
		}
		sh("ip link del lt0");
	}
	if (all) {
		ret = vlans();
		ok(ret == 0, "two stacks, a VLAN between them: %d", ret);
		ret = refused();
		ok(ret == 0, "what cannot be a device is refused: %d", ret);
	}

	for (i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return finish();
}
