// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel in the target's own process, engine "preload": forwards requests
 * of control clients to the library there. See preload_link.h.
 *
 * Theory of operation
 *
 * A request that the kernel must answer becomes a struct pending and a frame in
 * the queue. Its reply goes to the client, if that is still connected. Nothing
 * here waits for the target, which may be stopped or stuck.
 *
 * The link closes when the target ends or executes another program. The kernel
 * is then gone, and all waiting clients get an error.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/common/loopback.h"
#include "engine/link/link.h"
#include "process/process.h"
#include "shared/preload_link.h"
#include "stack/stack.h"

/* Maximum time between the end of the link and the end of the target. */
#define LOST_MS		1000
#define PENDING_MAX	1024		/* for one client */
#define QUEUE_MAX	(8u << 20)
#define READS_A_TURN	32
#define READ_CHUNK	65536
#define MS		1000000ull

/**
 * struct pending - a request that is not answered yet
 * @cl: its client; NULL once that client is gone
 * @hdr: header of the request
 * @id: its number on the link
 */
struct pending {
	struct list link;
	struct client *cl;
	struct ctl_hdr hdr;
	uint32_t id;
};

/**
 * struct queued - a frame to be sent to the library
 * @fd: descriptor to send with it, or -1
 */
struct queued {
	struct list link;
	int fd;
	size_t len, off;
	uint8_t data[];
};

static void lost_late(struct timer *t);

static struct {
	struct source src;
	uint32_t last_id;
	uint16_t last_client;
	bool booting, want_out;
	uint8_t *in;
	size_t in_len, in_room;
	size_t queued;
} library = { .src.fd = -1 };

static struct list pendings = LIST_INIT(pendings);
static struct list queue = LIST_INIT(queue);
static struct timer lost_timer = TIMER_INIT(lost_timer, lost_late);

/** answer - reply to a request and forget it */
static void answer(struct pending *p, int32_t status, const void *body,
		   size_t len)
{
	if (p->cl) {
		p->cl->n_linked--;
		ctl_reply(p->cl, &p->hdr, status, body, len);
	}
	list_del(&p->link);
	free(p);
}

/** queued_free - remove a frame from the queue */
static void queued_free(struct queued *q)
{
	list_del(&q->link);
	library.queued -= q->len;
	if (q->fd >= 0)
		close(q->fd);
	free(q);
}

/** left_behind - report once that the program runs without its kernel */
static void left_behind(void)
{
	static bool said;

	if (said || host.state != CTL_STATE_RUNNING)
		return;
	said = true;
	warn_user("the program has executed another program, which has no network under --engine preload; use --engine supervise");
}

/** lost_late - the link has closed, but the target still runs */
static void lost_late(struct timer *t)
{
	(void)t;
	if (host.target_pid)
		left_behind();
}

/** lost - the link is closed: fail all requests */
static void lost(int32_t status)
{
	struct list *pos, *tmp;

	if (library.src.fd >= 0) {
		int fd = library.src.fd;

		loop_del(&library.src);
		close(fd);
		timer_arm(&lost_timer, now_ns() + LOST_MS * MS);
	}
	list_for_each_safe(pos, tmp, &queue)
		queued_free(container_of(pos, struct queued, link));
	list_for_each_safe(pos, tmp, &pendings)
		answer(container_of(pos, struct pending, link), status, NULL,
		       0);
}

/** flush - send as much as the link accepts */
static void flush(void)
{
	bool want;

	while (!list_empty(&queue)) {
		struct queued *q = container_of(queue.next, struct queued, link);
		/*
		 * This may be part of a frame; its descriptor goes with the
		 * first part.
		 */
		ssize_t n = fd_pass_send(library.src.fd, q->data + q->off,
					 q->len - q->off, &q->fd, q->fd >= 0,
					 MSG_DONTWAIT);

		if (n == -EINTR)
			continue;
		if (n < 0)	/* reading detects a closed link */
			break;
		if (q->fd >= 0)
			close(q->fd);
		q->fd = -1;
		q->off += (size_t)n;
		if (q->off == q->len)
			queued_free(q);
	}
	want = !list_empty(&queue);
	if (want != library.want_out)
		loop_mod(&library.src, EPOLLIN | (want ? EPOLLOUT : 0));
	library.want_out = want;
}

