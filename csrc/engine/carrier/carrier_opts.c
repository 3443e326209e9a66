// SPDX-License-Identifier: GPL-2.0-only
/* Socket options that the carrier has as well as the stack's socket. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>

#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/stream_conn.h"
#include "stack/stack.h"

#define OPT_RCVTIMEO_OLD	20
#define OPT_SNDTIMEO_OLD	21
#define OPT_RCVTIMEO_NEW	66
#define OPT_SNDTIMEO_NEW	67

/*
 * Options that are also set on the carrier, on which the target's plain calls
 * wait. All other options affect only the stack's socket, which gives them to
 * the sockets that it accepts.
 */
static const int native_too[] = {
	SO_OOBINLINE, OPT_RCVTIMEO_OLD, OPT_SNDTIMEO_OLD, OPT_RCVTIMEO_NEW,
	OPT_SNDTIMEO_NEW, SO_RCVLOWAT, SO_PEEK_OFF, SO_SELECT_ERR_QUEUE,
	SO_SNDBUF,
};

/** carrier_option - set an option on the carrier as well, if it matters there */
void carrier_option(struct call *c, int name, int len)
{
	struct conn *conn = c->conn;
	size_t i;

	for (i = 0; i < sizeof(native_too) / sizeof(native_too[0]); i++) {
		if (native_too[i] != name)
			continue;
		if (conn->kind == KIND_STREAM)
			stream_of(conn)->on_carrier |= 1u << i;
		if (name != SO_SNDBUF)
			setsockopt(c->dup, SOL_SOCKET, name, c->buf,
				   (socklen_t)len);
	}
}

/** carrier_options - set the options of the stack's socket on its new carrier @fd */
void carrier_options(const struct stream *s, int fd)
{
	unsigned int i, rest;

	for (rest = s->on_carrier; rest; rest &= rest - 1) {
		char value[sizeof(int64_t[2])];
		socklen_t len = sizeof(value);
		int half;

		i = (unsigned int)__builtin_ctz(rest);
		if (st_getsockopt(s->conn.sfd, SOL_SOCKET, native_too[i], value,
				  &len))
			continue;
		if (native_too[i] == SO_SNDBUF) {
			memcpy(&half, value, sizeof(half));
			half /= 2;	/* the kernel doubles it, socket(7) */
			memcpy(value, &half, sizeof(half));
		}
		setsockopt(fd, SOL_SOCKET, native_too[i], value, len);
	}
}
