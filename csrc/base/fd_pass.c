// SPDX-License-Identifier: GPL-2.0-only
/* Messages that carry descriptors (SCM_RIGHTS, unix(7)). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
};

/**
 * fd_pass_send - sendmsg(2) with the @n descriptors @fds
 *
 * Returns the result of sendmsg(2) or a negative errno.
 */
ssize_t fd_pass_send(int sock, const void *buf, size_t len, const int *fds,
		     unsigned int n, int flags)
{
	union control ctl = { 0 };
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t ret;

	if (n) {
		struct cmsghdr *cm;

		mh.msg_control = ctl.buf;
		mh.msg_controllen = CMSG_SPACE(n * sizeof(int));
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(cm), fds, n * sizeof(int));
	}
	ret = sendmsg(sock, &mh, flags | MSG_NOSIGNAL);
	return ret < 0 ? -errno : ret;
}

/**
 * fd_pass_recv - recvmsg(2); the received descriptors are close-on-exec
 * @fds: room for FD_PASS_MAX
 * @n: number of descriptors received
 *
 * Returns the result of recvmsg(2) or a negative errno, never -EINTR.
 */
ssize_t fd_pass_recv(int sock, void *buf, size_t len, int *fds,
		     unsigned int *n)
{
	union control ctl;
	struct iovec iov = { buf, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };
	struct cmsghdr *cm;
	ssize_t ret;

	*n = 0;
	do {
		ret = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
	} while (ret < 0 && errno == EINTR);
	if (ret < 0)
		return -errno;
	cm = CMSG_FIRSTHDR(&mh);
	if (cm && cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS) {
		*n = (unsigned int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(cm), *n * sizeof(int));
	}
	return ret;
}
