// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answer calls that seccomp notification reports, and install descriptors in the
 * calling processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>

#include "base/features.h"
#include "base/log.h"
#include "engine/call/call.h"
#include "engine/call/catch.h"

static bool two_steps;	/* the kernel has no SECCOMP_ADDFD_FLAG_SEND */

/**
 * call_probe - find out how this kernel adds descriptors
 * @fd: a seccomp listener
 *
 * The kernel checks the flags first, so the request without a descriptor to add
 * shows whether it knows SECCOMP_ADDFD_FLAG_SEND.
 */
void call_probe(int fd)
{
	struct seccomp_notif_addfd add = {
		.flags = SECCOMP_ADDFD_FLAG_SEND,
		.srcfd = ~0u,
	};

	two_steps = feature_hidden("addfd-send") ||
		    (ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &add) &&
		     errno == EINVAL);
	if (two_steps)
		log_line("this kernel adds and sends a descriptor in two steps");
}

/** valid - whether the caller still waits for the answer */
static bool valid(const struct call *c)
{
	uint64_t id = c->id;

	return !ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id);
}

/** answer - answer a call, see call_answer() */
static bool answer(const struct call *c, int64_t ret)
{
	struct seccomp_notif_resp resp = { .id = c->id };

	if (ret == CALL_NATIVE)
		resp.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else if (ret < 0)
		resp.error = (int32_t)ret;
	else
		resp.val = ret;
	return !ioctl(c->listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

/** addfd - add a descriptor to the caller, see struct catch_ops */
static int addfd(const struct call *c, int fd, int newfd, bool cloexec)
{
	struct seccomp_notif_addfd add = {
		.id = c->id,
		.flags = newfd < 0 ? 0 : SECCOMP_ADDFD_FLAG_SETFD,
		.srcfd = (uint32_t)fd,
		.newfd = newfd < 0 ? 0 : (uint32_t)newfd,
		.newfd_flags = cloexec ? O_CLOEXEC : 0,
	};
	int ret = ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);

	return ret < 0 ? -errno : ret;
}

/** addfd_send - answer a call with a descriptor, see call_addfd_send() */
static int addfd_send(struct call *c, int fd, bool cloexec)
{
	struct seccomp_notif_addfd add = {
		.id = c->id,
		.flags = SECCOMP_ADDFD_FLAG_SEND,
		.srcfd = (uint32_t)fd,
		.newfd_flags = cloexec ? O_CLOEXEC : 0,
	};
	int ret;

	if (two_steps) {
		ret = addfd(c, fd, -1, cloexec);
		c->left = ret >= 0 && !call_answer(c, ret);
		return ret;
	}
	ret = ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
	return ret < 0 ? -errno : ret;
}

/** getfd - duplicate a descriptor of the caller */
static int getfd(const struct call *c, int fd)
{
	return task_getfd(c->task, fd);
}

const struct catch_ops catch_by_notify = {
	.valid = valid,
	.answer = answer,
	.addfd = addfd,
	.addfd_send = addfd_send,
	.getfd = getfd,
};
