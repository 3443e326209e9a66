/* SPDX-License-Identifier: GPL-2.0-only */
/* For tests whose kernel has a tap, with the host's kernel as the peer. */
#ifndef TESTS_ONTAP_H
#define TESTS_ONTAP_H

#include "nl.h"
#include "peer.h"
#include <sys/utsname.h>

#define DEV	"lt0"
#define HOST	"10.73.0.1"
#define OURS	"10.73.0.2"

static inline int attach(int offload, int *id_out)
{
	struct lkl_netdev *nd = lkl_netdev_tap_create(DEV, offload);
	int id, ifindex;

	if (!nd)
		return -errno;
	id = lkl_netdev_add(nd, NULL);
	ifindex = lkl_netdev_get_ifindex(id);
	if (ifindex < 0)
		return ifindex;
	lkl_if_set_ipv4(ifindex, inet_addr(OURS), 24);
	lkl_if_up(ifindex);
	if (id_out)
		*id_out = id;
	return ifindex;
}

static int release_minor;	/* for release_at_least() */

/* Whether this process has an io_uring */
static inline int has_ring(void)
{
	char path[32], to[64];
	int fd;

	for (fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, to, sizeof(to) - 1);

		if (n > 0 && (to[n] = 0, strstr(to, "[io_uring]")))
			return 1;
	}
	return 0;
}

/* Runs fn in a process with a kernel of its own, attached with @offload */
static inline int with_kernel(int offload, int (*fn)(int ifindex, int id), const char *cmd)
{
	int status, ifindex, id = -1;
	pid_t pid = fork_tied();

	if (!pid) {
		alarm(slow(60));
		boot(cmd);
		lkl_mount_fs("proc");
		ifindex = attach(offload, &id);
		if (ifindex < 0) {
			printf("# attach: %s\n", lkl_strerror(ifindex));
			_exit(9);
		}
		status = fn(ifindex, id);
		_exit(lkl_sys_halt() ? 8 : has_ring() ? 7 : status);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int release_at_least(int ifindex, int id)
{
	struct utsname u;
	int major, minor;

	(void)ifindex;
	(void)id;
	if (lkl_syscall(SYS_uname, (long[6]){ (long)&u }) ||
	    sscanf(u.release, "%d.%d", &major, &minor) != 2)
		return 9;
	return major > 6 || (major == 6 && minor >= release_minor) ? 0 : 1;
}

/* Whether the stack is Linux 6.@minor or later */
static inline int kernel_since(int minor)
{
	release_minor = minor;
	return with_kernel(0, release_at_least, "mem=64M loglevel=0") == 0;
}

static inline int wait_carrier(int want)
{
	uint64_t t = now_ns();

	while (carrier() != want && now_ns() - t < 4e9) {
		echo(10);
		sched_yield();
	}
	return carrier() == want;
}

#endif
