// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/net and /proc/sys/net show the stack. When a program opens a file there
 * by its full name, it is opened, read and written in the stack. The
 * directories cannot be listed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "engine/preload/internal.h"

#define PATH_SIZE	128

/** path_read - copy a path from the program; false unless it is below /proc */
static bool path_read(const char *user, char *path)
{
	static const char proc[] = "/proc/";
	size_t n = sizeof(proc) - 1;

	if (preload_copy(path, user, n) || memcmp(path, proc, n))
		return false;
	for (; n < PATH_SIZE; n++) {
		if (preload_copy(path + n, user + n, 1))
			return false;
		if (!path[n])
			return true;
	}
	return false;
}

/** is_stacks - whether a file below /proc is about the network */
static bool is_stacks(const char *path)
{
	static const char *const below[] = { "/proc/net/", "/proc/self/net/",
					     "/proc/thread-self/net/",
					     "/proc/sys/net/" };
	size_t i;

	for (i = 0; i < sizeof(below) / sizeof(below[0]); i++)
		if (!strncmp(path, below[i], strlen(below[i])))
			return strcmp(path, "/proc/net/unix") != 0;
	return false;
}

/** call_open - open(2) and openat(2) */
long call_open(long nr, const long *a)
{
	const long *p = nr == SYS_openat ? a + 1 : a;	/* path, flags */
	char path[PATH_SIZE];
	long sfd;
	int fd;

	if (likely(!path_read((const char *)p[0], path) || !is_stacks(path)) ||
	    borrowed())
		return native(nr, a);
	fd = table_reserve(p[1] & O_CLOEXEC);
	if (fd < 0)
		return fd;
	sfd = STACK(openat, AT_FDCWD, path, p[1] | O_CLOEXEC, 0, 0, 0);
	if (sfd < 0) {
		RAW1(close, fd);
		return sfd;
	}
	return table_give(fd, (int)sfd, 0, 0, 0);
}

/** call_file - a call on a file; handled here if the file is the stack's */
long call_file(long nr, const long *a)
{
	if (!is_sock(a[0]) || sock_of(a[0])->domain)
		return native(nr, a);
	return call_pass(nr, a);
}
