/* SPDX-License-Identifier: GPL-2.0-only */
/* Connects to the stack's loopback addresses that no server accepts. */
#ifndef LKLHOST_LOOPBACK_H
#define LKLHOST_LOOPBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define LOOPBACK_TEXT	32

/**
 * struct loopback - a loopback address, in network byte order
 * @v4: IPv4 address; 0 means ::1
 * @port: port; 0: the address is not a loopback address
 */
struct loopback {
	uint32_t v4;
	uint16_t port;
};

struct loopback loopback_of(const struct sockaddr_storage *ss, socklen_t len);
bool loopback_refused(struct loopback to, char text[LOOPBACK_TEXT]);

#endif
