// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bursts: frames that are written together.
 *
 * A large packet for a device without segmentation arrives as a list of frames.
 * They are kept until the last one arrives, then written with one call into the
 * host's kernel (lib/uring.c).
 */
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <asm/lkl.h>

/**
 * lkl_burst_add - keep a frame if another follows or others are already kept
 * @iov: its memory; a virtio-net header comes first and is copied
 * @cnt: of @iov
 * @proto: its Ethernet type, for devices without link layer
 *
 * Returns false if the frame is not kept; the caller then writes the kept
 * frames before it.
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
