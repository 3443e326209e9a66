// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recognize connects to the stack's loopback addresses that no server accepts.
 *
 * The server may be on the host's loopback interface instead. lklrun checks
 * that, and tells the user how to reach it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "engine/common/loopback.h"

#define REPORTS_MAX	16	/* a port scan must not flood lklrun */

/** v4_of - the loopback address that @addr stands for, or 0 */
static uint32_t v4_of(uint32_t addr)
{
	if (addr == htonl(INADDR_ANY))	/* the kernel connects to loopback */
		return htonl(INADDR_LOOPBACK);
	return ntohl(addr) >> 24 == IN_LOOPBACKNET ? addr : 0;
}

/** loopback_of - the loopback address in the argument of a connect */
struct loopback loopback_of(const struct sockaddr_storage *ss, socklen_t len)
{
	struct loopback to = { 0, 0 };
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (ss->ss_family == AF_INET && len >= sizeof(in)) {
		memcpy(&in, ss, sizeof(in));
		to.v4 = v4_of(in.sin_addr.s_addr);
		if (to.v4)
			to.port = in.sin_port;
	} else if (ss->ss_family == AF_INET6 && len >= sizeof(in6)) {
		memcpy(&in6, ss, sizeof(in6));
		if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
			memcpy(&to.v4, &in6.sin6_addr.s6_addr[12], 4);
			to.v4 = v4_of(to.v4);
			if (to.v4)
				to.port = in6.sin6_port;
		} else if (IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) ||
			   IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr)) {
			to.port = in6.sin6_port;
		}
	}
	return to;
}

/**
 * loopback_refused - whether to report that the stack refused a connect
 * @to: where to; any address
 * @text: set to ADDRESS:PORT
 *
 * A program that waits for its server repeats the same address, which is
 * reported once.
 */
bool loopback_refused(struct loopback to, char text[LOOPBACK_TEXT])
{
	static struct loopback told[REPORTS_MAX];
	static unsigned int n;
	const unsigned char *b = (const unsigned char *)&to.v4;
	unsigned int i;

	if (!to.port)
		return false;
	for (i = 0; i < n; i++)
		if (told[i].v4 == to.v4 && told[i].port == to.port)
			return false;
	if (n == REPORTS_MAX)
		return false;
	told[n++] = to;
	if (to.v4)
		snprintf(text, LOOPBACK_TEXT, "%u.%u.%u.%u:%u", b[0], b[1],
			 b[2], b[3], ntohs(to.port));
	else
		snprintf(text, LOOPBACK_TEXT, "[::1]:%u", ntohs(to.port));
	return true;
}
