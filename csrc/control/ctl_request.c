// SPDX-License-Identifier: GPL-2.0-only
/*
 * CTL_SYSCALL: convert the body of a frame to a call with its buffers, and the
 * result to a reply.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "control/internal.h"
#include "control/request.h"
#include "stack/stack.h"

#define DATA_MAX	(CTL_FRAME_MAX - 4096)
#define REPLY_MAX	(CTL_FRAME_MAX - sizeof(struct ctl_hdr) - \
			 sizeof(struct ctl_syscall_rep))

/** request_free - free a request */
void request_free(struct request *rq)
{
	free(rq->in);
	free(rq);
}

/** aligned - the space that a buffer takes */
static size_t aligned(uint32_t len)
{
	return (len + 15) & ~(size_t)15;
}

/** counted - whether the next entry gives the used length of buffer @i */
static bool counted(const struct request *rq, uint32_t i)
{
	return i + 1 < rq->call.nbuf && rq->buf[i + 1].b.flags == CTL_BUF_USED;
}

/**
 * takes_fd - whether the first argument is a descriptor
 *
 * permitted() checks it before the addresses of buffers are known.
 */
static bool takes_fd(const struct request *rq)
{
	int flags = ctl_call_flags(rq->call.nr);

	return flags >= 0 && (flags & (CALL_FD | CALL_AT));
}

/** buf_check - check entry @i as ctl_proto.h requires */
static int buf_check(const struct request *rq, uint32_t i)
{
	const struct ctl_buf *b = &rq->buf[i].b;
	const struct ctl_buf *to = b->place < i ? &rq->buf[b->place].b : NULL;
	bool used = b->flags == CTL_BUF_USED;

	if (!used && (!(b->flags & CTL_BUF_INOUT) ||
		      (b->flags & ~(CTL_BUF_INOUT | CTL_BUF_IN_BUF))))
		return -EINVAL;
	if (!used && !(b->flags & CTL_BUF_IN_BUF))
		return b->place > 5 || (!b->place && takes_fd(rq)) ? -EINVAL : 0;
	if (!to || (b->offset & (sizeof(uintptr_t) - 1)))
		return -EINVAL;
	if (!used)
		return b->offset + sizeof(uintptr_t) > to->len ? -EINVAL : 0;
	if (b->len || rq->call.nr != SYS_recvmmsg || (uint32_t)b->offset + 4 > to->len ||
	    !(to->flags & CTL_BUF_OUT) || counted(rq, b->place) ||
	    (rq->buf[i - 1].b.flags & CTL_BUF_INOUT) != CTL_BUF_OUT)
		return -EINVAL;
	return 0;
}

/**
 * room_plan - place the buffers, and compute the space for the counted ones
 *
 * Returns -E2BIG if the reply has no space for one of these.
 */
static int room_plan(struct request *rq)
{
	size_t out = 0, largest = 0;
	uint32_t i;

	for (i = 0; i < rq->call.nbuf; i++) {
		const struct ctl_buf *b = &rq->buf[i].b;

		rq->buf[i].at = rq->size;
		if (counted(rq, i)) {
			largest = b->len > largest ? b->len : largest;
			continue;
		}
		rq->size += aligned(b->len);
		if (b->flags & CTL_BUF_OUT)
			out += b->len;
	}
	if (rq->size > 2 * (size_t)DATA_MAX ||
	    (largest && out + aligned(largest) > REPLY_MAX))
		return -E2BIG;
	if (largest)
		rq->counted = (REPLY_MAX - out) & ~(size_t)15;
	return 0;
}

/**
 * request_parse - convert the body of a frame to a request
 *
 * Returns -EBADMSG for an invalid length; -EINVAL, -E2BIG or -ENOMEM if the
 * request cannot be carried out.
 */
int request_parse(const struct ctl_hdr *h, const uint8_t *body, size_t len,
		  struct request **out)
{
	struct ctl_syscall call;
	struct request *rq;
	size_t in = 0;
	uint32_t i;
	int ret;

	memcpy(&call, body, sizeof(call));
	body += sizeof(call);
	len -= sizeof(call);
	if (call.nbuf > CTL_SYSCALL_BUFS)
		return -E2BIG;
	if (len < call.nbuf * sizeof(struct ctl_buf))
		return -EBADMSG;
	rq = calloc(1, sizeof(*rq) + call.nbuf * sizeof(rq->buf[0]));
	if (!rq)
		return -ENOMEM;
	rq->hdr = *h;
	rq->call = call;
	memcpy(rq->args, call.args, sizeof(rq->args));
	for (i = 0; i < call.nbuf; i++) {
		struct ctl_buf *b = &rq->buf[i].b;

		memcpy(b, body, sizeof(*b));
		body += sizeof(*b);
		len -= sizeof(*b);
		ret = -E2BIG;
		if (b->len > DATA_MAX)
			goto fail;
		if (b->flags & CTL_BUF_IN)
			in += b->len;
	}
	ret = -EBADMSG;
	if (in != len)
		goto fail;
	ret = room_plan(rq);
	if (ret)
		goto fail;
	for (i = 0; i < call.nbuf; i++) {
		ret = buf_check(rq, i);
		if (ret)
			goto fail;
	}
	rq->in = malloc(in + 1);
	ret = -ENOMEM;
	if (!rq->in)
		goto fail;
	memcpy(rq->in, body, in);
	*out = rq;
	return 0;

fail:
	request_free(rq);
	return ret;
}

