// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include "host.h"
#include "stack.h"
int stack_foreign_bind(void *lib, bool old, char *err, size_t errlen)
{
	(void)lib; (void)old;
	snprintf(err, errlen, "%s: foreign", host.stack_path);
	return -ENOEXEC;
}
