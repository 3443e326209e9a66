// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tun and tap devices of the target, which are devices of the stack.
 *
 * Theory of operation
 *
 * A program opens /dev/net/tun, a file of the host, and names a device with
 * TUNSETIFF. That request never reaches the host's kernel, where the device
 * would be unknown to the stack. Instead, a socket pair carries the packets:
 * one end becomes a device of the stack, and the other end replaces the file in
 * the target. One read or write is one packet, as with a tun, and poll works.
 * The device disappears when the target has closed its end. With TUNSETPERSIST,
 * a copy of that end remains here, and the next TUNSETIFF gets a copy of it.
 *
 * The stack's devices have no packet information (struct tun_pi). If a program
 * wants it, lklhost copies the packets between two socket pairs, one of the
 * target and one of the device, and adds or removes it.
 *
 * Other copies of the file, made before TUNSETIFF, are not replaced. They have
 * no device.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <linux/major.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/list.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/rights.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/space.h"
#include "engine/sock/sock.h"
#include "engine/stream/stream.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define TUN_MINOR	200	/* include/uapi/linux/miscdevice.h */
#define PTMX_MINOR	2	/* drivers/tty/pty.c */
#define TUN_KIND	(IFF_TUN | IFF_TAP)
#define TUN_FEATURES	(TUN_KIND | IFF_NO_PI | IFF_ONE_QUEUE | IFF_VNET_HDR)
#define TUN_TSO		(TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN)

#define TUN_TURN	64	/* packets that are copied at once */

/**
 * struct tun - a device of the target
 * @src: a copy of our end, which reports that the target has closed its end
 * @inner: the device's end of the packets that are copied; otherwise fd is -1
 * @dev: the stack's number of the device
 * @ino: inode number of the target's end
 * @kept: a copy of the target's end for a persistent device, or -1
 * @flags: IFF_TUN or IFF_TAP, IFF_NO_PI and IFF_VNET_HDR
 */
struct tun {
	struct list link;
	struct source src, inner;
	int dev, kept;
	uint64_t ino;
	unsigned int flags;
};

static struct list tuns = LIST_INIT(tuns);

/* The file system of the file in place of /dev/net/tun; 0: there is none. */
static dev_t stand_in;

/** tun_set_stand_in - the target shows the multiplexer of a devpts as /dev/net/tun */
void tun_set_stand_in(unsigned int minor_dev)
{
	stand_in = makedev(UNNAMED_MAJOR, minor_dev);
}

/**
 * is_tun - whether @fd is /dev/net/tun, or the file in its place
 *
 * That file is the only one of its device in its file system, so no other file
 * with the name, and no other multiplexer, is taken for it.
 */
bool is_tun(int fd)
{
	struct stat st;

	if (!fd_stat(fd, &st) || !S_ISCHR(st.st_mode))
		return false;
	return st.st_rdev == makedev(MISC_MAJOR, TUN_MINOR) ||
	       (stand_in && st.st_dev == stand_in &&
		st.st_rdev == makedev(TTYAUX_MAJOR, PTMX_MINOR));
}

/** tun_name - get the current name of a device */
static int64_t tun_name(const struct tun *t, int sfd, struct ifreq *ifr)
{
	memset(ifr, 0, sizeof(*ifr));
	ifr->ifr_ifindex = stack->ifindex(t->dev);
	return st_ioctl(sfd, SIOCGIFNAME, ifr);
}

/** tun_rename - give a new device the name that the target wants */
static int64_t tun_rename(const struct tun *t, int sfd, char name[IFNAMSIZ])
{
	struct ifreq ifr;
	int64_t ret = tun_name(t, sfd, &ifr);

	if (ret)
		return ret;
	strcpy(ifr.ifr_newname, name[0] ? name :
	       t->flags & IFF_TAP ? "tap%d" : "tun%d");
	ret = st_ioctl(sfd, SIOCSIFNAME, &ifr);
	if (!ret)
		ret = tun_name(t, sfd, &ifr);
	memcpy(name, ifr.ifr_name, IFNAMSIZ);
	return ret == -EEXIST ? -EBUSY : ret;
}

