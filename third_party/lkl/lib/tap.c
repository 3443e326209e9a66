// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taps that the library opens itself.
 *
 * Theory of operation
 *
 * A write to a tap runs the host's whole receive path for the frame. For TCP
 * packets of 64 KiB that is cheap. Without offloads it would be needed for each
 * 1,448 bytes. The tap then gets IFF_NAPI and `threaded`: written frames are
 * queued, and a kernel thread of the host passes them through GRO, which merges
 * them into large packets. IFF_NAPI without the thread runs GRO for one frame
 * at a time, which is slower than no GRO.
 *
 * Such frames need no virtio-net header, so there is none, and a frame is one
 * buffer.
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
 * Limit on the memory that may wait in the host for that thread. It is more
 * than TCP has in flight, and keeps a sender without acknowledgements from
 * filling the host's memory. Without a limit the host allocates frames in
 * memory that GRO takes over without telling the tap's socket (build_skb(),
 * napi_skb_free_stolen_head(); seen with Linux 6.18). The socket, and with it
 * the network namespace, is then never freed.
 */
#define WAITING_MAX	(16 << 20)

/*
 * Opens the file `threaded` of a device; -errno on failure. /sys may belong to
 * another network namespace or be read-only. So this makes a mount of its own,
 * in this thread's namespace, which nobody else sees. It requires CAP_SYS_ADMIN
 * there.
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

/*
 * Attaches with the thread. Returns -errno if the host has none (before Linux
 * 5.12) or does not permit it.
 */
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
 * @offloads: whether the tap offers offloads
 * @vnet: set to whether its frames have a virtio-net header
 *
 * Returns a descriptor, or -errno.
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
	/*
	 * A tap with several queues requires the flag; the header is the same
	 * for all.
	 */
	*vnet = 1;
	return attach(name, IFF_VNET_HDR | IFF_MULTI_QUEUE);
}
