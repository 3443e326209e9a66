/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Substitutes for the kernel headers that rx.c and rawip.c of the stack's
 * drivers need, for rawip.c here. The linear part of a packet is allocated
 * exactly, so that the sanitizers detect reads after its end.
 */
#ifndef FUZZ_KERNEL_H
#define FUZZ_KERNEL_H

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <linux/virtio_net.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;

#define __noreturn		__attribute__((noreturn))
#define likely(x)		(x)
#define unlikely(x)		(x)
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define max_t(type, a, b)	max((type)(a), (type)(b))
#define ALIGN(x, a)		(((x) + (a) - 1) & ~((a) - 1))
#define IS_ENABLED(option)	0
#define GFP_ATOMIC		0
#define __GFP_NOWARN		0
#define __GFP_COMP		0
#define PAGE_SIZE		4096u
#define SMP_CACHE_BYTES		64u
#define SKB_DATA_ALIGN(x)	ALIGN(x, SMP_CACHE_BYTES)
#define NET_IP_ALIGN		2
#define ARPHRD_NONE		0xfffe
#define IFF_POINTOPOINT		0x10
#define IFF_NOARP		0x80
#define IFF_MULTICAST		0x1000
#define CHECKSUM_UNNECESSARY	1
#define CHECKSUM_PARTIAL	3
#define MAX_FRAGS		17

/** struct page - contiguous pages */
struct page {
	unsigned int count;
	void *memory;
};

struct napi_struct;
struct header_ops { int unused; };
extern const struct header_ops ip_tunnel_header_ops;

struct net_device {
	const struct header_ops *header_ops;
	unsigned int type, flags, mtu, tx_queue_len;
};

struct skb_shared_info {
	int nr_frags;
	struct page *frag[MAX_FRAGS];
};

/** struct sk_buff - @head bytes are linear, at @data, in memory that ends there */
struct sk_buff {
	uint8_t *data;
	unsigned int head, len;
	uint16_t protocol, csum_start, csum_offset;
	int ip_summed;
	struct skb_shared_info shinfo;
};

static inline struct skb_shared_info *skb_shinfo(struct sk_buff *skb)
{
	return &skb->shinfo;
}

static inline unsigned int skb_headlen(const struct sk_buff *skb)
{
	return skb->head;
}

static inline void skb_reserve(struct sk_buff *skb, int len)
{
	(void)skb;
	(void)len;
}

static inline void *page_address(const struct page *page)
{
	return page->memory;
}

static inline void get_page(struct page *page)
{
	page->count++;
}

static inline bool ip_is_fragment(const struct iphdr *ip)
{
	return ip->frag_off & htons(0x3fff);
}

struct page *alloc_pages(int how, unsigned int order);
void put_page(struct page *page);
struct sk_buff *napi_alloc_skb(struct napi_struct *napi, unsigned int len);
void *__skb_put(struct sk_buff *skb, unsigned int len);
void skb_add_rx_frag(struct sk_buff *skb, int i, struct page *page, int off,
		     int size, unsigned int truesize);
int ipv6_skip_exthdr(const struct sk_buff *skb, int start, uint8_t *proto,
		     uint16_t *frag);
bool skb_partial_csum_set(struct sk_buff *skb, uint16_t start, uint16_t off);

#endif