/** tun_feature - switch a feature of a device, by an ETHTOOL_S* request */
static int64_t tun_feature(const struct tun *t, int sfd, uint32_t cmd, bool on)
{
	struct ethtool_value value = { .cmd = cmd, .data = on };
	struct ifreq ifr;
	int64_t ret = tun_name(t, sfd, &ifr);

	ifr.ifr_data = (char *)&value;
	return ret ? ret : st_ioctl(sfd, SIOCETHTOOL, &ifr);
}

/**
 * tun_offload - handle ioctl(TUNSETOFFLOAD): what a reader of packets accepts
 *
 * The stack segments packets itself unless the reader accepts all kinds of them.
 */
static int64_t tun_offload(const struct tun *t, int sfd, uint64_t wanted)
{
	bool csum = wanted & TUN_F_CSUM;
	int64_t ret;

	if (!(t->flags & IFF_VNET_HDR))
		return wanted ? -EINVAL : 0;
	if (wanted & ~(uint64_t)(TUN_F_CSUM | TUN_TSO | TUN_F_UFO))
		return -EINVAL;
	ret = tun_feature(t, sfd, ETHTOOL_STXCSUM, csum);
	return ret ? ret : tun_feature(t, sfd, ETHTOOL_STSO,
				       csum && (wanted & TUN_TSO) == TUN_TSO);
}

/**
 * tun_reset_offloads - switch off what the target has not asked for yet
 *
 * A program that writes headers merges packets itself. Those that it writes one
 * by one must arrive so, as with a tun.
 */
static int64_t tun_reset_offloads(const struct tun *t, int sfd)
{
	int64_t ret = tun_feature(t, sfd, ETHTOOL_SGRO, false);

	return ret ? ret : tun_offload(t, sfd, 0);
}

/** tun_link_flags - CTL_LINKF_* of a device, for stack->link_add() */
static uint32_t tun_link_flags(unsigned int flags)
{
	uint32_t f = flags & IFF_TUN ? CTL_LINKF_RAWIP : 0;

	if (flags & IFF_VNET_HDR)
		f |= CTL_LINKF_VNET10 | CTL_LINKF_OFFLOAD;
	return f;
}

/** tun_close_inner - stop the copying of packets */
static void tun_close_inner(struct tun *t)
{
	if (t->inner.fd < 0)
		return;
	loop_del(&t->inner);
	close(t->inner.fd);
	t->inner.fd = -1;
}

/** tun_free - remove a device */
static void tun_free(struct tun *t)
{
	list_del(&t->link);
	if (t->kept >= 0)
		close(t->kept);
	if (t->src.fd >= 0) {
		loop_del(&t->src);
		close(t->src.fd);
	}
	tun_close_inner(t);
	if (t->dev >= 0)
		stack->link_del(t->dev);
	loop_free_later(t);
}

/** tun_protocol - the EtherType of a packet of the device, in network order */
static uint16_t tun_protocol(const struct tun *t, const uint8_t *packet, ssize_t n)
{
	uint16_t type = 0;

	if (t->flags & IFF_TUN)
		return htons(packet[0] >> 4 == 6 ? ETH_P_IPV6 : ETH_P_IP);
	if (n >= ETH_HLEN)
		memcpy(&type, packet + ETH_HLEN - sizeof(type), sizeof(type));
	return type;
}

/**
 * tun_copy - copy packets between the target and the device
 * @to_target: the direction
 *
 * As with a tun, a packet is lost if its reader is too slow.
 */
static void tun_copy(const struct tun *t, bool to_target)
{
	static uint8_t b[sizeof(struct tun_pi) + 2 * sizeof(struct virtio_net_hdr) +
			 ETH_HLEN + UINT16_MAX];
	const size_t pi = sizeof(struct tun_pi);
	int from = to_target ? t->inner.fd : t->src.fd;
	int to = to_target ? t->src.fd : t->inner.fd;
	size_t head = t->flags & IFF_VNET_HDR ? sizeof(struct virtio_net_hdr) : 0;

	for (int i = 0; i < TUN_TURN; i++) {
		uint8_t *at = to_target ? b + pi : b;
		ssize_t n = recv(from, at, (size_t)(b + sizeof(b) - at), MSG_DONTWAIT);

		if (n <= 0)
			return;
		if (to_target) {
			struct tun_pi info = { 0 };

			if ((size_t)n > head)
				info.proto = tun_protocol(t, at + head,
							  n - (ssize_t)head);
			memcpy(b, &info, pi);
			send(to, b, (size_t)n + pi, MSG_DONTWAIT | MSG_NOSIGNAL);
		} else if ((size_t)n > pi) {
			send(to, b + pi, (size_t)n - pi, MSG_DONTWAIT | MSG_NOSIGNAL);
		}
	}
}

