/* SPDX-License-Identifier: GPL-2.0-only */
/* What each process of the target had of which stack. */
#ifndef LKLHOST_ACCOUNT_H
#define LKLHOST_ACCOUNT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_PEERS	8

struct conn;

/* What became of a connection, and so of MPTCP. */
enum account_kind {
	ACCOUNT_NONE,		/* no stream, or never open */
	ACCOUNT_TCP,		/* MPTCP was not asked for */
	ACCOUNT_MPTCP,
	ACCOUNT_OPTION,		/* TCP for an option that MPTCP has not */
	ACCOUNT_PEER,		/* TCP, as the peer answered without MPTCP */
	ACCOUNT_LATER,		/* agreed on, and given up on the way */
	ACCOUNT_KINDS
};

/**
 * struct account_peer - with whom, and how many bytes both ways
 * @addr: its address and port; port 0 for one that connected to us
 * @proto: "tcp" or "udp"
 */
struct account_peer {
	struct sockaddr_in6 addr;
	const char *proto;
	uint64_t bytes;
};

/**
 * struct account - of one process
 * @refs: connections that point here
 * @given: sockets of the stack, @refused: that it has not, @hosted: of the host's
 * @strays: sockets of the host's that came from elsewhere, and were refused
 * @in, @out: bytes received and sent
 * @kinds: connections, by enum account_kind
 * @peers: those with most bytes, about; @n_peers of them
 * @others: bytes with others
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

void account_begin(struct conn *conn, struct account *a);
void account_peer(struct conn *conn);
void account_end(struct conn *conn);
void account_fold_all(void);
void account_bytes(struct account *a, const struct sockaddr_in6 *addr,
		   const char *proto, uint64_t bytes);
void account_add(struct account *to, const struct account *a);
size_t account_print(const struct account *a, const char *prefix, char *buf,
		     size_t len);

#endif
