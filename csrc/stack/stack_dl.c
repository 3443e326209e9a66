// SPDX-License-Identifier: GPL-2.0-only
/* Load stack libraries with the C library's loader. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "stack/backend.h"

/** stack_lib_open - see stack.h */
void *stack_lib_open(const char *path, char *err, size_t errlen)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		snprintf(err, errlen, "loading the stack library: %s", dlerror());
	return lib;
}

/** stack_lib_find - see stack.h */
void *stack_lib_find(void *lib, const char *name)
{
	return dlsym(lib, name);
}
