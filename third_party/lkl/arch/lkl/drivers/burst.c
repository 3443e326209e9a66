// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames that leave together.
 *
 * What a device without segmentation sends comes as a list, the pieces of one large
 * packet: they are kept until the last one is there, and then written with one entry
 * into the host's kernel (lib/uring.c).
 */
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <asm/lkl.h>

/**
 * lkl_burst_add - keep a frame for later, if one is to follow or others are kept
 * @iov: where it lies; with a header of virtio that is the first, and is copied
 * @cnt: of @iov
 * @proto: its Ethernet type, for devices without link layer
 *
 * False: it is not kept, and those that are have to be written before it.
 */
bool lkl_burst_add(struct lkl_burst *b, struct sk_buff *skb,
		   const struct lkl_iov *iov, int cnt, int proto)
{
	struct lkl_net_out *o = &b->out[b->n];
	int i;

	if ((!b->n && !netdev_xmit_more()) || cnt > LKL_BURST_IOVS ||
	    skb_is_gso(skb))
		return false;
	b->frame[b->n].skb = skb;
	for (i = 0; i < cnt; i++)
		b->frame[b->n].iov[i] = iov[i];
	if (iov[0].base != skb->data) {
		memcpy(&b->frame[b->n].hdr, iov[0].base, iov[0].len);
		b->frame[b->n].iov[0].base = &b->frame[b->n].hdr;
	}
	o->iov = b->frame[b->n].iov;
	o->cnt = cnt;
	o->proto = proto;
	b->n++;
	return true;
}
