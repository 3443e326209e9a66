// SPDX-License-Identifier: GPL-2.0-only
/* Load a stack library and find out which interface it has. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>

#include "stack.h"

int stack_load(const char *path, const char *abi, char *err, size_t errlen)
{
	(void)abi;
	snprintf(err, errlen, "%s: no", path);
	return -ENOSYS;
}
