// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control server: output. Frames are queued and sent as far as the socket
 * accepts them. The loop never waits for a client; a client that does not read
 * is dropped (CTL_OUT_MAX).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "control/internal.h"

/*
 * The target can cause any number of these. All other events are few, and the
 * end of the run depends on them.
 */
#define EV_LOSABLE	(CTL_EV_PROC | CTL_EV_SOCKET | CTL_EV_LISTEN)

/**
 * send_once - send bytes up to the next queued descriptor; attach the one that
 * is due
 */
static ssize_t send_once(struct client *cl)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct iovec iov = { cl->out + cl->out_off, cl->out_len - cl->out_off };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	bool due = cl->n_out_fds && cl->out_fds[0].at == cl->out_sent;
	unsigned int next = due ? 1 : 0;
	ssize_t n;

	if (next < cl->n_out_fds &&
	    iov.iov_len > cl->out_fds[next].at - cl->out_sent)
		iov.iov_len = cl->out_fds[next].at - cl->out_sent;
	if (due) {
		struct cmsghdr *cm;

		memset(&ctl, 0, sizeof(ctl));
		mh.msg_control = ctl.buf;
		mh.msg_controllen = sizeof(ctl.buf);
		cm = CMSG_FIRSTHDR(&mh);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &cl->out_fds[0].fd, sizeof(int));
	}
	if (!due)	/* a gateway may not use sendmsg(), see gateway/seal.c */
		return send(cl->src.fd, iov.iov_base, iov.iov_len,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
	n = sendmsg(cl->src.fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0) {
		close(cl->out_fds[0].fd);
		cl->n_out_fds--;
		memmove(cl->out_fds, cl->out_fds + 1,
			cl->n_out_fds * sizeof(cl->out_fds[0]));
	}
	return n;
}

/** ctl_out_send - send what the socket accepts; false if the client is gone */
bool ctl_out_send(struct client *cl)
{
	while (cl->out_off < cl->out_len) {
		ssize_t n = send_once(cl);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		cl->out_off += (size_t)n;
		cl->out_sent += (size_t)n;
	}
	cl->out_off = 0;
	cl->out_len = 0;
	return true;
}

/** ctl_out_free - drop the output that is not sent yet */
void ctl_out_free(struct client *cl)
{
	while (cl->n_out_fds)
		close(cl->out_fds[--cl->n_out_fds].fd);
	free(cl->out);
	cl->out = NULL;
}

/** out_room - make room for @len more bytes */
static bool out_room(struct client *cl, size_t len)
{
	size_t room;
	uint8_t *p;

	if (cl->out_off) {
		memmove(cl->out, cl->out + cl->out_off,
			cl->out_len - cl->out_off);
		cl->out_len -= cl->out_off;
		cl->out_off = 0;
	}
	if (cl->out_len + len <= cl->out_room)
		return true;
	room = (cl->out_len + len + 4095) & ~(size_t)4095;
	p = realloc(cl->out, room);
	if (!p)
		return false;
	cl->out = p;
	cl->out_room = room;
	return true;
}

/** ctl_interest - set the events that the loop reports for this client */
void ctl_interest(struct client *cl)
{
	size_t pending = cl->out_len - cl->out_off;
	uint32_t ev = 0;

	if (pending < CTL_OUT_HIGH && !cl->closing)
		ev |= EPOLLIN;
	if (pending)
		ev |= EPOLLOUT;
	loop_mod(&cl->src, ev);
	cl->want_out = pending != 0;
}

/**
 * ctl_frame - queue a frame and send as much as possible
 *
 * On an error, the client is closed later, in its own turn of the loop: the
 * caller may still use it.
 */
void ctl_frame(struct client *cl, const struct ctl_hdr *hdr,
	       const void *a, size_t alen, const void *b, size_t blen)
{
	size_t len = sizeof(*hdr) + alen + blen;
	struct ctl_hdr h = *hdr;
	bool ok;

	if (cl->dead || cl->closing)
		return;
	h.len = (uint32_t)len;
	ok = cl->out_len - cl->out_off + len <= CTL_OUT_MAX &&
	     out_room(cl, len);
	if (ok) {
		memcpy(cl->out + cl->out_len, &h, sizeof(h));
		if (alen)
			memcpy(cl->out + cl->out_len + sizeof(h), a, alen);
		if (blen)
			memcpy(cl->out + cl->out_len + sizeof(h) + alen, b,
			       blen);
		cl->out_len += len;
		ok = cl->want_out || ctl_out_send(cl);
	}
	if (!ok) {
		log_line("dropping a control client that does not read");
		cl->closing = true;
		cl->out_len = 0;
		cl->out_off = 0;
		work_queue(&cl->work);
		return;
	}
	if (cl->out_len != cl->out_off && !cl->want_out)
		ctl_interest(cl);
}

