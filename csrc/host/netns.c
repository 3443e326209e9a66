// SPDX-License-Identifier: GPL-2.0-only
/*
 * Namespaces: an empty network namespace, and a user namespace where the right
 * to make one is missing.
 *
 * Theory of operation
 *
 * lklhost moves into an empty network namespace before it makes any carrier:
 * abstract unix names are per network namespace, so nobody outside can reach or
 * take them, and lklhost itself can reach no network. With the back end "host"
 * it stays, since its calls are to be the host's.
 *
 * A user namespace maps our own uid and gid to themselves, so that the target
 * sees who it is. Files of other owners look like nobody's, and set-uid
 * programs of others run without their privilege; that is the price of not
 * being root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ctl_proto.h"
#include "host.h"

/** file_write - write a string to a file that exists */
static int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/** map_ids - map our own uid and gid to themselves (user_namespaces(7)) */
static int map_ids(uid_t uid, gid_t gid)
{
	char text[64];
	int ret;

	ret = file_write("/proc/self/setgroups", "deny");
	if (ret && ret != -ENOENT)
		return ret;
	snprintf(text, sizeof(text), "%u %u 1\n", uid, uid);
	ret = file_write("/proc/self/uid_map", text);
	if (ret)
		return ret;
	snprintf(text, sizeof(text), "%u %u 1\n", gid, gid);
	return file_write("/proc/self/gid_map", text);
}

/**
 * netns_enter - move this process into an empty network namespace
 * @userns: make a user namespace of our own with it
 */
int netns_enter(bool userns)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int ret;

	if (unshare(CLONE_NEWNET | (userns ? CLONE_NEWUSER : 0)))
		return -errno;
	if (!userns)
		return 0;
	ret = map_ids(uid, gid);
	/* pidfd_getfd() and process_vm_readv() ask for it, see ptrace(2). */
	prctl(PR_SET_DUMPABLE, 1);
	return ret;
}

/**
 * netns_private - lklhost's own move, before any carrier is made
 * @err: one line for the user on failure
 */
int netns_private(char *err, size_t errlen)
{
	int ret;

	host.home_netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (!strcmp(host.abi, "host"))
		return 0;
	ret = netns_enter(false);
	if (ret == -EPERM && !host.no_userns) {
		ret = netns_enter(true);
		host.in_userns = true;
	}
	if (ret) {
		snprintf(err, errlen,
			 "making a private network namespace: %s: run as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)",
			 strerror(-ret));
		return ret;
	}
	/* Best effort: outside the first user namespace it cannot be set, and
	 * datagrams beyond ten then wait in the stack. */
	file_write("/proc/sys/net/unix/max_dgram_qlen", "2048");
	return 0;
}
