/* SPDX-License-Identifier: GPL-2.0-only */
/* Packet sockets: declarations shared by the parts of the mirror. */
#ifndef LKLHOST_MIRROR_INTERNAL_H
#define LKLHOST_MIRROR_INTERNAL_H

#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIRROR_LO	1	/* LOOPBACK_IFINDEX, include/net/flow.h */

/*
 * The ifindex of a near end is MIRROR_NEAR plus the ifindex of the device.
 * Namespaces may contain devices of their own (sit0, ...), which have small
 * numbers.
 */
#define MIRROR_NEAR	(1 << 16)

#define MIRROR_MAC_LEN	6
#define MIRROR_LINKS_MAX	256

/**
 * struct link - a device of the stack, and its mirror
 * @ifindex: its number; 0: none
 * @type: ARPHRD_*
 * @name, @mac, @mtu, @up: as in the stack
 */
struct link {
	int ifindex;
	uint16_t type;
	char name[IFNAMSIZ];
	uint8_t mac[MIRROR_MAC_LEN];
	uint32_t mtu;
	bool up;
};

/* Descriptors that the maker returns: a socket on each side, and a table. */
enum mirror_fd {
	MIRROR_NEAR_SOCKET,
	MIRROR_FAR_SOCKET,
	MIRROR_TABLE,	/* /proc/net/packet of the mirror's namespace */
	MIRROR_FDS
};

/*
 * Options of the packet sockets that carry frames: in the stack, near and far.
 */
struct mirror_option {
	int level, name, value;
};

#define MIRROR_OPTIONS	4
extern const struct mirror_option mirror_options[MIRROR_OPTIONS];

/**
 * struct rtnl - an rtnetlink socket
 * @fd: -1 if closed
 * @in_stack: @fd is a descriptor of the stack
 */
struct rtnl {
	int fd;
	bool in_stack;
};

/**
 * struct rtnl_msg - a request under construction
 * @hdr: its header; @link or @addr follows, depending on the type
 * @attrs: attributes; the length in @hdr includes them
 */
struct rtnl_msg {
	struct nlmsghdr hdr;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg addr;
	};
	char attrs[512];
};

/* A buffer for all data that is read and forwarded within one call; rtnl.c */
#define MIRROR_BUF	(256 * 1024)
extern char mirror_buf[MIRROR_BUF] __attribute__((aligned(4096)));

/* mirror_helper.c */
int maker_make(int fds[MIRROR_FDS]);
int maker_pair(const struct link *l);
int maker_tun(const struct link *l);
int maker_change(const struct link *was, const struct link *l);
void maker_remove(const struct link *l);
int maker_socket(int type, int proto, int flags);

/* rtnl.c */
int rtnl_open(struct rtnl *r, bool in_stack, uint32_t groups);
void rtnl_close(struct rtnl *r);
void rtnl_link(struct rtnl_msg *m, uint16_t type, uint16_t flags, int ifindex);
void rtnl_attr(struct rtnl_msg *m, uint16_t type, const void *data, size_t len);
struct rtattr *rtnl_nest(struct rtnl_msg *m, uint16_t type, const void *head,
			 size_t len);
void rtnl_nest_end(struct rtnl_msg *m, struct rtattr *nest);
int rtnl_talk(const struct rtnl *r, struct rtnl_msg *m);
int rtnl_dump_links(const struct rtnl *r,
		    void (*each)(const struct ifinfomsg *info,
				 struct rtattr *attrs[IFLA_MAX + 1]));
void rtnl_drain(const struct rtnl *r);

/**
 * link_is_tun - whether packets of the device begin with an IP header, so that
 * its mirror is a tun
 */
static inline bool link_is_tun(const struct link *l)
{
	return l->type == ARPHRD_NONE || l->type == ARPHRD_RAWIP;
}

/* links.c */
int links_sync(void);
void links_close(void);

/* frames.c */
int frames_open(int near_fd, int far_fd);
int frames_start(void);
int frames_link(int ifindex, int tun);
void frames_unlink(int ifindex);
void frames_stop(void);
void frames_close(void);
int frames_stack_fd(void);

#endif
