// SPDX-License-Identifier: GPL-2.0-only
/* The account of a process as numbers and as text, for both engines. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "engine/common/account.h"

static const char *const kind_names[ACCOUNT_KINDS] = {
	[ACCOUNT_TCP] = "tcp", [ACCOUNT_MPTCP] = "mptcp",
	[ACCOUNT_OPTION] = "fallback-option", [ACCOUNT_PEER] = "fallback-peer",
	[ACCOUNT_LATER] = "fallback-later",
};

/** same_addr - whether two addresses are equal */
static bool same_addr(const struct sockaddr_in6 *a, const struct sockaddr_in6 *b)
{
	if (a->sin6_family != b->sin6_family || a->sin6_port != b->sin6_port)
		return false;
	if (a->sin6_family == AF_INET)
		return !memcmp(&((const struct sockaddr_in *)a)->sin_addr,
			       &((const struct sockaddr_in *)b)->sin_addr, 4);
	return !memcmp(&a->sin6_addr, &b->sin6_addr, 16);
}

/** account_bytes - add @bytes to a peer */
void account_bytes(struct account *a, const struct sockaddr_in6 *addr,
		   const char *proto, uint64_t bytes)
{
	struct account_peer *least = NULL;
	unsigned int i;

	for (i = 0; i < a->n_peers; i++) {
		struct account_peer *p = &a->peers[i];

		if (!strcmp(p->proto, proto) && same_addr(&p->addr, addr)) {
			p->bytes += bytes;
			return;
		}
		if (!least || p->bytes < least->bytes)
			least = p;
	}
	if (a->n_peers < ACCOUNT_PEERS) {
		least = &a->peers[a->n_peers++];
		least->bytes = 0;
	} else if (least->bytes >= bytes) {
		a->others += bytes;
		return;
	}
	a->others += least->bytes;
	least->addr = *addr;
	least->proto = proto;
	least->bytes = bytes;
}

/** account_add - add @a to @to, when the process of @a is no longer listed separately */
void account_add(struct account *to, const struct account *a)
{
	unsigned int i;

	to->given += a->given;
	to->refused += a->refused;
	to->hosted += a->hosted;
	to->strays += a->strays;
	to->in += a->in;
	to->out += a->out;
	for (i = 0; i < ACCOUNT_KINDS; i++)
		to->kinds[i] += a->kinds[i];
	for (i = 0; i < a->n_peers; i++)
		account_bytes(to, &a->peers[i].addr, a->peers[i].proto,
			      a->peers[i].bytes);
	to->others += a->others;
}

/** line - write "PREFIX.NAME VALUE\n"; false if there is no room */
static bool line(char *buf, size_t len, size_t *at, const char *prefix,
		 const char *name, uint64_t value)
{
	int n = snprintf(buf + *at, len - *at, "%s.%s %llu\n", prefix, name,
			 (unsigned long long)value);

	if (n < 0 || (size_t)n >= len - *at)
		return false;
	*at += (size_t)n;
	return true;
}

/** peer_name - "peer PROTO ADDRESS:PORT"; no port if it is 0 */
static void peer_name(const struct account_peer *p, char *name, size_t len)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&p->addr;
	char addr[INET6_ADDRSTRLEN], port[8] = "";
	bool six = p->addr.sin6_family == AF_INET6;

	inet_ntop(six ? AF_INET6 : AF_INET,
		  six ? (const void *)&p->addr.sin6_addr : &in->sin_addr, addr,
		  sizeof(addr));
	if (p->addr.sin6_port)
		snprintf(port, sizeof(port), ":%u", ntohs(p->addr.sin6_port));
	snprintf(name, len, six ? "peer %s [%s]%s" : "peer %s %s%s", p->proto,
		 addr, port);
}

/**
 * account_print - write the lines that are not 0
 * @prefix: identifies the process
 *
 * Returns their length; 0 if there is no room for all, or nothing to write.
 */
size_t account_print(const struct account *a, const char *prefix, char *buf,
		     size_t len)
{
	const struct { const char *name; uint64_t value; } plain[] = {
		{ "stack", a->given }, { "refused", a->refused },
		{ "host", a->hosted },
		{ "foreign", a->strays }, { "received", a->in }, { "sent", a->out },
	};
	char name[96];
	size_t at = 0, i;
	bool ok = true;

	if (!a->given && !a->refused && !a->hosted && !a->strays)
		return 0;
	for (i = 0; i < sizeof(plain) / sizeof(plain[0]) && ok; i++)
		if (plain[i].value || i == 0)
			ok = line(buf, len, &at, prefix, plain[i].name,
				  plain[i].value);
	for (i = ACCOUNT_TCP; i < ACCOUNT_KINDS && ok; i++)
		if (a->kinds[i])
			ok = line(buf, len, &at, prefix, kind_names[i],
				  a->kinds[i]);
	for (i = 0; i < a->n_peers && ok; i++) {
		peer_name(&a->peers[i], name, sizeof(name));
		ok = line(buf, len, &at, prefix, name, a->peers[i].bytes);
	}
	if (a->others && ok)
		ok = line(buf, len, &at, prefix, "peer others", a->others);
	return ok ? at : 0;
}
