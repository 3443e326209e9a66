// SPDX-License-Identifier: GPL-2.0-only
/*
 * Forward requests of clients to lklrun, and its answers back. lklhost does not
 * interpret their text (ctl_proto.h, CTL_ASK).
 *
 * A request stays in the table until lklrun answers it, even if its client has
 * gone: lklrun never has more than CTL_ASKS_MAX to answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "control/internal.h"

/**
 * struct ask - a request that lklrun has not answered yet
 * @serial: its number, 0: this entry is free
 * @cl: the client; NULL: it has disconnected, or lklhost itself asks
 * @req: the header of its request
 */
static struct ask {
	uint32_t serial;
	struct client *cl;
	struct ctl_hdr req;
} asks[CTL_ASKS_MAX];

static uint32_t last_serial;
static uint32_t end_serial;	/* of our own request, until it is answered */

/** place - find the request with @serial, or a free entry (0), or NULL */
static struct ask *place(uint32_t serial)
{
	for (size_t i = 0; i < CTL_ASKS_MAX; i++)
		if (asks[i].serial == serial)
			return &asks[i];
	return NULL;
}

/**
 * hand_on - send lklrun a request
 * @cl, @req: the client and its request header; NULL if lklhost itself asks
 *
 * Returns its serial, or 0 if the table is full.
 */
static uint32_t hand_on(struct client *launcher, struct client *cl,
			const struct ctl_hdr *req, const void *text, size_t len,
			int fd)
{
	struct ctl_hdr h = { .type = CTL_ASKED };
	struct ctl_ask ask = { .flags = !cl ? CTL_ASKF_END :
					fd >= 0 ? CTL_ASKF_FD : 0 };
	struct ask *a = place(0);

	if (!a)
		return 0;
	do
		last_serial++;
	while (!last_serial || place(last_serial));
	ask.serial = last_serial;
	*a = (struct ask){ .serial = ask.serial, .cl = cl };
	if (req)
		a->req = *req;
	if (fd >= 0)
		ctl_frame_fd(launcher, &h, &ask, sizeof(ask), text, len, fd);
	else
		ctl_frame(launcher, &h, &ask, sizeof(ask), text, len);
	return ask.serial;
}

/** ask_request - CTL_ASK */
int ask_request(struct client *cl, const struct ctl_hdr *h, const uint8_t *body,
		size_t len)
{
	struct client *launcher = ctl_launcher();
	struct ctl_ask req;
	int fd = -1, ret = 0;

	memcpy(&req, body, sizeof(req));
	len -= sizeof(req);
	if (req.serial || req.flags & ~(uint32_t)CTL_ASKF_FD)
		ret = -EINVAL;
	else if (len > CTL_ASK_MAX)
		ret = -EMSGSIZE;
	else if (!launcher)
		ret = -ENOTCONN;
	if (req.flags & CTL_ASKF_FD) {
		fd = ctl_claim_fd(cl);
		if (fd < 0 && !ret)
			ret = fd;
	}
	if (!ret && !hand_on(launcher, cl, h, body + sizeof(req), len, fd))
		ret = -EBUSY;
	if (!ret)
		return 0;
	if (fd >= 0)
		close(fd);
	ctl_reply(cl, h, ret, NULL, 0);
	return 0;
}

/** ask_answer - CTL_ANSWER */
int ask_answer(struct client *cl, const struct ctl_hdr *h, const uint8_t *body,
	       size_t len)
{
	struct ctl_answer req;
	struct ask *a, was;

	memcpy(&req, body, sizeof(req));
	a = req.serial ? place(req.serial) : NULL;
	if (!cl->launcher || !a || req.status > 0) {
		ctl_reply(cl, h, !cl->launcher ? -EPERM :
			  !a ? -ENOENT : -EINVAL, NULL, 0);
		return 0;
	}
	was = *a;
	a->serial = 0;
	if (was.serial == end_serial) {
		end_serial = 0;
		ctl_ops->farewell();
	}
	if (was.cl)
		ctl_reply(was.cl, &was.req, req.status, body + sizeof(req),
			  len - sizeof(req));
	ctl_reply(cl, h, 0, NULL, 0);
	return 0;
}

/** answer_all - fail all requests with @status */
static void answer_all(int status)
{
	for (size_t i = 0; i < CTL_ASKS_MAX; i++) {
		struct ask was = asks[i];

		asks[i].serial = 0;
		if (was.serial && was.cl)
			ctl_reply(was.cl, &was.req, status, NULL, 0);
	}
	end_serial = 0;
}

/** ask_client_gone - forget a client; if it is lklrun, fail all requests */
void ask_client_gone(struct client *cl)
{
	for (size_t i = 0; i < CTL_ASKS_MAX; i++)
		if (asks[i].cl == cl)
			asks[i].cl = NULL;
	if (cl->launcher)
		answer_all(-ENOTCONN);
}

/** ask_panicked - fail all requests: lklrun ends a run whose kernel is dead */
void ask_panicked(void)
{
	answer_all(-EIO);
}

/** ask_end - tell lklrun that the target has ended */
void ask_end(void)
{
	struct client *launcher = ctl_launcher();

	if (launcher)
		end_serial = hand_on(launcher, NULL, NULL, NULL, 0, -1);
}

/** ask_end_pending - whether lklrun has not answered ask_end() yet */
bool ask_end_pending(void)
{
	return end_serial;
}
