/* SPDX-License-Identifier: GPL-2.0-only */
/* Netlink into the stack: build a message, send it, read the answer. */
#ifndef TESTS_NL_H
#define TESTS_NL_H

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include "tap.h"

struct nlmsg {
	struct nlmsghdr n;
	char body[2048];
};

static inline void *nl_start(struct nlmsg *m, int type, int flags, int hdr)
{
	memset(m, 0, sizeof(*m));
	m->n.nlmsg_len = NLMSG_LENGTH(hdr);
	m->n.nlmsg_type = type;
	m->n.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	return NLMSG_DATA(&m->n);
}

static inline struct rtattr *nl_put(struct nlmsg *m, int type, const void *data,
				    int len)
{
	struct rtattr *a = (void *)((char *)m + NLMSG_ALIGN(m->n.nlmsg_len));

	a->rta_type = type;
	a->rta_len = RTA_LENGTH(len);
	if (len)
		memcpy(RTA_DATA(a), data, len);
	m->n.nlmsg_len = NLMSG_ALIGN(m->n.nlmsg_len) + RTA_ALIGN(a->rta_len);
	return a;
}

static inline void nl_str(struct nlmsg *m, int type, const char *s)
{
	nl_put(m, type, s, strlen(s) + 1);
}

static inline void nl_u32(struct nlmsg *m, int type, uint32_t v)
{
	nl_put(m, type, &v, 4);
}

static inline void nl_end(struct nlmsg *m, struct rtattr *nest)
{
	nest->rta_len = (char *)m + NLMSG_ALIGN(m->n.nlmsg_len) - (char *)nest;
}

/*
 * Sends; returns the kernel's answer: an errno, or the number of messages of a
 * dump
 */
static inline int nl_talk(int proto, struct nlmsg *m,
			  void (*each)(struct nlmsghdr *, void *), void *arg)
{
	static char buf[32768];
	long s, n;
	int count = 0, ret = -EPROTO, done = 0;
	struct nlmsghdr *h;

	s = L3(socket, AF_NETLINK, SOCK_RAW, proto);
	if (s < 0)
		return s;
	n = L3(write, s, m, m->n.nlmsg_len);
	if (n < 0)
		ret = n;
	while (n > 0 && !done) {
		n = L3(read, s, buf, sizeof(buf));
		for (h = (void *)buf; n > 0 && NLMSG_OK(h, (unsigned long)n);
		     h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE) {
				ret = count;
				done = 1;
			} else if (h->nlmsg_type == NLMSG_ERROR) {
				ret = ((struct nlmsgerr *)NLMSG_DATA(h))->error;
				if (!ret)
					ret = count;
				done = 1;
			} else {
				count++;
				if (each)
					each(h, arg);
			}
		}
		if (!done)
			n = 1;
	}
	L1(close, s);
	return ret;
}

/* Creates a link of a kind; fill() adds attributes to IFLA_INFO_DATA */
static inline int link_add(const char *name, const char *kind,
			   void (*fill)(struct nlmsg *), int parent)
{
	struct rtattr *info, *data;
	struct nlmsg m;

	nl_start(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
	nl_str(&m, IFLA_IFNAME, name);
	if (parent)
		nl_u32(&m, IFLA_LINK, parent);
	info = nl_put(&m, IFLA_LINKINFO, NULL, 0);
	nl_str(&m, IFLA_INFO_KIND, kind);
	if (fill) {
		data = nl_put(&m, IFLA_INFO_DATA, NULL, 0);
		fill(&m);
		nl_end(&m, data);
	}
	nl_end(&m, info);
	return nl_talk(NETLINK_ROUTE, &m, NULL, NULL);
}

static inline void keep_u16(struct nlmsghdr *h, void *arg)
{
	struct rtattr *a = (void *)((char *)NLMSG_DATA(h) + GENL_HDRLEN);
	int len = h->nlmsg_len - NLMSG_LENGTH(GENL_HDRLEN);

	for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
		if (a->rta_type == CTRL_ATTR_FAMILY_ID)
			*(int *)arg = *(uint16_t *)RTA_DATA(a);
}

static inline int genl_family(const char *name)
{
	struct genlmsghdr *g;
	struct nlmsg m;
	int id = -ENOENT;

	g = nl_start(&m, GENL_ID_CTRL, 0, GENL_HDRLEN);
	g->cmd = CTRL_CMD_GETFAMILY;
	g->version = 1;
	nl_str(&m, CTRL_ATTR_FAMILY_NAME, name);
	nl_talk(NETLINK_GENERIC, &m, keep_u16, &id);
	return id;
}

#endif
