// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of rtnetlink that the mirror needs, for both the host's kernel and
 * the stack: requests with acknowledgement, and the dump of all links.
 *
 * Both kernels answer within the call, so nothing here waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mirror/internal.h"
#include "stack/stack.h"

#define NL_FLAGS	(SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK)

char mirror_buf[MIRROR_BUF];

/**
 * rtnl_open - open a socket for requests
 * @groups: RTMGRP_* to subscribe to
 */
int rtnl_open(struct rtnl *r, bool in_stack, uint32_t groups)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK, .nl_groups = groups };
	int ret = 0;

	r->in_stack = in_stack;
	if (in_stack) {
		r->fd = (int)st_socket(AF_NETLINK, NL_FLAGS, NETLINK_ROUTE);
		if (r->fd < 0)
			return r->fd;
		ret = (int)st_bind(r->fd, &nl, sizeof(nl));
	} else {
		r->fd = socket(AF_NETLINK, NL_FLAGS, NETLINK_ROUTE);
		if (r->fd < 0)
			return -errno;
		if (bind(r->fd, (struct sockaddr *)&nl, sizeof(nl)))
			ret = -errno;
	}
	if (ret)
		rtnl_close(r);
	return ret;
}

/** rtnl_close - close the socket; does nothing if it is closed already */
void rtnl_close(struct rtnl *r)
{
	if (r->fd < 0)
		return;
	if (r->in_stack)
		st_close(r->fd);
	else
		close(r->fd);
	r->fd = -1;
}

/** rtnl_link - start a request about link @ifindex */
void rtnl_link(struct rtnl_msg *m, uint16_t type, uint16_t flags, int ifindex)
{
	memset(m, 0, sizeof(*m));
	m->hdr.nlmsg_len = NLMSG_LENGTH(sizeof(m->link));
	m->hdr.nlmsg_type = type;
	m->hdr.nlmsg_flags = NLM_F_REQUEST | flags;
	m->link.ifi_index = ifindex;
}

/**
 * rtnl_attr - append an attribute; rtnl_msg has room for all the mirror sends
 */
void rtnl_attr(struct rtnl_msg *m, uint16_t type, const void *data, size_t len)
{
	(void)rtnl_nest(m, type, data, len);
}

/**
 * rtnl_nest - begin an attribute that contains others
 * @head: data of @len bytes to put before them
 */
struct rtattr *rtnl_nest(struct rtnl_msg *m, uint16_t type, const void *head,
			 size_t len)
{
	struct rtattr *a = (struct rtattr *)((char *)m + m->hdr.nlmsg_len);

	a->rta_type = type;
	if (len)
		memcpy(RTA_DATA(a), head, len);
	m->hdr.nlmsg_len += (uint32_t)RTA_SPACE(len);
	a->rta_len = (uint16_t)RTA_LENGTH(len);
	return a;
}

/** rtnl_nest_end - end @nest: it contains all attributes appended since */
void rtnl_nest_end(struct rtnl_msg *m, struct rtattr *nest)
{
	nest->rta_len = (uint16_t)((char *)m + m->hdr.nlmsg_len - (char *)nest);
}

/** rtnl_send - send a request */
static int rtnl_send(const struct rtnl *r, const struct rtnl_msg *m)
{
	long n;

	if (r->in_stack)
		return (int)st_sendto(r->fd, m, m->hdr.nlmsg_len, MSG_DONTWAIT,
				      NULL, 0);
	n = send(r->fd, m, m->hdr.nlmsg_len, MSG_DONTWAIT);
	return n < 0 ? -errno : (int)n;
}

/** rtnl_recv - read the next part of an answer into mirror_buf */
static int rtnl_recv(const struct rtnl *r)
{
	long n;

	if (r->in_stack)
		return (int)st_recvfrom(r->fd, mirror_buf, MIRROR_BUF,
					MSG_DONTWAIT, NULL, NULL);
	n = recv(r->fd, mirror_buf, MIRROR_BUF, MSG_DONTWAIT);
	return n < 0 ? -errno : (int)n;
}

/** rtnl_talk - send a request and wait for its acknowledgement */
int rtnl_talk(const struct rtnl *r, struct rtnl_msg *m)
{
	int n;

	m->hdr.nlmsg_flags |= NLM_F_ACK;
	n = rtnl_send(r, m);
	while (n >= 0) {
		struct nlmsghdr *h = (struct nlmsghdr *)mirror_buf;

		n = rtnl_recv(r);
		for (; n > 0 && NLMSG_OK(h, (unsigned int)n);
		     h = NLMSG_NEXT(h, n))
			if (h->nlmsg_type == NLMSG_ERROR)
				return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
	}
	return n;
}

/** link_parse - index the attributes of a link by type */
static void link_parse(struct nlmsghdr *h, struct rtattr *attrs[IFLA_MAX + 1])
{
	int len = (int)IFLA_PAYLOAD(h);
	struct rtattr *a = IFLA_RTA(NLMSG_DATA(h));

	memset(attrs, 0, (IFLA_MAX + 1) * sizeof(*attrs));
	for (; RTA_OK(a, len); a = RTA_NEXT(a, len))
		if (a->rta_type <= IFLA_MAX)
			attrs[a->rta_type] = a;
}

/** rtnl_dump_links - call @each for every link */
int rtnl_dump_links(const struct rtnl *r,
		    void (*each)(const struct ifinfomsg *info,
				 struct rtattr *attrs[IFLA_MAX + 1]))
{
	struct rtattr *attrs[IFLA_MAX + 1];
	struct rtnl_msg m;
	int n;

	rtnl_link(&m, RTM_GETLINK, NLM_F_DUMP, 0);
	m.hdr.nlmsg_seq = 1;	/* notifications have 0 */
	n = rtnl_send(r, &m);
	while (n >= 0) {
		struct nlmsghdr *h = (struct nlmsghdr *)mirror_buf;

		n = rtnl_recv(r);
		for (; n > 0 && NLMSG_OK(h, (unsigned int)n);
		     h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_seq != 1)
				continue;
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR)
				return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
			if (h->nlmsg_type != RTM_NEWLINK)
				continue;
			link_parse(h, attrs);
			each(NLMSG_DATA(h), attrs);
		}
	}
	return n;
}

/** rtnl_drain - discard all pending notifications */
void rtnl_drain(const struct rtnl *r)
{
	int n;

	do {
		n = rtnl_recv(r);
	} while (n > 0 || n == -ENOBUFS);
}
