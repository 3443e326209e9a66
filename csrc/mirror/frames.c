// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copy frames between the stack and the mirror.
 *
 * Theory of operation
 *
 * Three packet sockets send and receive frames on all devices: one in the
 * stack, one in the namespace of the near ends and one in that of the far ends.
 * All three put a struct virtio_net_hdr before each frame, which preserves GSO
 * frames and partial checksums.
 *
 * - Received by the stack: we send it at the near end, and it arrives at the
 *   far end.
 * - Sent by the stack: we send it at the far end, where other packet sockets
 *   see it as outgoing.
 * - Sent over the stack's lo: we send it over the far lo, which shows it in
 *   both directions, as lo does.
 * - Arrived at a near end: the target sent it. We send it in the stack, unless
 *   it is a frame that we sent at the far end ourselves.
 * - Arrived at the far lo: the target sent it. We send it over the stack's lo.
 *
 * A packet socket does not receive the frames sent through itself, which
 * prevents loops. The frames that we send over the far lo come back with our
 * mark (SO_MARK). The frames that we send at another far end come back at the
 * near end. veth preserves nothing of a frame but its bytes and its checksum
 * state. We therefore mark our frames as having a partial checksum at an offset
 * that no protocol uses. This does not change any bytes, as veth leaves
 * checksums to the receiver.
 *
 * A device without a link layer has a tun in the namespace of the far ends, whose
 * descriptor is the near end: packets written to it arrive, and packets sent on
 * it can be read.
 *
 * The kernel stores the VLAN tag of a received frame outside the frame, and so
 * does a packet socket. We insert it again before we forward the frame.
 *
 * Nothing here waits for buffer space: a frame that cannot be sent is dropped
 * and counted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/loop.h"
#include "mirror/internal.h"
#include "mirror/mirror.h"
#include "stack/stack.h"

#define VLAN_HLEN	4
#define HEAD		((int)sizeof(struct virtio_net_hdr) + 2 * ETH_ALEN)
#define FRAMES		64		/* per call */
#define MARK_AT		20		/* in the IP header, or after it; the minimum */
#define MARK_END	(MARK_AT + 2)
#define IP_HLEN		20

struct frame {
	struct virtio_net_hdr vnet;
	uint8_t data[];
};

struct mirror_stats mirror_stats;

static void from_near(struct source *src, uint32_t events);
static void from_far(struct source *src, uint32_t events);
static void stack_has(struct stack_src *src, uint32_t events);
static void pull(struct work *w);

static struct source near = { .fd = -1 }, far = { .fd = -1 };
static struct stack_src stack_src;
static struct work work;
static int sfd = -1;

/**
 * struct mirrored - a device of the stack that has a mirror
 * @tun: its tun, if it has no link layer; otherwise without a descriptor
 */
static struct mirrored {
	int ifindex;
	struct source tun;
} *devices[MIRROR_LINKS_MAX];
static size_t n_devices;

/** rx_enable - bind @src to device @ifindex (0: all) and add it to the loop */
static int rx_enable(struct source *src, int ifindex)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL),
				  .sll_ifindex = ifindex };

	if (bind(src->fd, (struct sockaddr *)&ll, sizeof(ll)))
		return -errno;
	return loop_add(src, EPOLLIN);
}

/** rx_disable - undo rx_enable() and close the socket */
static void rx_disable(struct source *src)
{
	int fd = src->fd;

	if (fd < 0)
		return;
	loop_del(src);
	close(fd);
}

/** frames_open - take over the sockets at the near and at the far ends */
int frames_open(int near_fd, int far_fd)
{
	int ret;

	near.fd = near_fd;
	near.fn = from_near;
	far.fd = far_fd;
	far.fn = from_far;
	ret = rx_enable(&near, 0);
	return ret ? ret : rx_enable(&far, MIRROR_LO);
}

/** frames_start - start to receive the stack's frames */
int frames_start(void)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(ETH_P_ALL) };
	long ret;
	size_t i;

	if (sfd >= 0)
		return 0;
	sfd = (int)st_socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			     0);
	if (sfd < 0)
		return sfd;
	work_init(&work, pull);
	stack_src.fn = stack_has;
	ret = 0;
	for (i = 0; i < MIRROR_OPTIONS && !ret; i++)
		ret = st_setsockopt(sfd, mirror_options[i].level,
				    mirror_options[i].name,
				    &mirror_options[i].value, sizeof(int));
	if (!ret)
		ret = st_bind(sfd, &ll, sizeof(ll));
	if (!ret)
		ret = st_watch(sfd, &stack_src, EPOLLIN);
	if (ret)
		frames_stop();
	return (int)ret;
}

/** frames_stop - stop receiving the stack's frames */
void frames_stop(void)
{
	if (sfd < 0)
		return;
	work_cancel(&work);
	st_unwatch(sfd, &stack_src);
	st_close(sfd);
	sfd = -1;
}

