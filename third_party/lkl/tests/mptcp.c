// SPDX-License-Identifier: GPL-2.0-only
/*
 * MPTCP over loopback with /proc/net/mptcp, and over two taps to the host, with
 * /proc/net/mptcp_join. test/rejoin_test.go tests the repair of a subflow.
 */
#include "nl.h"

#include <poll.h>
#include <linux/mptcp.h>

#define PORT	5201

#ifndef MPTCP_INFO
#define MPTCP_INFO 1
#endif

struct line {
	unsigned int sl, loc, rem, v6, st, ns, txq, rxq;
	char local[64], remote[64];
	unsigned long inode;
};

/* Parses /proc/net/mptcp like a tool written for the old file. */
static int parse(struct line *l, int max)
{
	char buf[8192], *p;
	int n = 0;

	if (lread_file("/proc/net/mptcp", buf, sizeof(buf)) < 0)
		return -1;
	for (p = strchr(buf, '\n'); p && *++p && n < max; p = strchr(p, '\n'), n++)
		if (sscanf(p, "%u: %x %x %u %63s %63s %x %x %x:%x %lu", &l[n].sl,
			   &l[n].loc, &l[n].rem, &l[n].v6, l[n].local, l[n].remote,
			   &l[n].st, &l[n].ns, &l[n].txq, &l[n].rxq, &l[n].inode) != 11)
			return -1;
	return n;
}

static void loopback(void)
{
	struct line l[8];
	long srv, c, a, s6, c6;
	struct sockaddr_in6 sa6 = { .sin6_family = AF_INET6, .sin6_port = htons(81) };
	char buf[16] = "hello";
	int n, i, found = 0;

	ok(parse(l, 8) == 0, "no connection, no line");
	srv = llisten("127.0.0.1", 80, IPPROTO_MPTCP);
	c = lconnect("127.0.0.1", 80, IPPROTO_MPTCP);
	a = L4(accept4, srv, 0, 0, 0);
	ok(c >= 0 && a >= 0, "connection over loopback");
	L3(write, c, "hello", 5);
	ok(L3(read, a, buf, sizeof(buf)) == 5, "data");
	n = parse(l, 8);
	ok(n == 2, "two lines, one for each end: %d", n);
	for (i = 0; i < n; i++) {
		if (strstr(l[i].remote, "0100007F:0050"))
			found |= 1;
		if (strstr(l[i].local, "0100007F:0050"))
			found |= 2;
	}
	ok(found == 3, "local and remote address and port");
	ok(n == 2 && l[0].loc == l[1].rem && l[0].rem == l[1].loc && l[0].loc,
	   "each one's token is the other's remote token");
	ok(n == 2 && l[0].st == 1 && l[0].ns == 1 && !l[0].v6 && l[0].inode > 0,
	   "state, subflows, family, inode");
	L3(write, c, "some more", 9);
	n = parse(l, 8);
	ok(n == 2 && l[0].rxq + l[1].rxq > 0, "bytes that wait show in rx_queue");

	s6 = L3(socket, AF_INET6, SOCK_STREAM, IPPROTO_MPTCP);
	c6 = L3(socket, AF_INET6, SOCK_STREAM, IPPROTO_MPTCP);
	sa6.sin6_addr = in6addr_loopback;
	ok(!L3(bind, s6, &sa6, sizeof(sa6)) && !L2(listen, s6, 5) &&
	   !L3(connect, c6, &sa6, sizeof(sa6)), "connection over IPv6");
	for (i = 0, found = 0, n = parse(l, 8); i < n; i++)
		found |= l[i].v6 && strlen(l[i].remote) == 32 + 5;
	ok(found, "v6 lines have v6 addresses");
	L1(close, c6);
	L1(close, s6);
	L1(close, c);
	L1(close, a);
	L1(close, srv);
}

/* The host's end: counts the received bytes and returns the sum. */
static pid_t host_server(void)
{
	struct sockaddr_in sa = addr4("0.0.0.0", PORT);
	static char buf[65536];
	uint64_t sum = 0;
	int s, c, one = 1;
	ssize_t n, i;
	pid_t pid;

	s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);
	if (s < 0)
		return -1;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s, (struct sockaddr *)&sa, sizeof(sa)) || listen(s, 5))
		return -1;
	pid = fork();
	if (pid) {
		close(s);
		return pid;
	}
	alarm(slow(60));
	c = accept(s, NULL, NULL);
	while ((n = read(c, buf, sizeof(buf))) > 0)
		for (i = 0; i < n; i++)
			sum += (unsigned char)buf[i];
	if (write(c, &sum, sizeof(sum)) < 0)
		_exit(1);
	_exit(0);
}

