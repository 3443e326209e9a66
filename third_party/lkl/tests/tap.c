// SPDX-License-Identifier: GPL-2.0-only
/*
 * A tap with the host's kernel as the peer, in a namespace of its own: offloads
 * on and off on the same persistent tap, complete data both ways, large frames,
 * and a tap that is set down, comes up, and is deleted.
 */
#include "ontap.h"

#include <limits.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <linux/ethtool.h>
#include <linux/filter.h>
#include <net/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>

static int host_takes_big(void)
{
	int major, minor;
	struct utsname u;

	return !uname(&u) && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 6));
}

static int both_ways(int ifindex, int id)
{
	uint64_t s, r;
	int e;

	(void)ifindex;
	(void)id;
	/* the very first frames are large */
	e = echo(1) && echo(60000);
	s = send_mb(100);
	r = recv_mb(100);
	if (s != 100 || r != 100 || !e)
		printf("# sent %llu received %llu echo %d\n", (unsigned long long)s,
		       (unsigned long long)r, e);
	return !(s == 100 && r == 100 && e);
}

/*
 * Frames above 64 KiB leave, as seen by a packet socket of the host on the tap,
 * and everything arrives.
 */
static int big_frames(int ifindex, int id)
{
	struct sock_filter large[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 66000, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 64),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog prog = { .len = 4, .filter = large };
	struct sockaddr_ll ll = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = (int)if_nametoindex(DEV),
	};
	int s = socket(AF_PACKET, SOCK_RAW, 0), i, seen = 0;
	char buf[64];

	(void)ifindex;
	(void)id;
	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) ||
	    bind(s, (struct sockaddr *)&ll, sizeof(ll)))
		return 1;
	for (i = 0; i < 20 && !seen; i++) {
		if (send_by(50, 1 << 20) != 50)
			return 2;
		seen = recv(s, buf, sizeof(buf), MSG_DONTWAIT) > 0;
	}
	close(s);
	return !seen ? 3 : recv_mb(50) != 50 ? 4 : 0;
}

static int receive_rounds(int ifindex, int id)
{
	int i;

	(void)ifindex;
	(void)id;
	for (i = 0; i < 10; i++)
		if (recv_mb(60) != 60)
			return i + 1;
	return 0;
}

static int sizes(int ifindex, int id)
{
	static const int all[] = { 1, 100, 256, 257, 1400, 1472, 1473, 4000, 8900,
				   30000, 32768, 60000, 65507 };
	unsigned int i, mtu;

	(void)id;
	for (mtu = 1500; mtu <= 65535; mtu += 64035) {
		lkl_if_set_mtu(ifindex, mtu);
		sh("ip link set " DEV " mtu %u", mtu > 65521 ? 65521 : mtu);
		for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			if (!echo(all[i])) {
				printf("# size %d at mtu %u\n", all[i], mtu);
				sh("ip link set " DEV " mtu 1500");
				return 1;
			}
	}
	sh("ip link set " DEV " mtu 1500");
	return 0;
}

static int down_up(int ifindex, int id)
{
	double c;
	uint64_t t;

	(void)ifindex;
	(void)id;
	if (!echo(100))
		return 1;
	sh("ip link set " DEV " down");
	if (!wait_carrier(0))
		return 2;
	c = cpu_s();
	for (t = now_ns(); now_ns() - t < 1e9;)
		poll(NULL, 0, 1000);
	if (cpu_s() - c > 0.05)
		return 3;
	sh("ip link set " DEV " up");
	/* without traffic, the descriptor's own event brings it back */
	for (t = now_ns(); carrier() != 1 && now_ns() - t < 4e9;)
		sched_yield();
	if (carrier() != 1)
		return 4;
	for (t = now_ns(); !echo(100); )
		if (now_ns() - t > 10e9)
			return 5;
	return send_mb(10) == 10 ? 0 : 6;
}

static int deleted(int ifindex, int id)
{
	struct sockaddr_in sa = addr4(HOST, PORT);
	uint64_t t;
	double c;
	long s;

	(void)ifindex;
	if (!echo(100))
		return 1;
	sh("ip link del " DEV);
	s = L3(socket, AF_INET, SOCK_DGRAM, 0);
	for (t = now_ns(); carrier() != 0 && now_ns() - t < 4e9;)
		L6(sendto, s, "x", 1, 0, &sa, sizeof(sa));
	if (carrier() != 0)
		return 2;
	c = cpu_s();
	for (t = now_ns(); now_ns() - t < 1e9;)
		poll(NULL, 0, 1000);
	if (cpu_s() - c > 0.05)
		return 3;
	lkl_netdev_remove(id);
	return lkl_netdev_get_ifindex(id) < 0 && L0(getpid) == 1 ? 0 : 4;
}

