// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network devices on host descriptors.
 *
 * Theory of operation
 *
 * One write is one frame out, one read is one frame in, both non-blocking and
 * both straight between the descriptor and the memory of the packet: pages are
 * addresses of the process. Frames come in under NAPI until the descriptor is
 * empty; the host library says when it has something again (LKL_NETEV_RX), or
 * room again (LKL_NETEV_TX).
 *
 * Incoming frames are of unknown size, up to 64 KiB. They are read into a run of
 * chunks, each frame where the last one ended; what is not used stays for the
 * next. Headers are copied out, so that GRO finds them in the linear part and the
 * payload alone in fragments.
 *
 * Carrier is off while the descriptor gives errors or has hung up. A tap that the
 * host has set down answers EIO to a write and says POLLOUT when it is up again;
 * a slow check stands by in case an edge was lost.
 */
#include <linux/ethtool.h>
#include <linux/etherdevice.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/virtio_net.h>
#include <linux/workqueue.h>
#include <asm/lkl.h>

#define CHUNK_ORDER	3
#define CHUNK_SIZE	(PAGE_SIZE << CHUNK_ORDER)
/* A 64 KiB packet in a VLAN-tagged frame, wherever in the first chunk it starts */
#define CHUNKS		((65536 + 64) / CHUNK_SIZE + 2)

/* Frames up to this length are copied, which is cheaper than a fragment. */
#define COPY_MAX	256

#define CHECK_PERIOD	HZ

/*
 * Bytes taken in before what waits for them runs. More would push the first out
 * of the processor's cache before the program copies them, and the pages that it
 * has emptied would not be the ones that are filled next.
 */
#define RX_BURST	(256 * 1024)

/**
 * struct lkl_net - a device
 * @dev: its net_device
 * @napi: reads frames
 * @check: looks whether a dead descriptor lives again
 * @id: the host library's number for it
 * @fd: host descriptor
 * @flags: LKL_NET_*
 * @vnet: room for the header before the frame, 0 or 12 bytes
 * @chunk: where the next frames go, NULL when not allocated
 * @fill: used part of @chunk[0]
 */
struct lkl_net {
	struct net_device *dev;
	struct napi_struct napi;
	struct delayed_work check;
	int id;
	int fd;
	unsigned int flags;
	unsigned int vnet;
	struct page *chunk[CHUNKS];
	unsigned int fill;
};

static struct lkl_net *lkl_nets[LKL_NET_MAX];
unsigned int lkl_net_sent;
static int rx_budget;	/* bytes left of RX_BURST */

static void set_carrier(struct lkl_net *nd, bool on)
{
	if (on == netif_carrier_ok(nd->dev))
		return;
	if (on) {
		netif_carrier_on(nd->dev);
		netif_wake_queue(nd->dev);
	} else {
		netif_carrier_off(nd->dev);
		schedule_delayed_work(&nd->check, CHECK_PERIOD);
	}
}

static void try_carrier(struct lkl_net *nd)
{
	unsigned int ev = lklh_net_poll(nd->fd);

	if ((ev & LKL_NETEV_TX) && !(ev & LKL_NETEV_HUP)) {
		set_carrier(nd, true);
		napi_schedule(&nd->napi);
	}
}

static void check_work(struct work_struct *work)
{
	struct lkl_net *nd = container_of(work, struct lkl_net, check.work);

	if (netif_carrier_ok(nd->dev) || !netif_running(nd->dev))
		return;
	local_bh_disable();
	try_carrier(nd);
	local_bh_enable();
	if (!netif_carrier_ok(nd->dev))
		schedule_delayed_work(&nd->check, CHECK_PERIOD);
}

