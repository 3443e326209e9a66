// SPDX-License-Identifier: GPL-2.0-only
/*
 * Network devices on host descriptors.
 *
 * Theory of operation
 *
 * One write sends one frame, and one read receives one; the frames of a list
 * are written with one call (burst.c). Both are non-blocking and move data
 * directly between the descriptor and the memory of the packet, as pages are
 * addresses of the process. NAPI reads frames until the descriptor is empty.
 * The host library reports new frames (LKL_NETEV_RX) and new room
 * (LKL_NETEV_TX). If the host library lets another thread write (lib/writer.c),
 * that thread may own a frame for a while: lklh_net_written() returns it.
 *
 * A frame that finds no room is kept until there is room. If it went back to
 * the queue (NETDEV_TX_BUSY), packet sockets would see it twice.
 *
 * Incoming frames have an unknown size, up to 64 KiB: rx.c provides the memory.
 *
 * The carrier is off while the descriptor returns errors or has hung up. A tap
 * that the host has set down returns EIO for a write and reports POLLOUT when
 * it is up again. A packet socket returns ENETDOWN and reports nothing, so a
 * slow periodic check is needed. A carrier that was set off by netlink stays
 * off: a program that watches the host's device knows more than the descriptor.
 *
 * A device without link layer (LKL_NET_RAWIP) carries IP packets: rawip.c.
 */
#include <linux/ethtool.h>
#include <linux/etherdevice.h>
#include <linux/if_ether.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/virtio_net.h>
#include <linux/workqueue.h>
#include <asm/lkl.h>
#include LKL_GSO_H

#define CHECK_PERIOD	HZ

/* Largest frame with LKL_NET_BIG; larger ones are not faster. */
#define BIG_SIZE	(256 * 1024)

/*
 * Bytes received before the waiting programs run. With more, the first bytes
 * would leave the processor's cache before a program copies them, and the freed
 * pages would not be those that are filled next.
 */
#define RX_BURST	(256 * 1024)

/**
 * struct lkl_net - a device
 * @dev: its net_device
 * @napi: reads frames
 * @check: checks whether a dead descriptor works again
 * @id: the host library's number for it
 * @flags: LKL_NET_*
 * @held: the carrier was set off by netlink
 * @vnet: length of the virtio-net header, 0, 10 or 12 bytes
 * @wide: the peer sends frames above the MTU
 * @many: many acknowledgements are to be read
 * @rx: memory for the next frames
 * @burst: frames that wait for the last of their list
 * @late: a frame that found no room; the queue is stopped
 * @late_stamp: its transmit timestamp is still to be reported
 */
struct lkl_net {
	struct net_device *dev;
	struct napi_struct napi;
	struct delayed_work check;
	int id;
	unsigned int flags;
	bool held;
	unsigned int vnet;
	bool wide;
	bool many;
	struct lkl_rx rx;
	struct lkl_burst burst;
	struct sk_buff *late;
	bool late_stamp;
};

static struct lkl_net *lkl_nets[LKL_NET_MAX];
unsigned int lkl_net_sent;
static int rx_budget;	/* bytes left of RX_BURST */
static bool ring_full;	/* LKL_NETQ_FULL was returned */

/* There may be room: NAPI sends the late frame first. */
static void wake_queue(struct lkl_net *nd)
{
	if (nd->late)
		napi_schedule(&nd->napi);
	else if (netif_queue_stopped(nd->dev))
		netif_wake_queue(nd->dev);
}

static void drop_late(struct lkl_net *nd)
{
	if (nd->late) {
		DEV_STATS_INC(nd->dev, tx_dropped);
		dev_kfree_skb_any(nd->late);
		nd->late = NULL;
	}
}

static void set_carrier(struct lkl_net *nd, bool on)
{
	if (on == netif_carrier_ok(nd->dev))
		return;
	if (on) {
		netif_carrier_on(nd->dev);
		wake_queue(nd);
	} else {
		netif_carrier_off(nd->dev);
		drop_late(nd);
		if (netif_running(nd->dev))
			schedule_delayed_work(&nd->check, CHECK_PERIOD);
	}
}