/* ethtool -K over ioctl, and data still passes */
static int switches(int ifindex, int id)
{
	static const int set[] = { ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_STXCSUM,
				   ETHTOOL_SSG, ETHTOOL_SGRO };
	struct ethtool_value v;
	struct ifreq ifr;
	unsigned int i;
	long s = L3(socket, AF_INET, SOCK_DGRAM, 0), ret;

	(void)ifindex;
	(void)id;
	for (i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
		memset(&ifr, 0, sizeof(ifr));
		strcpy(ifr.ifr_name, "eth0");
		v.cmd = set[i];
		v.data = 0;
		ifr.ifr_data = (void *)&v;
		ret = L3(ioctl, s, SIOCETHTOOL, &ifr);
		if (ret || send_mb(5) != 5 || recv_mb(5) != 5) {
			printf("# switch %#x: %ld\n", set[i], ret);
			return 1;
		}
	}
	return 0;
}

static int stats(int ifindex, int id)
{
	char buf[4096], *p;
	unsigned long rb, rp, tb, tp;

	(void)ifindex;
	(void)id;
	send_mb(10);
	recv_mb(10);
	lread_file("/proc/net/dev", buf, sizeof(buf));
	p = strstr(buf, "eth0:");
	if (!p || sscanf(p + 5, "%lu %lu %*u %*u %*u %*u %*u %*u %lu %lu", &rb, &rp,
			 &tb, &tp) != 4)
		return 1;
	printf("# %lu bytes in %lu packets in, %lu in %lu out\n", rb, rp, tb, tp);
	return !(rb > 10 << 20 && tb > 10 << 20 && rb < 13 << 20 && tb < 13 << 20);
}

static int hot_add(int ifindex, int id)
{
	int n;

	if (!echo(100))
		return 1;
	lkl_netdev_remove(id);
	if (lkl_netdev_get_ifindex(id) >= 0)
		return 2;
	(void)ifindex;
	for (n = 0; n < 10; n++) {
		struct lkl_netdev *nd;
		int fd, sv[2];

		if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
			return 3;
		fd = sv[0];
		nd = lkl_netdev_fd_create(fd, 0);
		id = lkl_netdev_add(nd, NULL);
		if (id < 0 || lkl_if_up(lkl_netdev_get_ifindex(id)))
			return 4;
		lkl_netdev_remove(id);
		lkl_netdev_free(nd);
		if (fcntl(fd, F_GETFD) >= 0)
			return 5;
		close(sv[1]);
	}
	return 0;
}

/* The library's descriptor of the tap */
static int tap_fd(struct ifreq *ifr)
{
	char path[32], to[64];
	ssize_t n;
	int fd;

	for (fd = 3; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && (to[n] = 0, !strcmp(to, "/dev/net/tun")) &&
		    !ioctl(fd, TUNGETIFF, ifr))
			return fd;
	}
	return -1;
}

/*
 * Without offloads a kernel thread of the host reads the tap, from a queue with
 * a limit: a sender that is faster waits and loses nothing for good.
 */
static int threaded(int ifindex, int id)
{
	struct sockaddr_in sa = addr4(HOST, 9);
	static const char data[1400];
	struct ifreq ifr = { .ifr_flags = 0 };
	int fd = tap_fd(&ifr), room = 0;
	uint64_t t;
	long s;

	(void)ifindex;
	(void)id;
	if (fd < 0 || !(ifr.ifr_flags & IFF_NAPI) || ifr.ifr_flags & IFF_VNET_HDR)
		return 1;
	if (sh("unshare -m sh -c 'mount -t sysfs none /sys && "
	       "grep -qx 1 /sys/class/net/" DEV "/threaded'"))
		return 2;
	if (ioctl(fd, TUNGETSNDBUF, &room) || room == INT_MAX)
		return 3;
	if (send_mb(100) != 100)
		return 4;
	/* A small limit, which is reached again and again */
	room = 64 << 10;
	if (ioctl(fd, TUNSETSNDBUF, &room))
		return 5;
	s = L3(socket, AF_INET, SOCK_DGRAM, 0);
	for (t = now_ns(); now_ns() - t < 1e9;)
		L6(sendto, s, data, sizeof(data), 0, &sa, sizeof(sa));
	return send_mb(10) == 10 && recv_mb(10) == 10 ? 0 : 6;
}

