/* SPDX-License-Identifier: GPL-2.0-only */
/* Datagrams: UDP, ICMP and raw sockets; and netlink. */
#ifndef LKLHOST_DGRAM_H
#define LKLHOST_DGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "engine/supervise/conn.h"

struct call;
struct origin;

#define DGRAM_ROOM	(1 << 20)	/* bytes in a datagram carrier */
#define DGRAM_MAX	(256 * 1024)	/* bytes in a message, netlink too */

/* dgram.c, dgram_msg.c */
int dgram_start(struct conn *conn);
int dgram_our_end(struct conn *conn);
int dgram_put_back(struct conn *conn, const char *buf, size_t len,
		   const struct origin *o);
int64_t dgram_connect(struct call *c, const struct sockaddr_storage *ss,
		      socklen_t len);
int64_t dgram_sendto(struct call *c);
int64_t dgram_recvfrom(struct call *c);
int64_t dgram_sendmsg(struct call *c);
int64_t dgram_recvmsg(struct call *c);
int64_t dgram_sendmmsg(struct call *c);
int64_t dgram_recvmmsg(struct call *c);
void dgram_want_out(struct conn *conn);
void dgram_kick(struct conn *conn);
void dgram_flush(struct conn *conn);
void dgram_gone(struct conn *conn);
int netlink_start(struct conn *conn, int cfd);

/* dgram_error.c */
void dgram_failed(struct conn *conn, int err);
void dgram_raise(struct conn *conn, int dup);
int dgram_take_error(struct conn *conn, int dup);
void dgram_look_again(struct conn *conn, int dup);
void dgram_queue_read(struct conn *conn, int dup);
int dgram_sndbuf(int domain);
int dgram_disconnect(struct conn *conn, int dup);

/* neigh.c */
bool neigh_pending(void);

/* owners.c */
void owners_translate(const struct conn *conn, char *buf, size_t len);

#endif
