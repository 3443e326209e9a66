// SPDX-License-Identifier: GPL-2.0-only
/*
 * The gateway: this kernel ends the TCP connections of another stack.
 *
 * Theory of operation
 *
 * The boot parameter "lkl_gateway" makes the kernel a gateway. eth0 then leads to
 * the other stack, and eth1 to a router.
 *
 * Frames. TCP packets from eth0 go up, and the other frames of eth0 go out of eth1,
 * and the reverse, unchanged. So to the other stack this kernel and the router look
 * like one machine, and eth0 must have the router's Ethernet address. eth0 resolves
 * no addresses: it sends to the Ethernet address that the other stack last sent
 * from.
 *
 * Connections. A route of type "local" makes all destinations our own. A SYN stops
 * in LOCAL_IN, and the reader of /proc/lkl_gateway learns of it. Only when it has
 * written a verdict, the SYN continues to a listening socket, whatever its port, or
 * is answered by RST or an ICMP error. So the other stack sees what became of the
 * connection that the reader made elsewhere. Repetitions of the SYN are dropped in
 * the meantime. TCP handles the segments of its sockets. All other segments are
 * answered by RST here, because TCP sends no RST from addresses that are not ours.
 *
 * Nothing here waits for a lock: the kernel has one processor, and does not preempt
 * its own code. Only softirqs must stay away from lists.
 */
#include <linux/etherdevice.h>
#include <linux/file.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/idr.h>
#include <linux/if_arp.h>
#include <linux/init.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/uaccess.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/netfilter/ipv4/nf_reject.h>
#include <net/netfilter/ipv6/nf_reject.h>
#include <net/netfilter/nf_socket.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>

#define HELD_MAX	4096	/* further SYNs are dropped */
#define BUCKETS		1024	/* a power of two */

/* Messages of /proc/lkl_gateway, which csrc/shared/gateway_proto.h has, too. */

/**
 * struct lkl_gateway_ask - read: a connection that the other stack asks for
 * @id: for the answer
 * @src, @dst: IPv6 addresses, or IPv4 addresses mapped to them, in network byte order
 * @sport, @dport: in network byte order
 */
struct lkl_gateway_ask {
	__u64 id;
	__u8 src[16], dst[16];
	__u16 sport, dport;
	__u32 pad;
};

enum lkl_gateway_verdict {
	LKL_GATEWAY_DROP,	/* no answer: the other stack tries again, and gives up later */
	LKL_GATEWAY_ACCEPT,
	LKL_GATEWAY_RESET,
	LKL_GATEWAY_ICMP,
};

/**
 * struct lkl_gateway_answer - written: what becomes of it
 * @id: that of the ask
 * @verdict: enum lkl_gateway_verdict
 * @listener: with ACCEPT, the listening socket that gets the connection
 * @type, @code: with ICMP, of the error, in the numbers of its family
 */
struct lkl_gateway_answer {
	__u64 id;
	__u32 verdict;
	__s32 listener;
	__u8 type, code;
	__u8 pad[6];
};

/**
 * struct held - a SYN without verdict
 * @hash: in the bucket of its addresses and ports
 * @unread: in the list of those that have not been read
 * @skb, @okfn: the packet, and its next step
 */
struct held {
	struct hlist_node hash;
	struct list_head unread;
	struct lkl_gateway_ask ask;
	struct sk_buff *skb;
	int (*okfn)(struct net *net, struct sock *sk, struct sk_buff *skb);
};

static struct hlist_head buckets[BUCKETS];
static LIST_HEAD(unread);
static DECLARE_WAIT_QUEUE_HEAD(readers);
static unsigned int n_held;
static DEFINE_IDR(ids);
static bool enabled, opened;

static struct net_device *eth[2];
static u8 peer_mac[ETH_ALEN];

static struct hlist_head *bucket(const struct lkl_gateway_ask *ask)
{
	return &buckets[jhash2((const u32 *)ask->src, 9, 0) & (BUCKETS - 1)];
}

