// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory for received frames.
 *
 * Frames have an unknown size, up to 64 KiB. They are read into a run of
 * chunks, each frame behind the previous one; unused memory is left for the
 * next. Headers are copied out, so that GRO finds them in the linear part, with
 * only the payload in fragments.
 */
#include <linux/etherdevice.h>
#include <linux/if_ether.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <asm/lkl.h>

#define CHUNK_ORDER	3
#define CHUNK_SIZE	(PAGE_SIZE << CHUNK_ORDER)

/*
 * Room for a 64 KiB packet in a VLAN-tagged frame, at any offset in the first
 * chunk
 */
static_assert(LKL_RX_CHUNKS >= (65536 + 64) / CHUNK_SIZE + 2);

/* Small frames, and the headers of large ones, are within one chunk. */
#define ROOM_MIN	2048

/* Frames up to this length are copied, which costs less than a fragment. */
#define COPY_MAX	256

static void next_chunk(struct lkl_rx *rx)
{
	put_page(rx->chunk[0]);
	memmove(rx->chunk, rx->chunk + 1,
		sizeof(rx->chunk[0]) * (LKL_RX_CHUNKS - 1));
	rx->chunk[LKL_RX_CHUNKS - 1] = NULL;
	rx->fill = 0;
}

/**
 * lkl_rx_room - the memory for the next frame
 * @iov: LKL_RX_CHUNKS of them
 *
 * Returns the number of entries filled in, or -ENOMEM.
 */
int lkl_rx_room(struct lkl_rx *rx, struct lkl_iov *iov)
{
	int i;

	if (rx->chunk[0] && CHUNK_SIZE - rx->fill < ROOM_MIN)
		next_chunk(rx);
	for (i = 0; i < LKL_RX_CHUNKS; i++) {
		if (!rx->chunk[i])
			rx->chunk[i] = alloc_pages(GFP_ATOMIC | __GFP_NOWARN |
						   __GFP_COMP, CHUNK_ORDER);
		if (!rx->chunk[i])
			return -ENOMEM;
		iov[i].base = page_address(rx->chunk[i]);
		iov[i].len = CHUNK_SIZE;
	}
	iov[0].base += rx->fill;
	iov[0].len -= rx->fill;
	return LKL_RX_CHUNKS;
}

/* Length of the headers to copy. */
static unsigned int header_len(const u8 *p, unsigned int len, unsigned int link)
{
	const struct ethhdr *eth = (const struct ethhdr *)p;

	if (len <= COPY_MAX)
		return len;
	if (link && eth->h_proto != htons(ETH_P_IP) &&
	    eth->h_proto != htons(ETH_P_IPV6))
		return 128;
	return min(link + lkl_rawip_headers(p + link, len - link),
		   (unsigned int)COPY_MAX);
}

/**
 * lkl_rx_packet - make a packet of the frame that was read
 * @len: its length
 * @link: length of its link-layer header, 0 or ETH_HLEN
 */
struct sk_buff *lkl_rx_packet(struct lkl_rx *rx, struct napi_struct *napi,
			      unsigned int len, unsigned int link)
{
	u8 *p = page_address(rx->chunk[0]) + rx->fill;
	unsigned int head = header_len(p, len, link), off, size;
	struct sk_buff *skb = napi_alloc_skb(napi, COPY_MAX + NET_IP_ALIGN);

	if (unlikely(!skb))
		return NULL;
	/* Align the IP header behind an Ethernet header, for 32-bit Arm. */
	if (!link)
		skb_reserve(skb, NET_IP_ALIGN);
	memcpy(__skb_put(skb, head), p, head);
	if (head == len)
		return skb;

	off = rx->fill + head;
	len -= head;
	while (len) {
		size = min_t(unsigned int, len, CHUNK_SIZE - off);
		get_page(rx->chunk[0]);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, rx->chunk[0], off,
				size, SKB_DATA_ALIGN(size));
		off += size;
		len -= size;
		if (off == CHUNK_SIZE && len) {
			next_chunk(rx);
			off = 0;
		}
	}
	rx->fill = ALIGN(off, SMP_CACHE_BYTES);
	return skb;
}

/**
 * lkl_rx_free - free the memory
 */
void lkl_rx_free(struct lkl_rx *rx)
{
	int i;

	for (i = 0; i < LKL_RX_CHUNKS; i++)
		if (rx->chunk[i])
			put_page(rx->chunk[i]);
	memset(rx, 0, sizeof(*rx));
}
