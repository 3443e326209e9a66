// SPDX-License-Identifier: GPL-2.0-only
/*
 * Namespaces: an empty network namespace, and a user namespace if the right to
 * create one is missing.
 *
 * Theory of operation
 *
 * lklhost moves into an empty network namespace before it creates any carrier.
 * Abstract unix names are per network namespace, so no outside process can use
 * or occupy them, and lklhost itself can reach no network. With the back end
 * "host", lklhost stays in the host's namespace, because that back end uses the
 * host's network.
 *
 * An unprivileged container may have no right to create a network namespace.
 * lklhost and the target then stay where they are. The filter (filter.c)
 * separates the target from the network, and carriers have names that others
 * cannot use (carrier.c).
 *
 * A user namespace maps our own uid and gid to themselves, so that the target
 * sees its real ids. Files of other owners appear to belong to the user nobody,
 * and set-uid programs of others run without their privilege.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "process/process.h"

#define OVERFLOW_ID	65534	/* shown for ids without a mapping */

/** write_file - write a string to an existing file, in one call */
int write_file(const char *path, const char *text)
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

	ret = write_file("/proc/self/setgroups", "deny");
	if (ret && ret != -ENOENT)
		return ret;
	snprintf(text, sizeof(text), "%u %u 1\n", uid, uid);
	ret = write_file("/proc/self/uid_map", text);
	if (ret)
		return ret;
	snprintf(text, sizeof(text), "%u %u 1\n", gid, gid);
	return write_file("/proc/self/gid_map", text);
}

/**
 * netns_enter - move this process into an empty network namespace
 * @userns: also create a user namespace
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
	/* pidfd_getfd() and process_vm_readv() require this, see ptrace(2). */
	prctl(PR_SET_DUMPABLE, 1);
	return ret;
}

/**
 * netns_no_ipv6 - disable IPv6 on devices that appear in this namespace
 *
 * IPv6 would send packets by itself, to find neighbours, routers and group
 * members.
 */
int netns_no_ipv6(void)
{
	static const char *const conf[] = {
		"/proc/sys/net/ipv6/conf/all/disable_ipv6",
		"/proc/sys/net/ipv6/conf/default/disable_ipv6",
	};
	int ret = 0;
	size_t i;

	for (i = 0; i < sizeof(conf) / sizeof(conf[0]) && !ret; i++)
		ret = write_file(conf[i], "1");
	return ret == -ENOENT ? 0 : ret;
}

/**
 * probe_in_child - try in a child to create a user namespace with its mapping
 *
 * A namespace without a mapping would leave us without an id, and there is no
 * way back. This happens to user 0 of a container without CAP_SETFCAP, who may
 * not map its own id (verify_root_map(), kernel/user_namespace.c).
 */
static int probe_in_child(void)
{
	int status;
	pid_t pid;

	pid = fork();
	if (!pid)
		_exit(-netns_enter(true));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -EPERM;
	return -WEXITSTATUS(status);
}

/**
 * netns_private - move lklhost into its namespaces, before any carrier exists
 *
 * If no network namespace can be created, only the seccomp filter keeps the
 * target off the host's network; the user is told.
 *
 * Returns a negative errno if we created a user namespace but cannot continue
 * in it.
 */
int netns_private(void)
{
	bool tried = false;
	int ret;

	if (!strcmp(host.abi, "host"))
		return 0;
	ret = netns_enter(false);
	if (ret == -EPERM && !host.no_userns) {
		ret = geteuid() ? 0 : probe_in_child();
		if (!ret) {
			ret = netns_enter(true);
			tried = true;
		}
		host.in_userns = !ret;
	}
	if (ret) {
		host.shared_netns = -ret;
		return tried && geteuid() == OVERFLOW_ID ? ret : 0;
	}
	host.private_netns = true;
	/*
	 * Best effort: this cannot be set outside the initial user namespace;
	 * more than ten datagrams then wait in the stack.
	 */
	write_file("/proc/sys/net/unix/max_dgram_qlen", "2048");
	return 0;
}

/** netns_warn - tell the user if no network namespace could be created */
void netns_warn(void)
{
	if (host.shared_netns)
		warn_user("cannot create a network namespace (%s): only the seccomp filter isolates the command from the host's network",
			  strerror(host.shared_netns));
}
