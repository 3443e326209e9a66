/* SPDX-License-Identifier: GPL-2.0-only */
/* Streams: TCP and MPTCP. */
#ifndef LKLHOST_STREAM_H
#define LKLHOST_STREAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "engine/carrier/stream_conn.h"

struct call;
struct held;

/* stream_state.c */
void stream_set_state(struct stream *s, enum stream_state to);
void stream_check(const struct stream *s);
void stack_error(struct stream *s, int err);

/* tcp.c, listen.c */
int64_t tcp_connect(struct call *c, const struct sockaddr_storage *ss,
		    socklen_t len);
int64_t tcp_listen(struct call *c);
int64_t tcp_attach(struct stream *s, int dup);
int tcp_watch(struct stream *s);
int stream_watch(struct stream *s,
		 void (*event)(struct stack_src *src, uint32_t events));
int stream_take_error(struct call *c);
int64_t tcp_wait(struct call *c, bool now,
		 int64_t (*retry)(struct call *, struct held *), uint64_t done,
		 int64_t ret);
int64_t tcp_accept(struct call *c);

/* pump.c */
void tcp_carrier_event(struct source *src, uint32_t events);
void pump(struct work *w);
void pump_flush(struct stream *s);
size_t pump_unsent(const struct stream *s);

/* half_close.c */
int64_t stream_half_close(struct call *c);

/* stream_msg.c */
int64_t tcp_recv(struct call *c);
int64_t tcp_send(struct call *c);
int64_t tcp_recvmmsg(struct call *c);
int64_t tcp_sendmmsg(struct call *c);
int64_t stream_send_try(struct call *c, struct held *h);

/* fastopen.c */
int64_t fastopen_send(struct call *c);

/* fallback.c */
int64_t fallback_to_tcp(struct call *c, int level, int name, const void *value,
			int len, int64_t ret);
int64_t fallback_reconnect(struct call *c);
int64_t fallback_get(const struct conn *conn, int level, int name, void *value,
		     socklen_t *len, int64_t ret);

/* orphan_mptcp.c */
bool orphan_mptcp_take(const struct stream *s);
void orphan_mptcp_stop(void);

#endif
