// SPDX-License-Identifier: GPL-2.0-only
/*
 * TCP's share of the arena, and room for bursts of datagrams.
 *
 * The kernel's own defaults give TCP a sixteenth of a machine's memory. Here the
 * machine is the network stack: TCP may have half of it, and one connection a
 * sixteenth. The send buffer starts at 256 KiB, since who fills it is a memory
 * copy away and waking it up is what costs.
 *
 * What a device hands over at one go (RX_BURST, net.c) meets sockets that nobody
 * can read meanwhile. The default receive buffer of 208 KiB, in which a packet
 * counts twice its size and more, would not hold it.
 */
#include <linux/init.h>
#include <linux/mm.h>
#include <net/net_namespace.h>
#include <net/sock.h>
#include <net/tcp.h>

#define MAX_RMEM	(6 << 20)
#define MAX_WMEM	(4 << 20)

static int __init net_limits(void)
{
	unsigned long pages = totalram_pages();
	int per_socket = clamp(pages / 16, SZ_1M / PAGE_SIZE,
			       (unsigned long)MAX_RMEM / PAGE_SIZE) * PAGE_SIZE;
	struct net *net = &init_net;

	sysctl_rmem_default = SZ_1M;
	sysctl_tcp_mem[0] = pages / 4;
	sysctl_tcp_mem[1] = pages / 3;
	sysctl_tcp_mem[2] = pages / 2;
	/* other namespaces take theirs from the first */
	net->ipv4.sysctl_tcp_rmem[2] = per_socket;
	net->ipv4.sysctl_tcp_wmem[1] = SZ_256K;
	net->ipv4.sysctl_tcp_wmem[2] = min(per_socket, MAX_WMEM);
	return 0;
}
late_initcall(net_limits);
