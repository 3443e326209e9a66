/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernel versions, from Linux 6.1 on. LKL_HAS_* come from
 * features.mk; no other file of this architecture uses them or a version.
 */
#ifndef _ASM_LKL_COMPAT_H
#define _ASM_LKL_COMPAT_H

/* Headers that have moved: #include LKL_... In quotes, because linux is a macro. */
#if __has_include(<linux/unaligned.h>)
#define LKL_UNALIGNED_H	"linux/unaligned.h"
#else
#define LKL_UNALIGNED_H	"asm/unaligned.h"
#endif

#if __has_include(<net/gso.h>)
#define LKL_GSO_H	"net/gso.h"
#else
#define LKL_GSO_H	"linux/netdevice.h"
#endif

#if __has_include(<net/dropreason-core.h>)
#define LKL_DROPREASON_H	"net/dropreason-core.h"
#else
#define LKL_DROPREASON_H	"net/dropreason.h"
#endif

/* The architecture defines the size of a page, or the core does. */
#if __has_include(<vdso/page.h>)
#define LKL_PAGE_H	"vdso/page.h"
#else
#define LKL_PAGE_H	"asm/lkl_page_size.h"
#endif

/* Since 6.5 these follow from arch_xchg() and arch_cmpxchg(). */
#ifndef LKL_HAS_RAW_ATOMICS
#define arch_atomic_xchg(v, new)		arch_xchg(&(v)->counter, new)
#define arch_atomic_cmpxchg(v, old, new)	arch_cmpxchg(&(v)->counter, old, new)
#define arch_atomic64_xchg(v, new)		arch_xchg(&(v)->counter, new)
#define arch_atomic64_cmpxchg(v, old, new)	arch_cmpxchg(&(v)->counter, old, new)
#endif

/*
 * The core divides the memory into zones, and frees it, since 6.15 and later.
 * Before, the architecture calls it.
 */
#ifdef LKL_HAS_ZONE_LIMITS
#define lkl_zones_init()	do { } while (0)
#else
#define lkl_zones_init()						\
do {									\
	unsigned long max_zone_pfns[MAX_NR_ZONES] = { 0 };		\
									\
	arch_zone_limits_init(max_zone_pfns);				\
	free_area_init(max_zone_pfns);					\
} while (0)
#endif

#ifdef LKL_HAS_CORE_FREE_ALL
#define lkl_free_memory()	do { } while (0)
#else
#define lkl_free_memory()	memblock_free_all()
#endif

#ifdef LKL_HAS_MAX_MAPNR
#define lkl_set_max_mapnr(n)	set_max_mapnr(n)
#else
#define lkl_set_max_mapnr(n)	do { } while (0)
#endif

/* The page of zeros must be in the arena, as only the arena has struct pages. */
#ifdef LKL_HAS_ZERO_PAGE
#define lkl_setup_zero_page()	(__zero_page = virt_to_page(lkl_zero_page))
#else
#define lkl_setup_zero_page()	do { } while (0)
#define ZERO_PAGE(vaddr)	virt_to_page(lkl_zero_page)
#endif

/* The text of the idle loop had bounds of its own. */
#ifdef LKL_HAS_CPUIDLE_TEXT
#define LKL_CPUIDLE_TEXT	CPUIDLE_TEXT
#else
#define LKL_CPUIDLE_TEXT
#endif

/* Large IPv4 packets: a limit of their own since 6.3 */
#ifdef LKL_HAS_IPV4_GSO_MAX
#define lkl_set_gso_ipv4_max_size(dev, size)	((dev)->gso_ipv4_max_size = (size))
#else
#define lkl_set_gso_ipv4_max_size(dev, size)	do { } while (0)
#endif

/* Packets whose memory is a device's, since 6.12 */
#ifdef LKL_HAS_FRAGS_READABLE
#define lkl_skb_frags_readable(skb)		skb_frags_readable(skb)
#else
#define lkl_skb_frags_readable(skb)		true
#endif

/* The reason for freeing a packet that was used. Before 6.3, any number can mean it. */
#ifdef LKL_HAS_SKB_CONSUMED
#define LKL_SKB_CONSUMED	SKB_CONSUMED
#else
#define LKL_SKB_CONSUMED	SKB_NOT_DROPPED_YET
#endif

/* The socket that a dropped packet was for, since 6.11 */
#ifdef LKL_HAS_KFREE_SKB_SOCKET
#define LKL_KFREE_SKB_RX_SK	, const struct sock *lkl_kfree_skb_rx_sk
#else
#define LKL_KFREE_SKB_RX_SK
#define lkl_kfree_skb_rx_sk	NULL
#endif

/* Why the stack sends a reset, since 6.10. Older versions give no reason. */
#ifdef LKL_HAS_RST_REASON
#define LKL_SEND_RESET_REASON	, const enum sk_rst_reason lkl_send_reset_reason
#define LKL_RST_REASON_NAME(reason)	[SK_RST_REASON_##reason] = #reason,
#define LKL_RST_REASON_NAMES		\
	{ DEFINE_RST_REASON(LKL_RST_REASON_NAME, LKL_RST_REASON_NAME) }
#else
#define LKL_SEND_RESET_REASON
#define lkl_send_reset_reason	0
#define LKL_RST_REASON_NAMES	{ "NOT_SPECIFIED" }
#endif

/* Whether a retransmission failed, since 6.16. Older versions report only those that did not. */
#ifdef LKL_HAS_RETRANSMIT_ERROR
#define LKL_RETRANSMIT_ERROR	, int lkl_retransmit_error
#else
#define LKL_RETRANSMIT_ERROR
#define lkl_retransmit_error	0
#endif

/* MPTCP's second queue of received data; later versions have only one. */
#ifdef LKL_HAS_MPTCP_QUEUE
#define lkl_mptcp_receive_queue(msk)		(&(msk)->receive_queue)
#else
#define lkl_mptcp_receive_queue(msk)		NULL
#endif

/* The structure was private to net/mptcp/protocol.c, with this layout. */
#ifdef LKL_HAS_MPTCP_SKB_CB
#define lkl_mptcp_skb_offset(skb)		(MPTCP_SKB_CB(skb)->offset)
#else
#ifndef __ASSEMBLY__
struct lkl_mptcp_skb_cb {
	unsigned long long map_seq, end_seq;
	unsigned int offset;
};
#endif
#define lkl_mptcp_skb_offset(skb)		(((struct lkl_mptcp_skb_cb *)(skb)->cb)->offset)
#endif

/* MPTCP's path manager: its work, and the number of its subflows */
#ifdef LKL_HAS_MPTCP_PM_NL_WORK
#define lkl_mptcp_pm_work(msk)			mptcp_pm_nl_work(msk)
#else
#define lkl_mptcp_pm_work(msk)			mptcp_pm_worker(msk)
#endif

#ifdef LKL_HAS_MPTCP_EXTRA_SUBFLOWS
#define lkl_mptcp_pm_subflows(msk)		((msk)->pm.extra_subflows)
#else
#define lkl_mptcp_pm_subflows(msk)		((msk)->pm.subflows)
#endif

#endif