static netdev_tx_t net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct lkl_net *nd = netdev_priv(dev);
	struct virtio_net_hdr_v1 hdr;
	struct lkl_iov iov[MAX_SKB_FRAGS + 2];
	unsigned int len = skb->len;
	int i, n = 0;
	long ret;

	if (nd->vnet) {
		if (!skb_is_gso(skb) && skb->ip_summed != CHECKSUM_PARTIAL)
			memset(&hdr, 0, sizeof(hdr));
		else if (virtio_net_hdr_from_skb(skb, (struct virtio_net_hdr *)&hdr,
						 true, false, 0))
			goto drop;
		hdr.num_buffers = 0;
		iov[n].base = &hdr;
		iov[n++].len = nd->vnet;
	}
	iov[n].base = skb->data;
	iov[n++].len = skb_headlen(skb);
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		iov[n].base = skb_frag_address(frag);
		iov[n++].len = skb_frag_size(frag);
	}

	skb_tx_timestamp(skb);
	ret = lklh_net_write(nd->fd, iov, n);
	if (likely(ret > 0)) {
		lkl_net_sent++;
		dev_sw_netstats_tx_add(dev, 1, len);
		dev_consume_skb_any(skb);
		return NETDEV_TX_OK;
	}
	switch (ret) {
	case -EAGAIN:
		/* LKL_NETEV_TX will come */
		netif_stop_queue(dev);
		return NETDEV_TX_BUSY;
	case -EIO:
	case -EBADFD:
	case -EBADF:
	case -EPIPE:
	case -ENOTCONN:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ENODEV:
		set_carrier(nd, false);
	}
drop:
	DEV_STATS_INC(dev, tx_errors);
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

static bool fill_chunks(struct lkl_net *nd)
{
	int i;

	for (i = 0; i < CHUNKS; i++) {
		if (nd->chunk[i])
			continue;
		nd->chunk[i] = alloc_pages(GFP_ATOMIC | __GFP_NOWARN | __GFP_COMP,
					   CHUNK_ORDER);
		if (!nd->chunk[i])
			return false;
	}
	return true;
}

static void next_chunk(struct lkl_net *nd)
{
	put_page(nd->chunk[0]);
	memmove(nd->chunk, nd->chunk + 1, sizeof(nd->chunk[0]) * (CHUNKS - 1));
	nd->chunk[CHUNKS - 1] = NULL;
	nd->fill = 0;
}

/* Length of the headers to copy: all of them for TCP, more or less otherwise. */
static unsigned int header_len(const u8 *p, unsigned int len)
{
	const struct ethhdr *eth = (const struct ethhdr *)p;
	unsigned int n = ETH_HLEN;

	if (len <= COPY_MAX)
		return len;
	if (eth->h_proto == htons(ETH_P_IP)) {
		const struct iphdr *ip = (const struct iphdr *)(p + n);

		n += ip->ihl * 4;
		if (ip->protocol != IPPROTO_TCP)
			return min(n + 8, len);
	} else if (eth->h_proto == htons(ETH_P_IPV6)) {
		const struct ipv6hdr *ip = (const struct ipv6hdr *)(p + n);

		n += sizeof(*ip);
		if (ip->nexthdr != IPPROTO_TCP)
			return min(n + 8, len);
	} else {
		return 128;
	}
	n += ((const struct tcphdr *)(p + n))->doff * 4;
	return min(n, (unsigned int)COPY_MAX);
}

/* Makes a packet of the frame at the start of the unused space. */
static struct sk_buff *make_skb(struct lkl_net *nd, unsigned int len)
{
	u8 *p = page_address(nd->chunk[0]) + nd->fill;
	unsigned int head, off, size;
	struct sk_buff *skb;

	/* the headers must be in one piece: net_poll() sees to it */
	head = header_len(p, len);
	skb = napi_alloc_skb(&nd->napi, COPY_MAX);
	if (unlikely(!skb))
		return NULL;
	memcpy(__skb_put(skb, head), p, head);
	if (head == len)
		return skb;

