// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams: connect and send in one call (MSG_FASTOPEN).
 *
 * Theory of operation
 *
 * The stack gets the data together with the connect. It returns the number of
 * bytes that it sends with the SYN, or EINPROGRESS if it has no cookie and
 * sends none. In both cases a connect is in progress, which continues like any
 * other (tcp.c). A blocking caller is held until the rest is sent.
 * TCP_FASTOPEN_CONNECT needs no code here: its connect returns at once, and the
 * stack sends the SYN with the first data.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

/** fastopen_retry - retry a held call: when connected, send the rest */
static int64_t fastopen_retry(struct call *c, struct held *h)
{
	struct conn *conn = c->conn;
	struct stream *s = stream_of(conn);
	int err = conn->so_error;
	int64_t ret;

	switch (s->state) {
	case STREAM_CONNECTING:
		return CALL_HELD;
	case STREAM_OPEN:
		ret = conn->csrc.fd < 0 ? tcp_attach(s, c->dup) : 0;
		if (ret)
			return ret;
		h->quit = NULL;
		return stream_send_try(c, h);
	default:
		conn->so_error = 0;
		return err ? -err : -ECONNABORTED;
	}
}

/** fastopen_send - handle sendto(2) or sendmsg(2) with MSG_FASTOPEN */
int64_t fastopen_send(struct call *c)
{
	struct conn *conn = c->conn;
	struct stream *s = stream_of(conn);
	struct sockaddr_storage ss;
	struct user_msg um;
	int64_t len, ret;
	size_t n;

	ret = msg_get(c, &um);
	if (ret)
		return ret;
	len = um.name ? addr_read(c, um.name, um.namelen, &ss) : 0;
	if (len < 0)
		return len;
	if (c->begun && s->state == STREAM_OPEN)
		return tcp_send(c);	/* the rest */
	if (s->state == STREAM_CONNECTING)
		return -EALREADY;
	if (s->state != STREAM_NEW)
		return -EISCONN;
	if (!len)
		return -EINVAL;
	ret = hostnet_send(c, &ss, len);
	if (ret)
		return ret;
	conn_sweep_few(KIND_STREAM);
	n = um.total < CALL_BUF_SIZE ? um.total : CALL_BUF_SIZE;
	ret = msg_get_data(c, &um, 0, c->buf, n);
	if (!ret)
		ret = tcp_watch(s);
	if (ret)
		return ret;
	ret = st_sendto(conn->sfd, c->buf, n,
			MSG_FASTOPEN | MSG_DONTWAIT | MSG_NOSIGNAL, &ss, len);
	if (ret < 0 && ret != -EINPROGRESS)
		return ret;
	stream_set_state(s, STREAM_CONNECTING);
	c->begun = true;
	if (ret > 0)
		conn->bytes_out += (uint64_t)ret;
	return tcp_wait(c, um.flags & MSG_DONTWAIT, fastopen_retry,
			ret > 0 ? (uint64_t)ret : 0, ret);
}
