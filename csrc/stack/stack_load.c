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
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "stack/backend.h"

/**
 * load - load the library and choose its back end
 * @path: path of the file
 * @abi: auto, native, new or old
 * @err: one line for the user on failure
 */
static int load(const char *path, const char *abi, char *err, size_t errlen)
{
	bool is_auto = !strcmp(abi, "auto");
	void *lib;

	if (faccessat(AT_FDCWD, path, R_OK, 0)) {
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

/**
 * stack_open - choose and load a back end
 * @path: path of the library
 * @abi: auto, native, new, old or host
 * @err: one line for the user on failure
 */
int stack_open(const char *path, const char *abi, char *err, size_t errlen)
{
	if (!strcmp(abi, "host")) {
		stack = &stack_host_ops;
		return 0;
	}
	return load(path, abi, err, errlen);
}
