// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/net/drops: the last packets that the stack dropped, and the last resets
 * that it sent or received, one per line, each with its reason.
 * /proc/net/retransmits: the same for segments that TCP sent again. They have a
 * ring of their own, because a lossy path would soon displace everything else.
 *
 * The kernel calls the functions below in place of its tracepoints kfree_skb,
 * tcp_send_reset, tcp_receive_reset, tcp_retransmit_skb and
 * tcp_retransmit_synack (include/trace/events). A reader that keeps a file open
 * reads only new lines. /proc/net/drop_counts has the totals per reason.
 *
 * Only losses count. The kernel also frees messages of netlink and of unix
 * sockets in the same way, acknowledgements that a closing connection has used,
 * answers to the subflows of one that has ended, and copies and error reports
 * that no program has read: see lost().
 */
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/tcp.h>
#include <linux/timekeeping.h>
#include <net/addrconf.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/netfilter/nf_conntrack.h>
#include <net/netfilter/nf_conntrack_core.h>
#include <net/netfilter/nf_reject.h>
#include <net/net_namespace.h>
#include <net/sch_generic.h>
#include <net/snmp.h>
#include <net/tcp.h>
#include <trace/events/skb.h>
#include <trace/events/tcp.h>
#include <asm/lkl_compat.h>
#include LKL_DROPREASON_H
#include "protocol.h"

#define RING	1024	/* records; a power of two */

enum kind { DROP, RESET_SENT, RESET_RECEIVED, RETRANSMIT };

static const char * const kind_names[] = { "drop", "reset-sent", "reset-received", "retransmit" };

#define FN(reason) [SKB_DROP_REASON_##reason] = #reason,
static const char * const skb_reasons[] = { DEFINE_DROP_REASON(FN, FN) };
#undef FN

#define OVERFLOW	"LISTEN_OVERFLOW"	/* a reason of ours */
#define REJECT		"NETFILTER_REJECT"	/* another one, of resets */

static const char * const reset_reasons[] = LKL_RST_REASON_NAMES;

enum cause { SYN, SYN_ACK, TIMEOUT, ZERO_WINDOW, FAST, LOSS_PROBE, CAUSES };

static const char * const causes[] = {
	"SYN", "SYN_ACK", "TIMEOUT", "ZERO_WINDOW", "FAST", "LOSS_PROBE"
};

struct record {
	u64 time;		/* ns since 1970 */
	void *place;		/* in the kernel, or NULL */
	const char *reason;
	struct in6_addr src, dst;
	u32 len, token, ifindex;
	u64 inode;
	u16 sport, dport, ethertype;
	u8 kind, protocol, flags;
};

struct ring {
	u64 written;		/* the number of the next record, from 0 */
	struct record records[RING];
};

static struct ring drops, retransmits;

static u64 drop_count[ARRAY_SIZE(skb_reasons)];
static u64 sent_count[ARRAY_SIZE(reset_reasons)];
static u64 overflow_count;
static u64 reject_count;
static u64 received_count;
static u64 retransmit_count[CAUSES];

/* No lock: the kernel has one processor, and does not preempt its own code. */
static struct record *next_record(enum kind kind, const char *reason)
{
	struct ring *ring = kind == RETRANSMIT ? &retransmits : &drops;
	struct record *r = &ring->records[ring->written++ % RING];

	memset(r, 0, sizeof(*r));
	r->time = ktime_get_real_ns();
	r->kind = kind;
	r->reason = reason ?: "NOT_SPECIFIED";
	return r;
}

static bool inside(const struct sk_buff *skb, const void *p, size_t len)
{
	return (const u8 *)p >= skb->head && (const u8 *)p + len <= skb_tail_pointer(skb);
}

