// SPDX-License-Identifier: GPL-2.0-only
/*
 * Served processes: processes that lklhost has not started, such as those of a
 * container.
 *
 * Theory of operation
 *
 * An OCI runtime installs a seccomp filter for the first process of a container
 * and for each process that enters the container later. It sends the listener
 * of each filter to a unix socket, linux.seccomp.listenerPath. lklrun-oci
 * passes that socket to lklhost (CTL_SERVE), which is the only process that
 * holds it: if lklhost ends, the runtime cannot connect, and starts no process
 * without a listener.
 *
 * A listener hangs up when the last process with its filter has ended. When the
 * last listener hangs up, the container has ended, and so does the run. lklhost
 * neither signals nor kills these processes, which belong to the runtime.
 *
 * The message of the runtime also describes the container (JSON). lklhost does
 * not need this text, and drops it.
 *
 * These processes have only their own rights in the stack, see rights.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/rights.h"
#include "engine/carrier/space.h"
#include "engine/supervise/internal.h"
#include "engine/supervise/supervise.h"

#define TEXT_CHUNK	4096
#define VISITORS_MAX	64

/**
 * struct served - a listener, or a connection that will send one
 * @link: in the list of listeners or in that of visitors
 * @fd: the descriptor, also after the loop has stopped to watch it
 */
struct served {
	struct list link;
	struct source src;
	int fd;
};

static struct source door = { .fd = -1 };
static struct list listeners = LIST_INIT(listeners);
static struct list visitors = LIST_INIT(visitors);
static unsigned int n_visitors;
static void (*all_over)(void);

/** is_listener - whether a descriptor is a seccomp listener */
static bool is_listener(int fd)
{
	uint64_t none = 0;

	return ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &none) &&
	       errno == ENOENT;
}

/** listener_add - serve the processes of a listener; takes @fd over */
static void listener_add(int fd)
{
	struct served *s = is_listener(fd) ? calloc(1, sizeof(*s)) : NULL;

	if (s)
		s->fd = fd;
	if (!s || notify_add(&s->src, fd)) {
		log_line("a descriptor of the container runtime is no seccomp listener, or memory is exhausted");
		free(s);
		close(fd);
		return;
	}
	list_add_tail(&s->link, &listeners);
}

/** visitor_drop - close a connection of the runtime */
static void visitor_drop(struct served *s)
{
	list_del(&s->link);
	n_visitors--;
	loop_del(&s->src);
	close(s->fd);
	loop_free_later(s);
}

/** visitor_event - receive a listener, and drop the rest of the message */
static void visitor_event(struct source *src, uint32_t events)
{
	struct served *s = container_of(src, struct served, src);
	char text[TEXT_CHUNK];
	int fds[FD_PASS_MAX];
	unsigned int n, i;
	ssize_t len;

	(void)events;
	len = fd_pass_recv(src->fd, text, sizeof(text), fds, &n);
	for (i = 0; i < n; i++)
		listener_add(fds[i]);
	if (len <= 0 && len != -EAGAIN)
		visitor_drop(s);
}

/** is_ours - whether root or our own user has connected */
static bool is_ours(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	       (!cred.uid || cred.uid == geteuid());
}

/** listener_accepted - accept a connection of the runtime */
static void listener_accepted(struct source *src, uint32_t events)
{
	int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct served *s;

	(void)events;
	if (fd < 0)
		return;
	s = is_ours(fd) && n_visitors < VISITORS_MAX ? calloc(1, sizeof(*s)) :
						       NULL;
	if (!s) {
		close(fd);
		return;
	}
	s->src.fn = visitor_event;
	s->src.fd = fd;
	s->fd = fd;
	if (loop_add(&s->src, EPOLLIN)) {
		close(fd);
		free(s);
		return;
	}
	list_add_tail(&s->link, &visitors);
	n_visitors++;
}

/**
 * engine_serve - serve the processes whose listeners arrive on a socket
 * @fd: the listening socket, taken over on success
 * @netns: their network namespace
 * @over: called when all these processes have ended, or NULL
 */
int engine_serve(int fd, int netns, void (*over)(void))
{
	int ret;

	if (door.fd >= 0)
		return -EALREADY;
	ret = rights_init(netns);
	if (!ret)
		ret = space_serve(netns);
	if (ret)
		return ret;
	door.fn = listener_accepted;
	door.fd = fd;
	ret = loop_add(&door, EPOLLIN);
	if (ret)
		door.fd = -1;
	else
		all_over = over;
	return ret;
}

/** listener_free - close a listener, which the loop does not watch any more */
static void listener_free(struct served *s)
{
	held_listener_gone(s->fd);
	list_del(&s->link);
	close(s->fd);
	loop_free_later(s);
}

/** served_gone - handle the hang-up of a listener */
void served_gone(struct source *src)
{
	listener_free(container_of(src, struct served, src));
	if (list_empty(&listeners) && all_over)
		all_over();
}

/** served_stop - stop to serve: calls that follow fail with ENOSYS */
void served_stop(void)
{
	all_over = NULL;
	if (door.fd >= 0) {
		int fd = door.fd;

		loop_del(&door);
		close(fd);
	}
	while (!list_empty(&visitors))
		visitor_drop(container_of(visitors.next, struct served, link));
	while (!list_empty(&listeners)) {
		struct served *s = container_of(listeners.next, struct served,
						link);

		loop_del(&s->src);
		listener_free(s);
	}
}
