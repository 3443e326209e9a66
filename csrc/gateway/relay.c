// SPDX-License-Identifier: GPL-2.0-only
/*
 * Relays: each joins a connection of the stack to a connected socket of the host.
 *
 * Theory of operation
 *
 * Bytes for the host go from the stack's memory straight into the host's socket
 * (st_refs()), and are taken from the stack only once the host has them. So if the
 * host takes fewer, nothing must be kept. Bytes for the stack go through a buffer,
 * and what the stack does not take is kept with the relay, which then reads no more
 * from the host.
 *
 * The end of one direction is passed on by shutdown(), an error as a reset of both
 * sides: a broken connection must not look like an orderly end.
 *
 * Events are edge-triggered on both sides, so a side counts as ready until a call
 * finds that it is not. A relay moves a limited number of bytes in a turn, and then
 * lets the others have theirs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/list.h"
#include "base/loop.h"
#include "gateway/relay.h"
#include "shared/gateway_proto.h"
#include "stack/stack.h"

#define CHUNK	(256 * 1024)
#define ROUNDS	4		/* chunks of each direction in a turn */
#define PIECES	256
#define BUCKETS	1024
#define HOST_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

/**
 * struct relay - a connection
 * @link: in the bucket of its id
 * @hsrc, @ssrc: its socket of the host and that of the stack, @sfd
 * @work: moves data
 * @id: in messages
 * @host_in, @host_out, @stack_in, @stack_out: the side may be ready
 * @host_failed, @stack_failed: the side has reported an error
 * @host_ends: lklrun has ended the host's side behind the bytes that are in @hsrc
 * @up_ended, @down_ended: the end of this direction was passed on; up is from the
 *	stack to the host
 * @keep: @keep_len bytes from @keep_at on are for the stack
 */
struct relay {
	struct list link;
	struct source hsrc;
	struct stack_src ssrc;
	struct work work;
	uint64_t id;
	int sfd;
	bool host_in, host_out, stack_in, stack_out;
	bool host_failed, stack_failed;
	bool host_ends;
	bool up_ended, down_ended;
	char *keep;
	size_t keep_at, keep_len;
};

static struct list relays[BUCKETS];	/* an empty one has no links before its first use */
static bool draining;
static char buf[CHUNK] __attribute__((aligned(4096)));

/** relay_reset_sockets - close a pair of sockets by RST; either may be -1 */
void relay_reset_sockets(int sfd, int fd)
{
	const struct linger now = { .l_onoff = 1 };

	if (sfd >= 0) {
		st_setsockopt(sfd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		st_close(sfd);
	}
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(fd);
	}
}

static struct list *bucket(uint64_t id)
{
	struct list *l = &relays[id % BUCKETS];

	if (!l->next)
		list_init(l);
	return l;
}

/** end - remove a relay */
static void end(struct relay *r, bool reset)
{
	int fd = r->hsrc.fd;

	list_del(&r->link);
	work_cancel(&r->work);
	st_unwatch(r->sfd, &r->ssrc);
	loop_del(&r->hsrc);
	if (reset) {
		relay_reset_sockets(r->sfd, fd);
	} else {
		st_close(r->sfd);
		close(fd);
	}
	tell_of(GATEWAY_ENDED, r->id, reset ? GATEWAY_RESET : 0);
	free(r->keep);
	loop_free_later(r);
}

/**
 * take - pass bytes of the stack to the host
 *
 * Returns the number of bytes, 0 at the end of the stream, or a negative errno:
 * -EAGAIN if one of the sides is not ready.
 */
