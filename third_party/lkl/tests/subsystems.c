// SPDX-License-Identifier: GPL-2.0-only
/* Checks that every promised subsystem responds. */
#include "nl.h"

#include <linux/if_link.h>
#include <linux/if_tunnel.h>
#include <linux/inet_diag.h>
#include <linux/mptcp.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/fib_rules.h>
#include <linux/pkt_sched.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <linux/veth.h>

#ifndef AF_PACKET
#define AF_PACKET 17
#endif

static void veth_peer(struct nlmsg *m)
{
	struct rtattr *peer = nl_put(m, VETH_INFO_PEER, NULL, 0);

	m->n.nlmsg_len += sizeof(struct ifinfomsg);
	nl_str(m, IFLA_IFNAME, "veth1");
	nl_end(m, peer);
}

static void vlan_id(struct nlmsg *m)
{
	uint16_t id = 7;

	nl_put(m, IFLA_VLAN_ID, &id, 2);
}

/* Its other end is the device itself. */
static void gre_ends(struct nlmsg *m)
{
	nl_u32(m, IFLA_GRE_LOCAL, htonl(INADDR_LOOPBACK));
	nl_u32(m, IFLA_GRE_REMOTE, htonl(INADDR_LOOPBACK));
}

/* Number of packets that a device has received; -1: no such device */
static long received(const char *name)
{
	static char buf[8192];
	unsigned long bytes, packets;
	char *p;

	if (lread_file("/proc/net/dev", buf, sizeof(buf)) < 0)
		return -1;
	p = strstr(buf, name);
	if (!p || sscanf(p + strlen(name), ": %lu %lu", &bytes, &packets) != 2)
		return -1;
	return packets;
}

static int ifindex(const char *name)
{
	struct ifreq ifr;
	long s = L3(socket, AF_INET, SOCK_DGRAM, 0), ret;

	memset(&ifr, 0, sizeof(ifr));
	strcpy(ifr.ifr_name, name);
	ret = L3(ioctl, s, 0x8933 /* SIOCGIFINDEX */, &ifr);
	L1(close, s);
	return ret ? ret : ifr.ifr_ifindex;
}

static int qdisc_add(int dev, const char *kind, void (*fill)(struct nlmsg *))
{
	struct rtattr *opt;
	struct tcmsg *t;
	struct nlmsg m;
	int ret;

	t = nl_start(&m, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*t));
	t->tcm_ifindex = dev;
	t->tcm_parent = TC_H_ROOT;
	t->tcm_handle = 0x10000;
	if (!strcmp(kind, "ingress") || !strcmp(kind, "clsact")) {
		t->tcm_parent = TC_H_CLSACT;
		t->tcm_handle = 0xffff0000;
	}
	nl_str(&m, TCA_KIND, kind);
	if (fill) {
		opt = nl_put(&m, TCA_OPTIONS, NULL, 0);
		fill(&m);
		nl_end(&m, opt);
	}
	ret = nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
	if (ret)
		return ret;
	m.n.nlmsg_type = RTM_DELQDISC;
	m.n.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	return nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
}

/* netem's options are not nested in an attribute */
static int netem_add(int dev)
{
	struct tc_netem_qopt q = { .latency = 1000, .limit = 100 };
	struct tcmsg *t;
	struct nlmsg m;

	t = nl_start(&m, RTM_NEWQDISC, NLM_F_CREATE, sizeof(*t));
	t->tcm_ifindex = dev;
	t->tcm_parent = TC_H_ROOT;
	nl_str(&m, TCA_KIND, "netem");
	nl_put(&m, TCA_OPTIONS, &q, sizeof(q));
	return nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
}

static void tbf_fill(struct nlmsg *m)
{
	struct tc_tbf_qopt q = { .limit = 100000, .buffer = 100000 };
	uint32_t burst = 10000;

	q.rate.rate = 1000000;
	q.rate.linklayer = 1;
	nl_put(m, TCA_TBF_PARMS, &q, sizeof(q));
	nl_put(m, TCA_TBF_BURST, &burst, 4);
}

static void htb_fill(struct nlmsg *m)
{
	struct tc_htb_glob g = { .version = 3, .rate2quantum = 10 };

	nl_put(m, TCA_HTB_INIT, &g, sizeof(g));
}

static int filter_add(int dev, const char *kind)
{
	static int prio;
	struct rtattr *opt;
	struct tcmsg *t;
	struct nlmsg m;

	t = nl_start(&m, RTM_NEWTFILTER, NLM_F_CREATE, sizeof(*t));
	t->tcm_ifindex = dev;
	t->tcm_parent = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS);
	t->tcm_info = TC_H_MAKE(++prio << 16, htons(0x0003 /* ETH_P_ALL */));
	nl_str(&m, TCA_KIND, kind);
	opt = nl_put(&m, TCA_OPTIONS, NULL, 0);
	nl_end(&m, opt);
	return nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
}

