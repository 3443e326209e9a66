// SPDX-License-Identifier: GPL-2.0-only
/* Our end of the link to lklhost, and functions that send frames on it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "control/control.h"
#include "engine/preload/link.h"

int link_sock = -1;
struct link_shared *link_shared;

static pthread_mutex_t send_lock = PTHREAD_MUTEX_INITIALIZER;

/** send_frame - send one complete frame */
static void send_frame(const struct ctl_hdr *hdr, const void *body, size_t len)
{
	struct ctl_hdr h = *hdr;
	struct iovec iov[2] = { { &h, sizeof(h) },
				{ (void *)(uintptr_t)body, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	h.len = (uint32_t)(sizeof(h) + len);
	pthread_mutex_lock(&send_lock);
	while (mh.msg_iovlen) {
		ssize_t n = sendmsg(link_sock, &mh, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;	/* lklhost is gone, and ends this process */
		while (mh.msg_iovlen && (size_t)n >= mh.msg_iov->iov_len) {
			n -= (ssize_t)mh.msg_iov->iov_len;
			mh.msg_iov++;
			mh.msg_iovlen--;
		}
		if (mh.msg_iovlen) {
			mh.msg_iov->iov_base = (char *)mh.msg_iov->iov_base + n;
			mh.msg_iov->iov_len -= (size_t)n;
		}
	}
	pthread_mutex_unlock(&send_lock);
}

/** link_send - send a frame without a request; from any thread */
void link_send(uint16_t type, int32_t status, const char *text)
{
	struct ctl_hdr h = { .type = type, .status = status };

	if (preload_alive() || type == LINK_READY)
		send_frame(&h, text, strlen(text));
}

/** ctl_reply - answer a request; called by control/ctl_call.c */
void ctl_reply(struct client *cl, const struct ctl_hdr *req, int32_t status,
	       const void *body, size_t len)
{
	struct ctl_hdr h = { .type = (uint16_t)(req->type | CTL_REPLY),
			     .id = req->id, .status = status };

	(void)cl;
	send_frame(&h, body, len);
}
