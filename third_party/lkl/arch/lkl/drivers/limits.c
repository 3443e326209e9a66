// SPDX-License-Identifier: GPL-2.0-only
/*
 * Shares of the arena: TCP, raw sockets, and room for bursts of datagrams.
 *
 * The kernel's defaults give TCP a sixteenth of a machine's memory. Here the
 * machine is only a network stack: TCP may use half of it, and one connection a
 * sixteenth. The send buffer starts at 256 KiB: the sender fills it with a
 * memory copy, so waking the sender is the main cost.
 *
 * A device delivers up to RX_BURST bytes at once (net.c), and no program can
 * read its sockets meanwhile. The default receive buffer of 208 KiB could not
 * hold that, as a packet counts for twice its size or more.
 *
 * Linux limits the unread packets of each raw socket, but not those of all raw
 * sockets together: a program could fill the arena with them. Here all raw
 * sockets, with the sockets of ping, have as much as all UDP sockets have
 * (net.ipv4.udp_mem). The counter of a socket needs no lock: interrupts are
 * synchronous, and none comes while it changes.
 */
#include <linux/init.h>
#include <linux/mm.h>
#include <net/net_namespace.h>
#include <net/ping.h>
#include <net/raw.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/transp_v6.h>
#include <net/udp.h>

#define MAX_RMEM	(6 << 20)
#define MAX_WMEM	(4 << 20)

static atomic_long_t raw_memory;
static DEFINE_PER_CPU(int, raw_memory_cached);

/** limit_raw - count the unread packets of these sockets together */
static void __init limit_raw(struct proto *prot)
{
	prot->memory_allocated = &raw_memory;
	prot->per_cpu_fw_alloc = &raw_memory_cached;
	prot->sysctl_mem = sysctl_udp_mem;
	prot->sysctl_wmem_offset = udp_prot.sysctl_wmem_offset;
	prot->sysctl_rmem_offset = udp_prot.sysctl_rmem_offset;
}

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
	/* other namespaces copy the values of the first one */
	net->ipv4.sysctl_tcp_rmem[2] = per_socket;
	net->ipv4.sysctl_tcp_wmem[1] = SZ_256K;
	net->ipv4.sysctl_tcp_wmem[2] = min(per_socket, MAX_WMEM);
	limit_raw(&raw_prot);
	limit_raw(&ping_prot);
#if IS_ENABLED(CONFIG_IPV6)
	limit_raw(&rawv6_prot);
	limit_raw(&pingv6_prot);
#endif
	return 0;
}
late_initcall(net_limits);
