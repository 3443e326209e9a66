// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tables of iptables and ip6tables. Socket options read and replace a whole
 * table. The values of these options are larger than those of others and
 * contain a pointer.
 *
 * The structures are in include/uapi/linux/netfilter_ipv4/ip_tables.h. IPv6 has
 * the same option numbers and the same layout of the fields used here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <linux/netfilter_ipv4/ip_tables.h>	/* after netinet/in.h */
#include <stdlib.h>
#include <string.h>

#include "engine/call/call.h"
#include "engine/carrier/conn.h"
#include "engine/sock/sock.h"
#include "stack/stack.h"

#define TABLE_MAX	(4 << 20)	/* bytes, for about 25,000 rules */

/** netfilter_opt_is - whether this file handles the option */
bool netfilter_opt_is(int level, int name)
{
	return (level == IPPROTO_IP || level == IPPROTO_IPV6) &&
	       (name == IPT_SO_SET_REPLACE || name == IPT_SO_SET_ADD_COUNTERS);
}

/**
 * copy_in - copy @len bytes from the caller
 *
 * Returns the copy, or NULL; sets @ret to 0 or a negative errno.
 */
static void *copy_in(const struct call *c, uint64_t addr, size_t len,
		     int64_t *ret)
{
	void *buf;

	*ret = -ENOMEM;
	if (len > TABLE_MAX)
		return NULL;
	buf = malloc(len ? len : 1);
	if (!buf)
		return NULL;
	*ret = mem_read(c, addr, buf, len);
	if (!*ret)
		return buf;
	free(buf);
	return NULL;
}

/**
 * replace - set a new table, and copy the counters of the old one to the caller
 */
static int64_t replace(const struct call *c, int level, void *value, int len)
{
	struct ipt_replace *r = value;
	uint64_t to = (uint64_t)(uintptr_t)r->counters;
	size_t size = (size_t)r->num_counters * sizeof(*r->counters);
	int64_t ret;

	if (size > TABLE_MAX)
		return -ENOMEM;
	r->counters = calloc(1, size ? size : 1);
	if (!r->counters)
		return -ENOMEM;
	ret = st_setsockopt(c->conn->sfd, level, IPT_SO_SET_REPLACE, r, len);
	/* The new table is active: as in the kernel, ignore a write error. */
	if (!ret)
		(void)mem_write(c, to, r->counters, size);
	free(r->counters);
	return ret;
}

/** netfilter_opt_set - handle setsockopt(2) */
int64_t netfilter_opt_set(const struct call *c)
{
	int level = (int)c->args[1], name = (int)c->args[2];
	int len = (int)c->args[4];
	int64_t ret;
	void *value;

	if (len < 0)
		return -EINVAL;
	value = copy_in(c, c->args[3], (size_t)len, &ret);
	if (!value)
		return ret;
	if (name == IPT_SO_SET_REPLACE)
		ret = (size_t)len < sizeof(struct ipt_replace) ? -EINVAL :
		      replace(c, level, value, len);
	else
		ret = st_setsockopt(c->conn->sfd, level, name, value, len);
	free(value);
	return ret;
}

/** netfilter_opt_get - handle getsockopt(2) with a buffer of @len bytes */
int64_t netfilter_opt_get(const struct call *c, int len)
{
	socklen_t got = (socklen_t)len;
	int64_t ret;
	void *value;

	value = copy_in(c, c->args[3], (size_t)len, &ret);
	if (!value)
		return ret;
	ret = st_getsockopt(c->conn->sfd, c->args[1], c->args[2], value, &got);
	if (!ret && got <= (socklen_t)len &&
	    (mem_write(c, c->args[3], value, got) ||
	     mem_write(c, c->args[4], &got, sizeof(got))))
		ret = -EFAULT;
	free(value);
	return ret;
}
