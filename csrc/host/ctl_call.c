// SPDX-License-Identifier: GPL-2.0-only
/*
 * CTL_SYSCALL: calls that clients make in the stack.
 *
 * Theory of operation
 *
 * The request is copied with room for all its buffers behind, addresses are put
 * where the request says, and the call is made. One that says EAGAIN and may
 * wait becomes a struct waiter: the descriptor is duplicated in the stack, so
 * that it can be in the stack's epoll beside whoever else watches it, and the
 * call is made again at each event until it says something else, its time is
 * over, or it is cancelled.
 *
 * What is allowed is in ctl_calls.c. Descriptors that calls open are made
 * non-blocking, remembered, and closed with the connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "ctl.h"
#include "host.h"
#include "stack.h"

#define DATA_MAX	(CTL_FRAME_MAX - 4096)

/**
 * struct request - a call with its buffers
 * @buf: descriptions
 * @addr: where each is
 * @mem: all of them, in one piece
 */
struct request {
	struct ctl_hdr hdr;
	struct ctl_syscall call;
	struct ctl_buf buf[CTL_SYSCALL_BUFS];
	uint8_t *addr[CTL_SYSCALL_BUFS];
	uint64_t args[6];
	uint8_t *mem;
};

/**
 * struct waiter - a call that said EAGAIN
 * @ssrc: @fd in the stack's epoll
 * @fd: duplicate of the descriptor it waits for
 */
struct waiter {
	struct stack_src ssrc;
	struct list link;
	struct timer timer;
	struct client *cl;
	struct request *rq;
	int fd;
};

/* The one being made, which a panic leaves behind. */
static struct request *making;

/** request_free - with its buffers */
static void request_free(struct request *rq)
{
	free(rq->mem);
	free(rq);
}

/**
 * request_place - put buffer addresses where they belong
 *
 * Returns -EINVAL for a place that does not exist.
 */
static int request_place(struct request *rq)
{
	uint32_t i;

	memcpy(rq->args, rq->call.args, sizeof(rq->args));
	for (i = 0; i < rq->call.nbuf; i++) {
		const struct ctl_buf *b = &rq->buf[i];
		uint64_t addr = (uint64_t)(uintptr_t)rq->addr[i];

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
		memcpy(rq->addr[b->place] + b->offset, &addr, sizeof(addr));
	}
	return 0;
}

/**
 * request_parse - a frame's body into a request
 *
 * -EBADMSG: a length is broken; -EINVAL, -E2BIG, -ENOMEM: cannot be carried out.
 */
static int request_parse(const struct ctl_hdr *h, const uint8_t *body,
			 size_t len, struct request **out)
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
	rq->mem = calloc(1, all + 16);
	ret = -ENOMEM;
	if (!rq->mem)
		goto fail;
	for (i = 0; i < rq->call.nbuf; i++) {
		rq->addr[i] = rq->mem + at;
		at += (rq->buf[i].len + 15) & ~(size_t)15;
		if (rq->buf[i].flags & CTL_BUF_IN) {
			memcpy(rq->addr[i], body, rq->buf[i].len);
			body += rq->buf[i].len;
		}
	}
	ret = request_place(rq);
	if (ret)
		goto fail;
	*out = rq;
	return 0;

fail:
	request_free(rq);
	return ret;
}

/** request_reply - the result, and the buffers that came back */
static void request_reply(struct client *cl, struct request *rq, int64_t ret)
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
		memcpy(buf + at, rq->addr[i], rq->buf[i].len);
		at += rq->buf[i].len;
	}
	ctl_reply(cl, &rq->hdr, 0, buf, len);
	free(buf);
}

/** owns - whether the client's calls opened that descriptor */
static bool owns(const struct client *cl, int fd)
{
	size_t i;

	for (i = 0; i < cl->n_stack_fds; i++)
		if (cl->stack_fds[i] == fd)
			return true;
	return false;
}