	off = nd->fill + head;
	len -= head;
	while (len) {
		size = min_t(unsigned int, len, CHUNK_SIZE - off);
		get_page(nd->chunk[0]);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, nd->chunk[0], off,
				size, SKB_DATA_ALIGN(size));
		off += size;
		len -= size;
		if (off == CHUNK_SIZE && len) {
			next_chunk(nd);
			off = 0;
		}
	}
	nd->fill = ALIGN(off, SMP_CACHE_BYTES);
	return skb;
}

/* One frame. 1: taken; 0: none there; negative: error, or no memory */
static int receive(struct lkl_net *nd)
{
	struct net_device *dev = nd->dev;
	struct virtio_net_hdr_v1 hdr;
	struct lkl_iov iov[CHUNKS + 1];
	struct sk_buff *skb;
	int i, n = 0;
	long ret;

	/* keep small frames and the headers of large ones in one chunk */
	if (nd->chunk[0] && CHUNK_SIZE - nd->fill < 2048)
		next_chunk(nd);
	if (!nd->chunk[CHUNKS - 1] && !fill_chunks(nd))
		return -ENOMEM;
	if (nd->vnet) {
		iov[n].base = &hdr;
		iov[n++].len = nd->vnet;
	}
	iov[n].base = page_address(nd->chunk[0]) + nd->fill;
	iov[n++].len = CHUNK_SIZE - nd->fill;
	for (i = 1; i < CHUNKS; i++) {
		iov[n].base = page_address(nd->chunk[i]);
		iov[n++].len = CHUNK_SIZE;
	}

	ret = lklh_net_read(nd->fd, iov, n);
	if (ret == -EAGAIN)
		return 0;
	if (ret <= 0)
		return ret ? ret : -EPIPE;
	ret -= nd->vnet;
	if (unlikely(ret < ETH_HLEN)) {
		DEV_STATS_INC(dev, rx_length_errors);
		return 1;
	}
	skb = make_skb(nd, ret);
	if (unlikely(!skb)) {
		DEV_STATS_INC(dev, rx_dropped);
		return 1;
	}
	dev_sw_netstats_rx_add(dev, ret);
	rx_budget -= ret;
	if (nd->vnet && (hdr.flags || hdr.gso_type)) {
		if (hdr.flags & VIRTIO_NET_HDR_F_DATA_VALID)
			skb->ip_summed = CHECKSUM_UNNECESSARY;
		if (virtio_net_hdr_to_skb(skb, (struct virtio_net_hdr *)&hdr, true)) {
			DEV_STATS_INC(dev, rx_frame_errors);
			kfree_skb(skb);
			return 1;
		}
	}
	skb->protocol = eth_type_trans(skb, dev);
	napi_gro_receive(&nd->napi, skb);
	return 1;
}

static int net_poll(struct napi_struct *napi, int budget)
{
	struct lkl_net *nd = container_of(napi, struct lkl_net, napi);
	int done = 0, ret = 0;

	while (done < budget) {
		if (rx_budget <= 0) {
			lklh_net_more(nd->id);
			ret = 0;
			break;
		}
		ret = receive(nd);
		if (ret <= 0)
			break;
		done++;
	}
	if (done == budget)
		return done;
	napi_complete_done(napi, done);
	if (ret == -ENOMEM)
		schedule_delayed_work(&nd->check, 1);
	else if (ret < 0)
		set_carrier(nd, false);
	return done;
}

/**
 * lkl_net_interrupt - some devices have events
 */
void lkl_net_interrupt(void)
{
	struct lkl_net *nd;
	unsigned int ev;
	int i;

	rx_budget = RX_BURST;
	for (i = 0; i < LKL_NET_MAX; i++) {
		nd = lkl_nets[i];
		if (!nd)
			continue;
		ev = lklh_net_events(i);
		if (!ev || !netif_running(nd->dev))
			continue;
		if (ev & LKL_NETEV_HUP) {
			set_carrier(nd, false);
			continue;
		}
		if (!netif_carrier_ok(nd->dev)) {
			try_carrier(nd);
			continue;
		}
		if ((ev & LKL_NETEV_TX) && netif_queue_stopped(nd->dev))
			netif_wake_queue(nd->dev);
		if (ev & LKL_NETEV_RX)
			napi_schedule_irqoff(&nd->napi);
	}
}

