/* SPDX-License-Identifier: GPL-2.0-only */
/* Names of remote datagram peers on carriers. */
#ifndef LKLHOST_PEER_H
#define LKLHOST_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define PEER_NAME_MAX	32
#define PEER_CTL_MAX	320

/**
 * struct origin - the source of a datagram
 * @namelen, @name: the sender's address
 * @ctllen, @ctl: its ancillary data; the rest of @ctl is not set
 */
struct origin {
	uint32_t namelen;
	uint32_t ctllen;
	char name[PEER_NAME_MAX];
	char ctl[PEER_CTL_MAX];
};

void origin_set(struct origin *o, const struct msghdr *mh);
size_t origin_size(const struct origin *o);
bool origin_same(const struct origin *a, const struct origin *b);
int peer_socket(const struct origin *o);
void peer_want_out(const struct origin *o, void (*fn)(void));
const struct origin *peer_origin(uint32_t id);

#endif
