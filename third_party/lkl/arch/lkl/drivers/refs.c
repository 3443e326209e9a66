// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lists the memory of received data.
 *
 * A program that forwards a stream to the host can avoid one copy, because
 * packets are in the memory of the process. This takes nothing from the socket.
 * A receive with MSG_TRUNC does that afterwards, with the usual window updates
 * and acknowledgements. Until then, and as long as the kernel does not run, the
 * bytes stay in place.
 */
#include <linux/net.h>
#include <linux/skbuff.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <asm/lkl.h>
#include "protocol.h"

/**
 * struct refs - the list of pieces
 * @iov: the pieces so far, @n of @max
 * @left: bytes still wanted
 */
struct refs {
	struct lkl_iov *iov;
	int n, max;
	size_t left;
};

/* Adds a piece of memory. false: stop */
static bool add(struct refs *r, void *base, size_t len)
{
	struct lkl_iov *last = r->n ? &r->iov[r->n - 1] : NULL;

	len = min(len, r->left);
	if (!len)
		return r->left;
	if (last && last->base + last->len == base) {
		last->len += len;
	} else {
		if (r->n == r->max)
			return false;
		r->iov[r->n].base = base;
		r->iov[r->n++].len = len;
	}
	r->left -= len;
	return r->left;
}

/* Adds a packet from @offset on. false: stop */
static bool add_skb(struct refs *r, const struct sk_buff *skb,
		    unsigned int offset)
{
	unsigned int len = skb_headlen(skb);
	struct sk_buff *part;
	int i;

	if (offset < len && !add(r, skb->data + offset, len - offset))
		return false;
	offset -= min(offset, len);
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++) {
		const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

		len = skb_frag_size(frag);
		if (offset < len && !add(r, skb_frag_address(frag) + offset,
					 len - offset))
			return false;
		offset -= min(offset, len);
	}
	skb_walk_frags(skb, part) {
		if (offset < part->len && !add_skb(r, part, offset))
			return false;
		offset -= min(offset, part->len);
	}
	return true;
}

/* Urgent data, and the marks it leaves, require an ordinary receive. */
static int tcp_refs(struct sock *sk, struct refs *r)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 seq = tp->copied_seq, offset;
	const struct sk_buff *skb;

	if (tp->urg_data || sk->sk_state == TCP_LISTEN)
		return -EOPNOTSUPP;
	skb_queue_walk(&sk->sk_receive_queue, skb) {
		offset = seq - TCP_SKB_CB(skb)->seq;
		if (TCP_SKB_CB(skb)->tcp_flags & TCPHDR_SYN)
			offset--;
		if (!lkl_skb_frags_readable(skb))
			break;
		if (offset < skb->len) {
			seq += skb->len - offset;
			if (!add_skb(r, skb, offset))
				break;
		}
		if (TCP_SKB_CB(skb)->tcp_flags & TCPHDR_FIN)
			break;
	}
	return 0;
}

#ifdef CONFIG_MPTCP
/* Moves data between the queues as the next receive would. */
static int mptcp_refs(struct sock *sk, struct refs *r)
{
	struct sk_buff_head *queues[] = {
		lkl_mptcp_receive_queue(mptcp_sk(sk)), &sk->sk_receive_queue,
	};
	const struct sk_buff *skb;
	bool more = sk->sk_state != TCP_LISTEN;
	int i;

	mptcp_data_lock(sk);
	for (i = queues[0] ? 0 : 1; i < ARRAY_SIZE(queues); i++)
		skb_queue_walk(queues[i], skb)
			more = more && add_skb(r, skb, lkl_mptcp_skb_offset(skb));
	mptcp_data_unlock(sk);
	return 0;
}
#else
static int mptcp_refs(struct sock *sk, struct refs *r)
{
	return -EOPNOTSUPP;
}
#endif

/**
 * lklk_refs - list the memory of the next bytes that a receive on @fd would
 * return
 * @iov: room for @max pieces
 * @len: upper limit in bytes
 *
 * Returns the number of pieces, 0 if there is no data, or a negative errno:
 * -EOPNOTSUPP if an ordinary receive is required.
 */
long lklk_refs(int fd, struct lkl_iov *iov, int max, unsigned long len)
{
	struct refs r = { .iov = iov, .max = max, .left = len };
	struct socket *sock;
	struct sock *sk;
	int ret;

	sock = sockfd_lookup(fd, &ret);
	if (!sock)
		return ret;
	sk = sock->sk;
	ret = -EOPNOTSUPP;
	lock_sock(sk);
	if (sk_is_tcp(sk))
		ret = tcp_refs(sk, &r);
	else if (sk->sk_protocol == IPPROTO_MPTCP)
		ret = mptcp_refs(sk, &r);
	release_sock(sk);
	sockfd_put(sock);
	return ret ? ret : r.n;
}
