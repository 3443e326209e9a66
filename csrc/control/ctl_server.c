// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control server: connections and incoming frames.
 *
 * Theory of operation
 *
 * The clients are the launcher, on descriptor 3, and the processes that connect
 * to ctl.sock and that ctl_peer.c admits. Input is collected until a frame is
 * complete and then passed to ctl_ops->request(). Output is in ctl_out.c. lklhost
 * does not read from a client that does not read its replies (CTL_OUT_HIGH).
 *
 * A frame of invalid length is answered with -EBADMSG, and the connection is
 * closed. The run ends when the launcher closes its connection.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/internal.h"
#include "stack/stack.h"

#define READ_CHUNK	65536
#define FRAMES_A_TURN	32
#define FLUSH_MAX_MS	10000

static struct source listener = { .fd = -1 };
static unsigned int n_clients;
static char sock_path[108];

/*
 * The client whose calls are ending; the kernel may panic meanwhile, see
 * ctl_panicked().
 */
static struct client *leaving;

/** client_close - close a connection that has nothing left in the stack */
static void client_close(struct client *cl)
{
	bool launcher = cl->launcher;
	int fd = cl->src.fd;

	ctl_ops->gone(cl);
	ask_client_gone(cl);
	loop_del(&cl->src);
	close(fd);
	while (cl->n_fds)
		close(cl->fds[--cl->n_fds]);
	ctl_out_free(cl);
	free(cl->in);
	free(cl->stack_fds);
	loop_free_later(cl);
	if (launcher)
		ctl_ops->launcher_gone();
}

/** client_free - close a connection and everything opened through it */
static void client_free(struct client *cl)
{
	if (cl->dead)
		return;
	cl->dead = true;
	list_del(&cl->link);
	n_clients--;
	work_cancel(&cl->work);
	leaving = cl;
	ctl_calls_end(cl);
	leaving = NULL;
	client_close(cl);
}

/* The request in progress, for ctl_panicked(). */
static struct client *current;
static struct ctl_hdr current_hdr;

/** frames - handle complete frames; false: close the client */
static bool frames(struct client *cl)
{
	int n;

	for (n = 0; cl->in_len - cl->in_off >= sizeof(struct ctl_hdr); n++) {
		const uint8_t *frame = cl->in + cl->in_off;
		struct ctl_hdr h;

		if (cl->out_len - cl->out_off >= CTL_OUT_HIGH)
			break;	/* client_event() continues after output */
		if (n == FRAMES_A_TURN) {
			work_queue(&cl->work);
			break;
		}
		memcpy(&h, frame, sizeof(h));
		if (h.len < sizeof(h) || h.len > CTL_FRAME_MAX) {
			ctl_reply(cl, &h, -EBADMSG, NULL, 0);
			return false;
		}
		if (cl->in_len - cl->in_off < h.len)
			break;
		cl->in_off += h.len;
		current = cl;
		current_hdr = h;
		if (ctl_ops->request(cl, &h, frame + sizeof(h),
				     h.len - sizeof(h))) {
			current = NULL;
			return false;
		}
		current = NULL;
		if (cl->dead)
			return true;
	}
	if (cl->in_off) {
		cl->in_len -= cl->in_off;
		memmove(cl->in, cl->in + cl->in_off, cl->in_len);
		cl->in_off = 0;
	}
	return true;
}

/**
 * ctl_panicked - the kernel is dead: leave no client waiting for it
 *
 * This answers the request during which the kernel panicked, and all waiting
 * calls. Frames received but not handled yet are handled in the next turn. If
 * the panic happened while a client was being closed, this completes the close,
 * which may end the run.
 */
void ctl_panicked(void)
{
	struct client *gone = leaving;
	struct list *pos, *tmp;

	if (current)
		ctl_reply(current, &current_hdr, -EIO, NULL, 0);
	current = NULL;
	list_for_each_safe(pos, tmp, &ctl_clients) {
		struct client *cl = container_of(pos, struct client, link);

		ctl_calls_panic(cl);
		work_queue(&cl->work);
	}
	ask_panicked();
	leaving = NULL;
	if (!gone)
		return;
	ctl_calls_panic(gone);
	client_close(gone);
}

/** fds_take - take the descriptors that came with a message */
static void fds_take(struct client *cl, struct msghdr *mh)
{
	struct cmsghdr *cm;

	for (cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		const unsigned char *p = CMSG_DATA(cm);
		size_t n;

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		for (n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int); n; n--) {
			int fd;

			memcpy(&fd, p, sizeof(fd));
			p += sizeof(fd);
			if (cl->n_fds < CTL_FDS)
				cl->fds[cl->n_fds++] = fd;
			else
				close(fd);
		}
	}
}