static void try_carrier(struct lkl_net *nd)
{
	unsigned int ev = nd->held ? 0 : lklh_net_poll(nd->id);

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

static void xmit(struct lkl_net *nd, struct sk_buff *skb, bool stamp);

/* The host has no room for so large a frame: send it as packets. */
static void xmit_in_pieces(struct lkl_net *nd, struct sk_buff *skb)
{
	struct net_device *dev = nd->dev;
	struct sk_buff *segs, *next;

	segs = skb_gso_segment(skb, dev->features & ~NETIF_F_GSO_MASK);
	if (IS_ERR_OR_NULL(segs)) {
		DEV_STATS_INC(dev, tx_errors);
		dev_kfree_skb_any(skb);
		return;
	}
	consume_skb(skb);
	skb_list_walk_safe(segs, skb, next) {
		skb_mark_not_on_list(skb);
		xmit(nd, skb, false);
	}
}

static void sent(struct lkl_net *nd, unsigned int len)
{
	lkl_net_sent++;
	dev_sw_netstats_tx_add(nd->dev, 1, len);
}

/* Account for a frame that could not be written. */
static void failed(struct lkl_net *nd, long ret)
{
	switch (ret) {
	case -EIO:
	case -EBADFD:
	case -EBADF:
	case -EPIPE:
	case -ENOTCONN:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ENODEV:
	case -ENXIO:
	case -ENETDOWN:
		set_carrier(nd, false);
		break;
	case -EAGAIN:
	case -EMSGSIZE:
	case -ENOBUFS:	/* a queue of the host's is full */
		DEV_STATS_INC(nd->dev, tx_dropped);
		return;
	}
	DEV_STATS_INC(nd->dev, tx_errors);
}

/*
 * Writes the kept frames. The stack regards them as sent: frames without room
 * are lost.
 */
static void send_burst(struct lkl_net *nd)
{
	struct lkl_burst *b = &nd->burst;
	int i, ret, n = b->n;

	if (likely(!n))
		return;
	b->n = 0;
	lklh_net_write_burst(nd->id, b->out, n);
	for (i = 0; i < n; i++) {
		ret = b->out[i].ret;
		if (likely(ret > 0)) {
			sent(nd, b->frame[i].skb->len);
			dev_consume_skb_any(b->frame[i].skb);
			continue;
		}
		failed(nd, ret);
		if (ret == -EAGAIN)
			netif_stop_queue(nd->dev);	/* restarted by LKL_NETEV_TX */
		if (ret != -EINPROGRESS)
			dev_kfree_skb_any(b->frame[i].skb);
	}
}

/* Keeps one frame; the stack sends at most one to a stopped queue. */
static void too_late(struct lkl_net *nd, struct sk_buff *skb, bool stamp)
{
	netif_stop_queue(nd->dev);
	if (nd->late) {		/* a piece of a frame that was too large */
		DEV_STATS_INC(nd->dev, tx_dropped);
		dev_kfree_skb_any(skb);
	} else {
		nd->late = skb;
		nd->late_stamp = stamp;
	}
}

static void reap(void);

/* @stamp: report its transmit timestamp */
static void xmit(struct lkl_net *nd, struct sk_buff *skb, bool stamp)
{
	struct net_device *dev = nd->dev;
	struct virtio_net_hdr_v1 hdr;
	struct lkl_iov iov[MAX_SKB_FRAGS + 2];
	unsigned int len = skb->len;
	int i, queued, n = 0, proto = 0;
	long ret;

	BUILD_BUG_ON(ARRAY_SIZE(iov) > LKL_NETQ_IOVS);
	reap();
	if (nd->flags & LKL_NET_RAWIP) {
		proto = skb_headlen(skb) ? lkl_rawip_protocol(skb->data) : 0;
		if (!proto)
			goto drop;
	}
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

	queued = nd->burst.n ? LKL_NETQ_NO : lklh_net_queue(nd->id, iov, n, skb);
	if (queued == LKL_NETQ_FULL) {
		ring_full = true;
		too_late(nd, skb, stamp);
		return;
	}
	if (stamp)
		skb_tx_timestamp(skb);
	switch (queued) {
	case LKL_NETQ_KEPT:
		sent(nd, len);
		return;
	case LKL_NETQ_COPIED:
		sent(nd, len);
		dev_consume_skb_any(skb);
		return;
	}
	if (lkl_burst_add(&nd->burst, skb, iov, n, proto)) {
		if (!netdev_xmit_more() || nd->burst.n == LKL_NET_BURST)
			send_burst(nd);
		return;
	}
	send_burst(nd);
	ret = lklh_net_write(nd->id, iov, n, proto);
	if (likely(ret > 0)) {
		sent(nd, len);
		dev_consume_skb_any(skb);
		return;
	}
	if (ret == -EAGAIN) {
		too_late(nd, skb, false);	/* retried at LKL_NETEV_TX */
		return;
	}
	/* the host's memory is fragmented, or a queue is full */
	if ((ret == -EMSGSIZE || ret == -ENOBUFS) && skb_is_gso(skb) &&
	    len > GSO_LEGACY_MAX_SIZE) {
		xmit_in_pieces(nd, skb);
		return;
	}
	failed(nd, ret);
	dev_kfree_skb_any(skb);
	return;
drop:
	send_burst(nd);
	DEV_STATS_INC(dev, tx_errors);
	dev_kfree_skb_any(skb);
}

static netdev_tx_t net_xmit(struct sk_buff *skb, struct net_device *dev)
{
	xmit(netdev_priv(dev), skb, true);
	return NETDEV_TX_OK;
}

/* Sends the late frame again. */
static void send_late(struct lkl_net *nd)
{
	struct sk_buff *skb = nd->late;

	if (likely(!skb))
		return;
	nd->late = NULL;
	netif_start_queue(nd->dev);
	xmit(nd, skb, nd->late_stamp);
	send_burst(nd);		/* no frame of its list follows */
	if (!netif_queue_stopped(nd->dev))
		netif_schedule_queue(netdev_get_tx_queue(nd->dev, 0));
}

/* Takes back the frames that another thread has written. */
static void reap(void)
{
	void *frame;
	int id, ret;

	while (lklh_net_written(&id, &frame, &ret)) {
		if (ret <= 0 && lkl_nets[id])
			failed(lkl_nets[id], ret);
		if (!frame)
			continue;
		if (ret > 0)
			dev_consume_skb_any(frame);
		else
			dev_kfree_skb_any(frame);
	}
}

/* The ring has room again or is empty, which ends LKL_NETQ_FULL. */
static void wake_queues(void)
{
	int id;

	ring_full = false;
	for (id = 0; id < LKL_NET_MAX; id++)
		if (lkl_nets[id] && netif_running(lkl_nets[id]->dev) &&
		    netif_carrier_ok(lkl_nets[id]->dev))
			wake_queue(lkl_nets[id]);
}

/* Sets the link layer, and what the descriptor reported. 0: drop the frame */
static bool describe(struct lkl_net *nd, struct sk_buff *skb,
		     const struct lkl_net_meta *meta)
{
	if (nd->flags & LKL_NET_RAWIP) {
		skb_reset_mac_header(skb);
		skb->protocol = htons(lkl_rawip_protocol(skb->data));
		if (!skb->protocol)
			return false;
	} else {
		skb->protocol = eth_type_trans(skb, nd->dev);
	}
	if (meta->csum == LKL_CSUM_VALID)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	else if (meta->csum == LKL_CSUM_UNFINISHED)
		lkl_net_finish_csum(skb);
	if (meta->vlan_proto)
		__vlan_hwaccel_put_tag(skb, htons(meta->vlan_proto), meta->vlan_tci);
	return true;
}

/* Receives one frame. 1: received; 0: none; negative: error, or no memory */
static int receive(struct lkl_net *nd)
{
	struct net_device *dev = nd->dev;
	struct lkl_net_meta meta = { 0 };
	struct virtio_net_hdr_v1 hdr;
	struct lkl_iov iov[LKL_RX_CHUNKS + 1];
	struct sk_buff *skb;
	bool narrow;
	int n = 0;
	long ret;

	if (nd->vnet) {
		iov[n].base = &hdr;
		iov[n++].len = nd->vnet;
	}
	ret = lkl_rx_room(&nd->rx, iov + n);
	if (ret < 0)
		return ret;
	n += ret;
	/*
	 * Without a header frames are packets. The host reads fastest into one
	 * buffer.
	 */
	narrow = !nd->vnet && !nd->wide &&
		 iov[0].len >= dev->mtu + ETH_HLEN + 2 * VLAN_HLEN + 1;
	if (narrow)
		n = 1;

	ret = lklh_net_read(nd->id, iov, n, &meta);
	if (ret == -EAGAIN)
		return 0;
	if (ret == -ENOMSG)
		return 1;
	if (ret == -EBADMSG) {
		nd->wide = true;	/* packet sockets report a truncated frame this way */
		DEV_STATS_INC(dev, rx_frame_errors);
		return 1;
	}
	if (ret <= 0)
		return ret ? ret : -EPIPE;
	if (unlikely(narrow && ret > dev->mtu + ETH_HLEN + 2 * VLAN_HLEN))
		nd->wide = true;	/* the peer has another MTU */
	if (unlikely(narrow && ret >= (long)iov[0].len)) {
		DEV_STATS_INC(dev, rx_over_errors);
		return 1;		/* truncated; the next one will fit */
	}
	ret -= nd->vnet;
	if (unlikely(ret < (nd->flags & LKL_NET_RAWIP ? (int)sizeof(struct iphdr) :
			    ETH_HLEN))) {
		DEV_STATS_INC(dev, rx_length_errors);
		return 1;
	}
	skb = lkl_rx_packet(&nd->rx, &nd->napi, ret,
			    nd->flags & LKL_NET_RAWIP ? 0 : ETH_HLEN);
	if (unlikely(!skb)) {
		DEV_STATS_INC(dev, rx_dropped);
		return 1;
	}
	dev_sw_netstats_rx_add(dev, ret);
	rx_budget -= ret;
	if (nd->vnet && (hdr.flags || hdr.gso_type)) {
		if (hdr.flags & VIRTIO_NET_HDR_F_DATA_VALID)
			skb->ip_summed = CHECKSUM_UNNECESSARY;
		if (virtio_net_hdr_to_skb(skb, (struct virtio_net_hdr *)&hdr, true))
			goto bad;
	}
	if (!describe(nd, skb, &meta))
		goto bad;
	napi_gro_receive(&nd->napi, skb);
	return 1;
bad:
	DEV_STATS_INC(dev, rx_frame_errors);
	kfree_skb(skb);
	return 1;
}

/*
 * Each acknowledgement allows a few packets more. While many are read, the queue
 * is stopped: TCP then keeps most of its data back until all are read, and sends
 * it in few large frames. Returns whether it has stopped the queue.
 */
static bool plug(struct lkl_net *nd)
{
	struct netdev_queue *txq = netdev_get_tx_queue(nd->dev, 0);
	bool many = nd->many;

	nd->many = false;
	/* without a queue, frames would be lost; so would those of an XDP program */
	if (!many || netif_tx_queue_stopped(txq) || nd->late ||
	    !rcu_dereference_bh(txq->qdisc)->enqueue ||
	    rcu_access_pointer(nd->dev->xdp_prog))
		return false;
	netif_tx_stop_queue(txq);
	return true;
}

static int net_poll(struct napi_struct *napi, int budget)
{
	struct lkl_net *nd = container_of(napi, struct lkl_net, napi);
	int done = 0, ret = 0;
	bool plugged;

	send_late(nd);
	plugged = plug(nd);
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
	if (done < budget)
		napi_complete_done(napi, done);
	if (plugged)
		netif_wake_queue(nd->dev);
	if (done == budget)
		return done;
	if (ret == -ENOMEM)
		schedule_delayed_work(&nd->check, 1);
	else if (ret < 0)
		set_carrier(nd, false);
	return done;
}

/**
 * lkl_net_interrupt - handle the events of devices
 */
void lkl_net_interrupt(void)
{
	struct lkl_net *nd;
	unsigned int ev;
	int i;

	rx_budget = RX_BURST;
	reap();
	if (unlikely(ring_full))
		wake_queues();
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
		if (ev & LKL_NETEV_TX)
			wake_queue(nd);
		nd->many = ev & LKL_NETEV_MANY;
		if (ev & LKL_NETEV_RX)
			napi_schedule_irqoff(&nd->napi);
	}
}