/** tun_event - the target has written a packet, or has closed its end */
static void tun_event(struct source *src, uint32_t events)
{
	struct tun *t = container_of(src, struct tun, src);

	if (t->inner.fd >= 0 && events & EPOLLIN)
		tun_copy(t, false);
	if (events & (EPOLLHUP | EPOLLERR))
		tun_free(t);
}

/** tun_inner_event - the device has sent a packet, or has been removed */
static void tun_inner_event(struct source *src, uint32_t events)
{
	struct tun *t = container_of(src, struct tun, inner);

	if (events & EPOLLIN)
		tun_copy(t, true);
	if (events & (EPOLLHUP | EPOLLERR))
		tun_close_inner(t);
}

/**
 * tun_add_inner - copy the packets of a device, to add packet information
 * @fd: the device's end, replaced by that of the second socket pair
 */
static int64_t tun_add_inner(struct tun *t, int *fd)
{
	int sv[2];
	int64_t ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	t->inner.fn = tun_inner_event;
	t->inner.fd = sv[1];
	ret = loop_add(&t->inner, EPOLLIN);
	if (ret) {
		close(sv[0]);
		close(sv[1]);
		t->inner.fd = -1;
		return ret;
	}
	close(*fd);
	*fd = sv[0];
	return 0;
}

/**
 * tun_make - make a device
 * @name: wanted name, set to the name that the device has
 * @fd: set to the target's end
 */
static int64_t tun_make(char name[IFNAMSIZ], unsigned int flags, int sfd, int *fd)
{
	static const uint8_t any[6];
	struct tun *t = calloc(1, sizeof(*t));
	int sv[2];
	int64_t ret;

	if (!t || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv)) {
		free(t);
		return -ENOMEM;
	}
	t->flags = flags;
	t->kept = t->dev = t->inner.fd = -1;
	t->ino = fd_ino(sv[1]);
	t->src.fn = tun_event;
	t->src.fd = fcntl(sv[0], F_DUPFD_CLOEXEC, 0);
	list_add_tail(&t->link, &tuns);
	ret = t->src.fd < 0 ? -errno :
			      loop_add(&t->src, flags & IFF_NO_PI ? 0 : EPOLLIN);
	if (!ret && !(flags & IFF_NO_PI))
		ret = tun_add_inner(t, &sv[0]);
	if (!ret)
		ret = stack->link_add(sv[0], CTL_LINK_FRAME,
				      tun_link_flags(flags), any, 0);
	if (ret < 0) {
		close(sv[0]);
	} else {
		t->dev = (int)ret;
		ret = tun_rename(t, sfd, name);
		if (!ret && flags & IFF_VNET_HDR)
			ret = tun_reset_offloads(t, sfd);
	}
	if (ret) {
		close(sv[1]);
		tun_free(t);
		return ret;
	}
	*fd = sv[1];
	return 0;
}

/** tun_kept - get a copy of the target's end of a persistent device */
static int64_t tun_kept(const char name[IFNAMSIZ], unsigned int flags, int sfd,
			int *fd)
{
	struct ifreq ifr;
	struct list *l;

	list_for_each(l, &tuns) {
		const struct tun *t = container_of(l, struct tun, link);

		if (t->kept < 0 || tun_name(t, sfd, &ifr) ||
		    strcmp(ifr.ifr_name, name))
			continue;
		if (t->flags != flags)
			return -EINVAL;
		*fd = fcntl(t->kept, F_DUPFD_CLOEXEC, 0);
		return *fd < 0 ? -errno : 0;
	}
	return -ENODEV;
}

/** tun_find - find the device whose end in the target is @fd, or return NULL */
static struct tun *tun_find(int fd)
{
	struct stat st;
	struct list *l;

	if (fd_stat(fd, &st) && S_ISSOCK(st.st_mode))
		list_for_each(l, &tuns)
			if (container_of(l, struct tun, link)->ino == st.st_ino)
				return container_of(l, struct tun, link);
	return NULL;
}

