// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taps that the library opens itself.
 *
 * Theory of operation
 *
 * A frame written to a tap runs the host's whole receive path inside the write, one
 * by one. A TCP packet of 64 KiB makes that cheap. Where nothing is left to the device
 * (no offloads) each 1,448 bytes would pay for it; then the tap gets IFF_NAPI and
 * `threaded`: written frames are queued, and a thread of the host's takes them from
 * there through GRO, which makes large packets of them. IFF_NAPI without the thread
 * does that for one frame at a time, and is slower than nothing at all.
 *
 * No such frame has anything to say in a header of virtio, so there is none, and a
 * frame is one buffer.
 */
#include "netdev.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * What may wait in the host for that thread, as the memory it takes. It is more than
 * TCP has under way, and keeps a sender whom nobody acknowledges from filling the
 * host's memory. Without a limit the host gives frames memory that GRO takes over
 * without telling the tap's socket (build_skb(), napi_skb_free_stolen_head(); seen with
 * Linux 6.18): the socket, and with it the network namespace, are then never freed.
 */
#define WAITING_MAX	(16 << 20)

/*
 * The file `threaded` of a device, or -errno. /sys may be another network namespace's,
 * or read-only; a mount of our own is of this thread's namespace, and nobody sees it.
 * Takes CAP_SYS_ADMIN there.
 */
static int threaded_file(const char *name)
{
	char path[sizeof("class/net//threaded") + IFNAMSIZ];
	int fs, mnt, fd, err;

	fs = (int)syscall(SYS_fsopen, "sysfs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	mnt = -1;
	if (!syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
	err = errno;
	close(fs);
	if (mnt < 0)
		return -err;
	snprintf(path, sizeof(path), "class/net/%s/threaded", name);
	fd = openat(mnt, path, O_WRONLY | O_CLOEXEC);
	err = errno;
	close(mnt);
	return fd < 0 ? -err : fd;
}

static int set_threaded(const char *name)
{
	int fd = threaded_file(name), ret;

	if (fd < 0)
		return fd;
	ret = write(fd, "1", 1) == 1 ? 0 : -errno;
	close(fd);
	return ret;
}

static int attach(const char *name, int flags)
{
	struct ifreq ifr;
	int fd, err;

	fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	memset(&ifr, 0, sizeof(ifr));
	strcpy(ifr.ifr_name, name);
	ifr.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | flags);
	if (!ioctl(fd, TUNSETIFF, &ifr))
		return fd;
	err = errno;
	close(fd);
	return -err;
}

/* With the thread, or -errno: the host has none (before Linux 5.12), or not for us. */
static int attach_threaded(const char *name)
{
	int fd = attach(name, IFF_NAPI), waiting = WAITING_MAX, ret;

	if (fd < 0)
		return fd;
	ret = ioctl(fd, TUNSETSNDBUF, &waiting) < 0 ? -errno : set_threaded(name);
	if (!ret)
		return fd;
	close(fd);
	return ret;
}

/**
 * tap_open - attach to a tap, which is created if absent
 * @name: shorter than IFNAMSIZ
 * @offloads: some of the work is left to it
 * @vnet: set to whether its frames have a header of virtio
 *
 * A descriptor, or -errno.
 */
int tap_open(const char *name, int offloads, int *vnet)
{
	int fd;

	*vnet = offloads;
	if (!offloads) {
		fd = attach_threaded(name);
		if (fd >= 0)
			return fd;
	}
	fd = attach(name, offloads ? IFF_VNET_HDR : 0);
	if (fd != -EINVAL)
		return fd;
	/* One made with several queues wants to hear it; the header is the same for all. */
	*vnet = 1;
	return attach(name, IFF_VNET_HDR | IFF_MULTI_QUEUE);
}
