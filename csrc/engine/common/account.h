/* SPDX-License-Identifier: GPL-2.0-only */
/* Per-process accounts of the use of the stack. */
#ifndef LKLHOST_ACCOUNT_H
#define LKLHOST_ACCOUNT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_PEERS	8

/* Outcome of a connection with regard to MPTCP. */
enum account_kind {
	ACCOUNT_NONE,		/* not a stream, or never opened */
	ACCOUNT_TCP,		/* MPTCP was not requested */
	ACCOUNT_MPTCP,
	ACCOUNT_OPTION,		/* TCP because of an option that MPTCP lacks */
	ACCOUNT_PEER,		/* TCP: the peer answered without MPTCP */
	ACCOUNT_LATER,		/* negotiated, then fallen back to TCP */
	ACCOUNT_KINDS
};

/**
 * struct account_peer - a peer, and the bytes in both directions
 * @addr: its address and port; port 0 for a peer that connected to us
 * @proto: "tcp" or "udp"
 */
struct account_peer {
	struct sockaddr_in6 addr;
	const char *proto;
	uint64_t bytes;
};

/**
 * struct account - the account of one process
 * @refs: connections that use this account
 * @given: sockets of the stack
 * @refused: refused sockets, of kinds that the stack does not have
 * @hosted: sockets of the host
 * @strays: refused sockets of the host that the process received from elsewhere
 * @in, @out: bytes received and sent
 * @kinds: connections, by enum account_kind
 * @peers: approximately those with the most bytes; @n_peers of them
 * @others: bytes of all other peers
 */
struct account {
	unsigned int refs;
	uint64_t given, refused, hosted, strays;
	uint64_t in, out;
	uint64_t kinds[ACCOUNT_KINDS];
	unsigned int n_peers;
	struct account_peer peers[ACCOUNT_PEERS];
	uint64_t others;
};

void account_bytes(struct account *a, const struct sockaddr_in6 *addr,
		   const char *proto, uint64_t bytes);
void account_add(struct account *to, const struct account *a);
size_t account_print(const struct account *a, const char *prefix, char *buf,
		     size_t len);

#endif
