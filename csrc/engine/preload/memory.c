// SPDX-License-Identifier: GPL-2.0-only
/* The stack's memory, see engine/common/memory.c. */
#define _GNU_SOURCE
#include <string.h>

#include "engine/common/memory.h"
#include "engine/preload/internal.h"

/**
 * memory_full - whether the stack has no memory for another socket, route or filter
 */
bool memory_full(void)
{
	char text[MEMORY_TEXT];
	struct sysinfo info;
	bool full;

	memset(&info, 0, sizeof(info));
	if (STACK(sysinfo, &info, 0, 0, 0, 0, 0))
		return false;
	full = memory_exhausted(&info, counts.open, text);
	if (*text)
		warn_line("%s", text);
	return full;
}
