// SPDX-License-Identifier: GPL-2.0-only
/*
 * The mount of sysfs by `ip netns exec`.
 *
 * This program enters a namespace, replaces /sys in a mount namespace of its
 * own, and gives up if it cannot. In a run, /sys must stay: it contains the
 * stack's devices, and a new sysfs would show those of the host's empty
 * namespace. An ordinary user cannot replace it anyway. umount2(2) of /sys
 * therefore fails as it does for an ordinary user, and mount(2) of sysfs there
 * does nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "engine/call/call.h"
#include "engine/call/native.h"
#include "engine/carrier/carrier.h"
#include "engine/supervise/internal.h"

static struct stat root;	/* that of the target */

/** root_of - get the root directory of a thread, see fd_stat(); false on error */
static bool root_of(pid_t tid, struct stat *st)
{
	char path[32];
	bool got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/root", tid);
	fd = open(path, O_PATH | O_CLOEXEC);
	got = fd >= 0 && fd_stat(fd, st);
	if (fd >= 0)
		close(fd);
	return got;
}

/** sysfs_init - note the root directory of the target */
void sysfs_init(void)
{
	if (!root_of(host.target_pid, &root))
		memset(&root, 0, sizeof(root));
}

/** is_string - whether an argument of a call is this string */
static bool is_string(const struct call *c, int arg, const char *want)
{
	char text[8];
	size_t n = strlen(want) + 1;

	return c->args[arg] && !mem_read(c, c->args[arg], text, n) &&
	       !memcmp(text, want, n);
}

/** sysfs_call - handle mount(2) without options, and umount2(2) with MNT_DETACH */
int64_t sysfs_call(const struct call *c)
{
	bool mounts = c->nr == SYS_mount;
	struct stat st;

	if (!is_string(c, mounts, "/sys") ||
	    (mounts && !is_string(c, 2, "sysfs")) || !root_of(c->pid, &st) ||
	    st.st_dev != root.st_dev || st.st_ino != root.st_ino)
		return call_native(NATIVE_MOUNT);
	return mounts ? 0 : -EINVAL;
}