/** tun_attach - handle ioctl(TUNSETIFF) on a file that has no device yet */
static int64_t tun_attach(struct call *c, int sfd)
{
	struct ifreq ifr;
	unsigned int flags;
	int fd = -1, mode = fcntl(c->dup, F_GETFL);
	int cloexec = fd_replace_cloexec(c, (int)c->args[0]);
	int64_t ret = mem_read(c, c->args[2], &ifr, sizeof(ifr));

	if (ret || cloexec < 0)
		return ret ? ret : cloexec;
	ifr.ifr_name[IFNAMSIZ - 1] = '\0';
	flags = (unsigned short)ifr.ifr_flags &
		(TUN_KIND | IFF_NO_PI | IFF_VNET_HDR);
	if ((flags & TUN_KIND) != IFF_TUN && (flags & TUN_KIND) != IFF_TAP)
		return -EINVAL;
	ret = tun_kept(ifr.ifr_name, flags, sfd, &fd);
	if (ret == -ENODEV)
		ret = tun_make(ifr.ifr_name, flags, sfd, &fd);
	if (ret)
		return ret;
	if (mode >= 0)
		fcntl(fd, F_SETFL, mode & O_NONBLOCK);
	ret = mem_write(c, c->args[2], ifr.ifr_name, IFNAMSIZ);
	if (!ret)
		ret = call_addfd_replace(c, fd, (int)c->args[0], cloexec);
	close(fd);
	return ret;
}

/** tun_persist - handle ioctl(TUNSETPERSIST) */
static int64_t tun_persist(const struct call *c, struct tun *t)
{
	if (t->kept >= 0)
		close(t->kept);
	t->kept = c->args[2] ? fcntl(c->dup, F_DUPFD_CLOEXEC, 0) : -1;
	return c->args[2] && t->kept < 0 ? -errno : 0;
}

/** tun_request - handle a request for a device */
static int64_t tun_request(struct call *c, struct tun *t, unsigned int cmd, int sfd)
{
	int value = INT_MAX, head = sizeof(struct virtio_net_hdr);
	struct ifreq ifr;
	int64_t ret;

	switch (cmd) {
	case TUNSETIFF:
		return -EEXIST;
	case TUNGETIFF:
		ret = tun_name(t, sfd, &ifr);
		ifr.ifr_flags = (short)t->flags;
		return ret ? ret : mem_write(c, c->args[2], &ifr, sizeof(ifr));
	case TUNSETPERSIST:
		return tun_persist(c, t);
	case TUNGETSNDBUF:
		return mem_write(c, c->args[2], &value, sizeof(value));
	case TUNGETVNETHDRSZ:
		return mem_write(c, c->args[2], &head, sizeof(head));
	case TUNSETVNETHDRSZ:
		ret = mem_read(c, c->args[2], &value, sizeof(value));
		return ret ? ret : value == head ? 0 : -EINVAL;
	case TUNSETOFFLOAD:
		return tun_offload(t, sfd, c->args[2]);
	case TUNSETNOCSUM:
	case TUNSETDEBUG:
	case TUNSETOWNER:
	case TUNSETGROUP:
	case TUNSETSNDBUF:
		return 0;
	}
	return -EINVAL;
}

/**
 * tun_ioctl - handle the ioctl() requests of tun devices
 *
 * No file of the host has a device, so all other requests for it fail.
 */
int64_t tun_ioctl(struct call *c)
{
	unsigned int cmd = (unsigned int)c->args[1];
	unsigned int features = TUN_FEATURES;
	int sfd = control_fd(AF_INET);
	int64_t ret = call_dup(c, (int)c->args[0]);
	struct space *space;
	struct tun *t = ret ? NULL : tun_find(c->dup);
	uint64_t had;

	if (t)
		return tun_request(c, t, cmd, sfd);
	if (ret)
		return ret;
	if (!is_tun(c->dup))
		return -ENOTTY;
	if (cmd == TUNGETFEATURES)
		return mem_write(c, c->args[2], &features, sizeof(features));
	if (cmd != TUNSETIFF)
		return -EBADFD;
	if (!rights_include(c->rights, CAP_NET_ADMIN))
		return -EPERM;
	ret = space_of(c, &space);
	if (ret || space)	/* devices are made in the run's namespace */
		return ret ? ret : -ENETDOWN;
	rights_set(RIGHTS_ALL, &had);	/* of the stack's own device */
	ret = tun_attach(c, sfd);
	rights_set(had, NULL);
	return ret;
}