static int net_open(struct net_device *dev)
{
	struct lkl_net *nd = netdev_priv(dev);

	napi_enable(&nd->napi);
	netif_start_queue(dev);
	if (nd->held || lklh_net_poll(nd->id) & LKL_NETEV_HUP)
		set_carrier(nd, false);
	else
		netif_carrier_on(dev);
	/* earlier events were lost */
	local_bh_disable();
	napi_schedule(&nd->napi);
	local_bh_enable();
	return 0;
}

static int net_stop(struct net_device *dev)
{
	struct lkl_net *nd = netdev_priv(dev);

	netif_stop_queue(dev);
	napi_disable(&nd->napi);
	cancel_delayed_work_sync(&nd->check);
	drop_late(nd);
	lkl_rx_free(&nd->rx);
	return 0;
}

static int net_change_carrier(struct net_device *dev, bool on)
{
	struct lkl_net *nd = netdev_priv(dev);

	nd->held = !on;
	local_bh_disable();
	if (!on)
		set_carrier(nd, false);
	else if (netif_running(dev))
		try_carrier(nd);
	local_bh_enable();
	return 0;
}

static const struct net_device_ops net_ops = {
	.ndo_open		= net_open,
	.ndo_stop		= net_stop,
	.ndo_start_xmit		= net_xmit,
	.ndo_change_carrier	= net_change_carrier,
	.ndo_get_stats64	= dev_get_tstats64,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

static const struct net_device_ops rawip_ops = {
	.ndo_open		= net_open,
	.ndo_stop		= net_stop,
	.ndo_start_xmit		= net_xmit,
	.ndo_change_carrier	= net_change_carrier,
	.ndo_get_stats64	= dev_get_tstats64,
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

int lklk_net_add(int id, const unsigned char *mac, unsigned int flags)
{
	bool rawip = flags & LKL_NET_RAWIP;
	struct net_device *dev;
	struct lkl_net *nd;
	int ret;

	dev = alloc_netdev(sizeof(*nd), "eth%d", NET_NAME_ENUM,
			   rawip ? lkl_rawip_setup : ether_setup);
	if (!dev)
		return -ENOMEM;
	nd = netdev_priv(dev);
	nd->dev = dev;
	nd->id = id;
	nd->flags = flags;
	if (flags & LKL_NET_VNET)
		nd->vnet = flags & LKL_NET_VNET10 ? sizeof(struct virtio_net_hdr) :
			   sizeof(struct virtio_net_hdr_v1);
	INIT_DELAYED_WORK(&nd->check, check_work);
	netif_napi_add(dev, &nd->napi, net_poll);

	dev->netdev_ops = rawip ? &rawip_ops : &net_ops;
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
	/*
	 * IPv6 would need an extension header for the length, which few
	 * programs expect
	 */
	if (flags & LKL_NET_BIG) {
		netif_set_tso_max_size(dev, BIG_SIZE);
		lkl_set_gso_ipv4_max_size(dev, BIG_SIZE);
	}
	if (!rawip)
		eth_hw_addr_set(dev, mac);

	ret = register_netdev(dev);
	if (ret) {
		netif_napi_del(&nd->napi);
		free_netdev(dev);
		return ret;
	}
	lkl_nets[id] = nd;
	if (rawip)
		lkl_rawip_registered(dev);
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