static int diag(int family, int proto)
{
	struct inet_diag_req_v2 *r;
	struct nlmsg m;

	/* large enough for the requests of all families */
	r = nl_start(&m, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, sizeof(*r));
	r->sdiag_family = family;
	r->sdiag_protocol = proto;
	if (proto == IPPROTO_MPTCP) {
		uint32_t p = proto;

		r->sdiag_protocol = 0xff;
		nl_put(&m, INET_DIAG_REQ_PROTOCOL, &p, 4);
	}
	if (family == AF_INET || family == AF_INET6)
		r->idiag_states = ~0;
	else if (family == AF_UNIX)
		((struct unix_diag_req *)r)->udiag_states = ~0;
	return nl_talk(NETLINK_SOCK_DIAG, &m, NULL, NULL);
}

/* One nf_tables transaction that creates a table with a chain */
static int nft_table(int family)
{
	struct {
		struct nlmsghdr h;
		struct nfgenmsg g;
	} edge = { .h = { .nlmsg_len = sizeof(edge), .nlmsg_flags = NLM_F_REQUEST },
		   .g = { .res_id = htons(NFNL_SUBSYS_NFTABLES) } };
	char buf[4096];
	struct nfgenmsg *g;
	struct nlmsg m;
	int len = 0;
	long s, n;

	edge.h.nlmsg_type = NFNL_MSG_BATCH_BEGIN;
	memcpy(buf, &edge, sizeof(edge));
	len = sizeof(edge);
	g = nl_start(&m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_CREATE,
		     sizeof(*g));
	g->nfgen_family = family;
	nl_str(&m, NFTA_TABLE_NAME, "t");
	memcpy(buf + len, &m, m.n.nlmsg_len);
	len += NLMSG_ALIGN(m.n.nlmsg_len);
	edge.h.nlmsg_type = NFNL_MSG_BATCH_END;
	memcpy(buf + len, &edge, sizeof(edge));
	len += sizeof(edge);

	s = L3(socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
	n = L3(write, s, buf, len);
	if (n == len)
		n = L6(recvfrom, s, buf, sizeof(buf), MSG_DONTWAIT, 0, 0);
	L1(close, s);
	if (n < (long)sizeof(struct nlmsgerr))
		return n < 0 ? n : -EPROTO;
	return ((struct nlmsgerr *)NLMSG_DATA(buf))->error;
}

static int xt_table(int family, const char *name)
{
	struct ipt_getinfo info;
	unsigned int len = sizeof(info);
	long s, ret;

	memset(&info, 0, sizeof(info));
	strcpy(info.name, name);
	s = L3(socket, family, SOCK_RAW, IPPROTO_RAW);
	/* IP6T_SO_GET_INFO has the same number */
	ret = L5(getsockopt, s, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
		 IPT_SO_GET_INFO, &info, &len);
	L1(close, s);
	return ret;
}

static int rule_add(int family)
{
	struct fib_rule_hdr *r;
	struct nlmsg m;

	r = nl_start(&m, RTM_NEWRULE, NLM_F_CREATE, sizeof(*r));
	r->family = family;
	r->action = FR_ACT_TO_TBL;
	r->table = 100;
	nl_u32(&m, FRA_PRIORITY, 1000);
	nl_u32(&m, FRA_FWMARK, 1);
	return nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
}

static int set_group(int dev, int group)
{
	struct ifinfomsg *i;
	struct nlmsg m;

	i = nl_start(&m, RTM_NEWLINK, 0, sizeof(*i));
	i->ifi_index = dev;
	nl_u32(&m, IFLA_GROUP, group);
	return nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
}

int main(void)
{
	static const char * const plain[] = {
		"fq", "fq_codel", "codel", "sfq", "pie", "cake", "prio", "pfifo",
		"ingress", "clsact", NULL,
	};
	static const char * const cc[] = {
		"reno", "cubic", "bbr", "bic", "westwood", "htcp", "hybla", "vegas",
		"scalable", "lp", "veno", "yeah", "illinois", "dctcp", "cdg", "nv", NULL,
	};
	static const char * const tables[] = { "filter", "nat", "mangle", "raw", NULL };
	static const struct { int family, type, proto; const char *name; } socks[] = {
		{ AF_INET, SOCK_STREAM, 0, "TCP" },
		{ AF_INET6, SOCK_STREAM, 0, "TCP over IPv6" },
		{ AF_INET, SOCK_DGRAM, 0, "UDP" },
		{ AF_INET6, SOCK_DGRAM, 0, "UDP over IPv6" },
		{ AF_INET, SOCK_RAW, IPPROTO_ICMP, "raw ICMP" },
		{ AF_INET6, SOCK_RAW, IPPROTO_ICMPV6, "raw ICMPv6" },
		{ AF_INET, SOCK_STREAM, IPPROTO_MPTCP, "MPTCP" },
		{ AF_INET6, SOCK_STREAM, IPPROTO_MPTCP, "MPTCP over IPv6" },
		{ AF_PACKET, SOCK_RAW, 0x0300, "packet" },
		{ AF_PACKET, SOCK_DGRAM, 0x0300, "packet, cooked" },
		{ AF_UNIX, SOCK_SEQPACKET, 0, "unix" },
	};
	char buf[4096], word[32];
	struct nlmsg m;
	int dev, ret;
	unsigned int i;
	uint64_t t;
	long s;

	start(60);
	boot("mem=64M loglevel=0");
	lkl_mount_fs("proc");

	for (i = 0; i < sizeof(socks) / sizeof(socks[0]); i++) {
		s = L3(socket, socks[i].family, socks[i].type, socks[i].proto);
		ok(s >= 0, "%s socket", socks[i].name);
	}

	for (i = 1, s = 0; i < 16; i++)
		s += !lkl_if_up(i);
	ok(s == 1, "%ld interface at first", s);
	ok(!link_add("dummy0", "dummy", NULL, 0), "dummy");
	dev = ifindex("dummy0");
	ok(!link_add("veth0", "veth", veth_peer, 0) && ifindex("veth1") > 0, "veth");
	ok(!link_add("br0", "bridge", NULL, 0), "bridge");
	ok(!link_add("ifb7", "ifb", NULL, 0), "ifb");
	ok(!link_add("vlan7", "vlan", vlan_id, dev), "vlan");
	ok(!lkl_if_up(dev), "dummy up");
	ok(!set_group(dev, 7), "device group");
	ok(!rule_add(AF_INET) && !rule_add(AF_INET6), "policy routing");

	for (i = 0; plain[i]; i++) {
		ret = qdisc_add(dev, plain[i], NULL);
		if (!strcmp(plain[i], "pfifo") || strcmp(plain[i], "prio"))
			ok(!ret, "qdisc %s: %d", plain[i], ret);
		else
			ok(!ret || ret == -EINVAL, "qdisc prio: %d", ret);
	}
	ok(!qdisc_add(dev, "tbf", tbf_fill), "qdisc tbf");
	ok(!qdisc_add(dev, "htb", htb_fill), "qdisc htb");
	ok(!netem_add(dev), "qdisc netem");

	/* known if the error is not "no such kind" */
	nl_start(&m, RTM_NEWQDISC, NLM_F_CREATE, sizeof(struct tcmsg));
	((struct tcmsg *)NLMSG_DATA(&m.n))->tcm_ifindex = dev;
	((struct tcmsg *)NLMSG_DATA(&m.n))->tcm_parent = TC_H_CLSACT;
	nl_str(&m, TCA_KIND, "clsact");
	nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
	ok(!filter_add(dev, "matchall"), "filter matchall");
	ok(filter_add(dev, "u32") != -ENOENT, "filter u32");
	ok(filter_add(dev, "bpf") != -ENOENT, "filter bpf");
	ok(filter_add(dev, "flower") != -ENOENT, "filter flower");
	ret = filter_add(dev, "nonsense");
	ok(ret == -ENOENT, "and no other: %d", ret);

	lread_file("/proc/sys/net/ipv4/tcp_available_congestion_control", buf,
		   sizeof(buf));
	buf[strcspn(buf, "\n")] = ' ';
	for (i = 0; cc[i]; i++) {
		snprintf(word, sizeof(word), "%s ", cc[i]);
		ok(strstr(buf, word) != NULL, "congestion control %s", cc[i]);
	}

	ok(diag(AF_INET, IPPROTO_TCP) >= 0, "sock_diag of TCP");
	ok(diag(AF_INET6, IPPROTO_UDP) >= 0, "sock_diag of UDP");
	ok(diag(AF_INET, IPPROTO_RAW) >= 0, "sock_diag of raw");
	ok(diag(AF_INET, IPPROTO_MPTCP) >= 0, "sock_diag of MPTCP");
	ok(diag(AF_PACKET, 0) >= 2, "sock_diag of packet");
	ok(diag(AF_UNIX, 0) >= 1, "sock_diag of unix");
	ok(diag(AF_NETLINK, 0xff) >= 1, "sock_diag of netlink");
	ok(genl_family("mptcp_pm") > 0, "MPTCP path manager");
	ok(genl_family("ethtool") > 0, "ethtool over netlink");

	ok(!nft_table(1 /* inet */) && !nft_table(2) && !nft_table(10), "nf_tables: inet, ip, ip6");
	ok(!nft_table(3) && !nft_table(7) && !nft_table(5), "nf_tables: arp, bridge, netdev");
	for (i = 0; tables[i]; i++) {
		ret = xt_table(AF_INET, tables[i]);
		ok(!ret, "iptables %s: %d", tables[i], ret);
		ret = xt_table(AF_INET6, tables[i]);
		ok(!ret, "ip6tables %s: %d", tables[i], ret);
	}

	ok(!link_add("gt0", "gretap", gre_ends, 0) && !lkl_if_up(ifindex("gt0")),
	   "gretap");
	for (t = now_ns(); received("gt0") < 2 && now_ns() - t < 10e9;)
		sched_yield();
	ok(received("gt0") >= 2 && L0(getpid) == 1, "Ethernet within GRE arrives: %ld",
	   received("gt0"));

	ok(!L1(unshare, CLONE_NEWNET) && ifindex("dummy0") < 0, "network namespaces");
	ok(lread_file("/proc/self/net/dev", buf, sizeof(buf)) >= 0, "/proc/net of one");
	lkl_sys_halt();
	return finish();
}