static bool same(const struct lkl_gateway_ask *a, const struct lkl_gateway_ask *b)
{
	return !memcmp(a->src, b->src, 16) && !memcmp(a->dst, b->dst, 16) &&
	       a->sport == b->sport && a->dport == b->dport;
}

static struct held *find(const struct lkl_gateway_ask *ask)
{
	struct held *h;

	hlist_for_each_entry(h, bucket(ask), hash)
		if (same(&h->ask, ask))
			return h;
	return NULL;
}

static void forget(struct held *h)
{
	idr_remove(&ids, h->ask.id);
	hlist_del(&h->hash);
	if (!list_empty(&h->unread))
		list_del(&h->unread);
	n_held--;
	kfree(h);
}

static void mapped(u8 *to, __be32 addr)
{
	struct in6_addr a;

	ipv6_addr_set_v4mapped(addr, &a);
	memcpy(to, &a, sizeof(a));
}

static void send_reset(struct sk_buff *skb)
{
	if (skb->protocol == htons(ETH_P_IP))
		nf_send_reset(&init_net, NULL, skb, NF_INET_LOCAL_IN);
	else
		nf_send_reset6(&init_net, NULL, skb, NF_INET_LOCAL_IN);
}

/*
 * Whether a segment belongs to a connection. Early demux has found those that were not
 * fragments. A listener does not count: its port means nothing here.
 */
static bool connected(const struct sk_buff *skb, const struct net_device *in)
{
	struct sock *sk = skb->sk;
	bool found;

	if (sk)
		return true;
	if (skb->protocol == htons(ETH_P_IP))
		sk = nf_sk_lookup_slow_v4(&init_net, skb, in);
	else
		sk = nf_sk_lookup_slow_v6(&init_net, skb, in);
	if (!sk)
		return false;
	found = sk->sk_state != TCP_LISTEN;
	sock_gen_put(sk);
	return found;
}

/* Holds a SYN, and answers another segment, for which there is no socket. */
static unsigned int hold(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	bool v6 = state->pf == NFPROTO_IPV6;
	unsigned int offset = v6 ? sizeof(struct ipv6hdr) : ip_hdrlen(skb);
	const struct tcphdr *th;
	struct tcphdr copy;
	struct held *h;
	int id;

	if (state->in != eth[0])
		return NF_ACCEPT;
	if ((v6 ? ipv6_hdr(skb)->nexthdr : ip_hdr(skb)->protocol) != IPPROTO_TCP)
		return NF_ACCEPT;
	th = skb_header_pointer(skb, offset, sizeof(copy), &copy);
	if (!th)
		return NF_DROP;
	if (connected(skb, state->in))
		return NF_ACCEPT;
	if (!th->syn || th->ack || th->rst) {
		send_reset(skb);
		return NF_DROP;
	}
	if (!opened || n_held >= HELD_MAX || !skb_dst_force(skb))
		return NF_DROP;
	h = kzalloc(sizeof(*h), GFP_ATOMIC);
	if (!h)
		return NF_DROP;
	if (v6) {
		memcpy(h->ask.src, &ipv6_hdr(skb)->saddr, 16);
		memcpy(h->ask.dst, &ipv6_hdr(skb)->daddr, 16);
	} else {
		mapped(h->ask.src, ip_hdr(skb)->saddr);
		mapped(h->ask.dst, ip_hdr(skb)->daddr);
	}
	h->ask.sport = (__force u16)th->source;
	h->ask.dport = (__force u16)th->dest;
	id = find(&h->ask) ? -EEXIST : idr_alloc_cyclic(&ids, h, 0, 0, GFP_ATOMIC);
	if (id < 0) {
		kfree(h);
		return NF_DROP;
	}
	h->ask.id = id;
	h->skb = skb;
	h->okfn = state->okfn;
	hlist_add_head(&h->hash, bucket(&h->ask));
	list_add_tail(&h->unread, &unread);
	n_held++;
	wake_up_interruptible_poll(&readers, EPOLLIN | EPOLLRDNORM);
	return NF_STOLEN;
}

