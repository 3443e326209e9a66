/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lets a library's MPTCP accept the addresses that a server announces, like `ip
 * mptcp limits`, with the calls of kernel.h.
 */
#ifndef BENCH_MPTCP_H
#define BENCH_MPTCP_H

#include <linux/genetlink.h>
#include <linux/mptcp.h>
#include <linux/netlink.h>
#include <stdint.h>
#include <sys/socket.h>

#include "kernel.h"

/**
 * struct question - a message to generic netlink
 * @nl: its header
 * @genl: header of its generic netlink family
 * @attrs: attributes
 */
struct question {
	struct nlmsghdr nl;
	struct genlmsghdr genl;
	char attrs[64];
};

/**
 * attribute - append an attribute
 * @q: the message
 * @type: its number
 * @value: its value
 * @len: of @value
 */
static inline void attribute(struct question *q, int type, const void *value, size_t len)
{
	struct nlattr *a = (struct nlattr *)((char *)q + q->nl.nlmsg_len);

	a->nla_type = (uint16_t)type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + len);
	memcpy((char *)a + NLA_HDRLEN, value, len);
	q->nl.nlmsg_len += (uint32_t)NLA_ALIGN(a->nla_len);
}

/**
 * ask - send a message and receive the answer
 * @fd: netlink socket
 * @q: message
 * @reply: buffer for the answer
 * @size: of @reply
 *
 * Return: the answer's length
 */
static inline long ask(long fd, struct question *q, void *reply, size_t size)
{
	struct nlmsghdr *nl = reply;
	long len;

	len = sys(SYS_write, fd, (long)q, q->nl.nlmsg_len);
	if (len < 0)
		die("asking netlink", len);
	len = sys(SYS_read, fd, (long)reply, (long)size);
	if (len < (long)sizeof(*nl))
		die("netlink's answer", len);
	if (nl->nlmsg_type == NLMSG_ERROR && *(int *)NLMSG_DATA(nl) < 0)
		die("netlink", *(int *)NLMSG_DATA(nl));
	return len;
}

/**
 * mptcp_limits - allow more subflows, to addresses that the peer announces
 * @most: limit for both
 */
static inline void mptcp_limits(uint32_t most)
{
	struct question q = {
		.nl = { .nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN, .nlmsg_type = GENL_ID_CTRL, .nlmsg_flags = NLM_F_REQUEST },
		.genl = { .cmd = CTRL_CMD_GETFAMILY, .version = 1 },
	};
	char reply[4096] __attribute__((aligned(NLA_ALIGNTO)));
	struct nlattr *a;
	long fd, len, at;

	fd = sys(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
	if (fd < 0)
		die("netlink socket", fd);
	attribute(&q, CTRL_ATTR_FAMILY_NAME, MPTCP_PM_NAME, sizeof(MPTCP_PM_NAME));
	len = ask(fd, &q, reply, sizeof(reply));
	q.nl.nlmsg_type = 0;
	for (at = NLMSG_HDRLEN + GENL_HDRLEN; at + NLA_HDRLEN <= len; at += NLA_ALIGN(a->nla_len)) {
		a = (struct nlattr *)(reply + at);
		if (a->nla_len < NLA_HDRLEN)
			break;
		if (a->nla_type == CTRL_ATTR_FAMILY_ID)
			q.nl.nlmsg_type = *(uint16_t *)((char *)a + NLA_HDRLEN);
	}
	if (!q.nl.nlmsg_type)
		die("MPTCP's netlink family", -ENOENT);
	q.nl.nlmsg_len = NLMSG_HDRLEN + GENL_HDRLEN;
	q.nl.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	q.genl.cmd = MPTCP_PM_CMD_SET_LIMITS;
	attribute(&q, MPTCP_PM_ATTR_RCV_ADD_ADDRS, &most, sizeof(most));
	attribute(&q, MPTCP_PM_ATTR_SUBFLOWS, &most, sizeof(most));
	ask(fd, &q, reply, sizeof(reply));
	len = sys(SYS_close, fd);
	if (len < 0)
		die("close", len);
}

#endif
