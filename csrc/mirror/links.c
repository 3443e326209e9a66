// SPDX-License-Identifier: GPL-2.0-only
/*
 * The devices of the mirror: one veth pair for every Ethernet device of the
 * stack, and one tun for every device without a link layer (tun, WireGuard,
 * cellular). It is created, changed and removed together with the device.
 *
 * The far end, or the tun, has the name, number, address, MTU and state of the
 * stack's device. The near end is always up. The loopback device is that of the
 * far namespace. Devices of other kinds (GRE, for example) have no mirror.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "mirror/internal.h"
#include "stack/stack.h"

#define LINKS_MAX	MIRROR_LINKS_MAX
#define MAC_LEN		MIRROR_MAC_LEN

struct table {
	struct link link[LINKS_MAX];
	size_t n;
};

static struct table now, wanted;

/** find - find a link by its number, or return NULL */
static struct link *find(struct table *t, int ifindex)
{
	size_t i;

	for (i = 0; i < t->n; i++)
		if (t->link[i].ifindex == ifindex)
			return &t->link[i];
	return NULL;
}

/** same - whether two links have the same attributes */
static bool same(const struct link *a, const struct link *b)
{
	return a->type == b->type && a->mtu == b->mtu && a->up == b->up &&
	       !strcmp(a->name, b->name) && !memcmp(a->mac, b->mac, MAC_LEN);
}

/** want - record a link of the stack */
static void want(const struct ifinfomsg *info,
		 struct rtattr *attrs[IFLA_MAX + 1])
{
	struct link *l = &wanted.link[wanted.n];
	struct rtattr *name = attrs[IFLA_IFNAME], *mac = attrs[IFLA_ADDRESS];
	bool has_mac = mac && RTA_PAYLOAD(mac) == MAC_LEN;

	if (wanted.n == LINKS_MAX || !name || !attrs[IFLA_MTU])
		return;
	memset(l, 0, sizeof(*l));
	l->ifindex = info->ifi_index;
	l->type = info->ifi_type;
	if (!link_is_tun(l) && (!has_mac || (l->type != ARPHRD_ETHER &&
					     l->type != ARPHRD_LOOPBACK)))
		return;
	snprintf(l->name, sizeof(l->name), "%s", (char *)RTA_DATA(name));
	if (has_mac)
		memcpy(l->mac, RTA_DATA(mac), MAC_LEN);
	memcpy(&l->mtu, RTA_DATA(attrs[IFLA_MTU]), sizeof(l->mtu));
	l->up = info->ifi_flags & IFF_UP;
	wanted.n++;
}

/** drop - remove link @i of the mirror */
static void drop(size_t i)
{
	frames_unlink(now.link[i].ifindex);
	if (!link_is_tun(&now.link[i]))
		maker_remove(&now.link[i]);
	now.link[i] = now.link[--now.n];
}

/** add - create the mirror of a device */
static int add(const struct link *l)
{
	int tun = -1, ret = 0;

	if (l->ifindex == MIRROR_LO)
		ret = maker_change(l, l);
	else if (link_is_tun(l))
		ret = tun = maker_tun(l);
	else
		ret = maker_pair(l);
	return ret < 0 ? ret : frames_link(l->ifindex, tun);
}

/** say - log that a device has no mirror, once per device and error */
static void say(const struct link *l, int err)
{
	static int last_ifindex, last_err;

	if (l->ifindex == last_ifindex && err == last_err)
		return;
	last_ifindex = l->ifindex;
	last_err = err;
	log_line("packet sockets will not see %s: creating its mirror: %s",
		 l->name, strerror(-err));
}

/**
 * links_sync - make the mirror's devices match those of the stack
 *
 * Two devices may have swapped names. If a link cannot be changed, it is
 * therefore removed, and created again after all others.
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
		if (w && !maker_change(&now.link[i], w)) {
			now.link[i] = *w;
			continue;
		}
		drop(i);
	}
	for (i = 0; i < wanted.n; i++) {
		w = &wanted.link[i];
		if (find(&now, w->ifindex))
			continue;
		ret = add(w);
		if (ret)
			say(w, ret);
		else
			now.link[now.n++] = *w;
	}
	return 0;
}

/** links_close - forget all links; the devices end with their namespace */
void links_close(void)
{
	now.n = 0;
}