static long take(struct relay *r)
{
	struct iovec iov[PIECES];
	size_t len = 0;
	ssize_t put;
	long n, i;

	n = st_refs(r->sfd, iov, PIECES, CHUNK);
	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (!len) {	/* there is nothing, or only an ordinary receive finds it */
		n = st_recvfrom(r->sfd, buf, CHUNK, MSG_DONTWAIT | MSG_PEEK, NULL, NULL);
		if (n == -EAGAIN)
			r->stack_in = false;
		if (n <= 0)
			return n;
		iov[0] = (struct iovec){ buf, (size_t)n };
		len = (size_t)n;
		n = 1;
	}
	put = writev(r->hsrc.fd, iov, (int)n);
	if (put < 0 && errno != EAGAIN)
		return -errno;
	if (put < (ssize_t)len)
		r->host_out = false;
	if (put <= 0)
		return -EAGAIN;
	n = st_recvfrom(r->sfd, NULL, (size_t)put, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
	return n == put ? n : -EPIPE;
}

/** up - from the stack to the host; false: the relay must be reset */
static bool up(struct relay *r)
{
	int i;

	for (i = 0; i < ROUNDS && !r->up_ended && r->stack_in && r->host_out; i++) {
		long n = take(r);

		if (n == -EAGAIN && draining && !r->stack_in)
			n = 0;
		if (n == 0) {
			r->up_ended = true;
			shutdown(r->hsrc.fd, SHUT_WR);
		} else if (n < 0 && n != -EAGAIN) {
			return false;
		}
	}
	return true;
}

/** give - pass @len bytes to the stack, and keep what it does not take */
static long give(struct relay *r, const char *from, size_t len)
{
	long n = st_sendto(r->sfd, from, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);

	if (n == -EAGAIN)
		n = 0;
	if (n >= 0 && (size_t)n < len)
		r->stack_out = false;
	return n;
}

/** down - from the host to the stack; false: the relay must be reset */
static bool down(struct relay *r)
{
	int i;

	for (i = 0; i < ROUNDS && !r->down_ended && r->stack_out; i++) {
		ssize_t got;
		long n;

		if (r->keep_len) {
			n = give(r, r->keep + r->keep_at, r->keep_len);
			if (n < 0)
				return false;
			r->keep_at += (size_t)n;
			r->keep_len -= (size_t)n;
			continue;
		}
		if (!r->host_in)
			break;
		got = recv(r->hsrc.fd, buf, CHUNK, MSG_DONTWAIT);
		if (got < 0 && errno == EAGAIN) {
			r->host_in = false;
			if (!r->host_ends)
				break;
			got = 0;
		}
		if (got < 0)
			return false;
		if (got == 0) {
			r->down_ended = true;
			st_shutdown(r->sfd, SHUT_WR);
			break;
		}
		n = give(r, buf, (size_t)got);
		if (n < 0)
			return false;
		if (n < got) {
			if (!r->keep)
				r->keep = malloc(CHUNK);
			if (!r->keep)
				return false;
			r->keep_at = 0;
			r->keep_len = (size_t)(got - n);
			memcpy(r->keep, buf + n, r->keep_len);
		}
	}
	return true;
}

/** move - one turn of a relay */
static void move(struct work *w)
{
	struct relay *r = container_of(w, struct relay, work);

	/* A side that is read no more cannot report its error there. */
	if (!up(r) || !(draining || down(r)) ||
	    (r->stack_failed && r->up_ended) || (r->host_failed && r->down_ended)) {
		end(r, true);
		return;
	}
	if (r->up_ended && r->down_ended) {
		end(r, false);
		return;
	}
	if ((!r->up_ended && r->stack_in && r->host_out) ||
	    (!draining && !r->down_ended && r->stack_out && (r->keep_len || r->host_in)))
		work_queue(&r->work);
}

static void host_event(struct source *src, uint32_t events)
{
	struct relay *r = container_of(src, struct relay, hsrc);

	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		r->host_in = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		r->host_out = true;
	if (events & EPOLLERR)
		r->host_failed = true;
	work_queue(&r->work);
}

static void stack_event_of(struct stack_src *src, uint32_t events)
{
	struct relay *r = container_of(src, struct relay, ssrc);

	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		r->stack_in = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		r->stack_out = true;
	if (events & EPOLLERR)
		r->stack_failed = true;
	work_queue(&r->work);
}

/**
 * relay_start - join the socket @sfd of the stack to @fd; owns both from now on
 *
 * Returns a negative errno; the sockets are then closed by RST.
 */
int relay_start(int sfd, int fd, uint64_t id)
{
	struct relay *r = calloc(1, sizeof(*r));
	int ret = -ENOMEM;

	if (r) {
		r->hsrc = (struct source){ host_event, fd };
		r->ssrc.fn = stack_event_of;
		r->sfd = sfd;
		r->id = id;
		r->host_in = r->host_out = r->stack_in = r->stack_out = true;
		work_init(&r->work, move);
		ret = loop_add(&r->hsrc, HOST_EVENTS);
		if (!ret)
			ret = st_watch(sfd, &r->ssrc, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
		if (ret)
			loop_del(&r->hsrc);
	}
	if (ret) {
		relay_reset_sockets(sfd, fd);
		loop_free_later(r);
		return ret;
	}
	list_add_tail(&r->link, bucket(id));
	work_queue(&r->work);
	return 0;
}

/**
 * relay_end - lklrun ends its side of a relay, after the bytes that it has sent
 * @reset: at once, because the connection is broken
 */
void relay_end(uint64_t id, bool reset)
{
	struct list *pos;

	list_for_each(pos, bucket(id)) {
		struct relay *r = container_of(pos, struct relay, link);

		if (r->id != id)
			continue;
		if (reset) {
			end(r, true);
		} else {
			r->host_ends = r->host_in = true;
			work_queue(&r->work);
		}
		return;
	}
}

/**
 * relay_drain - the stack has ended: pass on only what it has sent
 *
 * Returns whether all of that has been passed on.
 */
bool relay_drain(void)
{
	struct list *pos;
	bool done = true;
	uint64_t i;

	draining = true;
	for (i = 0; i < BUCKETS; i++) {
		list_for_each(pos, bucket(i)) {
			struct relay *r = container_of(pos, struct relay, link);

			if (r->up_ended)
				continue;
			done = false;
			r->stack_in = true;
			work_queue(&r->work);
		}
	}
	return done;
}
