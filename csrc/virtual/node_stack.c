// SPDX-License-Identifier: GPL-2.0-only
/* The stack of a node: the library in loop mode with a virtual clock. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <lkl.h>
#include <net/route.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "virtual/virtual.h"

#define TAG		(1ull << 40)
#define FRAME_MAX	65536

#define FUNCTIONS(X) \
	X(init) X(start_kernel) X(syscall) X(loop_init) X(set_virtual) X(loop_step) X(loop_rest) \
	X(loop_event) X(netdev_fd_create) X(netdev_add) X(netdev_get_ifindex) X(if_up) \
	X(if_set_mtu) X(if_set_ipv4) X(if_set_ipv6) X(sysctl)

static struct {
#define X(fn) __typeof__(lkl_##fn) *fn;
	FUNCTIONS(X)
#undef X
} lkl;

/* Our ends of the devices, and their indices in the stack */
static int devices[MAX_IFS], indices[MAX_IFS], device_count;

static void on_panic(void)
{
	fail("the kernel of the stack has panicked");
}

static void on_print(const char *str, int len)
{
	if (write(2, str, (size_t)len) < 0)
		return;	/* only the log */
}

long stack_call(long nr, long a, long b, long c, long d, long e, long f)
{
	long args[6] = { a, b, c, d, e, f };

	return lkl.syscall(nr, args);
}

static void check(long ret, const char *what, const char *text)
{
	if (ret < 0)
		fail("%s %s: %s", what, text, strerror((int)-ret));
}

/** stack_begin - boot the kernel */
void stack_begin(const char *path, const char *mem, uint64_t seed)
{
	static struct lkl_host_operations ops = { .print = on_print, .panic = on_panic };
	/* struct sigaction of the kernel: handler, flags, restorer, mask */
	unsigned long ignore[4] = { (unsigned long)SIG_IGN, 0, 0, 0 };
	void *lib = dlopen(path, RTLD_NOW);

	if (!lib)
		fail("loading the stack library: %s", dlerror());
#define X(fn) \
	lkl.fn = (__typeof__(lkl.fn))dlsym(lib, "lkl_" #fn); \
	if (!lkl.fn) \
		fail("%s has no lkl_" #fn "(); virtual time requires a stack of this version", path);
	FUNCTIONS(X)
#undef X
	lkl.init(&ops);
	check(lkl.loop_init(epoll_create1(EPOLL_CLOEXEC), TAG), "the stack's", "loop");
	check(lkl.set_virtual(&now, REAL_OFFSET, seed), "virtual time of the stack", path);
	check(lkl.start_kernel("mem=%s loglevel=4", mem), "booting the stack", path);
	/* Programs get this signal from program.c, so the task of the stack must not. */
	check(ST(rt_sigaction, SIGPIPE, ignore, 0, 8, 0, 0), "rt_sigaction", "");
	lkl.if_up(1);
	/* As in other labs, all addresses are known. */
	stack_sysctl("net.ipv6.conf.default.accept_ra=0");
	stack_sysctl("net.ipv6.conf.default.accept_dad=0");
}

/** stack_sysctl - NAME=VALUE */
void stack_sysctl(const char *text)
{
	char *name = strdup(text), *value = strchr(name, '=');

	if (!value)
		fail("sysctl %s: no value", text);
	*value++ = 0;
	check(lkl.sysctl(name, value), "sysctl", text);
	free(name);
}

/* An address with prefix length. Returns its length in bytes. */
static size_t parse_address(char *word, uint8_t addr[16], unsigned int *prefix)
{
	char *slash = strchr(word, '/');

	if (!slash)
		return 0;
	*slash = 0;
	*prefix = (unsigned int)atoi(slash + 1);
	return inet_pton(AF_INET, word, addr) == 1 ? 4 : inet_pton(AF_INET6, word, addr) == 1 ? 16 : 0;
}

static int add_device(uint8_t mac[6])
{
	struct lkl_netdev_args args = { .mac = mac };
	int sv[2], id, i, big = 4 << 20;

	if (device_count == MAX_IFS || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK |
						  SOCK_CLOEXEC, 0, sv))
		fail("interface %d: %s", device_count, strerror(errno));
	for (i = 0; i < 2; i++)	/* without the right to do so, frames wait in the stack */
		if (setsockopt(sv[i], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big)))
			setsockopt(sv[i], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	id = lkl.netdev_add(lkl.netdev_fd_create(sv[1], 0), &args);
	check(id, "adding", "an interface");
	devices[id] = sv[0];
	device_count = id + 1;
	return indices[id] = lkl.netdev_get_ifindex(id);
}

/** stack_carrier - set the carrier of an interface, as SetCarrier() in internal/stack/stacknet */
void stack_carrier(int iface, bool on)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg link;
		struct rtattr attr;
		uint8_t carrier, pad[3];
	} m = {
		.h = { .nlmsg_len = sizeof(m) - sizeof(m.pad), .nlmsg_type = RTM_NEWLINK,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.attr = { .rta_type = IFLA_CARRIER, .rta_len = RTA_LENGTH(1) }, .carrier = on,
	};
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char rest[256];
	} reply = { .e.error = -EIO };
	long s = ST(socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, 0, 0, 0);

	if (iface >= device_count)
		fail("the carrier of an unknown interface");
	m.link.ifi_index = indices[iface];
	check(ST(sendto, s, &m, sizeof(m), 0, NULL, 0), "the carrier of", "an interface");
	check(ST(recvfrom, s, &reply, sizeof(reply), 0, NULL, NULL), "the carrier of", "an interface");
	check(reply.e.error, "the carrier of", "an interface");
	ST(close, s, 0, 0, 0, 0, 0);
}

