/* SPDX-License-Identifier: GPL-2.0-only */
/* Devices of a library with upstream LKL's interface. */
#ifndef LKLHOST_FOREIGN_NETDEV_H
#define LKLHOST_FOREIGN_NETDEV_H

#include <stdbool.h>
#include <stdint.h>

struct netdev_args {	/* its first members, tools/lkl/include/lkl.h */
	void *mac;
	unsigned int offload;
};

/* The library's functions. */
struct foreign_netdev {
	void *(*fd)(int fd);
	int (*add)(void *nd, struct netdev_args *args);
	void (*remove)(int id);		/* NULL: not available */
	int (*get_ifindex)(int id);
	bool old;			/* the old interface */
};

int foreign_netdev_check(int fd, uint32_t kind, uint32_t flags);
int foreign_netdev_add(const struct foreign_netdev *lib, int fd, uint32_t kind,
		       uint32_t flags, const uint8_t mac[6]);

#endif
