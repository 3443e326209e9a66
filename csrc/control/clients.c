// SPDX-License-Identifier: GPL-2.0-only
/* The control server: the list of clients, and events for all of them. */
#include <errno.h>
#include <string.h>

#include "base/loop.h"
#include "control/internal.h"

struct list ctl_clients = LIST_INIT(ctl_clients);

/** ctl_claim_fd - take the oldest descriptor that the client sent, or -EBADF */
int ctl_claim_fd(struct client *cl)
{
	int fd;

	if (!cl->n_fds)
		return -EBADF;
	fd = cl->fds[0];
	cl->n_fds--;
	memmove(cl->fds, cl->fds + 1, cl->n_fds * sizeof(cl->fds[0]));
	return fd;
}

/** ctl_launcher - lklrun's connection; NULL if it is closed */
struct client *ctl_launcher(void)
{
	struct list *pos;

	list_for_each(pos, &ctl_clients) {
		struct client *cl = container_of(pos, struct client, link);

		if (cl->launcher && !cl->closing)
			return cl;
	}
	return NULL;
}

/** ctl_wants - how many clients subscribed to this kind of event */
unsigned int ctl_wants(uint32_t kind)
{
	unsigned int n = 0;
	struct list *pos;

	list_for_each(pos, &ctl_clients)
		if (container_of(pos, struct client, link)->mask & kind)
			n++;
	return n;
}

/**
 * ctl_event - send an event to its subscribers
 *
 * A slow client loses events of sockets and processes, not its connection:
 * closing the launcher's connection would end the run.
 */
void ctl_event(uint32_t kind, uint32_t pid, int64_t arg, const char *text)
{
	struct ctl_event ev = { .kind = kind, .pid = pid, .arg = arg,
				.time_ns = now_ns() };
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &ctl_clients) {
		struct client *cl = container_of(pos, struct client, link);

		if (cl->mask & kind)
			ctl_out_event(cl, &ev, text);
	}
}
