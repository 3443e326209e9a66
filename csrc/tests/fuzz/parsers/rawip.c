// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes how the stack's driver processes a frame before it passes it to the
 * kernel: drivers/rx.c and drivers/rawip.c, with kernel.h in place of the
 * kernel's headers.
 */
#include "kernel.h"
#include <asm/lkl.h>

#include "fuzz.h"

#define FRAME_MAX	(65536 + 64)

const struct header_ops ip_tunnel_header_ops;

static struct input *input;
volatile uint8_t fuzz_sink;	/* forces the bytes to be read */

/** alloc_pages - allocate pages, or fail */
struct page *alloc_pages(int how, unsigned int order)
{
	struct page *page = malloc(sizeof(*page));

	(void)how;
	page->count = 1;
	page->memory = malloc(PAGE_SIZE << order);
	return page;
}

/** put_page - drop a reference; the last one frees the page */
void put_page(struct page *page)
{
	assert(page->count);
	if (--page->count)
		return;
	free(page->memory);
	free(page);
}

/** napi_alloc_skb - allocate a packet, without memory for its linear part yet */
struct sk_buff *napi_alloc_skb(struct napi_struct *napi, unsigned int len)
{
	(void)napi;
	(void)len;
	return calloc(1, sizeof(struct sk_buff));
}

/** __skb_put - allocate the linear part; called once */
void *__skb_put(struct sk_buff *skb, unsigned int len)
{
	assert(!skb->data);
	skb->data = malloc(len);
	skb->head = skb->len = len;
	return skb->data;
}

/** skb_add_rx_frag - add a part of a page; checks that all of it is allocated */
void skb_add_rx_frag(struct sk_buff *skb, int i, struct page *page, int off,
		     int size, unsigned int truesize)
{
	int n;

	(void)truesize;
	assert(i < MAX_FRAGS && size > 0);
	for (n = 0; n < size; n += 64)
		fuzz_sink ^= ((uint8_t *)page->memory)[off + n];
	fuzz_sink ^= ((uint8_t *)page->memory)[off + size - 1];
	skb->shinfo.frag[i] = page;
	skb->shinfo.nr_frags = i + 1;
	skb->len += (unsigned int)size;
}

/** ipv6_skip_exthdr - find any header of the packet, or none */
int ipv6_skip_exthdr(const struct sk_buff *skb, int start, uint8_t *proto,
		     uint16_t *frag)
{
	uint8_t n = get8(input);

	*frag = n & 1;
	*proto = get8(input) & 1 ? 6 : 17;
	return n > 250 ? -1 : start + n % ((int)skb->len - start + 1);
}

/** skb_partial_csum_set - whether the checksum is in the linear part */
bool skb_partial_csum_set(struct sk_buff *skb, uint16_t start, uint16_t off)
{
	if ((uint32_t)start + off + 2 > skb->head)
		return false;
	skb->ip_summed = CHECKSUM_PARTIAL;
	return true;
}

/** put_frame - write a frame to the driver's memory, as the host does; returns its length */
static unsigned int put_frame(struct input *in, struct lkl_rx *rx,
			      unsigned int least)
{
	struct lkl_iov iov[LKL_RX_CHUNKS];
	int i, n = lkl_rx_room(rx, iov);
	unsigned int len = least + get32(in) % (FRAME_MAX - least), at = 0;
	uint8_t head[128];

	fill(in, head, sizeof(head));
	for (i = 0; i < n && at < len; i++) {
		size_t part = min(iov[i].len, (unsigned long)(len - at));

		memset(iov[i].base, 0, part);
		if (!at)
			memcpy(iov[i].base, head, min(part, sizeof(head)));
		at += part;
	}
	assert(at == len);
	return len;
}

/** frame - pass a frame through the driver, as receive() of drivers/net.c does */
static void frame(struct input *in, struct lkl_rx *rx, unsigned int link)
{
	unsigned int len = put_frame(in, rx, link ? ETH_HLEN : 20);
	struct sk_buff *skb = lkl_rx_packet(rx, NULL, len, link);
	int i;

	assert(skb->len == len && skb->head >= (link ? link : 1));
	if (!link)
		skb->protocol = htons(lkl_rawip_protocol(skb->data));
	if (!link && skb->protocol)
		lkl_net_finish_csum(skb);
	for (i = 0; i < skb->shinfo.nr_frags; i++)
		put_page(skb->shinfo.frag[i]);
	free(skb->data);
	free(skb);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	struct lkl_rx rx = { 0 };
	unsigned int n;

	input = &in;
	for (n = 0; left(&in) && n < 64; n++)
		frame(&in, &rx, get8(&in) & 1 ? ETH_HLEN : 0);
	lkl_rx_free(&rx);
	return 0;
}
