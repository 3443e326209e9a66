// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that lklrun makes in the stack.
 *
 * lklrun configures the network of a node and keeps its paths with the code for
 * stacks in real time: by system calls over a control connection (ctl_proto.h).
 * It makes them while the clock stands still, before the first span of time and
 * between two of them, and ends with CTL_GO.
 *
 * Nothing happens in the stack meanwhile, so a call that waits for an event would
 * wait forever. It fails, and the event is reported after the next span.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/request.h"
#include "virtual/virtual.h"

#define CONTROL		4	/* descriptor of the connection */
#define WATCHED_MAX	8

/* Descriptors of the stack for whose events lklrun waits */
static struct pollfd watched[WATCHED_MAX];
static nfds_t watched_count;

static void transfer(bool out, void *data, size_t len)
{
	uint8_t *p = data;

	while (len) {
		ssize_t n = out ? write(CONTROL, p, len) : read(CONTROL, p, len);

		if (n <= 0)
			exit(1);	/* lklrun has ended */
		p += n;
		len -= (size_t)n;
	}
}

/* For request_reply(). */
void ctl_reply(struct client *cl, const struct ctl_hdr *req, int32_t status, const void *body, size_t len)
{
	struct ctl_hdr h = { .len = (uint32_t)(sizeof(h) + len), .type = req->type | CTL_REPLY,
			     .id = req->id, .status = status };

	(void)cl;
	transfer(true, &h, sizeof(h));
	transfer(true, (void *)body, len);
}

static void hello(const struct ctl_hdr *h)
{
	/* No name, no release, the architecture */
	static const char strings[] = "\0\0amd64";
	struct {
		struct ctl_hello_rep r;
		char strings[sizeof(strings)];
	} m = { .r = { .version = CTL_VERSION, .state = CTL_STATE_RUNNING, .abi = CTL_ABI_NATIVE,
		       .strings_len = sizeof(strings) } };

	memcpy(m.strings, strings, sizeof(strings));
	ctl_reply(NULL, h, 0, &m, sizeof(m.r) + sizeof(strings));
}

/* The event is reported from then on. */
static void watch(int fd, uint32_t events)
{
	nfds_t i;

	for (i = 0; i < watched_count; i++)
		if (watched[i].fd == fd)
			return;
	if (watched_count == WATCHED_MAX)
		fail("lklrun waits for more than %d descriptors", WATCHED_MAX);
	watched[watched_count++] = (struct pollfd){ .fd = fd, .events = (short)events };
}

static void unwatch(int fd)
{
	nfds_t i;

	for (i = 0; i < watched_count; i++)
		if (watched[i].fd == fd)
			watched[i--] = watched[--watched_count];
}

static void call(const struct ctl_hdr *h, const uint8_t *body, size_t len)
{
	struct request *rq;
	uint8_t *base;
	int64_t ret;
	int err = len < sizeof(struct ctl_syscall) ? -EBADMSG : request_parse(h, body, len, &rq);

	if (err) {
		ctl_reply(NULL, h, err, NULL, 0);
		return;
	}
	base = malloc(rq->size + rq->counted + 1);
	if (!base)
		fail("no memory for a call of %zu bytes", rq->size + rq->counted);
	request_fill(rq, base);
	if (rq->call.nr == SYS_close)
		unwatch((int)rq->args[0]);
	ret = rq->counted ? request_receive(rq, base) :
	      st_call(rq->call.nr, (long)rq->args[0], (long)rq->args[1], (long)rq->args[2],
		      (long)rq->args[3], (long)rq->args[4], (long)rq->args[5]);
	if (ret == -EAGAIN && rq->call.timeout_ms) {
		watch((int)rq->args[0], rq->call.wait_events);
		ctl_reply(NULL, h, -EDEADLK, NULL, 0);
	} else {
		request_reply(NULL, rq, ret, base);
	}
	free(base);
	request_free(rq);
}

/** serve_calls - make the calls of lklrun until it ends them */
void serve_calls(void)
{
	static uint8_t body[CTL_FRAME_MAX];
	static const uint32_t no_pid;
	struct ctl_hdr h;

	do {
		size_t len;

		transfer(false, &h, sizeof(h));
		if (h.len < sizeof(h) || h.len > CTL_FRAME_MAX)
			fail("a request of %u bytes", h.len);
		len = h.len - sizeof(h);
		transfer(false, body, len);
		if (h.type == CTL_SYSCALL)
			call(&h, body, len);
		else if (h.type == CTL_HELLO)
			hello(&h);
		else if (h.type == CTL_STATS)	/* of an engine, which a node does not have */
			ctl_reply(NULL, &h, 0, NULL, 0);
		else if (h.type == CTL_GO)
			ctl_reply(NULL, &h, 0, &no_pid, sizeof(no_pid));
		else
			ctl_reply(NULL, &h, -EOPNOTSUPP, NULL, 0);
	} while (h.type != CTL_GO);
}

/** served_event - whether there is an event for which lklrun waits */
bool served_event(void)
{
	return watched_count && ST(poll, watched, watched_count, 0, 0, 0, 0) > 0;
}
