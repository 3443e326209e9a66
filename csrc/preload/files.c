// SPDX-License-Identifier: GPL-2.0-only
/*
 * Files that speak of the network: /proc/net and /proc/sys/net are the stack's
 * when a program opens one by its full name. They are read and written there;
 * their folders are not to be seen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "internal.h"

#define PATH_SIZE	128

/** path_read - a path of the program's, if it is one below /proc; else false */
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

/** call_file - a call that is about a file, if this is one of the stack's */
long call_file(long nr, const long *a)
{
	if (!is_sock(a[0]) || sock_of(a[0])->domain)
		return native(nr, a);
	return call_pass(nr, a);
}
