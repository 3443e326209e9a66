/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The messages between lklrun and an lklhost that is a gateway (--gateway), on a
 * socket of type SOCK_SEQPACKET. internal/link/user/gateway/kernel.go has the same
 * layout.
 */
#ifndef LKLRUN_GATEWAY_PROTO_H
#define LKLRUN_GATEWAY_PROTO_H

#include <stdint.h>

#define GATEWAY_ASK	1	/* to lklrun: connect to dst for src */
#define GATEWAY_ANSWER	2	/* from lklrun: the verdict */
#define GATEWAY_ENDED	3	/* to lklrun: a connection has ended, or did not come about */
#define GATEWAY_ENTER	4	/* from lklrun: connect to dst, as src, for the socket in SCM_RIGHTS */
#define GATEWAY_ENTERED	5	/* to lklrun: this connection is made */
#define GATEWAY_CANCEL	6	/* from lklrun: end the attempt to connect, if it has no result yet */
#define GATEWAY_END	7	/* from lklrun: the socket ends; with GATEWAY_RESET at once */
/* From lklrun, first: send no more to the socket, but shut it down for sending. Once lklrun has
 * read all, with GATEWAY_ACCEPT: send to the one in SCM_RIGHTS, and receive from it, too, after
 * the end of the first. */
#define GATEWAY_REPLACE	8

/* Verdicts, as in enum lkl_gateway_verdict. */
#define GATEWAY_DROP	0
#define GATEWAY_ACCEPT	1	/* with the connected socket in SCM_RIGHTS */
#define GATEWAY_RESET	2
#define GATEWAY_ICMP	3

#define GATEWAY_ID_ENTER	(1ull << 63)

/**
 * struct gateway_msg - a message
 * @kind: GATEWAY_ASK and the following
 * @verdict: of an ANSWER; GATEWAY_RESET in an END and ENDED of a broken connection
 * @id: the same in all messages about a connection, and never used twice. lklrun's have
 *	GATEWAY_ID_ENTER set
 * @src, @dst: of an ASK or ENTER: IPv6 addresses, or IPv4 addresses mapped to them
 * @sport, @dport: of an ASK, and @dport of an ENTER, in network byte order
 * @type, @code: of an ANSWER with GATEWAY_ICMP
 */
struct gateway_msg {
	uint32_t kind, verdict;
	uint64_t id;
	uint8_t src[16], dst[16];
	uint16_t sport, dport;
	uint8_t type, code, pad[2];
};

/* Messages of /proc/lkl_gateway, see drivers/gateway.c in third_party/lkl/arch/lkl. */

/**
 * struct lkl_gateway_ask - read: a connection that the other stack asks for
 * @id: for the answer
 * @src, @dst: IPv6 addresses, or IPv4 addresses mapped to them, in network byte order
 * @sport, @dport: in network byte order
 */
struct lkl_gateway_ask {
	uint64_t id;
	uint8_t src[16], dst[16];
	uint16_t sport, dport;
	uint32_t pad;
};

enum lkl_gateway_verdict {
	LKL_GATEWAY_DROP,	/* no answer: the other stack tries again, and gives up later */
	LKL_GATEWAY_ACCEPT,
	LKL_GATEWAY_RESET,
	LKL_GATEWAY_ICMP,
};

/**
 * struct lkl_gateway_answer - written: what becomes of it
 * @id: that of the ask
 * @verdict: enum lkl_gateway_verdict
 * @listener: with ACCEPT, the listening socket that gets the connection
 * @type, @code: with ICMP, of the error, in the numbers of its family
 */
struct lkl_gateway_answer {
	uint64_t id;
	uint32_t verdict;
	int32_t listener;
	uint8_t type, code;
	uint8_t pad[6];
};

#endif
