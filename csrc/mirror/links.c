// SPDX-License-Identifier: GPL-2.0-only
/*
 * The devices of the mirror: one veth pair for every Ethernet device of the
 * stack, made, changed and removed as those are.
 *
 * The far end has the stack's device's name, number, address, MTU and state;
 * the near end is up, always. The loopback device is the far namespace's own.
 * Devices of other kinds (tunnels without a link layer) have no mirror.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/veth.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "host.h"
#include "mirror.h"
#include "stack.h"

#define LINKS_MAX	256
#define MAC_LEN		6

/**
 * struct link - a device of the stack, and its mirror
 * @ifindex: its number; 0: none here
 * @name, @mac, @mtu, @up: as the stack says
 */
struct link {
	int ifindex;
	char name[IFNAMSIZ];
	uint8_t mac[MAC_LEN];
	uint32_t mtu;
	bool up;
};

struct table {
	struct link link[LINKS_MAX];
	size_t n;
};

static struct table now, wanted;
static struct rtnl near = { .fd = -1 }, far = { .fd = -1 };
static int far_ns = -1;

/** find - a link by its number, or NULL */
static struct link *find(struct table *t, int ifindex)
{
	size_t i;

	for (i = 0; i < t->n; i++)
		if (t->link[i].ifindex == ifindex)
			return &t->link[i];
	return NULL;
}

/** links_has - whether device @ifindex of the stack has a mirror */
bool links_has(int ifindex)
{
	return find(&now, ifindex) != NULL;
}

/** same - whether two descriptions of a device agree */
static bool same(const struct link *a, const struct link *b)
{
	return !strcmp(a->name, b->name) && !memcmp(a->mac, b->mac, MAC_LEN) &&
	       a->mtu == b->mtu && a->up == b->up;
}

/** want - note a link of the stack */
static void want(const struct ifinfomsg *info,
		 struct rtattr *attrs[IFLA_MAX + 1])
{
	struct link *l = &wanted.link[wanted.n];
	struct rtattr *name = attrs[IFLA_IFNAME], *mac = attrs[IFLA_ADDRESS];

	if ((info->ifi_type != ARPHRD_ETHER &&
	     info->ifi_type != ARPHRD_LOOPBACK) || wanted.n == LINKS_MAX)
		return;
	if (!name || !attrs[IFLA_MTU] || !mac || RTA_PAYLOAD(mac) != MAC_LEN)
		return;
	memset(l, 0, sizeof(*l));
	l->ifindex = info->ifi_index;
	snprintf(l->name, sizeof(l->name), "%s", (char *)RTA_DATA(name));
	memcpy(l->mac, RTA_DATA(mac), MAC_LEN);
	memcpy(&l->mtu, RTA_DATA(attrs[IFLA_MTU]), sizeof(l->mtu));
	l->up = info->ifi_flags & IFF_UP;
	wanted.n++;
}

/** identity - name, address and MTU into a request */
static void identity(struct rtnl_msg *m, const struct link *l)
{
	rtnl_attr(m, IFLA_IFNAME, l->name, strlen(l->name) + 1);
	if (l->ifindex != MIRROR_LO)
		rtnl_attr(m, IFLA_ADDRESS, l->mac, MAC_LEN);
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

/** remove_pair - of @ifindex; both ends go */
static void remove_pair(int ifindex)
{
	struct rtnl_msg m;

	if (ifindex == MIRROR_LO)
		return;
	rtnl_link(&m, RTM_DELLINK, 0, MIRROR_NEAR + ifindex);
	(void)rtnl_talk(&near, &m);	/* that it is gone is all we want */
}

/** make_pair - for @l */
static int make_pair(const struct link *l)
{
	struct ifinfomsg peer = { .ifi_index = l->ifindex };
	struct rtattr *info, *data, *other;
	char name[IFNAMSIZ];
	struct rtnl_msg m;
	int ret;

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
	ret = rtnl_talk(&near, &m);
	if (ret)
		return ret;
	ret = set_up(&near, MIRROR_NEAR + l->ifindex, true);
	if (!ret && l->up)
		ret = set_up(&far, l->ifindex, true);
	if (ret)
		remove_pair(l->ifindex);
	return ret;
}

/** lo_silent - the far loopback device has no address: nobody answers there */
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

/** change - what stands for @was becomes as @l */
static int change(const struct link *was, const struct link *l)
{
	struct rtnl_msg m;
	int ret = 0;

	if (l->ifindex != MIRROR_LO) {
		rtnl_link(&m, RTM_NEWLINK, 0, MIRROR_NEAR + l->ifindex);
		rtnl_attr(&m, IFLA_MTU, &l->mtu, sizeof(l->mtu));
		ret = rtnl_talk(&near, &m);
	}
	/* Before Linux 6.2 one that is up keeps its name. */
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

/** forget - link @i of the mirror is gone */
static void forget(size_t i)
{
	now.link[i] = now.link[--now.n];
}

/** say - that a device has no mirror; once as long as nothing else fails */
static void say(const struct link *l, int err)
{
	static int last_ifindex, last_err;

	if (l->ifindex == last_ifindex && err == last_err)
		return;
	last_ifindex = l->ifindex;
	last_err = err;
	log_line("packet sockets will not see %s: making its mirror: %s",
		 l->name, strerror(-err));
}

/**
 * links_sync - make the mirror's devices what the stack's are
 *
 * Two devices may have swapped names: what cannot be changed is made anew, when
 * all the rest is done.
 */
int links_sync(void)
{
	struct rtnl stack_rt;
	const struct link *w;
	size_t i;
	int ret;

	ret = rtnl_open(&stack_rt, true, 0);
	if (ret)
		return ret;
	wanted.n = 0;
	ret = rtnl_dump_links(&stack_rt, want);
	rtnl_close(&stack_rt);
	if (ret)
		return ret;
	for (i = now.n; i-- > 0;) {
		w = find(&wanted, now.link[i].ifindex);
		if (w && same(w, &now.link[i]))
			continue;
		if (w && !change(&now.link[i], w)) {
			now.link[i] = *w;
			continue;
		}
		remove_pair(now.link[i].ifindex);
		forget(i);
	}
	for (i = 0; i < wanted.n; i++) {
		w = &wanted.link[i];
		if (links_has(w->ifindex))
			continue;
		ret = w->ifindex == MIRROR_LO ? change(w, w) : make_pair(w);
		if (ret)
			say(w, ret);
		else
			now.link[now.n++] = *w;
	}
	return 0;
}

/** links_open - what is needed of our own namespace; @ns is the mirror's */
int links_open(int ns)
{
	far_ns = ns;
	return rtnl_open(&near, false, 0);
}

/** links_open_far - what is needed of the mirror's, from within */
int links_open_far(void)
{
	return rtnl_open(&far, false, 0);
}

/** links_close - the mirror's namespace ends, and its devices with it */
void links_close(void)
{
	while (now.n)
		remove_pair(now.link[--now.n].ifindex);
	rtnl_close(&near);
	rtnl_close(&far);
}
