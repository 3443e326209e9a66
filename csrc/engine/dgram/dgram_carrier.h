/* SPDX-License-Identifier: GPL-2.0-only */
/* The carrier of a datagram socket, for this room. */
#ifndef LKLHOST_DGRAM_CARRIER_H
#define LKLHOST_DGRAM_CARRIER_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "engine/carrier/dgram_conn.h"

struct origin;

#define DGRAMS		64	/* messages moved per call */
#define QUEUE_MAX	2048	/* queue length of a carrier, see netns_private() */
#define DGRAM_EVENTS	(EPOLLIN | EPOLLRDHUP | EPOLLET)

void dgram_retry(void);
int dgram_want_room(struct conn *conn, bool want);
int dgram_our_end(struct dgram *d);
ssize_t dgram_put(struct dgram *d, const char *buf, size_t len, size_t size,
		  const struct origin *o);
void dgram_store_sent(struct conn *conn, const struct iovec *v, size_t n);
size_t dgram_stored_sent(const struct chunk *ch, struct iovec *v);
size_t dgram_take(struct conn *conn, struct iovec *v);
void dgram_save(struct dgram *d);

#endif
