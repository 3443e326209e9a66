// SPDX-License-Identifier: GPL-2.0-only
/* The rules of --host-net, and counters of the sockets to each destination. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/call/call.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"

/* Option numbers from include/uapi/linux/in6.h. */
#define OPT_2292PKTOPTIONS	6
#define OPT_2292RTHDR		5
#define OPT_RTHDR		57

#define RULES_MAX	64
#define PLACES_MAX	64	/* destinations counted individually */

/** struct rule - a chosen destination; port 0 means all ports */
struct rule {
	int family;
	uint8_t addr[16];
	unsigned int bits;
	uint16_t port;
};

/** struct place - a destination, with the number of sockets to it */
struct place {
	int family;
	uint8_t addr[16];
	uint16_t port;
	uint64_t n;
};

static struct rule rules[RULES_MAX];
static unsigned int n_rules;
static struct place places[PLACES_MAX];
static unsigned int n_places;
static uint64_t n_hosted, n_elsewhere;

/**
 * hostnet_add - add a rule
 * @text: ADDRESS/BITS or ADDRESS/BITS,PORT
 */
int hostnet_add(const char *text)
{
	char addr[64];
	unsigned int bits, port = 0;
	struct rule *r = &rules[n_rules];

	if (n_rules == RULES_MAX)
		return -E2BIG;
	if (sscanf(text, "%63[^/]/%u,%u", addr, &bits, &port) < 2 ||
	    port > 65535)
		return -EINVAL;
	memset(r, 0, sizeof(*r));
	r->family = strchr(addr, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(r->family, addr, r->addr) != 1 ||
	    bits > (r->family == AF_INET ? 32u : 128u))
		return -EINVAL;
	r->bits = bits;
	r->port = (uint16_t)port;
	n_rules++;
	return 0;
}

/** hostnet_any - whether there are any rules */
bool hostnet_any(void)
{
	return n_rules;
}

/**
 * dissect - get family, address and port of a socket address
 *
 * An IPv4-mapped IPv6 address is treated as IPv4.
 */
static bool dissect(const struct sockaddr_storage *ss, int64_t len,
		    struct place *p)
{
	memset(p, 0, sizeof(*p));
	p->family = ss->ss_family;
	if (p->family == AF_INET && len >= (int64_t)sizeof(struct sockaddr_in)) {
		const struct sockaddr_in *in = (const void *)ss;

		memcpy(p->addr, &in->sin_addr, 4);
		p->port = ntohs(in->sin_port);
		return true;
	}
	if (p->family == AF_INET6 && len >= 24) {	/* SIN6_LEN_RFC2133 */
		const struct sockaddr_in6 *in6 = (const void *)ss;

		p->port = ntohs(in6->sin6_port);
		if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
			p->family = AF_INET;
			memcpy(p->addr, &in6->sin6_addr.s6_addr[12], 4);
		} else {
			memcpy(p->addr, &in6->sin6_addr, 16);
		}
		return true;
	}
	return false;
}

/** within - whether the first @bits bits of two addresses are equal */
static bool within(const uint8_t *a, const uint8_t *b, unsigned int bits)
{
	unsigned int bytes = bits / 8, rest = bits % 8;

	return !memcmp(a, b, bytes) &&
	       (!rest || !((a[bytes] ^ b[bytes]) >> (8 - rest)));
}

/** hostnet_chosen - whether the host's stack serves this destination */
bool hostnet_chosen(const struct sockaddr_storage *ss, int64_t len)
{
	struct place p;
	unsigned int i;

	if (!dissect(ss, len, &p))
		return false;
	for (i = 0; i < n_rules; i++)
		if (rules[i].family == p.family &&
		    (!rules[i].port || rules[i].port == p.port) &&
		    within(rules[i].addr, p.addr, rules[i].bits))
			return true;
	return false;
}

/** hostnet_count - count a socket of @t under its destination */
void hostnet_count(struct task *t, const struct sockaddr_storage *ss)
{
	struct place p;
	unsigned int i;

	n_hosted++;
	conn_stats.made--;
	task_count_hosted(t);
	dissect(ss, sizeof(*ss), &p);
	for (i = 0; i < n_places; i++)
		if (places[i].family == p.family && places[i].port == p.port &&
		    !memcmp(places[i].addr, p.addr, sizeof(p.addr)))
			break;
	if (i == n_places) {
		if (n_places == PLACES_MAX) {
			n_elsewhere++;
			return;
		}
		places[n_places++] = p;
	}
	places[i].n++;
}

/** hostnet_uncount - record that a socket has returned to the stack */
void hostnet_uncount(struct task *t)
{
	n_hosted--;
	conn_stats.made++;
	task_count_back(t);
}

/** hostnet_stats - write the number of sockets, in total and per destination */
size_t hostnet_stats(char *buf, size_t len)
{
	char addr[INET6_ADDRSTRLEN];
	unsigned int i;
	size_t at = 0;
	int n;

	if (!n_rules)
		return 0;
	n = snprintf(buf, len, "sockets.host %llu\nhosted.elsewhere %llu\n",
		     (unsigned long long)n_hosted,
		     (unsigned long long)n_elsewhere);
	for (i = 0; n >= 0 && (size_t)n < len - at && i < n_places; i++) {
		struct place *p = &places[i];

		at += (size_t)n;
		inet_ntop(p->family, p->addr, addr, sizeof(addr));
		n = snprintf(buf + at, len - at,
			     p->family == AF_INET ? "hosted.%s:%u %llu\n" :
						    "hosted.[%s]:%u %llu\n",
			     addr, p->port, (unsigned long long)p->n);
	}
	return n >= 0 && (size_t)n < len - at ? at + (size_t)n : at;
}

/**
 * hostnet_option - whether a socket may use an option or type of ancillary data
 *
 * A socket of the host may not use options that name intermediate hops of a
 * packet.
 */
bool hostnet_option(const struct conn *conn, int level, int name)
{
	if (!(conn->facts & F_HOSTED))
		return true;
	if (level == IPPROTO_IP)
		return name != IP_OPTIONS && name != IP_RETOPTS;
	if (level == IPPROTO_IPV6)
		return name != OPT_RTHDR && name != OPT_2292RTHDR &&
		       name != OPT_2292PKTOPTIONS;
	return true;
}

/** hostnet_control - hostnet_option() for all ancillary data of a message */
bool hostnet_control(const struct conn *conn, struct msghdr *mh)
{
	struct cmsghdr *cm;

	for (cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm))
		if (!hostnet_option(conn, cm->cmsg_level, cm->cmsg_type))
			return false;
	return true;
}
