// SPDX-License-Identifier: GPL-2.0-only
/*
 * The devices of the mirror: one veth pair for every Ethernet device of the
 * stack, which is created, changed and removed together with it.
 *
 * The far end has the name, number, address, MTU and state of the stack's
 * device. The near end is always up. The loopback device is that of the far
 * namespace. Devices of other kinds (tunnels without a link layer) have no
 * mirror.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "mirror/internal.h"
#include "stack/stack.h"

#define LINKS_MAX	256
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

/** links_has - whether device @ifindex of the stack has a mirror */
bool links_has(int ifindex)
{
	return find(&now, ifindex) != NULL;
}

/** same - whether two links have the same attributes */
static bool same(const struct link *a, const struct link *b)
{
	return !strcmp(a->name, b->name) && !memcmp(a->mac, b->mac, MAC_LEN) &&
	       a->mtu == b->mtu && a->up == b->up;
}

/** want - record a link of the stack */
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

/** forget - remove link @i of the mirror from the table */
static void forget(size_t i)
{
	now.link[i] = now.link[--now.n];
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
		maker_remove(&now.link[i]);
		forget(i);
	}
	for (i = 0; i < wanted.n; i++) {
		w = &wanted.link[i];
		if (links_has(w->ifindex))
			continue;
		ret = w->ifindex == MIRROR_LO ? maker_change(w, w) :
						maker_pair(w);
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