static const struct nf_hook_ops hooks[] = {
	{ .hook = hold, .pf = NFPROTO_IPV4, .hooknum = NF_INET_LOCAL_IN, .priority = NF_IP_PRI_LAST },
	{ .hook = hold, .pf = NFPROTO_IPV6, .hooknum = NF_INET_LOCAL_IN, .priority = NF_IP6_PRI_LAST },
};

/* Passes a SYN on to a listening socket, as if that had been found by its port. */
static int accept_syn(struct sk_buff *skb, struct held *h, int fd)
{
	struct socket *sock;
	int ret;

	sock = sockfd_lookup(fd, &ret);
	if (!sock)
		return ret;
	if (!sk_is_tcp(sock->sk) || sock->sk->sk_state != TCP_LISTEN) {
		sockfd_put(sock);
		return -EINVAL;
	}
	skb_orphan(skb);
	sock_hold(sock->sk);
	skb->sk = sock->sk;
	skb->destructor = sock_edemux;
	sockfd_put(sock);
	h->okfn(&init_net, NULL, skb);
	return 0;
}

/* The error comes from us, and not from the destination that the route made our own. */
static void send_icmp(struct sk_buff *skb, u8 type, u8 code)
{
	struct flowi4 fl4 = { .daddr = ip_hdr(skb)->saddr, .flowi4_oif = eth[0]->ifindex };
	struct rtable *rt;

	if (skb->protocol != htons(ETH_P_IP)) {
		icmpv6_send(skb, type, code, 0);
		return;
	}
	rt = ip_route_output_key(&init_net, &fl4);
	if (IS_ERR(rt))
		return;
	skb_dst_drop(skb);
	skb_dst_set(skb, &rt->dst);
	icmp_send(skb, type, code, 0);
}

static int decide(const struct lkl_gateway_answer *a)
{
	struct held *h = a->id <= INT_MAX ? idr_find(&ids, a->id) : NULL;
	int ret = 0;

	if (!h)
		return -ENOENT;
	switch (a->verdict) {
	case LKL_GATEWAY_ACCEPT:
		ret = accept_syn(h->skb, h, a->listener);
		break;
	case LKL_GATEWAY_RESET:
		send_reset(h->skb);
		break;
	case LKL_GATEWAY_ICMP:
		send_icmp(h->skb, a->type, a->code);
		break;
	}
	if (a->verdict != LKL_GATEWAY_ACCEPT || ret)
		kfree_skb(h->skb);
	forget(h);
	return ret;
}

static void drop_all(void)
{
	struct held *h;
	int id;

	local_bh_disable();
	idr_for_each_entry(&ids, h, id) {
		kfree_skb(h->skb);
		forget(h);
	}
	local_bh_enable();
}

static int gateway_open(struct inode *inode, struct file *file)
{
	if (opened)
		return -EBUSY;
	opened = true;
	return 0;
}

static int gateway_release(struct inode *inode, struct file *file)
{
	opened = false;
	drop_all();
	return 0;
}

/* One message per read: it fails with EAGAIN if there is none. */
static ssize_t gateway_read(struct file *file, char __user *to, size_t len, loff_t *pos)
{
	struct lkl_gateway_ask ask;
	struct held *h;

	if (len < sizeof(ask))
		return -EINVAL;
	local_bh_disable();
	h = list_first_entry_or_null(&unread, struct held, unread);
	if (h) {
		list_del_init(&h->unread);
		ask = h->ask;
	}
	local_bh_enable();
	if (!h)
		return -EAGAIN;
	return copy_to_user(to, &ask, sizeof(ask)) ? -EFAULT : sizeof(ask);
}

static ssize_t gateway_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct lkl_gateway_answer a;
	int ret;

	if (len != sizeof(a))
		return -EINVAL;
	if (copy_from_user(&a, from, sizeof(a)))
		return -EFAULT;
	local_bh_disable();
	rcu_read_lock();
	ret = decide(&a);
	rcu_read_unlock();
	local_bh_enable();
	return ret ? ret : len;
}

