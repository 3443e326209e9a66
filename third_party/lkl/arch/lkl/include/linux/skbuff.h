/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Without tracepoints, the kernel makes no difference between a packet that it
 * has used and one that it drops. drivers/proc_drops.c needs the difference.
 */
#include_next <linux/skbuff.h>

#if defined(CONFIG_LKL_PROC_DROPS) && !defined(consume_skb)
#include <asm/lkl_compat.h>
#define consume_skb(skb)	kfree_skb_reason(skb, LKL_SKB_CONSUMED)
#endif
