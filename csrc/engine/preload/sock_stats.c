// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics of the program's connections: bytes, peers, and whether they use
 * MPTCP.
 *
 * The kernel is queried when a socket is closed, or when the statistics are
 * requested.
 */
#define _GNU_SOURCE
#include <linux/mptcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/common/account.h"
#include "engine/preload/internal.h"

#ifndef SOL_MPTCP
#define SOL_MPTCP	284
#endif

/**
 * struct tally - statistics of some sockets
 * @acct: the counters, as for any process
 * @connected: counts only connections that the program made
 */
struct tally {
	struct account acct;
	uint64_t connected;
};

static struct tally closed;	/* the tables' lock protects this and all below */
static uint32_t asked;		/* counts requests: marks sockets already seen */

/** ask - make a call in the stack; works on threads with a small stack of their own */
static long ask(long nr, long a, long b, long c, long d, long e)
{
	long args[6] = { a, b, c, d, e };

	return me.top ? stack_raw(nr, args) : lkl.syscall(nr, args);
}

/** option - getsockopt(2) in the stack; returns whether it succeeded */
static bool option(int sfd, int level, int name, void *value, int len)
{
	return !ask(SYS_getsockopt, sfd, level, name, (long)value, (long)&len);
}

/** kind_of_conn - the outcome of MPTCP; @info is valid if @known */
static enum account_kind kind_of_conn(const struct sock *s, bool known,
				      const struct mptcp_info *info)
{
	if (!use_mptcp)
		return ACCOUNT_TCP;
	if (!s->mptcp)
		return ACCOUNT_OPTION;
	/* A connection accepted without MPTCP is a TCP socket. */
	if (!known)
		return ACCOUNT_PEER;
	if (!(info->mptcpi_flags & MPTCP_INFO_FLAG_FALLBACK))
		return ACCOUNT_MPTCP;
	return info->mptcpi_flags & MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED ?
	       ACCOUNT_LATER : ACCOUNT_PEER;
}

/** add - add a socket */
static void add(struct tally *t, const struct sock *s, int sfd)
{
	struct account *a = &t->acct;
	struct mptcp_info info = { 0 };
	struct sockaddr_in6 peer = { 0 };
	int len = sizeof(peer);
	bool known, open;

	if ((s->domain != AF_INET && s->domain != AF_INET6) ||
	    s->type != SOCK_STREAM || s->listening)
		return;
	known = s->mptcp && option(sfd, SOL_MPTCP, MPTCP_INFO, &info, sizeof(info));
	open = !ask(SYS_getpeername, sfd, (long)&peer, (long)&len, 0, 0);
	if (!open && !s->in && !s->out)
		return;
	/* Clients of a server have arbitrary ports, so leave them out. */
	if (s->accepted)
		peer.sin6_port = 0;	/* struct sockaddr_in has the port at the same offset */
	else
		t->connected++;
	a->in += s->in;
	a->out += s->out;
	a->kinds[kind_of_conn(s, known, &info)]++;
	if (!open)
		a->others += s->in + s->out;
	else
		account_bytes(a, &peer, "tcp", s->in + s->out);
}

/** tally_close - record a socket whose last descriptor is closed. Locked. */
void tally_close(struct sock *s, int sfd)
{
	if (!s->told)
		add(&closed, s, sfd);
	s->told = true;
}

/**
 * tally_print - print the connections, and the lines of the process
 * @prefix: "proc.PID.COMM"
 */
size_t tally_print(const char *prefix, char *buf, size_t len)
{
	struct tally t;
	int fd, n;

	lock();
	t = closed;
	asked++;
	for (fd = 0; fd <= max_fd; fd++) {
		struct sock *s = is_sock(fd) ? sock_of(fd) : NULL;

		if (!s || s->told || s->seen == asked)
			continue;
		s->seen = asked;
		add(&t, s, entries[fd].sfd);
	}
	unlock();
	t.acct.given = counts.made;
	t.acct.refused = counts.refused;
	n = snprintf(buf, len, "sockets.connected %llu\n",
		     (unsigned long long)t.connected);
	if (n < 0 || (size_t)n >= len)
		return 0;
	return (size_t)n + account_print(&t.acct, prefix, buf + n,
					 len - (size_t)n);
}
