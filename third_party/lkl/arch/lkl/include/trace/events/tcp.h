/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls drivers/proc_drops.c in place of two tracepoints, see skb.h. */
#include_next <trace/events/tcp.h>

#if defined(CONFIG_LKL_PROC_DROPS) && !defined(trace_tcp_send_reset)
#include <asm/lkl_compat.h>
#define trace_tcp_send_reset	lkl_reset_sent
#define trace_tcp_receive_reset	lkl_reset_received
void lkl_reset_sent(const struct sock *sk, const struct sk_buff *skb LKL_SEND_RESET_REASON);
void lkl_reset_received(struct sock *sk);
#endif