/** own - remember a descriptor; false without memory */
static bool own(struct client *cl, int fd)
{
	if (cl->n_stack_fds == cl->stack_fds_room) {
		size_t room = cl->stack_fds_room ? 2 * cl->stack_fds_room : 16;
		int *p = realloc(cl->stack_fds, room * sizeof(*p));

		if (!p)
			return false;
		cl->stack_fds = p;
		cl->stack_fds_room = room;
	}
	cl->stack_fds[cl->n_stack_fds++] = fd;
	return true;
}

/** disown - it was closed */
static void disown(struct client *cl, int fd)
{
	size_t i;

	for (i = 0; i < cl->n_stack_fds; i++)
		if (cl->stack_fds[i] == fd) {
			cl->stack_fds[i] = cl->stack_fds[--cl->n_stack_fds];
			return;
		}
}

/** permitted - 0, or why the call is refused */
static int permitted(const struct client *cl, const struct request *rq)
{
	int flags = ctl_call_flags(rq->call.nr);
	int fd = (int)rq->args[0];

	if (flags < 0)
		return -EPERM;
	if ((flags & CALL_OPENS) && cl->n_stack_fds >= CTL_STACK_FDS)
		return -EMFILE;
	if (!(flags & (CALL_FD | CALL_AT)) ||
	    ((flags & CALL_AT) && fd == AT_FDCWD) || owns(cl, fd))
		return 0;
	/* Sockets of the target may be looked at and tuned, not closed. With the
	 * back end "host" all other descriptors are lklhost's own. */
	if (engine_has_stack_fd(fd))
		return rq->call.nr == SYS_close ? -EPERM : 0;
	return stack->abi == CTL_ABI_HOST ? -EBADF : 0;
}

/** never_blocking - descriptors that are opened here do not block */
static void never_blocking(struct request *rq)
{
	switch (rq->call.nr) {
	case SYS_socket:
		rq->args[1] |= SOCK_NONBLOCK | SOCK_CLOEXEC;
		break;
	case SYS_accept4:
		rq->args[3] |= SOCK_NONBLOCK | SOCK_CLOEXEC;
		break;
	case SYS_openat:
		rq->args[2] |= O_NONBLOCK | O_CLOEXEC;
		break;
#ifdef SYS_open
	case SYS_open:
		rq->args[1] |= O_NONBLOCK | O_CLOEXEC;
		break;
#endif
	case SYS_fcntl:
		if (rq->args[1] == F_SETFL)
			rq->args[2] |= O_NONBLOCK;
		break;
	case SYS_sendto:
	case SYS_recvfrom:
		rq->args[3] |= MSG_DONTWAIT;
		break;
	case SYS_sendmsg:
	case SYS_recvmsg:
		rq->args[2] |= MSG_DONTWAIT;
		break;
	case SYS_sendmmsg:
	case SYS_recvmmsg:
		rq->args[3] |= MSG_DONTWAIT;
		break;
	}
}

/** make - the call itself, and its effect on what the client holds */
static int64_t make(struct client *cl, struct request *rq)
{
	const uint64_t *a = rq->args;
	int flags = ctl_call_flags(rq->call.nr);
	int64_t ret;

	ret = st_call(rq->call.nr, (long)a[0], (long)a[1], (long)a[2],
		      (long)a[3], (long)a[4], (long)a[5]);
	if (rq->call.nr == SYS_close && !ret)
		disown(cl, (int)a[0]);
	if (rq->call.nr == SYS_fcntl && a[1] != F_DUPFD &&
	    a[1] != F_DUPFD_CLOEXEC)
		return ret;
	if (ret >= 0 && (flags & CALL_OPENS) && !owns(cl, (int)ret) &&
	    !own(cl, (int)ret)) {
		st_close(ret);
		ret = -ENOMEM;
	}
	return ret;
}

/** waiter_end - reply and forget; @ret is ignored when @say is false */
static void waiter_end(struct waiter *w, int64_t ret, bool say)
{
	list_del(&w->link);
	w->cl->n_waiters--;
	timer_cancel(&w->timer);
	st_unwatch(w->fd, &w->ssrc);
	st_close(w->fd);
	if (say)
		request_reply(w->cl, w->rq, ret);
	request_free(w->rq);
	loop_free_later(w);
}