/** address_put - put the address of buffer @i where the call expects it */
static void address_put(struct request *rq, uint32_t i, uint8_t *base)
{
	const struct ctl_buf *b = &rq->buf[i].b;
	uintptr_t addr = (uintptr_t)(base + rq->buf[i].at);

	if (b->flags & CTL_BUF_IN_BUF)
		memcpy(base + rq->buf[b->place].at + b->offset, &addr,
		       sizeof(addr));
	else
		rq->args[b->place] = addr;
}

/** count_clear - reset a used length, whatever the client sent */
static void count_clear(const struct request *rq, uint32_t i, uint8_t *base)
{
	const struct ctl_buf *b = &rq->buf[i].b;

	memset(base + rq->buf[b->place].at + b->offset, 0, sizeof(uint32_t));
}

/**
 * request_fill - fill the buffers and put their addresses
 * @base: start of the buffers
 */
void request_fill(struct request *rq, uint8_t *base)
{
	const uint8_t *in = rq->in;
	uint32_t i;

	for (i = 0; i < rq->call.nbuf; i++) {
		const struct ctl_buf *b = &rq->buf[i].b;
		uint8_t *mem = base + rq->buf[i].at;

		if (b->flags == CTL_BUF_USED) {
			count_clear(rq, i, base);
			continue;
		}
		if (b->flags & CTL_BUF_IN) {
			memcpy(mem, in, b->len);
			in += b->len;
		} else if (!counted(rq, i)) {
			memset(mem, 0, b->len);
		}
		address_put(rq, i, base);
	}
}

/** used - how many bytes of a buffer go into the reply */
static size_t used(const struct request *rq, uint32_t i, const uint8_t *base)
{
	const struct ctl_buf *b = &rq->buf[i].b;
	uint32_t n;

	if (!(b->flags & CTL_BUF_OUT))
		return 0;
	if (!counted(rq, i))
		return b->len;
	b = &rq->buf[i + 1].b;
	memcpy(&n, base + rq->buf[b->place].at + b->offset, sizeof(n));
	return n < rq->buf[i].b.len ? n : rq->buf[i].b.len;
}

/**
 * request_receive - recvmmsg with counted buffers
 * @base: start of the buffers
 *
 * These buffers may be far larger than most messages. Each message is therefore
 * received right after the bytes of the previous one. Reception stops when the
 * reply may have no space for another message.
 *
 * Returns the number of messages, or a negative errno.
 */
int64_t request_receive(struct request *rq, uint8_t *base)
{
	const size_t end = rq->size + rq->counted;
	size_t at = rq->size;
	int64_t n = 0, ret = 0;
	uint32_t i;

	for (i = 0; i < rq->call.nbuf && (uint64_t)n < rq->args[2]; i++) {
		if (!counted(rq, i))
			continue;
		if (rq->buf[i].b.len > end - at)
			break;
		rq->buf[i].at = at;
		address_put(rq, i, base);
		ret = ST(SYS_recvmmsg, rq->args[0],
			 rq->args[1] + (uint64_t)n * sizeof(struct mmsghdr), 1,
			 rq->args[3], 0, 0);
		if (ret <= 0)
			break;
		n++;
		at += used(rq, i, base);
	}
	return n ? n : ret;
}

/**
 * request_reply - send the result and the output buffers
 * @base: start of the buffers; NULL if @ret is an error
 */
void request_reply(struct client *cl, struct request *rq, int64_t ret,
		   const uint8_t *base)
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
		len += used(rq, i, base);
	buf = len <= CTL_FRAME_MAX - sizeof(struct ctl_hdr) ? malloc(len) : NULL;
	if (!buf) {
		ctl_reply(cl, &rq->hdr, -E2BIG, NULL, 0);
		return;
	}
	memcpy(buf, &rep, sizeof(rep));
	for (i = 0; i < rq->call.nbuf; i++) {
		size_t n = used(rq, i, base);

		memcpy(buf + at, base + rq->buf[i].at, n);
		at += n;
	}
	ctl_reply(cl, &rq->hdr, 0, buf, len);
	free(buf);
}
