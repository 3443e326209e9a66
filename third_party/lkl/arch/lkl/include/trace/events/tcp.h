/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls drivers/proc_drops.c in place of four tracepoints, see skb.h. */
#include_next <trace/events/tcp.h>

#if defined(CONFIG_LKL_PROC_DROPS) && !defined(trace_tcp_send_reset)
#include <asm/lkl_compat.h>
#define trace_tcp_send_reset	lkl_reset_sent
#define trace_tcp_receive_reset	lkl_reset_received
#define trace_tcp_retransmit_skb	lkl_retransmitted
#define trace_tcp_retransmit_synack	lkl_synack_retransmitted
void lkl_reset_sent(const struct sock *sk, const struct sk_buff *skb LKL_SEND_RESET_REASON);
void lkl_reset_received(struct sock *sk);
void lkl_retransmitted(const struct sock *sk, const struct sk_buff *skb LKL_RETRANSMIT_ERROR);
void lkl_synack_retransmitted(const struct sock *sk, const struct request_sock *req);
#endif
