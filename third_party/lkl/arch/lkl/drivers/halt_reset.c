// SPDX-License-Identifier: GPL-2.0-only
/*
 * On halt, reset connections that are not finished.
 *
 * A halted machine is silent, and its unsent data is lost. Its peers would wait
 * for the rest, forever if they have no keepalive, and the address may by then
 * belong to another machine or to none. A connection that is closed and has
 * delivered everything needs no RST.
 */
#include <linux/reboot.h>
#include <net/inet_hashtables.h>
#include <net/net_namespace.h>
#include <net/tcp.h>
#include "protocol.h"

/* Our data or FIN may be in flight, or could have followed. */
#define UNFINISHED (TCPF_ESTABLISHED | TCPF_FIN_WAIT1 | TCPF_CLOSE_WAIT | TCPF_CLOSING | \
		    TCPF_LAST_ACK)

/*
 * A socket that is locked stays locked, because its owner no longer runs. Do
 * not wait for the lock.
 */
static bool unfinished(const struct sock *sk)
{
	return (1 << inet_sk_state_load(sk)) & UNFINISHED && !sock_owned_by_user_nocheck(sk);
}

static bool subflows_are_free(const struct mptcp_sock *msk)
{
	struct mptcp_subflow_context *subflow;

	mptcp_for_each_subflow(msk, subflow)
		if (sock_owned_by_user_nocheck(mptcp_subflow_tcp_sock(subflow)))
			return false;
	return true;
}

static void reset_mptcp(const struct net *net)
{
	long slot = 0, num = 0;
	struct mptcp_sock *msk;

	while ((msk = mptcp_token_iter_next(net, &slot, &num))) {
		struct sock *sk = (struct sock *)msk;

		if (unfinished(sk)) {
			lock_sock(sk);
			if (subflows_are_free(msk)) {
				sk->sk_prot->disconnect(sk, 0);
				num = 0;	/* it has left the bucket */
			}
			release_sock(sk);
		}
		sock_put(sk);
	}
}

static struct sock *first_unfinished(struct inet_hashinfo *hash, unsigned int slot)
{
	spinlock_t *lock = inet_ehash_lockp(hash, slot);
	struct sock *sk, *found = NULL;
	struct hlist_nulls_node *node;

	spin_lock_bh(lock);
	sk_nulls_for_each(sk, node, &hash->ehash[slot].chain)
		if (unfinished(sk)) {
			sock_hold(sk);
			found = sk;
			break;
		}
	spin_unlock_bh(lock);
	return found;
}

static void reset_tcp(struct inet_hashinfo *hash)
{
	struct sock *sk;
	unsigned int i;

	for (i = 0; i <= hash->ehash_mask; i++)
		while ((sk = first_unfinished(hash, i))) {
			tcp_abort(sk, ECONNABORTED);
			sock_put(sk);
		}
}

static int halting(struct notifier_block *nb, unsigned long event, void *command)
{
	struct net *net;

	/*
	 * MPTCP first: data of a subflow that is reset alone would be
	 * retransmitted on the others.
	 */
	down_read(&net_rwsem);
	for_each_net(net)
		reset_mptcp(net);
	for_each_net(net)
		reset_tcp(net->ipv4.tcp_death_row.hashinfo);
	up_read(&net_rwsem);
	return NOTIFY_DONE;
}

static struct notifier_block block = { .notifier_call = halting };

static int __init halt_reset_init(void)
{
	return register_reboot_notifier(&block);
}
late_initcall(halt_reset_init);