/** stack_interface - MTU and addresses of the next interface: 1500 10.0.1.1/24 fd00::1/64 */
void stack_interface(const char *text)
{
	/* Its last bytes are those of the first address: see MAC() in internal/run/virtual. */
	uint8_t mac[6] = { 2, 0, 0, 0, 0, 0 }, addr[16];
	char *words = strdup(text), *word, *save = NULL;
	int ifindex = 0, mtu = atoi(strtok_r(words, " ", &save));
	unsigned int prefix;
	size_t len;
	long ret;

	while ((word = strtok_r(NULL, " ", &save))) {
		len = parse_address(word, addr, &prefix);
		if (!len)
			fail("interface %s: address %s", text, word);
		if (!ifindex) {
			memcpy(mac + 2, addr + len - 4, 4);
			ifindex = add_device(mac);
			check(ifindex, "interface", text);
			check(lkl.if_set_mtu(ifindex, mtu), "MTU of", text);
			check(lkl.if_up(ifindex), "interface", text);
		}
		ret = len == 4 ? lkl.if_set_ipv4(ifindex, *(unsigned int *)addr, prefix) :
				 lkl.if_set_ipv6(ifindex, addr, prefix);
		check(ret, "address", text);
	}
	free(words);
}

/** stack_route - NETWORK/LENGTH ROUTER */
void stack_route(const char *text)
{
	char net[64], via[64];
	struct sockaddr_in *to, *mask, *gw;
	struct in6_rtmsg r6 = { .rtmsg_flags = RTF_UP | RTF_GATEWAY, .rtmsg_metric = 1024 };
	struct rtentry r4 = { .rt_flags = RTF_UP | RTF_GATEWAY };
	unsigned int len;
	long s, ret;

	if (sscanf(text, "%63[^/]/%u %63s", net, &len, via) != 3)
		fail("route %s: expected NETWORK/LENGTH ROUTER", text);
	to = (struct sockaddr_in *)&r4.rt_dst;
	mask = (struct sockaddr_in *)&r4.rt_genmask;
	gw = (struct sockaddr_in *)&r4.rt_gateway;
	to->sin_family = mask->sin_family = gw->sin_family = AF_INET;
	if (inet_pton(AF_INET, net, &to->sin_addr) == 1 && inet_pton(AF_INET, via, &gw->sin_addr) == 1) {
		mask->sin_addr.s_addr = len ? htonl(~0u << (32 - len)) : 0;
		s = ST(socket, AF_INET, SOCK_DGRAM, 0, 0, 0, 0);
		ret = ST(ioctl, s, SIOCADDRT, &r4, 0, 0, 0);
	} else if (inet_pton(AF_INET6, net, &r6.rtmsg_dst) == 1 &&
		   inet_pton(AF_INET6, via, &r6.rtmsg_gateway) == 1) {
		r6.rtmsg_dst_len = (uint16_t)len;
		s = ST(socket, AF_INET6, SOCK_DGRAM, 0, 0, 0, 0);
		ret = ST(ioctl, s, SIOCADDRT, &r6, 0, 0, 0);
	} else {
		fail("route %s: expected NETWORK/LENGTH ROUTER", text);
	}
	check(ret, "route", text);
	ST(close, s, 0, 0, 0, 0, 0);
}

/* Passes on what the devices have sent. */
static bool drain(void)
{
	static char frame[FRAME_MAX];
	bool any = false;
	ssize_t n;
	int i;

	for (i = 0; i < device_count; i++) {
		bool room = false;

		while ((n = recv(devices[i], frame, sizeof(frame), MSG_DONTWAIT)) > 0) {
			message(MSG_FRAME, i, now, frame, (uint32_t)n);
			room = true;
		}
		if (room)
			lkl.loop_event(TAG | (unsigned int)i, EPOLLOUT);
		any |= room;
	}
	return any;
}

/** stack_settle - run the kernel until it waits */
void stack_settle(void)
{
	long long ns;

	do {
		do {
			ns = lkl.loop_step();
			if (drain())
				ns = 0;
		} while (ns == 0);
		ns = ns < -1 ? ns : lkl.loop_rest();
		if (drain())
			ns = 0;
	} while (ns == 0);
	if (ns < -1)
		fail("the kernel of the stack has ended");
}

/** stack_next - the time of the kernel's next timer */
uint64_t stack_next(void)
{
	long long ns;

	while ((ns = lkl.loop_rest()) == 0)
		stack_settle();
	return ns < 0 ? NEVER : now + (uint64_t)ns;
}

/** stack_frame - a frame arrives at an interface */
void stack_frame(int iface, const void *frame, uint32_t len)
{
	if (iface >= device_count || send(devices[iface], frame, len, MSG_DONTWAIT) != (ssize_t)len)
		fail("a frame of %u bytes to interface %d: %s", len, iface, strerror(errno));
	lkl.loop_event(TAG | (unsigned int)iface, EPOLLIN);
	stack_settle();
}
