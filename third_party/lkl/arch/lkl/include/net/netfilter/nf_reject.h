/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No tracepoint reports the resets of netfilter rules. This tells drivers/proc_drops.c
 * about each one: netfilter attaches it to the connection, just before it sends it.
 */
#include <linux/netfilter.h>
#include_next <net/netfilter/nf_reject.h>

#if defined(CONFIG_LKL_PROC_DROPS) && !defined(nf_ct_attach)
void lkl_reset_rejected(const struct sk_buff *skb);
#define nf_ct_attach(reset, packet)	(lkl_reset_rejected(reset), nf_ct_attach(reset, packet))
#endif