static void ports(struct record *r, const struct sk_buff *skb, const u8 *l4)
{
	const struct tcphdr *th = (const struct tcphdr *)l4;

	if (r->protocol != IPPROTO_TCP && r->protocol != IPPROTO_UDP)
		return;
	if (!inside(skb, l4, 4))
		return;
	r->sport = ntohs(th->source);
	r->dport = ntohs(th->dest);
	if (r->protocol == IPPROTO_TCP && inside(skb, l4, sizeof(*th)))
		r->flags = tcp_flag_byte(th);
}

/* Reads the addresses of a packet. Its headers may be wrong: they may be the reason. */
static void addresses(struct record *r, const struct sk_buff *skb)
{
	const u8 *l3 = skb_network_header(skb);

	if (skb->network_header == (typeof(skb->network_header))~0U)
		return;
	if (r->ethertype == ETH_P_IP && inside(skb, l3, sizeof(struct iphdr))) {
		const struct iphdr *ip = (const struct iphdr *)l3;

		ipv6_addr_set_v4mapped(ip->saddr, &r->src);
		ipv6_addr_set_v4mapped(ip->daddr, &r->dst);
		r->protocol = ip->protocol;
		if (!(ip->frag_off & htons(IP_OFFSET)))
			ports(r, skb, l3 + ip->ihl * 4);
	} else if (r->ethertype == ETH_P_IPV6 && inside(skb, l3, sizeof(struct ipv6hdr))) {
		const struct ipv6hdr *ip = (const struct ipv6hdr *)l3;

		r->src = ip->saddr;
		r->dst = ip->daddr;
		r->protocol = ip->nexthdr;
		ports(r, skb, l3 + sizeof(*ip));
	}
}

/*
 * The kernel also drops packets while it destroys their socket. The inode and
 * the MPTCP connection of a closed subflow may be gone then.
 */
static void socket_of(struct record *r, const struct sock *sk)
{
	const struct sock *msk;

	if (!sk || !sk_fullsock(sk))
		return;
	if (sk->sk_socket)
		r->inode = SOCK_INODE(sk->sk_socket)->i_ino;
	/* A raw socket may have the protocol TCP, too. */
	if (sk->sk_type != SOCK_STREAM || sk->sk_protocol != IPPROTO_TCP ||
	    sk->sk_state == TCP_CLOSE || !sk_is_mptcp(sk))
		return;
	msk = mptcp_subflow_ctx(sk)->conn;
	if (msk)
		r->token = mptcp_sk(msk)->token;
}

/* The tuple of a socket, in the direction of its packets. */
static void tuple_of(struct record *r, const struct sock *sk)
{
	const struct inet_sock *inet = inet_sk(sk);

	r->protocol = IPPROTO_TCP;
	r->sport = ntohs(inet->inet_sport);
	r->dport = ntohs(inet->inet_dport);
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		r->ethertype = ETH_P_IPV6;
		r->src = inet6_sk(sk)->saddr;
		r->dst = sk->sk_v6_daddr;
		return;
	}
#endif
	r->ethertype = ETH_P_IP;
	ipv6_addr_set_v4mapped(inet->inet_saddr, &r->src);
	ipv6_addr_set_v4mapped(inet->inet_daddr, &r->dst);
}

/*
 * The interface that received the packet, or else the one that would send it.
 * While a packet waits in a socket, the protocols use the field skb->dev for
 * something else, so it counts only if it is the address of a device.
 */
static u32 ifindex_of(const struct sk_buff *skb)
{
	struct net_device *dev;
	u32 ifindex = skb->skb_iif;

	if (ifindex)
		return ifindex;
	rcu_read_lock();
	for_each_netdev_rcu(&init_net, dev)
		if (dev == skb->dev)
			ifindex = dev->ifindex;
	rcu_read_unlock();
	return ifindex;
}

/* The interface that a connection sends to, or 0. */
static u32 outgoing(const struct sock *sk)
{
	const struct dst_entry *dst;
	u32 ifindex;

	rcu_read_lock();
	dst = __sk_dst_get((struct sock *)sk);
	ifindex = dst && dst->dev ? dst->dev->ifindex : 0;
	rcu_read_unlock();
	return ifindex;
}

