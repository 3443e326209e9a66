// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices without link layer, and the IP headers of all received packets.
 *
 * The other end is a tun device, or a packet socket on a tun, PPP, cellular
 * modem or tunnel device. Only the version field of a packet tells IPv4 from
 * IPv6. Other protocols are dropped.
 */
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/addrconf.h>
#include <net/ip.h>
#include <net/ip_tunnels.h>
#include <net/ipv6.h>
#include <asm/lkl.h>

#define QUEUE_LEN	500	/* a tun device's */

/**
 * lkl_rawip_setup - set up a device without link layer
 */
void lkl_rawip_setup(struct net_device *dev)
{
	dev->header_ops = &ip_tunnel_header_ops;
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST;
	dev->mtu = ETH_DATA_LEN;
	dev->tx_queue_len = QUEUE_LEN;
}

/**
 * lkl_rawip_registered - give the device no link-local address by default
 *
 * There is no hardware address to derive it from, so it would be random. The
 * other end of such a link expects only the address that it assigned.
 */
void lkl_rawip_registered(struct net_device *dev)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct inet6_dev *idev;

	rtnl_lock();
	idev = __in6_dev_get(dev);
	if (idev)
		WRITE_ONCE(idev->cnf.addr_gen_mode, IN6_ADDR_GEN_MODE_NONE);
	rtnl_unlock();
#endif
}

/**
 * lkl_rawip_protocol - Ethernet type of an IP packet, from its first byte; or 0
 */
int lkl_rawip_protocol(const void *packet)
{
	switch (*(const u8 *)packet >> 4) {
	case 4:
		return ETH_P_IP;
	case 6:
		return ETH_P_IPV6;
	}
	return 0;
}

/**
 * lkl_rawip_headers - estimate the length of a packet's headers
 * @len: length of the packet, more than any headers
 *
 * Exact for TCP, approximate otherwise. Never less than an IPv4 header, because
 * the first byte gives the protocol.
 */
unsigned int lkl_rawip_headers(const void *packet, unsigned int len)
{
	const struct ipv6hdr *ip6 = packet;
	const struct iphdr *ip = packet;
	unsigned int n, proto;

	if (lkl_rawip_protocol(packet) == ETH_P_IP) {
		n = max_t(unsigned int, ip->ihl * 4, sizeof(*ip));
		proto = ip->protocol;
	} else {
		n = sizeof(*ip6);
		proto = ip6->nexthdr;
	}
	if (proto != IPPROTO_TCP)
		return min(n + 8, len);
	return n + ((const struct tcphdr *)((const u8 *)packet + n))->doff * 4;
}

/**
 * lkl_net_finish_csum - mark a packet's checksum as unfinished
 * @skb: its data begins with the network header
 *
 * The same as for a virtio-net header that says so, but without the checksum's
 * position. The packet never was on a wire, so its checksum is correct: if the
 * position is not found, the packet is accepted.
 */
void lkl_net_finish_csum(struct sk_buff *skb)
{
	int start = -1, offset = 0;
	u8 proto = 0;

	if (skb->protocol == htons(ETH_P_IP) &&
	    skb_headlen(skb) >= sizeof(struct iphdr)) {
		const struct iphdr *ip = (const struct iphdr *)skb->data;

		start = ip->ihl * 4;
		proto = ip_is_fragment(ip) ? 0 : ip->protocol;
	} else if (skb->protocol == htons(ETH_P_IPV6) &&
		   skb_headlen(skb) >= sizeof(struct ipv6hdr)) {
		__be16 frag;

		proto = ((const struct ipv6hdr *)skb->data)->nexthdr;
		start = ipv6_skip_exthdr(skb, sizeof(struct ipv6hdr), &proto, &frag);
		if (frag)
			proto = 0;
	}
	if (proto == IPPROTO_TCP)
		offset = offsetof(struct tcphdr, check);
	else if (proto == IPPROTO_UDP)
		offset = offsetof(struct udphdr, check);
	if (start < 0 || !offset ||
	    !skb_partial_csum_set(skb, start, offset))
		skb->ip_summed = CHECKSUM_UNNECESSARY;
}