static int net_open(struct net_device *dev)
{
	struct lkl_net *nd = netdev_priv(dev);

	napi_enable(&nd->napi);
	netif_start_queue(dev);
	netif_carrier_on(dev);
	/* its events so far went nowhere */
	local_bh_disable();
	napi_schedule(&nd->napi);
	local_bh_enable();
	return 0;
}

static int net_stop(struct net_device *dev)
{
	struct lkl_net *nd = netdev_priv(dev);
	int i;

	netif_stop_queue(dev);
	napi_disable(&nd->napi);
	cancel_delayed_work_sync(&nd->check);
	for (i = 0; i < CHUNKS; i++) {
		if (nd->chunk[i])
			put_page(nd->chunk[i]);
		nd->chunk[i] = NULL;
	}
	nd->fill = 0;
	return 0;
}

static const struct net_device_ops net_ops = {
	.ndo_open		= net_open,
	.ndo_stop		= net_stop,
	.ndo_start_xmit		= net_xmit,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct lkl_net *nd = netdev_priv(dev);

	strscpy(info->driver, "lkl", sizeof(info->driver));
	snprintf(info->bus_info, sizeof(info->bus_info), "%d", nd->id);
}

static const struct ethtool_ops net_ethtool_ops = {
	.get_drvinfo	= get_drvinfo,
	.get_link	= ethtool_op_get_link,
	.get_ts_info	= ethtool_op_get_ts_info,
};

int lklk_net_add(int id, int fd, const unsigned char *mac, unsigned int flags)
{
	struct net_device *dev;
	struct lkl_net *nd;
	int ret;

	dev = alloc_etherdev(sizeof(*nd));
	if (!dev)
		return -ENOMEM;
	nd = netdev_priv(dev);
	nd->dev = dev;
	nd->id = id;
	nd->fd = fd;
	nd->flags = flags;
	nd->vnet = flags & LKL_NET_VNET ? sizeof(struct virtio_net_hdr_v1) : 0;
	INIT_DELAYED_WORK(&nd->check, check_work);
	netif_napi_add(dev, &nd->napi, net_poll);

	dev->netdev_ops = &net_ops;
	dev->ethtool_ops = &net_ethtool_ops;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->min_mtu = ETH_MIN_MTU;
	dev->max_mtu = ETH_MAX_MTU;
	dev->hw_features = NETIF_F_SG;
	if (flags & LKL_NET_CSUM)
		dev->hw_features |= NETIF_F_HW_CSUM;
	if (flags & LKL_NET_TSO4)
		dev->hw_features |= NETIF_F_TSO | NETIF_F_TSO_ECN;
	if (flags & LKL_NET_TSO6)
		dev->hw_features |= NETIF_F_TSO6;
	dev->features = dev->hw_features | NETIF_F_HIGHDMA;
	if (flags & LKL_NET_RXCSUM)
		dev->features |= NETIF_F_RXCSUM;
	dev->vlan_features = dev->features;
	eth_hw_addr_set(dev, mac);

	ret = register_netdev(dev);
	if (ret) {
		netif_napi_del(&nd->napi);
		free_netdev(dev);
		return ret;
	}
	lkl_nets[id] = nd;
	return 0;
}

void lklk_net_remove(int id)
{
	struct lkl_net *nd = lkl_nets[id];

	if (!nd)
		return;
	lkl_nets[id] = NULL;
	unregister_netdev(nd->dev);
	netif_napi_del(&nd->napi);
	free_netdev(nd->dev);
}

int lklk_net_ifindex(int id)
{
	return lkl_nets[id] ? lkl_nets[id]->dev->ifindex : -ENODEV;
}
