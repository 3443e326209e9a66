// SPDX-License-Identifier: GPL-2.0-only
/*
 * Load a stack library and detect its interface.
 *
 * Theory of operation
 *
 * All libraries have lkl_start_kernel(). Only ours has the loop mode.
 * Upstream's newer interface also has lkl_init(), the older one does not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"
#include "stack/stack.h"

/**
 * stack_symbol - look up a function of the library
 * @err: set if it is missing; NULL: the function is optional
 */
void *stack_symbol(void *lib, const char *name, char *err, size_t errlen)
{
	void *p = stack_lib_find(lib, name);

	if (!p && err)
		snprintf(err, errlen, "%s: has no %s(): not a stack library of this interface (--abi)",
			 host.stack_path, name);
	return p;
}

/**
 * stack_load - load the library and choose its back end
 * @path: path of the file
 * @abi: auto, native, new or old
 * @err: one line for the user on failure
 */
int stack_load(const char *path, const char *abi, char *err, size_t errlen)
{
	bool is_auto = !strcmp(abi, "auto");
	void *lib;

	if (access(path, R_OK)) {
		int ret = -errno;

		snprintf(err, errlen, "stack library %s: %s", path,
			 strerror(-ret));
		return ret;
	}
	lib = stack_lib_open(path, err, errlen);
	if (!lib)
		return -ENOEXEC;
	if (!stack_symbol(lib, "lkl_start_kernel", err, errlen))
		return -ENOEXEC;
	if (!strcmp(abi, "native") ||
	    (is_auto && stack_symbol(lib, "lkl_loop_init", NULL, 0)))
		return stack_native_bind(lib, err, errlen);
	return stack_foreign_bind(lib, !strcmp(abi, "old") ||
				  (is_auto && !stack_symbol(lib, "lkl_init",
							    NULL, 0)),
				  err, errlen);
}
