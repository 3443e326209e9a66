// SPDX-License-Identifier: GPL-2.0-only
/* Devices of a library with upstream LKL's interface. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shared/ctl_proto.h"
#include "stack/foreign_netdev.h"

#define VNET_HDR_LEN	12	/* struct virtio_net_hdr_v1 */

#ifndef PACKET_VNET_HDR_SZ	/* Linux 6.4 */
#define PACKET_VNET_HDR_SZ	24
#endif

/* First members of struct lkl_netdev, tools/lkl/include/lkl_host.h. */
struct netdev_old {
	void *ops;
	uint8_t has_vnet_hdr;	/* a bit-field of one bit */
};

struct netdev_new {
	void *ops;
	int id;
	uint8_t has_vnet_hdr;
};

/* Numbers of virtio-net features, include/uapi/linux/virtio_net.h. */
#define OFFLOADS	(1u << 0 | 1u << 1 | 1u << 7 | 1u << 11)

/** tap_setup - set up a tap as the library does when it opens one itself */
static int tap_setup(int fd, uint32_t flags)
{
	int len = VNET_HDR_LEN;
	unsigned int offload = 0;

	if (flags & CTL_LINKF_OFFLOAD)
		offload = TUN_F_CSUM | TUN_F_TSO4;
	if ((flags & CTL_LINKF_VNET_HDR) && ioctl(fd, TUNSETVNETHDRSZ, &len))
		return -errno;
	return ioctl(fd, TUNSETOFFLOAD, offload) ? -errno : 0;
}

/** packet_head - whether a packet socket's header has the library's size */
static bool packet_head(int fd)
{
	int val = 0;
	socklen_t len = sizeof(val);

	return !getsockopt(fd, SOL_PACKET, PACKET_VNET_HDR_SZ, &val, &len) &&
	       val == VNET_HDR_LEN;
}

/**
 * foreign_netdev_check - 0, or -EOPNOTSUPP if the library has no such device
 */
int foreign_netdev_check(int fd, uint32_t kind, uint32_t flags)
{
	if (kind == CTL_LINK_COOKED || kind == CTL_LINK_TUN ||
	    kind == CTL_LINK_WIRE ||
	    flags & (CTL_LINKF_RAWIP | CTL_LINKF_VNET10))
		return -EOPNOTSUPP;
	if (kind == CTL_LINK_PACKET && flags & CTL_LINKF_VNET_HDR &&
	    !packet_head(fd))
		return -EOPNOTSUPP;
	return 0;
}

/**
 * foreign_netdev_add - add a device on @fd to an initialized library
 *
 * Returns its number and closes @fd; or returns a negative errno and leaves @fd
 * open.
 */
int foreign_netdev_add(const struct foreign_netdev *lib, int fd, uint32_t kind,
		       uint32_t flags, const uint8_t mac[6])
{
	static const uint8_t none[6];
	struct netdev_args args = { 0 };
	uint8_t addr[6];
	bool vnet = flags & CTL_LINKF_VNET_HDR;
	void *nd;
	int own, ret;

	ret = kind == CTL_LINK_TAP ? tap_setup(fd, flags) : 0;
	if (ret)
		return ret;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	memcpy(addr, mac, sizeof(addr));
	if (memcmp(mac, none, sizeof(none)))
		args.mac = addr;
	if (flags & CTL_LINKF_OFFLOAD)
		args.offload = OFFLOADS;
	if (flags >> CTL_LINKF_FEATURES_SHIFT)
		args.offload &= flags >> CTL_LINKF_FEATURES_SHIFT;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	nd = lib->fd(own);
	if (!nd) {
		close(own);
		return -ENOMEM;
	}
	if (lib->old)
		((struct netdev_old *)nd)->has_vnet_hdr = vnet;
	else
		((struct netdev_new *)nd)->has_vnet_hdr = vnet;
	ret = lib->add(nd, &args);
	if (ret >= 0)
		close(fd);
	return ret;
}