/* Without a destructor, the packet does not hold its socket, or has other data there. */
static const struct sock *owner_of(const struct sk_buff *skb)
{
	return skb->destructor ? skb->sk : NULL;
}

/* Returns 0 for a message that is no packet. */
static u16 ethertype_of(const struct sk_buff *skb)
{
	const struct sock *sk = owner_of(skb);
	u16 type = ntohs(skb->protocol);

	if (type == ETH_P_IP || type == ETH_P_IPV6 || type == ETH_P_ARP)
		return type;
	if (type && ifindex_of(skb))
		return type;
	/* A packet that IP has not yet sent has only its socket. */
	if (!type && sk && sk_fullsock(sk)) {
		if (sk->sk_family == AF_INET)
			return ETH_P_IP;
		if (sk->sk_family == AF_INET6)
			return ETH_P_IPV6;
	}
	return 0;
}

/* Returns whether a counter of the kernel has changed since the last call. */
static bool counted(unsigned int now, unsigned int *seen)
{
	bool changed = now != *seen;

	*seen = now;
	return changed;
}

/*
 * The kernel has no reason for a connection that a listener's full queue refuses.
 * It counts it, and frees the packet before it looks at another one.
 */
static bool overflows(void)
{
	static unsigned int seen;
	struct linux_mib *mib = init_net.mib.net_statistics; /* NULL during the boot */

	return mib && counted(per_cpu_ptr(mib, 0)->mibs[LINUX_MIB_LISTENOVERFLOWS], &seen);
}

/* Connection tracking drops the packets of new connections if its table is full. */
static bool untracked(void)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	static unsigned int seen;
	struct ip_conntrack_stat *stat = init_net.ct.stat; /* NULL during the boot */

	return stat && counted(per_cpu_ptr(stat, 0)->drop, &seen);
#else
	return false;
#endif
}

/* Returns whether a packet is for a group that routers never forward, such as that of MLD. */
static bool link_local_group(const struct sk_buff *skb, u16 type)
{
	const u8 *l3 = skb_network_header(skb);

	if (type == ETH_P_IP && inside(skb, l3, sizeof(struct iphdr)))
		return ipv4_is_local_multicast(((const struct iphdr *)l3)->daddr);
	if (type == ETH_P_IPV6 && inside(skb, l3, sizeof(struct ipv6hdr))) {
		const struct in6_addr *to = &((const struct ipv6hdr *)l3)->daddr;

		return ipv6_addr_is_multicast(to) && IPV6_ADDR_MC_SCOPE(to) <= IPV6_ADDR_SCOPE_LINKLOCAL;
	}
	return false;
}

/* Returns whether an interface forwards packets for groups. */
static bool routes_groups(int ifindex)
{
	const struct net_device *dev;
	const struct in_device *in_dev;
	bool routes = false;

	rcu_read_lock();
	dev = dev_get_by_index_rcu(&init_net, ifindex);
	in_dev = dev ? __in_dev_get_rcu(dev) : NULL;
	if (in_dev)
		routes = IN_DEV_MFORWARD(in_dev);
#if IS_ENABLED(CONFIG_IPV6_MROUTE)
	if (dev && __in6_dev_get(dev))
		routes = routes || atomic_read(&__in6_dev_get(dev)->cnf.mc_forwarding);
#endif
	rcu_read_unlock();
	return routes;
}

/*
 * Returns whether a received frame is for everyone or for a group: that of a neighbour's service,
 * such as SSDP or NetBIOS, or of a protocol of switches. If nothing here takes it, nobody here has
 * asked for it.
 */
static bool for_many(const struct sk_buff *skb)
{
	return skb->skb_iif && (skb->pkt_type == PACKET_BROADCAST ||
				(skb->pkt_type == PACKET_MULTICAST && !routes_groups(skb->skb_iif)));
}

/*
 * Frames for other machines, which a switch sends everywhere, are no losses of this machine. All
 * of them are counted, but a record in a second shows them; more would replace those of losses.
 */
