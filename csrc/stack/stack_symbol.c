// SPDX-License-Identifier: GPL-2.0-only
/* Functions of a stack library, by name. */
#include <stdio.h>

#include "base/lklhost.h"
#include "stack/backend.h"

/**
 * stack_symbol - look up a function of the library
 * @err: set if it is missing; NULL: the function is optional
 */
void *stack_symbol(void *lib, const char *name, char *err, size_t errlen)
{
	void *p = stack_lib_find(lib, name);

	if (!p && err)
		snprintf(err, errlen, "%s: has no %s(), so it is not a stack library with this interface (--abi)",
			 host.stack_path, name);
	return p;
}
