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
 * If rules check the data, the socket is one of lklrun, which passes the data on.
 * When nothing is left to check, lklrun replaces it by the host's: see
 * GATEWAY_REPLACE. Neither direction waits for the other one meanwhile, because the
 * programs at the ends may do so.
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
 * @old: the socket that @hsrc has replaced, until it has been read to its end, or -1
 * @work: moves data
 * @id: in messages
 * @host_in, @host_out, @stack_in, @stack_out: the side may be ready
 * @host_failed, @stack_failed: the side has reported an error
 * @piped: @hsrc is a socket of lklrun, which ends its direction by messages
 * @held: nothing is sent to the host until @hsrc has been replaced
 * @host_ends: lklrun has ended the host's side behind the bytes that are in its socket
 * @up_ended, @down_ended: the end of this direction was passed on; up is from the
 *	stack to the host
 * @keep: @keep_len bytes from @keep_at on are for the stack
 */
struct relay {
	struct list link;
	struct source hsrc, old;
	struct stack_src ssrc;
	struct work work;
	uint64_t id;
	int sfd;
	bool host_in, host_out, stack_in, stack_out;
	bool host_failed, stack_failed;
	bool piped, held, host_ends;
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

static struct relay *relay_of(uint64_t id)
{
	struct list *pos;

	list_for_each(pos, bucket(id))
		if (container_of(pos, struct relay, link)->id == id)
			return container_of(pos, struct relay, link);
	return NULL;
}

/** close_old - the replaced socket has been read to its end */
static void close_old(struct relay *r)
{
	int fd = r->old.fd;

	loop_del(&r->old);
	if (fd >= 0)
		close(fd);
}

/** end - remove a relay */
static void end(struct relay *r, bool reset)
{
	int fd = r->hsrc.fd;

	list_del(&r->link);
	work_cancel(&r->work);
	st_unwatch(r->sfd, &r->ssrc);
	loop_del(&r->hsrc);
	close_old(r);
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

	for (i = 0; i < ROUNDS && !r->up_ended && !r->held && r->stack_in && r->host_out; i++) {
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
		got = recv(r->old.fd >= 0 ? r->old.fd : r->hsrc.fd, buf, CHUNK, MSG_DONTWAIT);
		if (got == 0 && r->piped) {	/* GATEWAY_REPLACE is on its way */
			r->host_in = false;
			break;
		}
		if (got < 0 && errno == EAGAIN) {
			r->host_in = false;
			if (!r->host_ends)
				break;
			got = 0;
		}
		if (got < 0)
			return false;
		if (got == 0 && r->old.fd >= 0) {
			close_old(r);
			r->host_in = true;	/* its events did not count */
			continue;
		}
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
	if ((!r->up_ended && !r->held && r->stack_in && r->host_out) ||
	    (!draining && !r->down_ended && r->stack_out && (r->keep_len || r->host_in)))
		work_queue(&r->work);
}

static void old_event(struct source *src, uint32_t events)
{
	struct relay *r = container_of(src, struct relay, old);

	(void)events;
	r->host_in = true;
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
	int ret = -ENOMEM, domain = AF_UNSPEC;
	socklen_t len = sizeof(domain);

	if (r) {
		getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
		r->piped = domain == AF_UNIX;
		r->hsrc = (struct source){ host_event, fd };
		r->old = (struct source){ old_event, -1 };
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
	struct relay *r = relay_of(id);

	if (r && reset) {
		end(r, true);
	} else if (r) {
		r->host_ends = r->host_in = true;
		work_queue(&r->work);
	}
}

/** relay_hold - lklrun will replace the socket once it has read what is in it */
void relay_hold(uint64_t id)
{
	struct relay *r = relay_of(id);

	if (!r || r->held)
		return;
	r->held = true;
	if (!r->up_ended)
		shutdown(r->hsrc.fd, SHUT_WR);
}

/** relay_replace - continue with the host's socket @fd; -1: there are too many descriptors */
void relay_replace(uint64_t id, int fd)
{
	struct relay *r = relay_of(id);
	int old;

	if (!r) {
		if (fd >= 0)
			close(fd);
		return;
	}
	old = r->hsrc.fd;
	loop_del(&r->hsrc);
	r->old = (struct source){ old_event, old };
	r->hsrc = (struct source){ host_event, fd };
	if (fd < 0 || !r->held || loop_add(&r->old, EPOLLIN | EPOLLRDHUP | EPOLLET) ||
	    loop_add(&r->hsrc, HOST_EVENTS)) {
		end(r, true);
		return;
	}
	r->piped = r->held = false;
	r->host_in = r->host_out = true;
	if (r->up_ended)
		shutdown(fd, SHUT_WR);
	work_queue(&r->work);
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
