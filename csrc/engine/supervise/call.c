// SPDX-License-Identifier: GPL-2.0-only
/* Answer notified calls, and install descriptors in the calling processes. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>

#include "base/lacks.h"
#include "base/log.h"
#include "engine/supervise/notify.h"

struct notify_stats notify_stats;

static int listener = -1;
static bool two_steps;	/* the kernel has no SECCOMP_ADDFD_FLAG_SEND */

/**
 * call_listener - set the seccomp listener descriptor; -1 if it is closed
 *
 * The kernel checks the flags first, so the request without a descriptor to add
 * shows whether it knows SECCOMP_ADDFD_FLAG_SEND.
 */
void call_listener(int fd)
{
	struct seccomp_notif_addfd add = {
		.flags = SECCOMP_ADDFD_FLAG_SEND,
		.srcfd = ~0u,
	};

	listener = fd;
	if (fd < 0)
		return;
	two_steps = host_lacks("addfd-send") ||
		    (ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &add) &&
		     errno == EINVAL);
	if (two_steps)
		log_line("this kernel adds and sends a descriptor in two steps");
}

/** call_valid - whether the caller still waits for the answer */
bool call_valid(const struct call *c)
{
	uint64_t id = c->id;

	return !ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
}

/**
 * call_answer - answer the call with a result
 * @ret: a result >= 0, a negative errno, or CALL_NATIVE
 *
 * Returns false if the caller no longer waits for it.
 */
bool call_answer(const struct call *c, int64_t ret)
{
	struct seccomp_notif_resp resp = { .id = c->id };

	if (ret == CALL_NATIVE) {
		resp.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		notify_stats.native++;
	} else if (ret < 0) {
		resp.error = (int32_t)ret;
	} else {
		resp.val = ret;
	}
	if (!ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp))
		return true;
	notify_stats.gone++;
	return false;
}

/**
 * call_addfd_send - answer the call with a descriptor
 * @fd: our descriptor, which stays open
 *
 * Returns the descriptor's number in the caller, or a negative errno if the
 * caller is gone or has no free descriptor. On error, the call is not answered.
 * If a signal has interrupted the call, this succeeds and sets @c->left.
 */
int call_addfd_send(struct call *c, int fd, bool cloexec)
{
	struct seccomp_notif_addfd add = {
		.id = c->id,
		.flags = SECCOMP_ADDFD_FLAG_SEND,
		.srcfd = (uint32_t)fd,
		.newfd_flags = cloexec ? O_CLOEXEC : 0,
	};
	int ret;

	if (two_steps) {
		ret = call_addfd(c, fd, cloexec);
		c->left = ret >= 0 && !call_answer(c, ret);
		return ret;
	}
	ret = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
	return ret < 0 ? -errno : ret;
}

/**
 * call_addfd - add a descriptor to the caller
 *
 * Returns its number in the caller, or a negative errno.
 */
int call_addfd(const struct call *c, int fd, bool cloexec)
{
	struct seccomp_notif_addfd add = {
		.id = c->id,
		.srcfd = (uint32_t)fd,
		.newfd_flags = cloexec ? O_CLOEXEC : 0,
	};
	int ret = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);

	return ret < 0 ? -errno : ret;
}

/**
 * call_addfd_replace - replace a descriptor of the caller
 * @fd: our descriptor, which stays open
 * @newfd: number of the replaced descriptor in the caller
 *
 * This does not answer the call.
 */
int call_addfd_replace(struct call *c, int fd, int newfd, bool cloexec)
{
	struct seccomp_notif_addfd add = {
		.id = c->id,
		.flags = SECCOMP_ADDFD_FLAG_SETFD,
		.srcfd = (uint32_t)fd,
		.newfd = (uint32_t)newfd,
		.newfd_flags = cloexec ? O_CLOEXEC : 0,
	};

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ?
	       -errno : 0;
}

/** call_nonblocking - whether the caller's descriptor is O_NONBLOCK */
bool call_nonblocking(const struct call *c)
{
	int flags = fcntl(c->dup, F_GETFL);

	return flags >= 0 && (flags & O_NONBLOCK);
}
