// SPDX-License-Identifier: GPL-2.0-only
/* The stack's memory, see engine/common/memory.c. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/common/memory.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define LOOK_EVERY	16		/* sockets between two checks */

/**
 * memory_full - whether the stack has no memory for another route or filter
 */
bool memory_full(void)
{
	char text[MEMORY_TEXT];
	struct sysinfo info;
	bool full;

	memset(&info, 0, sizeof(info));
	if (stack->abi == CTL_ABI_HOST || ST(SYS_sysinfo, &info, 0, 0, 0, 0, 0))
		return false;
	full = memory_exhausted(&info, conn_stats.open, text);
	if (*text)
		warn_user("%s", text);
	return full;
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