static bool listed_lately(void)
{
	static unsigned long next;

	if (next && time_before(jiffies, next))
		return true;
	next = jiffies + HZ;
	return false;
}

/* Returns the header of a segment that TCP has received, or NULL. */
static const struct tcphdr *received_segment(const struct sk_buff *skb, u16 type)
{
	const u8 *l3 = skb_network_header(skb);
	const struct tcphdr *th;
	u8 protocol = 0;

	if (type == ETH_P_IP && inside(skb, l3, sizeof(struct iphdr)))
		protocol = ((const struct iphdr *)l3)->protocol;
	else if (type == ETH_P_IPV6 && inside(skb, l3, sizeof(struct ipv6hdr)))
		protocol = ((const struct ipv6hdr *)l3)->nexthdr;
	if (protocol != IPPROTO_TCP || !skb->skb_iif || !skb_transport_header_was_set(skb))
		return NULL;
	th = tcp_hdr(skb);
	/* IP has removed its header only if the packet is for this host. */
	if (!inside(skb, th, sizeof(*th)) || skb->data < (const u8 *)th)
		return NULL;
	return th;
}

/* Returns whether a segment neither has data nor opens a connection. */
static bool bare_segment(const struct sk_buff *skb, const struct tcphdr *th)
{
	return !th->syn && skb->data + skb->len <= (const u8 *)th + th->doff * 4;
}

/*
 * Returns whether nobody misses the subflow that a segment without a socket opens: that of an
 * MPTCP connection which has ended, or one that the peer adds to a connection which it has
 * accepted, so that no listener of this side can expect it.
 */
static bool vain_join(const struct sk_buff *skb, const struct tcphdr *th)
{
	struct mptcp_options_received options;
	struct mptcp_sock *msk;
	bool vain = true;

	if (!th->syn || !inside(skb, th, th->doff * 4))
		return false;
	mptcp_get_options(skb, &options);
	if (options.suboptions & OPTION_MPTCP_MPJ_SYNACK)
		return true;
	if (!(options.suboptions & OPTION_MPTCP_MPJ_SYN))
		return false;
	msk = mptcp_token_get_sock(&init_net, options.token);
	if (msk) {
		vain = !READ_ONCE(msk->pm.server_side);
		sock_put((struct sock *)msk);
	}
	return vain;
}

/*
 * The kernel also gives a reason for packets that it has used, and for those that it has
 * no use for: nothing is lost with them.
 */
static bool lost(const struct sk_buff *skb, u16 type, enum skb_drop_reason reason)
{
	const struct sock *sk = owner_of(skb);
	const struct tcphdr *th;

	switch (reason) {
	case SKB_DROP_REASON_NOT_SPECIFIED:
		/*
		 * Such a packet has never been on the way: that of a query for a route has
		 * no interface, or lo.
		 */
		if (!sk && !skb->skb_iif && ifindex_of(skb) <= LOOPBACK_IFINDEX)
			return false;
		if (skb->skb_iif && link_local_group(skb, type))
			return false;
		fallthrough;
#ifdef LKL_HAS_QUEUE_PURGE
	case SKB_DROP_REASON_QUEUE_PURGE:
#endif
		/* Sockets of these kinds receive copies of packets. */
		if (sk && skb->destructor == sock_rfree &&
		    (sk->sk_family == AF_PACKET || sk->sk_type == SOCK_RAW))
			return false;
		/* A socket's error queue has reports, which skb_set_err_queue() marks. */
		if (sk && skb->pkt_type == PACKET_OUTGOING)
			return false;
		fallthrough;
	case SKB_DROP_REASON_NO_SOCKET:
	case SKB_DROP_REASON_TCP_CLOSE:
	case SKB_DROP_REASON_TCP_FLAGS:
	case SKB_DROP_REASON_TCP_OLD_ACK:
	case SKB_DROP_REASON_TCP_OLD_DATA:
#ifdef LKL_HAS_TCP_OLD_SEQUENCE
	case SKB_DROP_REASON_TCP_OLD_SEQUENCE:
#endif
	case SKB_DROP_REASON_TCP_OVERWINDOW:
	case SKB_DROP_REASON_TCP_RESET:
		if (for_many(skb))
			return false;
		th = received_segment(skb, type);
		return !th || !(bare_segment(skb, th) ||
				(reason == SKB_DROP_REASON_NO_SOCKET && vain_join(skb, th)));
	case SKB_DROP_REASON_IP_INADDRERRORS:
	case SKB_DROP_REASON_IP_NOPROTO:
	case SKB_DROP_REASON_UNHANDLED_PROTO:
		return !for_many(skb);
	case SKB_DROP_REASON_IP_INNOROUTES:
		return !link_local_group(skb, type) && !for_many(skb);
	case SKB_DROP_REASON_QDISC_DROP:
		/* An interface sends these packets before its link is up, and repeats them. */
		return !skb->dev || !qdisc_tx_is_noop(skb->dev) || !link_local_group(skb, type);
	default:
		return true;
	}
}