/** frames_close - close all sockets */
void frames_close(void)
{
	frames_stop();
	while (n_devices)
		frames_unlink(devices[0]->ifindex);
	rx_disable(&near);
	rx_disable(&far);
}

/** frames_stack_fd - the stack's socket; -1 if there is none */
int frames_stack_fd(void)
{
	return sfd;
}

/** complete - compute the checksum of a frame that is not GSO */
static void complete(struct frame *f, size_t len)
{
	size_t start = f->vnet.csum_start;
	size_t at = start + f->vnet.csum_offset;
	uint32_t sum = 0;
	size_t i;

	f->vnet.flags = 0;
	if (at + 2 > len)
		return;
	for (i = start; i + 1 < len; i += 2)
		sum += (uint32_t)(f->data[i] << 8 | f->data[i + 1]);
	if (i < len)
		sum += (uint32_t)f->data[i] << 8;
	sum = (sum >> 16) + (sum & 0xffff);
	sum += sum >> 16;
	sum = ~sum & 0xffff;
	/* A UDP checksum of 0 would mean that there is none. */
	if (!sum)
		sum = 0xffff;
	f->data[at] = (uint8_t)(sum >> 8);
	f->data[at + 1] = (uint8_t)sum;
}

/** mark - mark a frame sent at the far end as ours */
static void mark(struct frame *f)
{
	if (f->vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE)
		return;
	f->vnet = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.csum_start = MARK_AT,
	};
}

/**
 * is_marked - whether a frame at the near end is ours
 *
 * GSO frames with a partial checksum also count as ours: no program is known to
 * send these by hand, and the stack sends very many.
 */
static bool is_marked(const struct frame *f)
{
	return f->vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
	       (f->vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE ||
		(f->vnet.csum_start == MARK_AT && !f->vnet.csum_offset));
}

/**
 * vlan_tag - the VLAN tag stored outside the frame, in host order; 0 if none
 */
static uint32_t vlan_tag(const struct msghdr *mh)
{
	struct cmsghdr *cm = CMSG_FIRSTHDR(mh);
	struct tpacket_auxdata aux;

	if (!cm || cm->cmsg_level != SOL_PACKET ||
	    cm->cmsg_type != PACKET_AUXDATA)
		return 0;
	memcpy(&aux, CMSG_DATA(cm), sizeof(aux));
	if (!(aux.tp_status & TP_STATUS_VLAN_VALID))
		return 0;
	return (uint32_t)(aux.tp_status & TP_STATUS_VLAN_TPID_VALID ?
			  aux.tp_vlan_tpid : ETH_P_8021Q) << 16 |
	       aux.tp_vlan_tci;
}

/**
 * receive - read the next frame into mirror_buf
 * @src: NULL for the stack's socket
 * @ll: source of the frame
 * @len: its length including the headers
 *
 * Returns NULL if there is none.
 */
static struct frame *receive(const struct source *src, struct sockaddr_ll *ll,
			     size_t *len)
{
	/* Leave room for a tag after the addresses. */
	struct iovec iov[2] = {
		{ mirror_buf, HEAD },
		{ mirror_buf + HEAD + VLAN_HLEN, MIRROR_BUF - HEAD - VLAN_HLEN },
	};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	} ctl;
	struct msghdr mh = {
		.msg_name = ll, .msg_namelen = sizeof(*ll),
		.msg_iov = iov, .msg_iovlen = 2,
		.msg_control = ctl.buf, .msg_controllen = sizeof(ctl.buf),
	};
	struct frame *f;
	uint32_t tag;
	long n;

	n = src ? recvmsg(src->fd, &mh, MSG_DONTWAIT) :
		  st_recvmsg(sfd, &mh, MSG_DONTWAIT);
	if (n < 0)
		return NULL;
	tag = n < HEAD ? 0 : vlan_tag(&mh);
	*len = (size_t)n + (tag ? VLAN_HLEN : 0);
	if (!tag) {
		memmove(mirror_buf + VLAN_HLEN, mirror_buf, HEAD);
		return (struct frame *)(mirror_buf + VLAN_HLEN);
	}
	f = (struct frame *)mirror_buf;
	tag = htonl(tag);
	memcpy(f->data + 2 * ETH_ALEN, &tag, sizeof(tag));
	if (f->vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		f->vnet.csum_start += VLAN_HLEN;
	memcpy(&ll->sll_protocol, f->data + 2 * ETH_ALEN,
	       sizeof(ll->sll_protocol));
	return f;
}

/** mirror_of - the mirror of device @ifindex, or NULL */
static const struct mirrored *mirror_of(int ifindex)
{
	size_t i;

	for (i = 0; i < n_devices; i++)
		if (devices[i]->ifindex == ifindex)
			return devices[i];
	return NULL;
}

