/* SPDX-License-Identifier: GPL-2.0-only */
/* CTL_SYSCALL on its way from a frame's body to a call, and back. */
#ifndef LKLHOST_CTL_REQUEST_H
#define LKLHOST_CTL_REQUEST_H

#include "ctl.h"

#define REQUEST_ROOM	(2 * (size_t)CTL_FRAME_MAX)	/* of all buffers of a call */

/**
 * struct request - a call with its buffers
 * @buf: descriptions
 * @at: where each is in @mem
 * @mem: all of them, in one piece of @size bytes
 */
struct request {
	struct ctl_hdr hdr;
	struct ctl_syscall call;
	struct ctl_buf buf[CTL_SYSCALL_BUFS];
	size_t at[CTL_SYSCALL_BUFS];
	uint64_t args[6];
	size_t size;
	uint8_t *mem;
};

int request_parse(const struct ctl_hdr *h, const uint8_t *body, size_t len,
		  struct request **out);
int request_place(struct request *rq, uint8_t *base);
void request_reply(struct client *cl, struct request *rq, int64_t ret);
void request_free(struct request *rq);

#endif
