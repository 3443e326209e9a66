/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the files that depend on the type of a device's descriptor. */
#ifndef LKL_NETDEV_H
#define LKL_NETDEV_H

#include "internal.h"

/**
 * struct packet_socket - a device's descriptor that is a packet socket
 * @type: SOCK_RAW or SOCK_DGRAM; 0 if it is not a packet socket
 * @ifindex: of the host's device
 * @vnet: size of the virtio-net header before each frame, 0, 10 or 12
 */
struct packet_socket {
	int type;
	int ifindex;
	int vnet;
};

int tap_open(const char *name, int offloads, int *vnet);

int packet_probe(int fd, struct packet_socket *ps);
long packet_read(int fd, const struct packet_socket *ps,
		 const struct lkl_iov *iov, int cnt, int rawip,
		 struct lkl_net_meta *meta);
long packet_write(int fd, const struct packet_socket *ps,
		  const struct lkl_iov *iov, int cnt, unsigned short proto);
int packet_up(int fd, const struct packet_socket *ps);

#endif
