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
#include <stdio.h>

#include "engine/common/memory.h"

#define RESERVE		(3u << 20)	/* bytes for the kernel itself */
#define SOCKET_NEEDS	4096		/* bytes, for data in transit */

/**
 * memory_exhausted - whether the stack has no memory for another socket, route or filter
 * @info: what sysinfo(2) of the stack says
 * @sockets: open sockets
 * @text: the line for the user, or empty if there is nothing new to say
 */
bool memory_exhausted(const struct sysinfo *info, uint64_t sockets, char text[MEMORY_TEXT])
{
	static bool told;
	uint64_t free = (uint64_t)info->freeram * (info->mem_unit ? info->mem_unit : 1);

	*text = '\0';
	if (free >= RESERVE + sockets * SOCKET_NEEDS)
		return false;
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		snprintf(text, MEMORY_TEXT,
			 "%llu MiB of stack memory are exhausted, with %llu sockets open; further sockets, routes and filters are refused (ENOBUFS); use --mem for more memory",
			 (unsigned long long)info->totalram >> 20,
			 (unsigned long long)sockets);
	return true;
}