/**
 * lkl_packet_dropped - record a packet that the stack loses
 * @skb: the packet, which the stack frees
 * @place: where in the kernel
 * @reason: why
 */
void lkl_packet_dropped(struct sk_buff *skb, void *place,
			enum skb_drop_reason reason LKL_KFREE_SKB_RX_SK)
{
	bool overflow = overflows(), full = untracked();
	struct record *r;
	u16 type;

	if (reason == LKL_SKB_CONSUMED && !overflow)
		return;
	type = ethertype_of(skb);
	if (!type)
		return;
	if (reason >= ARRAY_SIZE(skb_reasons))
		reason = SKB_DROP_REASON_NOT_SPECIFIED;
	if (reason == SKB_DROP_REASON_UNHANDLED_PROTO && skb->pkt_type == PACKET_OTHERHOST)
		reason = SKB_DROP_REASON_OTHERHOST;
	if (!overflow && !lost(skb, type, reason))
		return;
	if (overflow && (reason == SKB_DROP_REASON_NOT_SPECIFIED || reason == LKL_SKB_CONSUMED)) {
		overflow_count++;
		r = next_record(DROP, OVERFLOW);
	} else {
		drop_count[reason]++;
		if (reason == SKB_DROP_REASON_OTHERHOST && listed_lately())
			return;
		r = next_record(DROP, skb_reasons[reason]);
	}
	r->place = full && reason == SKB_DROP_REASON_NETFILTER_DROP ? nf_conntrack_in : place;
	r->ethertype = type;
	r->len = skb->len;
	r->ifindex = ifindex_of(skb);
	addresses(r, skb);
	socket_of(r, owner_of(skb) ?: lkl_kfree_skb_rx_sk);
}

/**
 * lkl_packet_consumed - record a SYN that a listener's full queue refuses
 * @skb: a packet that the stack has used, or such a SYN
 */
void lkl_packet_consumed(struct sk_buff *skb)
{
#ifdef LKL_HAS_KFREE_SKB_SOCKET
	lkl_packet_dropped(skb, tcp_conn_request, LKL_SKB_CONSUMED, NULL);
#else
	lkl_packet_dropped(skb, tcp_conn_request, LKL_SKB_CONSUMED);
#endif
}

/**
 * lkl_reset_rejected - record a reset that a rule of netfilter sends
 * @skb: the reset
 */
void lkl_reset_rejected(const struct sk_buff *skb)
{
	struct record *r = next_record(RESET_SENT, REJECT);

	reject_count++;
	r->ethertype = ntohs(skb->protocol);
	addresses(r, skb);
}

/**
 * lkl_reset_sent - record a reset that the stack sends
 * @sk: its socket, or NULL if there is none
 * @skb: the packet that it answers, or NULL
 */
