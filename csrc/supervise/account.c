// SPDX-License-Identifier: GPL-2.0-only
/*
 * The account of a process: what its connections carried, with whom, and whether
 * by MPTCP.
 *
 * Theory of operation
 *
 * A connection belongs to the process that made or accepted it, whoever has it
 * later. What it carried is added to that one's account when it ends, and up to
 * date whenever somebody asks. Of peers only those with most bytes are kept: a
 * new one takes the place of the least when it has more.
 */
#define _GNU_SOURCE
#include <linux/mptcp.h>
#include <sys/socket.h>

#include "account.h"
#include "conn.h"

#ifndef SOL_MPTCP
#define SOL_MPTCP	284
#endif

/** account_begin - a connection of that account's process */
void account_begin(struct conn *conn, struct account *a)
{
	conn->acct = a;
	a->refs++;
}

/**
 * account_peer - it is connected: note with whom
 *
 * All that connect to a server have ports of their own, which say nothing.
 */
void account_peer(struct conn *conn)
{
	socklen_t len = sizeof(conn->peer);

	if (st_getpeername(conn->sfd, &conn->peer, &len))
		conn->peer.sin6_family = AF_UNSPEC;
	else if (conn->accepted)
		conn->peer.sin6_port = 0;	/* struct sockaddr_in has it there too */
}

/** kind_of - what has become of it so far */
static enum account_kind kind_of(const struct conn *conn)
{
	struct mptcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (conn->kind != KIND_STREAM || !conn->was_open)
		return ACCOUNT_NONE;
	if (!conn->mptcp_asked)
		return ACCOUNT_TCP;
	if (conn->tcp_by_option)
		return ACCOUNT_OPTION;
	/* A connection accepted without MPTCP is a TCP socket. */
	if (st_getsockopt(conn->sfd, SOL_MPTCP, MPTCP_INFO, &info, &len))
		return ACCOUNT_PEER;
	if (!(info.mptcpi_flags & MPTCP_INFO_FLAG_FALLBACK))
		return ACCOUNT_MPTCP;
	return info.mptcpi_flags & MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED ?
	       ACCOUNT_LATER : ACCOUNT_PEER;
}

/** fold - bring the account up to date with the connection */
static void fold(struct conn *conn)
{
	uint64_t in = conn->bytes_in - conn->told_in;
	uint64_t out = conn->bytes_out - conn->told_out;
	struct account *a = conn->acct;
	enum account_kind kind;

	if (!a || conn->sfd < 0 || conn->hosted)
		return;
	kind = kind_of(conn);
	if (kind != conn->told_kind) {
		a->kinds[conn->told_kind]--;
		a->kinds[kind]++;
		conn->told_kind = kind;
	}
	if (conn->peer.sin6_family != AF_UNSPEC && conn->kind != KIND_NETLINK)
		account_bytes(a, &conn->peer, conn->kind == KIND_STREAM ? "tcp" :
			  "udp", in + out);
	a->in += in;
	a->out += out;
	conn->told_in = conn->bytes_in;
	conn->told_out = conn->bytes_out;
}

/** account_end - it is about to be closed */
void account_end(struct conn *conn)
{
	if (!conn->acct)
		return;
	fold(conn);
	conn->acct->refs--;
	conn->acct = NULL;
}

/** account_fold_all - bring all accounts up to date */
void account_fold_all(void)
{
	struct list *pos;

	list_for_each(pos, &conns)
		fold(container_of(pos, struct conn, link));
}