static int pm_call(int cmd, int attr_addr, uint32_t addr, uint32_t flags,
		   int subflows)
{
	struct genlmsghdr *g;
	struct rtattr *nest;
	struct nlmsg m;
	uint16_t family = AF_INET;

	g = nl_start(&m, genl_family("mptcp_pm"), 0, GENL_HDRLEN);
	g->cmd = cmd;
	g->version = 1;
	if (attr_addr) {
		nest = nl_put(&m, MPTCP_PM_ATTR_ADDR | NLA_F_NESTED, NULL, 0);
		nl_put(&m, MPTCP_PM_ADDR_ATTR_FAMILY, &family, 2);
		nl_u32(&m, MPTCP_PM_ADDR_ATTR_ADDR4, addr);
		nl_u32(&m, MPTCP_PM_ADDR_ATTR_FLAGS, flags);
		nl_end(&m, nest);
	} else {
		nl_u32(&m, MPTCP_PM_ATTR_SUBFLOWS, subflows);
		nl_u32(&m, MPTCP_PM_ATTR_RCV_ADD_ADDRS, subflows);
	}
	return nl_talk(NETLINK_GENERIC, &m, NULL, NULL);
}

static int add_tap(const char *name, const char *ip)
{
	struct lkl_netdev *nd = lkl_netdev_tap_create(name, LKL_OFFLOAD_ALL);
	int id, ifindex;

	if (!nd)
		return -errno;
	id = lkl_netdev_add(nd, NULL);
	ifindex = lkl_netdev_get_ifindex(id);
	if (ifindex < 0)
		return ifindex;
	lkl_if_set_ipv4(ifindex, inet_addr(ip), 24);
	lkl_if_up(ifindex);
	return ifindex;
}

/* The result of writing an order to /proc/net/mptcp_join. */
static long join(const char *format, unsigned int token)
{
	char order[64];
	int n = snprintf(order, sizeof(order), format, token);
	long fd = L4(openat, AT_FDCWD, "/proc/net/mptcp_join", O_WRONLY, 0), ret;

	if (fd < 0)
		return fd;
	ret = L3(write, fd, order, n);
	L1(close, fd);
	return ret;
}

/*
 * The connection of @token has a subflow from endpoint 1; endpoint 2 does not
 * exist.
 */
static void joins(unsigned int token)
{
	ok(join("%x 1\n", token) == -EEXIST, "a join that is there is not made again");
	ok(join("%x 2", token) == -ENETUNREACH, "nothing comes of an endpoint that is none");
	ok(join("%x 1", token + 1) == -ENOENT, "nor of a connection that is none");
	ok(join("%x", token) == -EINVAL && join("%x 0", token) == -EINVAL &&
	   join("%x 1 backup", token) == -EINVAL, "an order that is none");
}

static void two_taps(void)
{
	static unsigned char buf[100000];
	struct line l[4];
	uint64_t sum = 0, got = 0, t;
	long c, n, total;
	unsigned int subflows = 0;
	int i, status;
	pid_t pid;

	if (own_netns() || sh("ip tuntap add mp0 mode tap vnet_hdr; ip tuntap add mp1 mode tap vnet_hdr;"
			      "ip addr add 10.71.0.1/24 dev mp0 && ip link set mp0 up &&"
			      "ip addr add 10.72.0.1/24 dev mp1 && ip link set mp1 up")) {
		skip("no namespace or no taps");
		return;
	}
	sh("sysctl -w net.mptcp.enabled=1; ip mptcp limits set subflows 4 add_addr_accepted 4;"
	   "ip mptcp endpoint add 10.72.0.1 signal");
	pid = host_server();
	if (pid < 0) {
		skip("the host has no MPTCP");
		return;
	}
	ok(add_tap("mp0", "10.71.0.2") > 0 && add_tap("mp1", "10.72.0.2") > 0, "two taps");
	ok(!pm_call(MPTCP_PM_CMD_SET_LIMITS, 0, 0, 0, 4) &&
	   !pm_call(MPTCP_PM_CMD_ADD_ADDR, 1, inet_addr("10.72.0.2"),
		    MPTCP_PM_ADDR_FLAG_SUBFLOW, 0), "path manager takes an endpoint");
	c = lconnect("10.71.0.1", PORT, IPPROTO_MPTCP);
	ok(c >= 0, "connection to the host: %s", c < 0 ? lkl_strerror(c) : "yes");
	for (i = 0; i < (int)sizeof(buf); i++)
		buf[i] = i * 7;
	for (total = 0; c >= 0 && total < 300L * 1000 * 1000; total += n) {
		n = L3(write, c, buf, sizeof(buf));
		if (n <= 0)
			break;
		for (i = 0; i < n; i++)
			sum += buf[i];
		if (parse(l, 4) == 1 && l[0].ns > subflows)
			subflows = l[0].ns;
	}
	ok(subflows >= 2, "%u subflows", subflows);
	if (parse(l, 4) == 1)
		joins(l[0].loc);
	L2(shutdown, c, SHUT_WR);
	for (t = now_ns(), n = 0; n != 8 && now_ns() - t < slow(20e9);)
		n = L3(read, c, &got, 8);
	ok(n == 8 && got == sum, "300 MB arrive whole at the host's end");
	L1(close, c);
	waitpid(pid, &status, 0);
}

int main(void)
{
	start(90);
	boot("mem=64M loglevel=0");
	lkl_mount_fs("proc");
	loopback();
	two_taps();
	lkl_sys_halt();
	return finish();
}
