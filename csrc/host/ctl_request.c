// SPDX-License-Identifier: GPL-2.0-only
/*
 * CTL_SYSCALL: from the frame's body to a call with its buffers, and from that to
 * the reply.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl_request.h"

#define DATA_MAX	(CTL_FRAME_MAX - 4096)

/** request_free - with its buffers */
void request_free(struct request *rq)
{
	free(rq->mem);
	free(rq);
}

/**
 * request_place - put buffer addresses where they belong
 * @base: where the buffers are
 *
 * Returns -EINVAL for a place that does not exist.
 */
int request_place(struct request *rq, uint8_t *base)
{
	uint32_t i;

	for (i = 0; i < rq->call.nbuf; i++) {
		const struct ctl_buf *b = &rq->buf[i];
		uint64_t addr = (uint64_t)(uintptr_t)(base + rq->at[i]);

		if (!(b->flags & CTL_BUF_INOUT) ||
		    (b->flags & ~(CTL_BUF_INOUT | CTL_BUF_IN_BUF)))
			return -EINVAL;
		if (!(b->flags & CTL_BUF_IN_BUF)) {
			if (b->place > 5)
				return -EINVAL;
			rq->args[b->place] = addr;
			continue;
		}
		if (b->place >= i || (b->offset & 7) ||
		    (uint32_t)b->offset + 8 > rq->buf[b->place].len)
			return -EINVAL;
		memcpy(base + rq->at[b->place] + b->offset, &addr,
		       sizeof(addr));
	}
	return 0;
}

/**
 * request_parse - a frame's body into a request
 *
 * -EBADMSG: a length is broken; -EINVAL, -E2BIG, -ENOMEM: cannot be carried out.
 */
int request_parse(const struct ctl_hdr *h, const uint8_t *body, size_t len,
		  struct request **out)
{
	struct request *rq;
	size_t in = 0, all = 0, at = 0;
	uint32_t i;
	int ret;

	rq = calloc(1, sizeof(*rq));
	if (!rq)
		return -ENOMEM;
	rq->hdr = *h;
	memcpy(&rq->call, body, sizeof(rq->call));
	memcpy(rq->args, rq->call.args, sizeof(rq->args));
	body += sizeof(rq->call);
	len -= sizeof(rq->call);
	ret = -E2BIG;
	if (rq->call.nbuf > CTL_SYSCALL_BUFS)
		goto fail;
	ret = -EBADMSG;
	if (len < rq->call.nbuf * sizeof(rq->buf[0]))
		goto fail;
	memcpy(rq->buf, body, rq->call.nbuf * sizeof(rq->buf[0]));
	body += rq->call.nbuf * sizeof(rq->buf[0]);
	len -= rq->call.nbuf * sizeof(rq->buf[0]);
	for (i = 0; i < rq->call.nbuf; i++) {
		if (rq->buf[i].len > DATA_MAX) {
			ret = -E2BIG;
			goto fail;
		}
		all += (rq->buf[i].len + 15) & ~(size_t)15;
		if (rq->buf[i].flags & CTL_BUF_IN)
			in += rq->buf[i].len;
	}
	if (in != len)
		goto fail;
	ret = -E2BIG;
	if (all > 2 * (size_t)DATA_MAX)
		goto fail;
	rq->size = all;
	rq->mem = calloc(1, all + 16);
	ret = -ENOMEM;
	if (!rq->mem)
		goto fail;
	for (i = 0; i < rq->call.nbuf; i++) {
		rq->at[i] = at;
		if (rq->buf[i].flags & CTL_BUF_IN) {
			memcpy(rq->mem + at, body, rq->buf[i].len);
			body += rq->buf[i].len;
		}
		at += (rq->buf[i].len + 15) & ~(size_t)15;
	}
	ret = request_place(rq, rq->mem);	/* whether it can be */
	if (ret)
		goto fail;
	*out = rq;
	return 0;

fail:
	request_free(rq);
	return ret;
}

/** request_reply - the result, and the buffers that came back */
void request_reply(struct client *cl, struct request *rq, int64_t ret)
{
	struct ctl_syscall_rep rep = { .ret = ret };
	size_t len = sizeof(rep), at = sizeof(rep);
	uint8_t *buf;
	uint32_t i;

	if (ret < 0) {
		ctl_reply(cl, &rq->hdr, 0, &rep, sizeof(rep));
		return;
	}
	for (i = 0; i < rq->call.nbuf; i++)
		if (rq->buf[i].flags & CTL_BUF_OUT)
			len += rq->buf[i].len;
	buf = len <= CTL_FRAME_MAX - sizeof(struct ctl_hdr) ? malloc(len) : NULL;
	if (!buf) {
		ctl_reply(cl, &rq->hdr, -E2BIG, NULL, 0);
		return;
	}
	memcpy(buf, &rep, sizeof(rep));
	for (i = 0; i < rq->call.nbuf; i++) {
		if (!(rq->buf[i].flags & CTL_BUF_OUT))
			continue;
		memcpy(buf + at, rq->mem + rq->at[i], rq->buf[i].len);
		at += rq->buf[i].len;
	}
	ctl_reply(cl, &rq->hdr, 0, buf, len);
	free(buf);
}
