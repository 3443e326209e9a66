// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack's memory, whose size is set with --mem.
 *
 * Theory of operation
 *
 * The stack cannot kill a process to free memory. A kernel without free memory
 * therefore searches for memory for a long time with each packet. To prevent
 * this, new sockets are refused early enough: each existing socket must still
 * be able to send and receive, with at least one page. So are requests that
 * make the kernel keep something for them: routes, neighbours, devices,
 * filters, memberships.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include "base/log.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define RESERVE		(3u << 20)	/* bytes for the kernel itself */
#define SOCKET_NEEDS	4096		/* bytes, for data in transit */
#define LOOK_EVERY	16		/* sockets between two checks */

/**
 * memory_full - whether the stack has no memory for another route or filter
 */
bool memory_full(void)
{
	static bool told;
	struct sysinfo info;
	uint64_t free;

	memset(&info, 0, sizeof(info));
	if (stack->abi == CTL_ABI_HOST || ST(SYS_sysinfo, &info, 0, 0, 0, 0, 0))
		return false;
	free = (uint64_t)info.freeram * (info.mem_unit ? info.mem_unit : 1);
	if (free >= RESERVE + conn_stats.open * SOCKET_NEEDS)
		return false;
	if (!told)
		warn_user("%llu MiB of stack memory are exhausted, with %llu sockets open; further sockets, routes and filters are refused (ENOBUFS); use --mem for more memory",
			  (unsigned long long)info.totalram >> 20,
			  (unsigned long long)conn_stats.open);
	told = true;
	return true;
}

/**
 * memory_short - whether the stack has no memory for another socket
 *
 * While there is enough memory, this checks only once in LOOK_EVERY sockets.
 */
bool memory_short(void)
{
	static unsigned int countdown;

	if (countdown) {
		countdown--;
		return false;
	}
	if (memory_full())
		return true;
	countdown = LOOK_EVERY;
	return false;
}
