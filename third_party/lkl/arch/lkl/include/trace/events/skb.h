/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls drivers/proc_drops.c in place of the tracepoints kfree_skb and consume_skb.
 * Real tracepoints would need the whole of the kernel's tracing.
 */
#include_next <trace/events/skb.h>

#if defined(CONFIG_LKL_PROC_DROPS) && !defined(trace_kfree_skb)
#include <asm/lkl_compat.h>
#define trace_kfree_skb	lkl_packet_dropped
void lkl_packet_dropped(struct sk_buff *skb, void *place,
			enum skb_drop_reason reason LKL_KFREE_SKB_RX_SK);
#define trace_consume_skb(skb, ...)	lkl_packet_consumed(skb)
void lkl_packet_consumed(struct sk_buff *skb);
#endif
