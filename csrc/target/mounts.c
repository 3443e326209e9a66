// SPDX-License-Identifier: GPL-2.0-only
/*
 * The target's own mounts, which show the stack's files in place of those of
 * the host's network namespace. hide_services.c handles name services, resolv.conf and
 * the run directories.
 *
 * Theory of operation
 *
 * The target itself makes these mounts before its exec, in its own mount
 * namespace and with the rights that it has there.
 *
 * The view (view/serve.c) is one file system, mounted over /proc/sys/net. It
 * contains three folders and one link that it does not list. They are the
 * contents of the other places:
 *
 *	/proc/sys/net/.class	mounted over /sys/class/net
 *	/proc/sys/net/.devices	mounted over /sys/devices/virtual/net, to which
 *				the links in .class point
 *	/proc/sys/net/.link	mounted over /proc/net, which is itself a link
 *				("self/net")
 *	/proc/sys/net/.net	the folder to which .link points
 *
 * .net is also mounted over itself, because programs such as bubblewrap remount
 * /proc/net by its name, which leads there.
 *
 * Only the system calls of Linux 5.2 can mount a link over a link. If /dev/fuse
 * is unavailable, a read-only file system with the same names and no content is
 * mounted instead. The host's files are then missing, which is better than
 * wrong contents.
 *
 * /proc/PID/net cannot be covered, because the PIDs are not known early enough.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "target/child.h"
#include "target/hide_services.h"
#include "target/mounts.h"

#define VIEW		"/proc/sys/net"
#define TUN_FILE	"/dev/net/tun"
#define MOUNT_FLAGS	(MS_NOSUID | MS_NODEV | MS_NOEXEC)

static const struct {
	const char *from, *to;
} places[] = {
	{ VIEW "/.class", "/sys/class/net" },
	{ VIEW "/.devices", "/sys/devices/virtual/net" },
	{ VIEW "/.net", VIEW "/.net" },
	{ VIEW "/.link", "/proc/net" },
};

/** view_mount - mount the stack's files; returns 0 or a negative errno */
static int view_mount(int fd)
{
	char opts[160];
	int ret = fd;

	if (fd < 0)
		return fd;
	snprintf(opts, sizeof(opts),
		 "fd=%d,rootmode=40555,user_id=%u,group_id=%u,default_permissions,allow_other,max_read=65536",
		 fd, geteuid(), getegid());
	ret = mount("lklrun", VIEW, "fuse.lklrun", MOUNT_FLAGS, opts) ?
	      -errno : 0;
	/*
	 * Now only lklhost has /dev/fuse open, so the view ends together with
	 * lklhost.
	 */
	close(fd);
	return ret;
}

/** empty_mount - mount empty folders in place of the stack's files */
static int empty_mount(void)
{
	static const char *const dirs[] = { ".net", ".class", ".devices" };
	size_t i;
	int fd;

	if (mount("lklrun", VIEW, "tmpfs", MOUNT_FLAGS, "mode=555,size=64k"))
		return -errno;
	fd = open(VIEW, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (mkdirat(fd, dirs[i], 0555)) {
			close(fd);
			return -errno;
		}
	i = symlinkat("sys/net/.net", fd, ".link") ||
	    symlinkat("../../../self/net/unix", fd, ".net/unix");
	close(fd);
	if (i || mount("", VIEW, NULL,
		       MS_REMOUNT | MS_BIND | MS_RDONLY | MOUNT_FLAGS, NULL))
		return -errno;
	return 0;
}

/**
 * no_more_flush - disable FLUSH requests, see view/serve.c
 *
 * Any file of the view can be opened and closed for this.
 */
static void no_more_flush(void)
{
	int fd = open(VIEW "/core/somaxconn", O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
}

/**
 * cover - cover the files of the host's network namespace
 * @fd: as @fuse in mounts_make()
 */
static void cover(int sync, int fd)
{
	struct stat st;
	size_t i;
	int ret;

	if (stat(VIEW, &st))	/* no /proc, so there is nothing to cover */
		return;
	ret = view_mount(fd);
	if (fd != VIEW_EMPTY)
		child_report(sync, STEP_VIEW, ret);
	if (!ret && stat(VIEW "/.net", &st)) {
		ret = -errno;	/* lklhost does not serve the view */
		umount2(VIEW, MNT_DETACH);
	}
	if (ret)
		ret = empty_mount();
	else
		no_more_flush();
	if (ret) {
		child_report(sync, STEP_COVER, ret);
		return;
	}
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		ret = mounts_place(AT_FDCWD, places[i].from, places[i].to);
		if (ret)
			child_report(sync, STEP_COVER, ret);
	}
}

/**
 * tun_show - let every user open /dev/net/tun, if the host's file is for root
 *
 * The target's devices belong to the stack (engine/sock/tun.c), which needs
 * only a file to recognise. The multiplexer of a devpts of its own is such a
 * file: a character device, which lklhost recognises by its file system. The
 * target may open the multiplexer of the host as well.
 */
static void tun_show(int sync)
{
	struct stat st;

	if (stat(TUN_FILE, &st) || (st.st_mode & 06) == 06 ||
	    mount("lklrun", VIEW, "devpts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666"))
		return;
	if (!mount(VIEW "/ptmx", TUN_FILE, NULL, MS_BIND, NULL) &&
	    !stat(TUN_FILE, &st))
		child_report(sync, STEP_TUN, (int)minor(st.st_dev));
	umount2(VIEW, MNT_DETACH);
}

/**
 * mounts_make - make the target's mounts; called by the target
 * @sync: descriptor for reports
 * @resolv: file to show as /etc/resolv.conf; if empty, the file is not covered
 * @fuse: /dev/fuse, opened by lklhost; a negative errno if it is unavailable;
 *	or VIEW_HOSTS or VIEW_EMPTY
 */
void mounts_make(int sync, const char *resolv, int fuse)
{
	int proc = -1;

	if (unshare(CLONE_NEWNS) ||
	    mount("", "/", NULL, MS_SLAVE | MS_REC, NULL)) {
		child_report_visible(sync, STEP_MOUNTS, -errno);
		return;
	}
	if (fuse != VIEW_HOSTS) {
		proc = mounts_copy("/proc");
		if (!host.preload)
			tun_show(sync);
		cover(sync, fuse);
	}
	covers_make(sync, resolv, proc);
	if (proc >= 0)
		close(proc);
}
