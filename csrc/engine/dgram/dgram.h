/* SPDX-License-Identifier: GPL-2.0-only */
/* Datagrams: UDP, ICMP and raw sockets, and netlink. */
#ifndef LKLHOST_DGRAM_H
#define LKLHOST_DGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "engine/carrier/dgram_conn.h"

struct call;
struct origin;

#define DGRAM_ROOM	(1 << 20)	/* bytes in a datagram carrier */
#define DGRAM_MAX	(256 * 1024)	/* bytes in a message, also of netlink */

/* dgram.c, dgram_msg.c */
int dgram_start(struct dgram *d);
int64_t dgram_connect(struct call *c, const struct sockaddr_storage *ss,
		      socklen_t len);
int64_t dgram_sendto(struct call *c);
int64_t dgram_recvfrom(struct call *c);
int64_t dgram_sendmsg(struct call *c);
int64_t dgram_recvmsg(struct call *c);
int64_t dgram_sendmmsg(struct call *c);
int64_t dgram_recvmmsg(struct call *c);
int dgram_fetch(struct dgram *d);
void dgram_want_out(struct conn *conn);
void dgram_kick(struct dgram *d);
void dgram_flush(struct dgram *d);
void dgram_flush_all(struct dgram *d);
void dgram_gone(struct dgram *d);
int netlink_start(struct dgram *d, int cfd);

/* dgram_carrier.c */
int dgram_attach(struct dgram *d, int dup);

/* dgram_run.c */
void dgram_run_start(struct dgram *d);
void dgram_run_many(struct dgram *d);
void dgram_run_received(struct dgram *d, size_t size, unsigned int n);
size_t dgram_run_split(const struct dgram *d, struct msghdr *mh, size_t len);
size_t dgram_run_length(const struct dgram *d, const struct iovec *v, size_t n);
int dgram_run_send(struct dgram *d, struct iovec *v, size_t n);
void dgram_run_again(struct dgram *d);
bool dgram_run_option(struct dgram *d, int level, int name, const void *value,
		      int len);
bool dgram_run_value(const struct dgram *d, int level, int name, int *value);

/* dgram_error.c */
void dgram_failed(struct dgram *d, int err);
void dgram_raise(struct dgram *d, int dup);
int dgram_take_error(struct dgram *d, int dup);
void dgram_look_again(struct dgram *d, int dup);
void dgram_queue_read(struct dgram *d, int dup);
int dgram_sndbuf(int domain);
int dgram_disconnect(struct dgram *d, int dup);

/* peer.c */
unsigned int peers_count(void);
void peers_stop(void);

#endif
