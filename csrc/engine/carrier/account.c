// SPDX-License-Identifier: GPL-2.0-only
/*
 * The account of a process: the bytes and peers of its connections, and whether
 * they used MPTCP.
 *
 * Theory of operation
 *
 * A connection belongs to the process that created or accepted it, even if
 * another process uses it later. The connection's bytes are added to the
 * account of that process when the connection ends, and whenever the accounts
 * are read. An account keeps only the peers with the most bytes: a new peer
 * replaces the smallest one if it has more bytes.
 */
#define _GNU_SOURCE
#include <linux/mptcp.h>
#include <sys/socket.h>

#include "engine/carrier/conn.h"
#include "engine/common/account.h"

#ifndef SOL_MPTCP
#define SOL_MPTCP	284
#endif

/** account_begin - assign a connection to an account */
void account_begin(struct conn *conn, struct account *a)
{
	conn->acct = a;
	a->refs++;
}

/**
 * account_peer - record the peer of a connected socket
 *
 * A peer that connects to a server has an arbitrary port, so this port is not
 * recorded.
 */
void account_peer(struct conn *conn)
{
	socklen_t len = sizeof(conn->peer);

	if (st_getpeername(conn->sfd, &conn->peer, &len))
		conn->peer.sin6_family = AF_UNSPEC;
	else if (conn->facts & F_ACCEPTED)
		/* The port is at the same offset in struct sockaddr_in. */
		conn->peer.sin6_port = 0;
}

/** kind_of - whether the connection has used MPTCP so far, and if not, why */
static enum account_kind kind_of(const struct conn *conn)
{
	struct mptcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (conn->kind != KIND_STREAM || !(conn->facts & F_WAS_OPEN))
		return ACCOUNT_NONE;
	if (!(conn->facts & F_MPTCP_ASKED))
		return ACCOUNT_TCP;
	if (conn->facts & F_TCP_BY_OPTION)
		return ACCOUNT_OPTION;
	/* A connection accepted without MPTCP is a TCP socket. */
	if (st_getsockopt(conn->sfd, SOL_MPTCP, MPTCP_INFO, &info, &len))
		return ACCOUNT_PEER;
	if (!(info.mptcpi_flags & MPTCP_INFO_FLAG_FALLBACK))
		return ACCOUNT_MPTCP;
	return info.mptcpi_flags & MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED ?
	       ACCOUNT_LATER : ACCOUNT_PEER;
}

/** fold - update the account with the state of the connection */
static void fold(struct conn *conn)
{
	uint64_t in = conn->bytes_in - conn->reported_in;
	uint64_t out = conn->bytes_out - conn->reported_out;
	struct account *a = conn->acct;
	enum account_kind kind;

	if (!a || conn->sfd < 0 || (conn->facts & F_HOSTED))
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
	conn->reported_in = conn->bytes_in;
	conn->reported_out = conn->bytes_out;
}

/** account_end - update the account of a connection about to be closed */
void account_end(struct conn *conn)
{
	if (!conn->acct)
		return;
	fold(conn);
	conn->acct->refs--;
	conn->acct = NULL;
}

/**
 * account_fold_all - update all accounts with the state of their connections
 */
void account_fold_all(void)
{
	struct list *pos;

	list_for_each(pos, &conns)
		fold(container_of(pos, struct conn, link));
}
