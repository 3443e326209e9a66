// SPDX-License-Identifier: GPL-2.0-only
/*
 * CTL_SYSCALL: calls that clients make in the stack.
 *
 * Theory of operation
 *
 * The buffers of a request are placed in one memory area, which all calls
 * share, and their addresses are written where the request specifies. The call
 * runs on this area, and the reply is written from it. If a call returns EAGAIN
 * and may wait, it becomes a struct waiter. Its descriptor is duplicated in the
 * stack, so that the stack's epoll can watch it in addition to other watchers.
 * The call is repeated at each event until it returns something other than
 * EAGAIN, times out or is cancelled.
 *
 * ctl_calls.c lists the permitted calls. Descriptors that calls open are made
 * non-blocking, recorded, and closed with the connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/loop.h"
#include "control/internal.h"
#include "control/request.h"
#include "stack/stack.h"

/**
 * struct waiter - a call that returned EAGAIN
 * @ssrc: @fd in the stack's epoll
 * @fd: duplicate of the descriptor that it waits for
 */
struct waiter {
	struct stack_src ssrc;
	struct list link;
	struct timer timer;
	struct client *cl;
	struct request *rq;
	int fd;
};

const struct ctl_ops *ctl_ops;

/* The call in progress, which a panic must free. */
static struct request *making;

/**
 * room_end - the memory area for the buffers of a call
 *
 * An inaccessible page follows the area: a call that writes beyond its client's
 * buffers fails with EFAULT and does not change our memory.
 *
 * Returns the end of the area, or NULL without memory.
 */
static uint8_t *room_end(void)
{
	static uint8_t *end;
	/* Not sysconf(): bionic numbers its names differently. */
	const size_t page = getauxval(AT_PAGESZ);
	uint8_t *p;

	if (end)
		return end;
	p = mmap(NULL, REQUEST_ROOM + page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (mprotect(p + REQUEST_ROOM, page, PROT_NONE)) {
		munmap(p, REQUEST_ROOM + page);
		return NULL;
	}
	end = p + REQUEST_ROOM;
	return end;
}

/** owns - whether calls of the client opened this descriptor */
static bool owns(const struct client *cl, int fd)
{
	size_t i;

	for (i = 0; i < cl->n_stack_fds; i++)
		if (cl->stack_fds[i] == fd)
			return true;
	return false;
}

/** own - record a descriptor; false without memory */
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

/** disown - forget a closed descriptor */
static void disown(struct client *cl, int fd)
{
	size_t i;

	for (i = 0; i < cl->n_stack_fds; i++)
		if (cl->stack_fds[i] == fd) {
			cl->stack_fds[i] = cl->stack_fds[--cl->n_stack_fds];
			return;
		}
}

/** would_block - whether the call waits even on a non-blocking descriptor */
static bool would_block(const struct request *rq)
{
	switch (rq->call.nr) {
	case SYS_syslog:
		return rq->args[0] == 2;	/* SYSLOG_ACTION_READ */
	case SYS_ioctl:
		return (uint32_t)rq->args[1] == FIONBIO;
	case SYS_fcntl:
		return (uint32_t)rq->args[1] == F_SETLKW ||
		       (uint32_t)rq->args[1] == F_OFD_SETLKW;
	}
	return false;
}

/** close_fd - close, without the wait for the peer that SO_LINGER requests */
static long close_fd(int fd)
{
	struct linger l = { 0 };
	socklen_t len = sizeof(l);

	if (!st_getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) && l.l_onoff &&
	    l.l_linger) {
		l.l_onoff = 0;
		st_setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	}
	return st_close(fd);
}

/** permitted - 0, or the errno that refuses the call */
static int permitted(const struct client *cl, const struct request *rq)
{
	int flags = ctl_call_flags(rq->call.nr);
	int fd = (int)rq->args[0];

	if (flags < 0 || would_block(rq))
		return -EPERM;
	if ((flags & CALL_OPENS) && cl->n_stack_fds >= CTL_STACK_FDS)
		return -EMFILE;
	if (!(flags & (CALL_FD | CALL_AT)) ||
	    ((flags & CALL_AT) && fd == AT_FDCWD) || owns(cl, fd))
		return 0;
	/*
	 * Clients may inspect and tune the target's sockets, but not close
	 * them. All other descriptors belong to other clients or to lklhost.
	 */
	if (ctl_ops->engine_has_fd(fd))
		return rq->call.nr == SYS_close ? -EPERM : 0;
	return -EBADF;
}

