/* SPDX-License-Identifier: GPL-2.0-only */
/* The data of a stream: TCP and MPTCP. */
#ifndef LKLHOST_STREAM_CONN_H
#define LKLHOST_STREAM_CONN_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "engine/carrier/conn.h"
#include "engine/common/loopback.h"

#define STAMPS_MAX	128
#define TOKENS		4

/*
 * States of a stream. Only stream_set_state() changes them.
 *
 *	state		becomes		when
 *
 *	NEW		CONNECTING	the stack has sent a SYN
 *			OPEN		it is connected at once, or accepted
 *			LISTENING	the target calls listen()
 *	CONNECTING	OPEN		the peer accepts
 *			DONE		the connect fails, the carrier is corked
 *			NEW		the connect fails, the carrier is unused
 *	OPEN		DONE		both ends are shut down, or it is reset
 *	any		NEW		the target disconnects, connects again
 *					after a failure, or listens after a
 *					shutdown: fallback_reconnect()
 *
 * Bits that may be set (in each state also C_GONE, just before the stream is
 * freed):
 *
 *	NEW, CONNECTING, LISTENING	S_IN S_OUT S_WATCHED
 *	OPEN				first the same, later all but C_CONNECTED
 *	DONE				the bits left from OPEN, and C_FAILED
 *
 * While a stream is OPEN:
 *
 *	S_EOF requires S_END	there are no more data after the end
 *	S_BROKEN requires S_ERR	an error is announced, or found by a send
 *	C_SHUT requires S_END	the target gets the end after the last byte
 *	S_SHUT requires C_EOF	the stack gets the end after the last byte
 *	C_HUNG_UP requires S_BROKEN  the target's writes fail only after a reset
 *
 * The IN and OUT bits of both ends, C_WANT_OUT and S_BULK are set and cleared
 * repeatedly. C_PRI and S_PRI are cleared when the urgent byte is passed on.
 * The other bits remain set until the stream is NEW again or is freed.
 */
enum stream_state {
	STREAM_NEW,		/* no peer; connect, bind and listen are valid */
	STREAM_CONNECTING,	/* SYN sent; the carrier may be corked */
	STREAM_OPEN,		/* data are transferred */
	STREAM_LISTENING,	/* the carrier listens too */
	STREAM_DONE,		/* no more data; the target still has the carrier */
};

/**
 * struct cork - filler that makes a carrier unwritable until the peer answers
 * @bytes: number of filler bytes in the carrier; 0 if there is no cork
 * @sndbuf: SO_SNDBUF to restore on the target's end when it is uncorked
 * @dup: duplicate of the target's end, if there is no other way to get one
 *	later; 0: none
 */
struct cork {
	unsigned int bytes;
	int sndbuf;
	int dup;
};

/**
 * enum last_byte - the byte that stays unread in the carrier after the target's
 *	SHUT_WR, see half_close.c
 * @LAST_NONE: there is none
 * @LAST_UNSENT: the target sent it, and the stack does not have it yet
 * @LAST_SENT: the stack has it, or it is our marker
 */
enum last_byte {
	LAST_NONE,
	LAST_UNSENT,
	LAST_SENT,
};

/**
 * struct stamps - timestamps of received data that the target requested
 * @wanted: the option that the target has set; 0 if it has set none
 * @buf, @len: the latest timestamps, as ancillary data, and their length
 */
struct stamps {
	int wanted;
	char buf[STAMPS_MAX];
	size_t len;
};

/**
 * struct listener - fields that only a listening stream uses
 * @tokens: number of tokens in the carrier's queue, see listen.c
 * @token_fd: our ends of the tokens
 * @stashed: the connection of an interrupted accept() waits in @stash_fd, with
 *	its peer's address in @stash_addr
 * @stash_len: length of @stash_addr
 */
struct listener {
	unsigned int tokens;
	int token_fd[TOKENS];
	bool stashed;
	int stash_fd;
	socklen_t stash_len;
	struct sockaddr_storage stash_addr;
};

/**
 * struct stream - a connection of KIND_STREAM
 * @rcvbuf: SO_RCVBUF as set by the target; 0 if not set
 * @on_carrier: options that the target has set on the carrier too, see
 *	native_too[]
 * @last: the byte that stays in the carrier after SHUT_WR
 * @inq_wanted: the target has set TCP_INQ, the number of bytes left to read
 * @aim: loopback address that the stack connects it to
 */
struct stream {
	struct conn conn;
	enum stream_state state;
	int rcvbuf;
	unsigned int on_carrier;
	enum last_byte last;
	bool inq_wanted;
	struct loopback aim;
	struct cork cork;
	struct stamps stamps;
	struct listener listener;
};

/** stream_of - get the stream that @conn is part of */
static inline struct stream *stream_of(const struct conn *conn)
{
	assert(conn->kind == KIND_STREAM);
	return container_of(conn, struct stream, conn);
}

#endif