void lkl_reset_sent(const struct sock *sk, const struct sk_buff *skb LKL_SEND_RESET_REASON)
{
	unsigned int reason = lkl_send_reset_reason;
	struct record *r;

	if (reason >= ARRAY_SIZE(reset_reasons))
		reason = 0;
	sent_count[reason]++;
	r = next_record(RESET_SENT, reset_reasons[reason]);
	r->flags = TCPHDR_RST;
	socket_of(r, sk);
	/* A listener has no peer, but the packet has. */
	if (sk && sk_fullsock(sk) && sk->sk_state != TCP_LISTEN) {
		tuple_of(r, sk);
	} else if (skb) {
		r->ethertype = ntohs(skb->protocol);
		addresses(r, skb);
		/* The reset goes back to the sender of the packet. */
		swap(r->src, r->dst);
		swap(r->sport, r->dport);
		r->flags = TCPHDR_RST;
	}
	if (skb)
		r->ifindex = ifindex_of(skb);
}

/**
 * lkl_reset_received - record a reset of a connection by its peer
 * @sk: the connection
 */
void lkl_reset_received(struct sock *sk)
{
	struct record *r;

	received_count++;
	r = next_record(RESET_RECEIVED, "PEER");
	tuple_of(r, sk);
	socket_of(r, sk);
	/* The reset came from the peer. */
	swap(r->src, r->dst);
	swap(r->sport, r->dport);
	r->flags = TCPHDR_RST;
}

/*
 * The kernel does not say why it retransmits, but its state does: it enters the
 * states Loss and Recovery first. Outside both, only the probe for a lost tail is left.
 */
static enum cause cause_of(const struct sock *sk)
{
	if (sk->sk_state == TCP_SYN_SENT)
		return SYN;
	if (sk->sk_state == TCP_SYN_RECV)
		return SYN_ACK;
	switch (inet_csk(sk)->icsk_ca_state) {
	case TCP_CA_Loss:
		return tcp_sk(sk)->snd_wnd ? TIMEOUT : ZERO_WINDOW;
	case TCP_CA_Recovery:
		return FAST;
	}
	return LOSS_PROBE;
}

/**
 * lkl_retransmitted - record data that TCP sends again
 * @sk: its socket
 * @skb: the data, which may be several segments
 */
void lkl_retransmitted(const struct sock *sk, const struct sk_buff *skb LKL_RETRANSMIT_ERROR)
{
	enum cause cause = cause_of(sk);
	struct record *r;

	if (lkl_retransmit_error)
		return;
	retransmit_count[cause]++;
	r = next_record(RETRANSMIT, causes[cause]);
	tuple_of(r, sk);
	socket_of(r, sk);
	r->len = skb->len;
	r->flags = TCP_SKB_CB(skb)->tcp_flags;
	r->ifindex = outgoing(sk);
}

/**
 * lkl_synack_retransmitted - record a SYN-ACK that TCP sends again
 * @sk: the listener
 * @req: the connection
 */
void lkl_synack_retransmitted(const struct sock *sk, const struct request_sock *req)
{
	const struct inet_request_sock *ireq = inet_rsk(req);
	struct record *r;

	retransmit_count[SYN_ACK]++;
	r = next_record(RETRANSMIT, causes[SYN_ACK]);
	socket_of(r, sk);
	r->protocol = IPPROTO_TCP;
	r->flags = TCPHDR_SYN | TCPHDR_ACK;
	r->sport = ireq->ir_num;
	r->dport = ntohs(ireq->ir_rmt_port);
	r->ifindex = ireq->ir_iif;
#if IS_ENABLED(CONFIG_IPV6)
	if (ireq->ireq_family == AF_INET6) {
		r->ethertype = ETH_P_IPV6;
		r->src = ireq->ir_v6_loc_addr;
		r->dst = ireq->ir_v6_rmt_addr;
		return;
	}
#endif
	r->ethertype = ETH_P_IP;
	ipv6_addr_set_v4mapped(ireq->ir_loc_addr, &r->src);
	ipv6_addr_set_v4mapped(ireq->ir_rmt_addr, &r->dst);
}

