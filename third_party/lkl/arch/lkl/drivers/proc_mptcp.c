// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/net/mptcp: one line per MPTCP connection.
 *
 * Out-of-tree MPTCP had this file, mainline does not. Programs and people use
 * it to check for MPTCP. The columns and their widths are the old ones, so
 * parsers of the old file can read this one.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>
#include "protocol.h"

struct mptcp_iter {
	struct seq_net_private p;
	long slot, num;
	int line;
};

static void *next_msk(struct seq_file *seq)
{
	struct mptcp_iter *it = seq->private;

	return mptcp_token_iter_next(seq_file_net(seq), &it->slot, &it->num);
}

static void *m_start(struct seq_file *seq, loff_t *pos)
{
	struct mptcp_iter *it = seq->private;
	struct mptcp_sock *msk = NULL;
	loff_t n;

	if (!*pos)
		return SEQ_START_TOKEN;
	/*
	 * A position may change when connections come and go, so count again.
	 */
	it->slot = it->num = 0;
	it->line = *pos - 1;
	for (n = 0; n < *pos; n++) {
		msk = next_msk(seq);
		if (!msk)
			return NULL;
		if (n + 1 < *pos)
			sock_put((struct sock *)msk);
	}
	return msk;
}

static void *m_next(struct seq_file *seq, void *v, loff_t *pos)
{
	struct mptcp_iter *it = seq->private;

	++*pos;
	if (v == SEQ_START_TOKEN) {
		it->slot = it->num = it->line = 0;
		return next_msk(seq);
	}
	sock_put(v);
	it->line++;
	return next_msk(seq);
}

static void m_stop(struct seq_file *seq, void *v)
{
	if (v && v != SEQ_START_TOKEN)
		sock_put(v);
}

static unsigned int count_subflows(struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;
	unsigned int n = 0;

	mptcp_for_each_subflow(msk, subflow)
		n++;
	return n;
}

static int m_show(struct seq_file *seq, void *v)
{
	struct mptcp_iter *it = seq->private;
	struct mptcp_sock *msk = v;
	struct sock *sk = v;
	struct inet_sock *inet = inet_sk(sk);
	u32 rem_token = 0;
	unsigned int ns;
	u64 idsn;

	if (v == SEQ_START_TOKEN) {
		seq_puts(seq,
			 "  sl  loc_tok  rem_tok  v6 local_address                         remote_address                        st ns tx_queue rx_queue inode\n");
		return 0;
	}
	lock_sock(sk);
	if (READ_ONCE(msk->can_ack))
		mptcp_crypto_key_sha(msk->remote_key, &rem_token, &idsn);
	ns = count_subflows(msk);
	seq_printf(seq, "%4d: %08X %08X ", it->line, msk->token, rem_token);
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr)) {
		const __be32 *src = sk->sk_v6_rcv_saddr.s6_addr32;
		const __be32 *dst = sk->sk_v6_daddr.s6_addr32;

		seq_printf(seq, " 1 %08X%08X%08X%08X:%04X %08X%08X%08X%08X:%04X",
			   src[0], src[1], src[2], src[3],
			   ntohs(inet->inet_sport),
			   dst[0], dst[1], dst[2], dst[3],
			   ntohs(inet->inet_dport));
	} else
#endif
	seq_printf(seq, " 0 %08X:%04X %24s %08X:%04X %24s",
		   inet->inet_rcv_saddr, ntohs(inet->inet_sport), "",
		   inet->inet_daddr, ntohs(inet->inet_dport), "");
	seq_printf(seq, " %02X %02X %08X:%08X %llu\n",
		   inet_sk_state_load(sk), ns,
		   (u32)(msk->write_seq - msk->snd_una),
		   (u32)sk_rmem_alloc_get(sk), (u64)sock_i_ino(sk));
	release_sock(sk);
	return 0;
}

static const struct seq_operations mptcp_seq_ops = {
	.start	= m_start,
	.next	= m_next,
	.stop	= m_stop,
	.show	= m_show,
};

static int __net_init mptcp_proc_init(struct net *net)
{
	if (!proc_create_net("mptcp", 0444, net->proc_net, &mptcp_seq_ops,
			     sizeof(struct mptcp_iter)))
		return -ENOMEM;
	return 0;
}

static void __net_exit mptcp_proc_exit(struct net *net)
{
	remove_proc_entry("mptcp", net->proc_net);
}

static struct pernet_operations mptcp_proc_net_ops = {
	.init = mptcp_proc_init,
	.exit = mptcp_proc_exit,
};

static int __init mptcp_proc_register(void)
{
	return register_pernet_subsys(&mptcp_proc_net_ops);
}
late_initcall(mptcp_proc_register);