/* If that cannot be set the tap works as usual, and has no header either. */
static int unthreaded(int ifindex, int id)
{
	struct ifreq ifr = { .ifr_flags = 0 };

	(void)ifindex;
	(void)id;
	if (tap_fd(&ifr) < 0 || ifr.ifr_flags & (IFF_NAPI | IFF_VNET_HDR))
		return 1;
	return send_mb(10) == 10 && recv_mb(10) == 10 ? 0 : 2;
}

/* qemu-user does not support fsopen(), which the library needs. */
static int have_fsopen(void)
{
	int fd = (int)syscall(SYS_fsopen, "sysfs", 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* A peer whose packets are larger than ours */
static int larger_peer(int ifindex, int id)
{
	int i, ret = 0;

	(void)ifindex;
	(void)id;
	if (!echo(1400) || sh("ip link set " DEV " mtu 30000"))
		return 1;
	for (i = 0; i < 20 && !ret; i++)
		ret = echo(25000) ? 0 : 2;
	sh("ip link set " DEV " mtu 1500");
	return ret;
}

int main(void)
{
	pid_t pids[2];
	int i, ret;

	start(280);
	peer_ip = HOST;
	if (own_netns() || sh("ip tuntap add " DEV " mode tap vnet_hdr && "
			      "ip addr add " HOST "/24 dev " DEV " && ip link set " DEV " up")) {
		skip("no namespace or no tap");
		return finish();
	}
	host_server(pids);

	for (i = 0; i < 6; i++) {
		ret = with_kernel(i % 2 ? 0 : LKL_OFFLOAD_ALL, both_ways,
				  "mem=64M loglevel=0");
		ok(ret == 0, "100 MB each way, offload %s: %d", i % 2 ? "off" : "on", ret);
	}
	ret = with_kernel(LKL_OFFLOAD_ALL, receive_rounds, "mem=64M loglevel=0");
	ok(ret == 0, "ten rounds of bulk receive, every byte right: %d", ret);
	ret = with_kernel(0, receive_rounds, "mem=32M loglevel=0");
	ok(ret == 0, "the same without offload in a small arena: %d", ret);
	ret = with_kernel(LKL_OFFLOAD_ALL | LKL_OFFLOAD_HOST_BIG, big_frames,
			  "mem=256M loglevel=0");
	if (!kernel_since(3))
		ok(ret == 3, "no frames above 64 KiB from Linux before 6.3: %d", ret);
	else if (host_takes_big())
		ok(ret == 0, "frames above 64 KiB: %d", ret);
	else
		ok(ret == 3, "no frames above 64 KiB to a host before Linux 6.6: %d", ret);
	ret = with_kernel(LKL_OFFLOAD_ALL, sizes, "mem=64M loglevel=0");
	ok(ret == 0, "datagrams of all sizes, MTU 1500 and 65535: %d", ret);
	ret = with_kernel(0, sizes, "mem=64M loglevel=0");
	ok(ret == 0, "the same without offload: %d", ret);
	ret = with_kernel(0, larger_peer, "mem=64M loglevel=0");
	ok(ret == 0, "packets above the MTU: %d", ret);
	if (have_fsopen()) {
		ret = with_kernel(0, threaded, "mem=64M loglevel=0");
		ok(ret == 0, "without offload a thread of the host's reads: %d", ret);
	} else {
		ok(slow(1) > 1, "fsopen()");
		ret = with_kernel(0, unthreaded, "mem=64M loglevel=0");
		ok(ret == 0, "without offload, and without that thread: %d", ret);
	}
	ret = with_kernel(LKL_OFFLOAD_ALL, switches, "mem=64M loglevel=0");
	ok(ret == 0, "offload switched off piece by piece: %d", ret);
	ret = with_kernel(LKL_OFFLOAD_ALL, stats, "mem=64M loglevel=0");
	ok(ret == 0, "statistics: %d", ret);
	ret = with_kernel(LKL_OFFLOAD_ALL, hot_add, "mem=64M loglevel=0");
	ok(ret == 0, "devices come and go: %d", ret);
	ret = with_kernel(LKL_OFFLOAD_ALL, down_up, "mem=64M loglevel=0");
	ok(ret == 0, "tap set down and up: %d", ret);
	ret = with_kernel(LKL_OFFLOAD_ALL, deleted, "mem=64M loglevel=0");
	ok(ret == 0, "tap deleted: %d", ret);

	for (i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return finish();
}