/** ctl_reply - answer a request */
void ctl_reply(struct client *cl, const struct ctl_hdr *req, int32_t status,
	       const void *body, size_t len)
{
	struct ctl_hdr h = { .type = (uint16_t)(req->type | CTL_REPLY),
			     .id = req->id, .status = status };

	ctl_frame(cl, &h, body, len, NULL, 0);
}

/**
 * ctl_frame_fd - queue a frame with a descriptor attached to its first byte
 * @fd: is always closed
 */
void ctl_frame_fd(struct client *cl, const struct ctl_hdr *hdr, const void *a,
		  size_t alen, const void *b, size_t blen, int fd)
{
	if (cl->dead || cl->closing || cl->n_out_fds == CTL_OUT_FDS) {
		close(fd);
		return;
	}
	cl->out_fds[cl->n_out_fds].at = cl->out_sent + cl->out_len - cl->out_off;
	cl->out_fds[cl->n_out_fds++].fd = fd;
	ctl_frame(cl, hdr, a, alen, b, blen);
}

/** event_frame - queue an event for @cl */
static void event_frame(struct client *cl, const struct ctl_event *ev,
			const char *text)
{
	struct ctl_hdr h = { .type = CTL_EVENT, .id = cl->events_id };

	ctl_frame(cl, &h, ev, sizeof(*ev), text, strlen(text));
}

/**
 * ctl_out_event - queue an event, unless it may be lost and the queue is long
 * @text: its text
 *
 * The next event that is queued is preceded by a report of the number lost.
 */
void ctl_out_event(struct client *cl, const struct ctl_event *ev,
		   const char *text)
{
	struct ctl_event warn = { .kind = CTL_EV_WARN, .time_ns = ev->time_ns };
	char words[96];

	if ((ev->kind & EV_LOSABLE) &&
	    cl->out_len - cl->out_off >= CTL_OUT_EVENTS) {
		cl->lost++;
		return;
	}
	if (cl->lost) {
		snprintf(words, sizeof(words),
			 "%u events were lost here, because they arrived faster than they were read",
			 cl->lost);
		cl->lost = 0;
		event_frame(cl, &warn, words);
	}
	event_frame(cl, ev, text);
}

/**
 * ctl_out_flush - send the queued output of @cl
 * @end: deadline, extended to CTL_FLUSH_MS after each successful send
 * @last: final deadline
 */
void ctl_out_flush(struct client *cl, uint64_t *end, uint64_t last)
{
	struct pollfd p = { .fd = cl->src.fd, .events = POLLOUT };

	while (cl->out_off < cl->out_len) {
		uint64_t now = now_ns(), until = *end < last ? *end : last;

		if (poll(&p, 1, now < until ? (int)((until - now) / 1000000) :
			 0) <= 0 || !ctl_out_send(cl))
			return;
		*end = now_ns() + CTL_FLUSH_MS * 1000000ull;
	}
}

/**
 * ctl_fatal - report a fatal error before there are clients
 * @fd: the launcher's connection
 *
 * Returns a negative errno if the launcher does not receive it.
 */
int ctl_fatal(int fd, const char *text)
{
	struct {
		struct ctl_hdr h;
		struct ctl_event ev;
		char text[1024];
	} f = { .h.type = CTL_EVENT, .ev.kind = CTL_EV_WARN };
	size_t len = strlen(text);

	if (len > sizeof(f.text))
		len = sizeof(f.text);
	memcpy(f.text, text, len);
	f.ev.time_ns = now_ns();
	f.h.len = (uint32_t)(sizeof(f.h) + sizeof(f.ev) + len);
	if (send(fd, &f, f.h.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)f.h.len)
		return -EPIPE;
	return 0;
}