/** show - pass a frame of the stack to the target's packet sockets */
static void show(struct frame *f, size_t len, const struct sockaddr_ll *from)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET,
				  .sll_protocol = from->sll_protocol,
				  .sll_ifindex = from->sll_ifindex };
	bool out = from->sll_pkttype == PACKET_OUTGOING;
	const struct mirrored *m = mirror_of(from->sll_ifindex);
	bool tun = m && m->tun.fd >= 0;
	int fd = far.fd;

	if (!m || (from->sll_ifindex == MIRROR_LO && !out) ||
	    len < sizeof(f->vnet) + (tun ? MARK_END : 2 * ETH_ALEN + 1))
		return;
	if (f->vnet.gso_type == VIRTIO_NET_HDR_GSO_NONE &&
	    f->vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
		complete(f, len - sizeof(f->vnet));
	if (!out && tun) {
		fd = m->tun.fd;
	} else if (!out) {
		fd = near.fd;
		ll.sll_ifindex += MIRROR_NEAR;
	} else if (from->sll_ifindex != MIRROR_LO) {
		mark(f);
	}
	if ((!out && tun ? write(fd, f, len) :
	     sendto(fd, f, len, MSG_DONTWAIT | MSG_NOSIGNAL,
		    (struct sockaddr *)&ll, sizeof(ll))) < 0)
		mirror_stats.lost++;
	else
		mirror_stats.shown++;
}

/** pull - copy frames from the stack to the mirror */
static void pull(struct work *w)
{
	struct sockaddr_ll ll;
	struct frame *f;
	size_t len;
	int i;

	for (i = 0; i < FRAMES; i++) {
		f = receive(NULL, &ll, &len);
		if (!f)
			return;
		show(f, len, &ll);
	}
	work_queue(w);
}

/** stack_has - the stack's socket is readable */
static void stack_has(struct stack_src *src, uint32_t events)
{
	(void)src;
	(void)events;
	pull(&work);
}

/** push - pass a frame of the target to device @ifindex of the stack */
static void push(const struct frame *f, size_t len, int ifindex, __be16 proto)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET,
				  .sll_protocol = proto,
				  .sll_ifindex = ifindex };

	if (sfd < 0)
		return;
	if (st_sendto(sfd, f, len, MSG_DONTWAIT | MSG_NOSIGNAL, &ll,
		      sizeof(ll)) < 0)
		mirror_stats.lost++;
	else
		mirror_stats.sent++;
}

/** take - forward the frames of @src; @base: offset of its device numbers */
static void take(struct source *src, int base)
{
	struct sockaddr_ll ll;
	struct frame *f;
	size_t len;
	int i;

	for (i = 0; i < FRAMES; i++) {
		f = receive(src, &ll, &len);
		if (!f)
			return;
		if (len > HEAD && ll.sll_pkttype != PACKET_OUTGOING &&
		    !(base && is_marked(f)))
			push(f, len, ll.sll_ifindex - base, ll.sll_protocol);
	}
}

/** from_near - the target sent on a device */
static void from_near(struct source *src, uint32_t events)
{
	(void)events;
	take(src, MIRROR_NEAR);
}

/** from_far - the target sent over lo */
static void from_far(struct source *src, uint32_t events)
{
	(void)events;
	take(src, 0);
}

/** from_tun - the target sent on a device without a link layer */
static void from_tun(struct source *src, uint32_t events)
{
	const struct mirrored *m = container_of(src, struct mirrored, tun);
	const struct frame *f = (struct frame *)mirror_buf;
	ssize_t n;
	int i;

	(void)events;
	for (i = 0; i < FRAMES; i++) {
		n = read(src->fd, mirror_buf, MIRROR_BUF);
		if (n < 0)
			return;
		if ((size_t)n >= sizeof(f->vnet) + IP_HLEN && !is_marked(f))
			push(f, (size_t)n, m->ifindex,
			     htons(f->data[0] >> 4 == 6 ? ETH_P_IPV6 : ETH_P_IP));
	}
}

/**
 * frames_link - copy the frames of device @ifindex from now on
 * @tun: its tun, which belongs to us now, or -1
 */
int frames_link(int ifindex, int tun)
{
	struct mirrored *m = calloc(1, sizeof(*m));
	int ret = m ? 0 : -ENOMEM;

	if (m) {
		m->ifindex = ifindex;
		m->tun.fd = tun;
		m->tun.fn = from_tun;
	}
	if (m && tun >= 0)
		ret = loop_add(&m->tun, EPOLLIN);
	if (!ret) {
		devices[n_devices++] = m;
		return 0;
	}
	if (tun >= 0)
		close(tun);
	free(m);
	return ret;
}

/** frames_unlink - copy no frames of device @ifindex any more */
void frames_unlink(int ifindex)
{
	size_t i;

	for (i = 0; i < n_devices; i++) {
		if (devices[i]->ifindex != ifindex)
			continue;
		rx_disable(&devices[i]->tun);
		loop_free_later(devices[i]);
		devices[i] = devices[--n_devices];
		return;
	}
}
