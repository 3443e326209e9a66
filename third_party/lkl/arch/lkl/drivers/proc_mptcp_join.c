// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/net/mptcp_join: let one MPTCP connection try one endpoint again.
 *
 * The path manager tries an endpoint once on each connection. If the subflow's
 * handshake fails or the subflow is reset, it does not come back until the
 * endpoint is deleted and added again, which closes the subflows of all other
 * connections over it. Commands for one connection exist only if a program
 * manages the paths from the start.
 *
 * A write consists of a connection's token (hexadecimal), an endpoint's number
 * and optionally "fullmesh", if the endpoint has that flag. Signal endpoints
 * are not supported. The result of the write:
 *
 *	0		a SYN was sent, more than one with fullmesh
 *	-EEXIST		the endpoint has a subflow, or one is being established
 *	-EAGAIN		the connection is being established
 *	-ENETUNREACH	nothing could be sent: no route, no address, the limit of
 *			subflows, another family; or the full mesh exists
 *	-EOPNOTSUPP	this side never creates subflows on the connection: it is a
 *			server's, or has fallen back to TCP
 *	-ENOENT		no such connection, or it is being closed
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>
#include <asm/lkl_compat.h>
#include "protocol.h"

/* As in the worker: mptcp_worker() holds the lock of the socket as well. */
static void try_endpoints(struct mptcp_sock *msk)
{
	spin_lock_bh(&msk->pm.lock);
	msk->pm.status |= BIT(MPTCP_PM_SUBFLOW_ESTABLISHED);
	spin_unlock_bh(&msk->pm.lock);
	lkl_mptcp_pm_work(msk);
}

static bool has_live_subflow(struct mptcp_sock *msk, u8 local_id)
{
	struct mptcp_subflow_context *subflow;

	mptcp_for_each_subflow(msk, subflow) {
		struct sock *ssk = mptcp_subflow_tcp_sock(subflow);

		if ((1 << inet_sk_state_load(ssk)) &
		    (TCPF_ESTABLISHED | TCPF_SYN_SENT | TCPF_SYN_RECV) &&
		    subflow_get_local_id(subflow) == local_id)
			return true;
	}
	return false;
}

static int join_again(struct mptcp_sock *msk, u8 id, bool fullmesh)
{
	struct sock *sk = (struct sock *)msk;
	u8 local_id, before;

	msk_owned_by_me(msk);
	if (msk->pm.server_side || !mptcp_pm_is_kernel(msk) ||
	    __mptcp_check_fallback(msk) || !READ_ONCE(msk->allow_subflows) ||
	    READ_ONCE(msk->pm.remote_deny_join_id0))
		return -EOPNOTSUPP;
	if ((1 << inet_sk_state_load(sk)) & (TCPF_SYN_SENT | TCPF_SYN_RECV))
		return -EAGAIN;
	if (inet_sk_state_load(sk) != TCP_ESTABLISHED)
		return -ENOENT;
	if (!READ_ONCE(msk->fully_established))
		return -EAGAIN;

	/* The address of the first subflow has ID 0 in the connection. */
	local_id = msk->mpc_endpoint_id == id ? 0 : id;
	if (!fullmesh && has_live_subflow(msk, local_id))
		return -EEXIST;

	spin_lock_bh(&msk->pm.lock);
	if (!__test_and_set_bit(id, msk->pm.id_avail_bitmap) && local_id &&
	    msk->pm.local_addr_used)
		msk->pm.local_addr_used--;
	before = lkl_mptcp_pm_subflows(msk);
	spin_unlock_bh(&msk->pm.lock);
	try_endpoints(msk);
	return lkl_mptcp_pm_subflows(msk) > before ? 0 : -ENETUNREACH;
}

static int join_write(struct file *file, char *buf, size_t size)
{
	struct net *net = seq_file_single_net(file->private_data);
	struct mptcp_sock *msk;
	char word[9] = "";
	u32 token;
	int n, err;
	u8 id;

	if (!ns_capable(net->user_ns, CAP_NET_ADMIN))
		return -EPERM;
	n = sscanf(buf, "%x %hhu %8s", &token, &id, word);
	if (n < 2 || !id || (n == 3 && strcmp(word, "fullmesh")))
		return -EINVAL;
	msk = mptcp_token_get_sock(net, token);
	if (!msk)
		return -ENOENT;
	lock_sock((struct sock *)msk);
	err = join_again(msk, id, n == 3);
	release_sock((struct sock *)msk);
	sock_put((struct sock *)msk);
	return err;
}

static int join_show(struct seq_file *seq, void *v)
{
	seq_puts(seq, "write: TOKEN ENDPOINT [fullmesh]\n");
	return 0;
}

static int __net_init join_init(struct net *net)
{
	if (!proc_create_net_single_write("mptcp_join", 0600, net->proc_net,
					  join_show, join_write, NULL))
		return -ENOMEM;
	return 0;
}

static void __net_exit join_exit(struct net *net)
{
	remove_proc_entry("mptcp_join", net->proc_net);
}

static struct pernet_operations join_net_ops = {
	.init = join_init,
	.exit = join_exit,
};

static int __init join_register(void)
{
	return register_pernet_subsys(&join_net_ops);
}
late_initcall(join_register);