/** put - queue a frame; takes @fd over */
static int put(uint16_t type, uint16_t client, uint32_t id, const void *body,
	       size_t len, int fd)
{
	struct ctl_hdr h = { .len = (uint32_t)(sizeof(h) + len), .type = type,
			     .flags = client, .id = id };
	struct queued *q = malloc(sizeof(*q) + h.len);

	if (!q) {
		if (fd >= 0)
			close(fd);
		return -ENOMEM;
	}
	q->fd = fd;
	q->len = h.len;
	q->off = 0;
	memcpy(q->data, &h, sizeof(h));
	if (len)
		memcpy(q->data + sizeof(h), body, len);
	list_add_tail(&q->link, &queue);
	library.queued += q->len;
	flush();
	return 0;
}

/** replied - handle a reply of the library */
static void replied(const struct ctl_hdr *h, const uint8_t *body, size_t len)
{
	struct pending *p = NULL;
	struct list *pos;

	list_for_each(pos, &pendings) {
		p = container_of(pos, struct pending, link);
		if (p->id == h->id)
			break;
		p = NULL;
	}
	if (!p)
		return;
	if (p->hdr.type == CTL_BOOT) {
		char release[65];

		library.booting = false;
		if (!h->status) {
			snprintf(release, sizeof(release), "%.*s", (int)len,
				 (const char *)body);
			stack_set_release(release);
			host.state = CTL_STATE_BOOTED;
		}
	}
	if (p->hdr.type == CTL_GO && !h->status) {
		host.state = CTL_STATE_RUNNING;
		netns_warn();
	}
	answer(p, h->status, body, len);
}

/** heard - handle a frame of the library */
static void heard(const struct ctl_hdr *h, const uint8_t *body, size_t len)
{
	link_log();
	if (h->type & CTL_REPLY) {
		replied(h, body, len);
	} else if (h->type == LINK_WARN) {
		warn_user("%.*s", (int)len, (const char *)body);
	} else if (h->type == LINK_REFUSED) {
		char text[LOOPBACK_TEXT];

		snprintf(text, sizeof(text), "%.*s", (int)len,
			 (const char *)body);
		ctl_event(CTL_EV_REFUSED, (uint32_t)host.target_pid, 0, text);
	} else if (h->type == LINK_PANIC) {
		lost(-EIO);
		stack_panicked();
	} else if (h->type == LINK_ENDING) {
		ask_end();
		if (!ask_end_pending())
			link_farewell();
	}
}

/** frames - handle complete frames; false if the link is broken */
static bool frames(void)
{
	size_t at = 0;

	while (library.in_len - at >= sizeof(struct ctl_hdr)) {
		struct ctl_hdr h;

		memcpy(&h, library.in + at, sizeof(h));
		if (h.len < sizeof(h) || h.len > CTL_FRAME_MAX)
			return false;
		if (library.in_len - at < h.len)
			break;
		heard(&h, library.in + at + sizeof(h), h.len - sizeof(h));
		at += h.len;
	}
	library.in_len -= at;
	memmove(library.in, library.in + at, library.in_len);
	return true;
}

