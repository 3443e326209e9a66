// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack's memory, of which there is as much as --mem says.
 *
 * Theory of operation
 *
 * Nothing in the stack can be killed to make room, so that a kernel whose memory
 * is used up only looks for some, at length, with each packet. Therefore sockets
 * are refused before: as long as those that are there could still send and
 * receive something, each a page at least.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include "conn.h"
#include "ctl_proto.h"
#include "host.h"

#define RESERVE		(3u << 20)	/* the kernel's own */
#define SOCKET_NEEDS	4096		/* of data on its way */
#define LOOK_EVERY	16		/* sockets */

/**
 * memory_short - whether the stack has no room for another socket
 *
 * Looked at seldom, as long as there is some: a few sockets do not matter.
 */
bool memory_short(void)
{
	static unsigned int countdown;
	static bool told;
	struct sysinfo info;
	uint64_t free;

	if (stack->abi == CTL_ABI_HOST || countdown) {
		countdown -= countdown > 0;
		return false;
	}
	memset(&info, 0, sizeof(info));
	if (ST(SYS_sysinfo, &info, 0, 0, 0, 0, 0))
		return false;
	free = (uint64_t)info.freeram * (info.mem_unit ? info.mem_unit : 1);
	if (free >= RESERVE + conn_stats.open * SOCKET_NEEDS) {
		countdown = LOOK_EVERY;
		return false;
	}
	if (!told)
		warn_user("the stack's %llu MiB of memory are used up by %llu sockets: further ones are refused (ENOBUFS); --mem gives it more",
			  (unsigned long long)info.totalram >> 20,
			  (unsigned long long)conn_stats.open);
	told = true;
	return true;
}