static __poll_t gateway_poll(struct file *file, poll_table *wait)
{
	poll_wait(file, &readers, wait);
	return EPOLLOUT | EPOLLWRNORM | (list_empty(&unread) ? 0 : EPOLLIN | EPOLLRDNORM);
}

static const struct proc_ops gateway_ops = {
	.proc_open	= gateway_open,
	.proc_release	= gateway_release,
	.proc_read	= gateway_read,
	.proc_write	= gateway_write,
	.proc_poll	= gateway_poll,
	.proc_lseek	= noop_llseek,
};

/* Whether a frame of eth0 is ours. */
static bool ours(struct sk_buff *skb)
{
	if (skb->protocol == htons(ETH_P_IP))
		return pskb_may_pull(skb, sizeof(struct iphdr)) &&
		       ((const struct iphdr *)skb->data)->protocol == IPPROTO_TCP;
	if (skb->protocol == htons(ETH_P_IPV6))
		return pskb_may_pull(skb, sizeof(struct ipv6hdr)) &&
		       ((const struct ipv6hdr *)skb->data)->nexthdr == IPPROTO_TCP;
	return false;
}

static rx_handler_result_t pass(struct sk_buff **pskb)
{
	struct sk_buff *skb = skb_share_check(*pskb, GFP_ATOMIC);
	bool from_peer;

	if (!skb)
		return RX_HANDLER_CONSUMED;
	*pskb = skb;
	from_peer = skb->dev == eth[0];
	if (from_peer && is_valid_ether_addr(eth_hdr(skb)->h_source))
		ether_addr_copy(peer_mac, eth_hdr(skb)->h_source);
	if (from_peer && ours(skb))
		return RX_HANDLER_PASS;
	if (!eth[0] || !eth[1]) {
		kfree_skb(skb);
		return RX_HANDLER_CONSUMED;
	}
	skb_push(skb, ETH_HLEN);
	skb->dev = eth[from_peer];
	dev_queue_xmit(skb);
	return RX_HANDLER_CONSUMED;
}

static int header_to_peer(struct sk_buff *skb, struct net_device *dev, unsigned short type,
			  const void *daddr, const void *saddr, unsigned int len)
{
	return eth_header(skb, dev, type, daddr && is_multicast_ether_addr(daddr) ? daddr : peer_mac,
			  saddr, len);
}

static const struct header_ops to_peer = { .create = header_to_peer, .parse = eth_header_parse };

static int devices(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct net_device *dev = netdev_notifier_info_to_dev(ptr);
	int n;

	for (n = 0; n < ARRAY_SIZE(eth); n++) {
		if (event == NETDEV_UNREGISTER && eth[n] == dev) {
			netdev_rx_handler_unregister(dev);
			drop_all();
			eth[n] = NULL;
		}
		if (event == NETDEV_REGISTER && !eth[n] && dev->type == ARPHRD_ETHER &&
		    net_eq(dev_net(dev), &init_net) && !netdev_rx_handler_register(dev, pass, NULL)) {
			dev->flags |= IFF_NOARP;
			if (!n)
				dev->header_ops = &to_peer;
			eth[n] = dev;
			break;
		}
	}
	return NOTIFY_DONE;
}

static struct notifier_block devices_nb = { .notifier_call = devices };

static int __init gateway_setup(char *text)
{
	enabled = true;
	return 1;
}
__setup("lkl_gateway", gateway_setup);

static int __init gateway_init(void)
{
	if (!enabled)
		return 0;
	if (!proc_create("lkl_gateway", 0600, NULL, &gateway_ops))
		return -ENOMEM;
	return register_netdevice_notifier(&devices_nb) ?:
	       nf_register_net_hooks(&init_net, hooks, ARRAY_SIZE(hooks));
}
late_initcall(gateway_init);