/** receive - read once; 1: data, 0: nothing now, -1: end of file or error */
static int receive(void)
{
	ssize_t n;

	if (library.in_room - library.in_len < READ_CHUNK) {
		uint8_t *p = realloc(library.in, library.in_len + READ_CHUNK);

		if (!p)
			return -1;
		library.in = p;
		library.in_room = library.in_len + READ_CHUNK;
	}
	n = recv(library.src.fd, library.in + library.in_len, READ_CHUNK,
		 MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	library.in_len += (size_t)n;
	return n ? 1 : -1;
}

/** take_all - read everything that the target has sent before it ended */
static void take_all(void)
{
	int got = 1;

	while (got > 0 && library.src.fd >= 0) {
		got = receive();
		if (got > 0 && !frames())
			got = -1;
	}
}

/** link_event - the link is readable or writable, or was closed */
static void link_event(struct source *src, uint32_t events)
{
	int i, got = 1;

	if (events & EPOLLOUT)
		flush();
	for (i = 0; i < READS_A_TURN && got > 0 && src->fd >= 0; i++) {
		got = receive();
		if (got > 0 && !frames())
			got = -1;
	}
	if (got < 0 && src->fd >= 0) {
		link_log();
		lost(-ESHUTDOWN);
	}
}

/** link_watch - have the loop watch the link */
int link_watch(void)
{
	library.src.fn = link_event;
	library.src.fd = link_fd();
	return loop_add(&library.src, EPOLLIN);
}

/** link_takes - whether the library answers requests of that type */
bool link_takes(uint16_t type)
{
	return type == CTL_LINK_ADD || type == CTL_LINK_JOIN ||
	       type == CTL_LINK_DEL || type == CTL_BOOT || type == CTL_GO || type == CTL_SYSCALL ||
	       type == CTL_CANCEL || type == CTL_STATS || type == CTL_OWNERS;
}

/** state_allows - 0, or the errno of a request that is too early or too late */
static int state_allows(uint16_t type)
{
	if (library.src.fd < 0)
		return -ESHUTDOWN;
	switch (type) {
	case CTL_BOOT:
		return host.state != CTL_STATE_NEW || library.booting ?
		       -EALREADY : 0;
	case CTL_GO:
		if (host.state == CTL_STATE_NEW)
			return -EAGAIN;
		return host.state != CTL_STATE_BOOTED ? -EALREADY : 0;
	case CTL_SYSCALL:
		return host.state == CTL_STATE_NEW ? -EAGAIN : 0;
	}
	return 0;
}

/** cancelled - the number on the link of the call to cancel, or 0 */
static uint32_t cancelled(const struct client *cl, const uint8_t *body)
{
	struct ctl_cancel req;
	struct list *pos;

	memcpy(&req, body, sizeof(req));
	list_for_each(pos, &pendings) {
		struct pending *p = container_of(pos, struct pending, link);

		if (p->cl == cl && p->hdr.id == req.id &&
		    p->hdr.type == CTL_SYSCALL)
			return p->id;
	}
	return 0;
}

/** forward - check and queue a request; takes @fd over */
static int forward(struct client *cl, const struct ctl_hdr *h,
		   const uint8_t *body, size_t len, int fd)
{
	struct ctl_cancel cancel;
	struct pending *p;
	int ret = state_allows(h->type);

	if (!ret && (cl->n_linked >= PENDING_MAX || library.queued > QUEUE_MAX))
		ret = -EBUSY;
	if (!ret && h->type == CTL_CANCEL) {
		cancel.id = cancelled(cl, body);
		body = (const uint8_t *)&cancel;
		if (!cancel.id)
			ret = -ENOENT;
	}
	p = ret ? NULL : malloc(sizeof(*p));
	if (!p) {
		if (fd >= 0)
			close(fd);
		return ret ? ret : -ENOMEM;
	}
	if (!++library.last_id)
		library.last_id = 1;
	p->id = library.last_id;
	p->cl = cl;
	p->hdr = *h;
	ret = put(h->type, cl->link_id, p->id, body, len, fd);
	if (ret) {
		free(p);
		return ret;
	}
	cl->n_linked++;
	list_add_tail(&p->link, &pendings);
	if (h->type == CTL_GO) {
		struct ctl_go go;

		memcpy(&go, body, sizeof(go));
		link_ask_end(go.flags & CTL_GOF_ASK_END);
	}
	if (h->type == CTL_BOOT)
		library.booting = true;
	return 0;
}

/**
 * link_request - forward a request; the library's answer is the reply
 *
 * Returns a negative errno if the connection must be closed.
 */
int link_request(struct client *cl, const struct ctl_hdr *h,
		 const uint8_t *body, size_t len)
{
	int fd = -1, ret;

	if (h->type == CTL_LINK_ADD || h->type == CTL_LINK_JOIN) {
		fd = ctl_claim_fd(cl);
		if (fd < 0) {
			ctl_reply(cl, h, -EBADF, NULL, 0);
			return 0;
		}
	}
	if (!cl->link_id) {
		/*
		 * A number may be reused after 65,535 connections. Number 1,
		 * that of lklrun, is never reused, as this connection stays
		 * open.
		 */
		library.last_client = library.last_client == UINT16_MAX ?
				     2 : library.last_client + 1;
		cl->link_id = library.last_client;
	}
	ret = forward(cl, h, body, len, fd);
	if (ret == -ESHUTDOWN && h->type == CTL_STATS)
		ret = 0;	/* reply without counters */
	else if (!ret)
		return 0;
	ctl_reply(cl, h, ret, NULL, 0);
	return 0;
}

/** link_client_gone - forget the requests of a client that disconnected */
void link_client_gone(struct client *cl)
{
	struct list *pos;

	if (!cl->link_id)
		return;
	list_for_each(pos, &pendings) {
		struct pending *p = container_of(pos, struct pending, link);

		if (p->cl == cl)
			p->cl = NULL;
	}
	if (library.src.fd >= 0)
		put(LINK_GONE, cl->link_id, 0, NULL, 0, -1);
}

/**
 * link_ended - the target has ended
 * @status: as from waitpid(2)
 *
 * A target that exits leaves an account, unless it has executed another
 * program. If it failed without an account, this may be the reason.
 */
void link_ended(int status)
{
	take_all();
	if (WIFEXITED(status) && WEXITSTATUS(status) && !link_accounted())
		left_behind();
}