/** waiter_ready - the stack reports on the descriptor */
static void waiter_ready(struct stack_src *src, uint32_t events)
{
	struct waiter *w = container_of(src, struct waiter, ssrc);
	int64_t ret;

	(void)events;
	ret = make(w->cl, w->rq);
	if (ret != -EAGAIN)
		waiter_end(w, ret, true);
}

/** waiter_late - its time is over */
static void waiter_late(struct timer *t)
{
	waiter_end(container_of(t, struct waiter, timer), -EAGAIN, true);
}

/** wait_for - let a call wait; takes @rq over unless it fails */
static int wait_for(struct client *cl, struct request *rq)
{
	struct waiter *w;
	long fd;
	int ret;

	if (cl->n_waiters >= CTL_WAITERS)
		return -EMFILE;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	fd = ST(SYS_fcntl, rq->args[0], F_DUPFD_CLOEXEC, 0, 0, 0, 0);
	if (fd < 0) {
		free(w);
		return (int)fd;
	}
	w->fd = (int)fd;
	w->cl = cl;
	w->rq = rq;
	w->ssrc.fn = waiter_ready;
	ret = st_watch(w->fd, &w->ssrc, rq->call.wait_events);
	if (ret) {
		st_close(w->fd);
		free(w);
		return ret;
	}
	timer_init(&w->timer, waiter_late);
	timer_arm(&w->timer,
		  now_ns() + (uint64_t)rq->call.timeout_ms * 1000000ull);
	list_add_tail(&w->link, &cl->waiters);
	cl->n_waiters++;
	return 0;
}

/** ctl_call - CTL_SYSCALL; a negative errno ends the connection */
int ctl_call(struct client *cl, const struct ctl_hdr *h, const uint8_t *body,
	     size_t len)
{
	struct request *rq = NULL;
	int64_t result;
	int ret;

	ret = request_parse(h, body, len, &rq);
	if (ret) {
		ctl_reply(cl, h, ret, NULL, 0);
		return ret == -EBADMSG ? ret : 0;
	}
	if (!stack_alive())
		ret = host.state == CTL_STATE_NEW ? -EAGAIN : -EIO;
	else
		ret = permitted(cl, rq);
	if (ret) {
		ctl_reply(cl, h, ret, NULL, 0);
		request_free(rq);
		return 0;
	}
	never_blocking(rq);
	making = rq;
	result = make(cl, rq);
	making = NULL;
	if (result == -EAGAIN && rq->call.timeout_ms && !wait_for(cl, rq))
		return 0;
	request_reply(cl, rq, result);
	request_free(rq);
	return 0;
}

/** ctl_call_cancel - CTL_CANCEL; -ENOENT when nothing of that id waits */
int ctl_call_cancel(struct client *cl, uint32_t id)
{
	struct list *pos;

	list_for_each(pos, &cl->waiters) {
		struct waiter *w = container_of(pos, struct waiter, link);

		if (w->rq->hdr.id == id) {
			waiter_end(w, -EINTR, true);
			return 0;
		}
	}
	return -ENOENT;
}

/** ctl_calls_panic - the kernel is dead: calls that wait say EIO */
void ctl_calls_panic(struct client *cl)
{
	while (!list_empty(&cl->waiters))
		waiter_end(container_of(cl->waiters.next, struct waiter, link),
			   -EIO, true);
	cl->n_stack_fds = 0;
	if (making)
		request_free(making);
	making = NULL;
}

/** ctl_calls_end - the connection is closed: nothing waits, nothing is open */
void ctl_calls_end(struct client *cl)
{
	while (!list_empty(&cl->waiters))
		waiter_end(container_of(cl->waiters.next, struct waiter, link),
			   0, false);
	while (cl->n_stack_fds)
		st_close(cl->stack_fds[--cl->n_stack_fds]);
}
