// SPDX-License-Identifier: GPL-2.0-only
/* Messages of the gateway to lklrun, which wait if the socket has no room. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"
#include "base/loop.h"
#include "gateway/relay.h"
#include "shared/gateway_proto.h"

/**
 * struct note - a message that waits for room in the socket
 */
struct note {
	struct list link;
	struct gateway_msg msg;
};

static struct list notes = LIST_INIT(notes);
static struct source *to;

void tell_start(struct source *lklrun)
{
	to = lklrun;
}

/** tell - send a message to lklrun, or keep it until there is room */
void tell(const struct gateway_msg *m)
{
	struct note *n;

	if (list_empty(&notes) &&
	    send(to->fd, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(*m))
		return;
	n = malloc(sizeof(*n));
	if (!n)
		_exit(1);	/* lklrun would count the connection for ever */
	n->msg = *m;
	list_add_tail(&n->link, &notes);
	loop_mod(to, EPOLLIN | EPOLLOUT);
}

/** tell_of - send a message that has only these fields */
void tell_of(uint32_t kind, uint64_t id, uint32_t verdict)
{
	const struct gateway_msg m = { .kind = kind, .id = id, .verdict = verdict };

	tell(&m);
}

/** tell_waits - whether messages wait for room */
bool tell_waits(void)
{
	return !list_empty(&notes);
}

/** tell_rest - send the messages that wait; returns whether there was room for all */
bool tell_rest(void)
{
	while (!list_empty(&notes)) {
		struct note *n = container_of(notes.next, struct note, link);

		if (send(to->fd, &n->msg, sizeof(n->msg), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			return false;
		list_del(&n->link);
		free(n);
	}
	loop_mod(to, EPOLLIN);
	return true;
}