/** receive - read once; 1: data, 0: nothing now, -1: end of file or error */
static int receive(struct client *cl)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(CTL_FDS * sizeof(int))];
	} ctl;
	struct iovec iov;
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };
	ssize_t n;

	if (cl->in_room - cl->in_len < READ_CHUNK) {
		size_t room = cl->in_len + READ_CHUNK;
		uint8_t *p = realloc(cl->in, room);

		if (!p)
			return -1;
		cl->in = p;
		cl->in_room = room;
	}
	iov.iov_base = cl->in + cl->in_len;
	iov.iov_len = READ_CHUNK;
	n = recvmsg(cl->src.fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	fds_take(cl, &mh);
	cl->in_len += (size_t)n;
	return 1;
}

/** client_end - close now, or after the remaining output is sent */
static void client_end(struct client *cl)
{
	cl->closing = true;
	if (!ctl_out_send(cl) || cl->out_len == cl->out_off)
		client_free(cl);
	else
		ctl_interest(cl);
}

/** client_event - handle input, output or the end of a client */
static void client_event(struct source *src, uint32_t events)
{
	struct client *cl = container_of(src, struct client, src);
	int got = 0;

	if (events & EPOLLOUT) {
		if (!ctl_out_send(cl)) {
			client_free(cl);
			return;
		}
	}
	if (cl->closing) {
		if (cl->out_len == cl->out_off || (events & EPOLLHUP))
			client_free(cl);
		return;
	}
	/* Read no more while earlier frames wait for their turn. */
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) &&
	    list_empty(&cl->work.link))
		got = receive(cl);
	if (got < 0) {
		client_free(cl);
		return;
	}
	if (!frames(cl)) {
		client_end(cl);
		return;
	}
	if (!cl->dead)
		ctl_interest(cl);
}

/** client_work - handle frames that were left, or drop a client */
static void client_work(struct work *w)
{
	struct client *cl = container_of(w, struct client, work);

	if (cl->closing) {
		client_free(cl);
		return;
	}
	if (!frames(cl))
		client_end(cl);
	else if (!cl->dead)
		ctl_interest(cl);
}

/** client_add - add a connection; takes @fd over */
static int client_add(int fd, bool launcher)
{
	struct client *cl = calloc(1, sizeof(*cl));
	int ret;

	if (!cl) {
		close(fd);
		return -ENOMEM;
	}
	cl->src.fn = client_event;
	cl->src.fd = fd;
	cl->launcher = launcher;
	work_init(&cl->work, client_work);
	list_init(&cl->waiters);
	ret = loop_add(&cl->src, EPOLLIN);
	if (ret) {
		close(fd);
		free(cl);
		return ret;
	}
	list_add_tail(&cl->link, &ctl_clients);
	n_clients++;
	return 0;
}

/** accept_client - accept a connection to ctl.sock */
static void accept_client(struct source *src, uint32_t events)
{
	int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		return;
	if (n_clients >= CTL_CLIENTS || !ctl_peer_allowed(fd)) {
		close(fd);
		return;
	}
	client_add(fd, false);
}

/**
 * ctl_init - listen on DIR/ctl.sock and add the launcher's connection
 *
 * A gateway serves only the launcher.
 */
int ctl_init(int launcher_fd)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int ret;

	log_event = ctl_event;
	if (host.gateway_fd >= 0)
		return client_add(launcher_fd, true);
	if ((size_t)snprintf(sock_path, sizeof(sock_path), "%s/ctl.sock",
			     host.run_dir) >= sizeof(sock_path))
		return -ENAMETOOLONG;
	memcpy(un.sun_path, sock_path, sizeof(sock_path));
	listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			     0);
	if (listener.fd < 0)
		return -errno;
	unlink(sock_path);
	if (bind(listener.fd, (struct sockaddr *)&un, sizeof(un)) ||
	    chmod(sock_path, 0600) || listen(listener.fd, CTL_CLIENTS))
		return -errno;
	listener.fn = accept_client;
	ret = loop_add(&listener, EPOLLIN);
	return ret ? ret : client_add(launcher_fd, true);
}

/** ctl_close_all - flush the output, within a time limit, and close */
void ctl_close_all(void)
{
	uint64_t now = now_ns(), end = now + CTL_FLUSH_MS * 1000000ull;
	uint64_t last = now + FLUSH_MAX_MS * 1000000ull;
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &ctl_clients) {
		struct client *cl = container_of(pos, struct client, link);

		cl->launcher = false;
		if (!cl->closing)
			ctl_out_flush(cl, &end, last);
		client_free(cl);
	}
	if (listener.fd >= 0) {
		close(listener.fd);
		listener.fd = -1;
		unlink(sock_path);
	}
}
