// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices on packet sockets of the host (packet(7)).
 *
 * Theory of operation
 *
 * One message is one frame. It is received directly into the packet's memory,
 * as from any descriptor. PACKET_AUXDATA reports what the host has removed from
 * the frame: the VLAN tag. Without a virtio-net header it also reports whether
 * the transport checksum is known to be good or was never finished. The latter
 * happens if the sender is on the same machine, or if the host has merged
 * packets (GRO).
 *
 * There is no ring: the second copy costs more than the system calls that it
 * saves (docs/explanation/performance.md).
 *
 * A socket on a device without link layer states the protocol of each packet
 * that it sends, because the host has no header to find it in.
 *
 * When a device of the host goes down, the socket reports an error once. When
 * it comes up, the socket reports nothing, so packet_up() asks. All requests
 * use the socket itself, which belongs to the right network namespace wherever
 * this process is.
 */
#include "netdev.h"
#include "host_call.h"

#include <errno.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <linux/sockios.h>
#include <arpa/inet.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#ifndef PACKET_VNET_HDR_SZ
#define PACKET_VNET_HDR_SZ 24
#endif
#ifndef TP_STATUS_CSUM_VALID
#define TP_STATUS_CSUM_VALID (1 << 7)
#endif

#define VNET_HDR_LEN_MIN	10	/* struct virtio_net_hdr */

static int get(int fd, int level, int opt)
{
	int val = 0;
	socklen_t len = sizeof(val);

	return getsockopt(fd, level, opt, &val, &len) ? -errno : val;
}

/**
 * packet_probe - fill in @ps and prepare the socket, if it is a packet socket
 *
 * Returns 0, or a negative errno if it is a packet socket that cannot be used.
 */
int packet_probe(int fd, struct packet_socket *ps)
{
	struct sockaddr_ll sll = { 0 };
	socklen_t len = sizeof(sll);
	int one = 1;

	memset(ps, 0, sizeof(*ps));
	if (get(fd, SOL_SOCKET, SO_DOMAIN) != AF_PACKET)
		return 0;
	if (getsockname(fd, (struct sockaddr *)&sll, &len))
		return -errno;
	ps->type = get(fd, SOL_SOCKET, SO_TYPE);
	if ((ps->type != SOCK_RAW && ps->type != SOCK_DGRAM) || sll.sll_ifindex <= 0)
		return -EINVAL;
	ps->ifindex = sll.sll_ifindex;
	ps->vnet = get(fd, SOL_PACKET, PACKET_VNET_HDR_SZ);
	if (ps->vnet < 0)	/* before Linux 6.4 */
		ps->vnet = get(fd, SOL_PACKET, PACKET_VNET_HDR) > 0 ?
			   VNET_HDR_LEN_MIN : 0;
	if (setsockopt(fd, SOL_PACKET, PACKET_AUXDATA, &one, sizeof(one)))
		return -errno;
	/* before Linux 4.20 packet_read() skips them */
	setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one));
	return 0;
}

/* Parses PACKET_AUXDATA. */
static void auxdata(struct msghdr *msg, const struct packet_socket *ps,
		    struct lkl_net_meta *meta)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	struct tpacket_auxdata aux;

	/* It is always the first: packet_probe() has enabled nothing else. */
	if (!c || c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA)
		return;
	memcpy(&aux, CMSG_DATA(c), sizeof(aux));
	if (aux.tp_status & TP_STATUS_VLAN_VALID) {
		meta->vlan_proto = aux.tp_status & TP_STATUS_VLAN_TPID_VALID ?
				   aux.tp_vlan_tpid : ETH_P_8021Q;
		meta->vlan_tci = aux.tp_vlan_tci;
	}
	if (ps->vnet)
		return;	/* the virtio-net header is more precise */
	if (aux.tp_status & TP_STATUS_CSUMNOTREADY)
		meta->csum = LKL_CSUM_UNFINISHED;
	else if (aux.tp_status & TP_STATUS_CSUM_VALID)
		meta->csum = LKL_CSUM_VALID;
}

/**
 * packet_read - read one frame; as lklh_net_read()
 * @rawip: skip packets for other hosts, as no address shows that
 */
long packet_read(int fd, const struct packet_socket *ps,
		 const struct lkl_iov *iov, int cnt, int rawip,
		 struct lkl_net_meta *meta)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
	} control;
	struct sockaddr_ll from;
	struct msghdr msg = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = (struct iovec *)(uintptr_t)iov,
		.msg_iovlen = cnt,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	do
		n = host_call(SYS_recvmsg, fd, (long)&msg, MSG_DONTWAIT, 0, 0, 0);
	while (n == -EINTR);
	if (n < 0)	/* EINVAL: a packet that no virtio-net header can describe */
		return n == -EINVAL ? -EBADMSG : n;
	if (msg.msg_flags & MSG_TRUNC)
		return -EBADMSG;
	if (from.sll_pkttype == PACKET_OUTGOING ||
	    (rawip && from.sll_pkttype == PACKET_OTHERHOST))
		return -ENOMSG;
	auxdata(&msg, ps, meta);
	return n;
}

/**
 * packet_write - write one frame; as lklh_net_write()
 * @proto: 0 if the host finds it in the frame
 */
long packet_write(int fd, const struct packet_socket *ps,
		  const struct lkl_iov *iov, int cnt, unsigned short proto)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(proto),
		.sll_ifindex = ps->ifindex,
	};
	struct msghdr msg = {
		.msg_name = proto ? &to : NULL,
		.msg_namelen = proto ? sizeof(to) : 0,
		.msg_iov = (struct iovec *)(uintptr_t)iov,
		.msg_iovlen = cnt,
	};
	ssize_t n;

	do
		n = host_call(SYS_sendmsg, fd, (long)&msg,
			      MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0, 0);
	while (n == -EINTR);
	return n;
}

/**
 * packet_up - whether the host's device exists, is up, and has carrier
 *
 * Consumes a pending error of the socket, since the result covers it.
 */
int packet_up(int fd, const struct packet_socket *ps)
{
	struct sockaddr_ll sll = { 0 };
	socklen_t len = sizeof(sll);
	struct ifreq ifr;

	get(fd, SOL_SOCKET, SO_ERROR);
	if (getsockname(fd, (struct sockaddr *)&sll, &len) ||
	    sll.sll_ifindex != ps->ifindex)
		return 0;	/* the device was deleted */
	memset(&ifr, 0, sizeof(ifr));
	ifr.ifr_ifindex = ps->ifindex;
	if (ioctl(fd, SIOCGIFNAME, &ifr) || ioctl(fd, SIOCGIFFLAGS, &ifr))
		return 0;
	return (ifr.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING);
}