static struct ring *ring_of(struct seq_file *seq)
{
	return pde_data(file_inode(seq->file));
}

/* Position 0 is the head line; position N + 1 is record N. */
static void *drops_start(struct seq_file *seq, loff_t *pos)
{
	struct ring *ring = ring_of(seq);
	u64 oldest = ring->written > RING ? ring->written - RING : 0;

	if (!*pos)
		return SEQ_START_TOKEN;
	if (*pos - 1 < oldest)
		*pos = oldest + 1;
	return *pos - 1 < ring->written ? &ring->records[(*pos - 1) % RING] : NULL;
}

static void *drops_next(struct seq_file *seq, void *v, loff_t *pos)
{
	++*pos;
	return drops_start(seq, pos);
}

static void drops_stop(struct seq_file *seq, void *v)
{
}

static void show_address(struct seq_file *seq, const struct in6_addr *a, u16 port)
{
	if (ipv6_addr_v4mapped(a))
		seq_printf(seq, " %pI4 %u", &a->s6_addr32[3], port);
	else if (ipv6_addr_any(a))
		seq_printf(seq, " - %u", port);
	else
		seq_printf(seq, " %pI6c %u", a, port);
}

static int drops_show(struct seq_file *seq, void *v)
{
	struct record *r = v;
	struct net_device *dev;

	if (v == SEQ_START_TOKEN) {
		seq_puts(seq, "number time kind reason place interface bytes ethertype protocol source sport destination dport flags inode token\n");
		return 0;
	}
	seq_printf(seq, "%llu %llu.%09llu %s %s ", (u64)seq->index - 1, r->time / NSEC_PER_SEC,
		   r->time % NSEC_PER_SEC, kind_names[r->kind], r->reason);
	if (r->place)
		seq_printf(seq, "%ps", r->place);
	else
		seq_putc(seq, '-');
	rcu_read_lock();
	dev = dev_get_by_index_rcu(&init_net, r->ifindex);
	seq_printf(seq, " %s %u %04x %u", dev ? dev->name : "-", r->len, r->ethertype,
		   r->protocol);
	rcu_read_unlock();
	show_address(seq, &r->src, r->sport);
	show_address(seq, &r->dst, r->dport);
	seq_printf(seq, " %02x %llu %08x\n", r->flags, r->inode, r->token);
	return 0;
}

static const struct seq_operations drops_ops = {
	.start	= drops_start,
	.next	= drops_next,
	.stop	= drops_stop,
	.show	= drops_show,
};

static void show_counts(struct seq_file *seq, enum kind kind, const u64 *count,
			const char * const *reasons, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (count[i])
			seq_printf(seq, "%s %s %llu\n", kind_names[kind], reasons[i], count[i]);
}

static int counts_show(struct seq_file *seq, void *v)
{
	show_counts(seq, DROP, drop_count, skb_reasons, ARRAY_SIZE(skb_reasons));
	if (overflow_count)
		seq_printf(seq, "%s %s %llu\n", kind_names[DROP], OVERFLOW, overflow_count);
	show_counts(seq, RESET_SENT, sent_count, reset_reasons, ARRAY_SIZE(reset_reasons));
	if (reject_count)
		seq_printf(seq, "%s %s %llu\n", kind_names[RESET_SENT], REJECT, reject_count);
	show_counts(seq, RETRANSMIT, retransmit_count, causes, CAUSES);
	if (received_count)
		seq_printf(seq, "%s PEER %llu\n", kind_names[RESET_RECEIVED], received_count);
	return 0;
}

static int __init drops_init(void)
{
	if (!proc_create_seq_data("drops", 0444, init_net.proc_net, &drops_ops, &drops) ||
	    !proc_create_seq_data("retransmits", 0444, init_net.proc_net, &drops_ops, &retransmits) ||
	    !proc_create_single("drop_counts", 0444, init_net.proc_net, counts_show))
		return -ENOMEM;
	return 0;
}
late_initcall(drops_init);
