/* SPDX-License-Identifier: GPL-2.0-only */
/* Names that remote datagram peers have on carriers. */
#ifndef LKLHOST_PEER_H
#define LKLHOST_PEER_H

#include <stdint.h>
#include <sys/socket.h>

#define PEER_NAME_MAX	32
#define PEER_CTL_MAX	128

/**
 * struct origin - where a datagram came from
 * @namelen, @name: the sender's address
 * @ctllen, @ctl: ancillary data that came with it
 */
struct origin {
	uint32_t namelen;
	uint32_t ctllen;
	char name[PEER_NAME_MAX];
	char ctl[PEER_CTL_MAX];
};

void origin_set(struct origin *o, const struct msghdr *mh);
int peer_socket(const struct origin *o);
const struct origin *peer_origin(uint32_t id);
void peers_stop(void);

#endif