/** never_blocking - make the descriptors opened here non-blocking */
static void never_blocking(struct request *rq)
{
	switch (rq->call.nr) {
	case SYS_socket:
		rq->args[1] |= SOCK_NONBLOCK | SOCK_CLOEXEC;
		break;
	case SYS_accept:
		rq->call.nr = SYS_accept4;
		rq->args[3] = 0;
		/* fall through */
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

/**
 * make - make the call, and record the descriptors it opens or closes
 * @room: its buffers, valid until the next call
 */
static int64_t make(struct client *cl, struct request *rq, const uint8_t **room)
{
	const uint64_t *a = rq->args;
	int flags = ctl_call_flags(rq->call.nr);
	uint8_t *base = room_end();
	bool elsewhere = cl->netns && (flags & CALL_NETNS);
	int64_t ret;

	if (!base)
		return -ENOMEM;
	if (elsewhere && ctl_ops->netns_enter(cl->netns))
		return -ENONET;
	base -= rq->size + rq->counted;
	*room = base;
	request_fill(rq, base);
	never_blocking(rq);
	ret = rq->call.nr == SYS_close ? close_fd((int)a[0]) :
	      rq->counted ? request_receive(rq, base) :
	      st_call(rq->call.nr, (long)a[0], (long)a[1], (long)a[2],
		      (long)a[3], (long)a[4], (long)a[5]);
	if (elsewhere)
		ctl_ops->netns_leave();
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

/** waiter_end - free a waiter; calls the stack last, as it may panic */
static void waiter_end(struct waiter *w)
{
	list_del(&w->link);
	w->cl->n_waiters--;
	timer_cancel(&w->timer);
	request_free(w->rq);
	loop_free_later(w);
	st_unwatch(w->fd, &w->ssrc);
	st_close(w->fd);
}

/** waiter_fail - reply with an error and free the waiter */
static void waiter_fail(struct waiter *w, int64_t ret)
{
	request_reply(w->cl, w->rq, ret, NULL);
	waiter_end(w);
}

/** waiter_ready - the stack reports an event of the descriptor */
static void waiter_ready(struct stack_src *src, uint32_t events)
{
	struct waiter *w = container_of(src, struct waiter, ssrc);
	const uint8_t *room = NULL;
	int64_t ret;

	(void)events;
	ret = make(w->cl, w->rq, &room);
	if (ret == -EAGAIN)
		return;
	request_reply(w->cl, w->rq, ret, room);
	waiter_end(w);
}

/** waiter_late - the call has timed out */
static void waiter_late(struct timer *t)
{
	waiter_fail(container_of(t, struct waiter, timer), -EAGAIN);
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
	const uint8_t *room = NULL;
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
	making = rq;
	result = make(cl, rq, &room);
	making = NULL;
	if (result == -EAGAIN && rq->call.timeout_ms && !wait_for(cl, rq))
		return 0;
	request_reply(cl, rq, result, room);
	request_free(rq);
	return 0;
}

/** ctl_call_cancel - CTL_CANCEL; -ENOENT if no call with this id waits */
int ctl_call_cancel(struct client *cl, uint32_t id)
{
	struct list *pos;

	list_for_each(pos, &cl->waiters) {
		struct waiter *w = container_of(pos, struct waiter, link);

		if (w->rq->hdr.id == id) {
			waiter_fail(w, -EINTR);
			return 0;
		}
	}
	return -ENOENT;
}

/** ctl_calls_panic - the kernel is dead: waiting calls return EIO */
void ctl_calls_panic(struct client *cl)
{
	while (!list_empty(&cl->waiters))
		waiter_fail(container_of(cl->waiters.next, struct waiter, link),
			    -EIO);
	cl->n_stack_fds = 0;
	if (making)
		request_free(making);
	making = NULL;
}

/**
 * ctl_calls_end - the connection closes: end its calls, close its descriptors
 */
void ctl_calls_end(struct client *cl)
{
	while (!list_empty(&cl->waiters))
		waiter_end(container_of(cl->waiters.next, struct waiter, link));
	while (cl->n_stack_fds)
		close_fd(cl->stack_fds[--cl->n_stack_fds]);
}
