// SPDX-License-Identifier: GPL-2.0-only
/*
 * lklhost's end of the zygote's socket, and the zygote's pid.
 *
 * The loop does not watch the socket before the first request. A run without
 * requests therefore needs no additional turn of the loop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/loop.h"
#include "process/zygote_link.h"

static struct {
	struct source src;
	const struct zygote_ops *ops;
	int theirs;
	pid_t pid;
	bool watched;
	uint32_t last_id;
} zygote = { .src.fd = -1, .theirs = -1 };

/** zygote_open - create the socket pair, before the target is forked */
int zygote_open(void)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	zygote.src.fd = sv[0];
	zygote.theirs = sv[1];
	return sv[1];
}

/** zygote_forked - close the target's end in lklhost */
void zygote_forked(void)
{
	close(zygote.theirs);
	zygote.theirs = -1;
}

/**
 * learn - record the zygote's pid
 *
 * If the zygote has been reaped, its number may already be that of a program,
 * and calls of that program must not be taken for the zygote's (zygote_is()).
 */
static void learn(pid_t pid)
{
	siginfo_t info;

	if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT))
		zygote.pid = pid;
}

/** reported - handle one report of the zygote or of a program */
static void reported(const struct zygote_report *r)
{
	/* Reject numbers that kill(2) and waitpid(2) take for groups. */
	if (r->what <= ZYGOTE_STARTED && r->value <= 1)
		return;
	if (r->what == ZYGOTE_READY)
		learn(r->value);
	zygote.ops->reported(r);
}

/** reports - handle all pending reports */
static void reports(void)
{
	struct zygote_report r;
	ssize_t n;

	if (!zygote.watched)
		return;
	while ((n = recv(zygote.src.fd, &r, sizeof(r), MSG_DONTWAIT)) ==
	       (ssize_t)sizeof(r))
		reported(&r);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	loop_del(&zygote.src);
	close(zygote.src.fd);
	zygote.src.fd = -1;
	zygote.watched = false;
	zygote.pid = 0;
	zygote.ops->gone();
}

/** zygote_event - event of the zygote's socket */
static void zygote_event(struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	reports();
}

/**
 * zygote_idle - the zygote's pid, if it never got a request
 *
 * It then has no children, and gets none after it is killed. Returns 0 if there
 * is no such process.
 */
pid_t zygote_idle(void)
{
	struct zygote_report r;

	if (zygote.last_id || zygote.src.fd < 0)
		return 0;
	if (!zygote.pid && recv(zygote.src.fd, &r, sizeof(r), MSG_DONTWAIT) ==
			   (ssize_t)sizeof(r))
		learn(r.value);
	return zygote.pid;
}

/**
 * zygote_reap - reap the zygote if it is dead already
 *
 * It was killed a while ago. Waiting for it here would mean waiting for the
 * CPU; lklrun cleans up the rest.
 */
void zygote_reap(void)
{
	pid_t pid = zygote_idle();

	if (pid)
		waitpid(pid, NULL, WNOHANG);
}

/** zygote_pid - the zygote's pid; 0 if unknown */
pid_t zygote_pid(void)
{
	pid_t pid = zygote_idle();

	if (!pid && zygote.watched && !zygote.pid)
		reports();
	return zygote.pid;
}

/** zygote_is - whether a notified call comes from the zygote itself */
bool zygote_is(pid_t pid)
{
	if (zygote.watched && !zygote.pid)
		reports();
	return zygote.pid && pid == zygote.pid;
}

/** zygote_watch - start to watch the zygote's socket */
int zygote_watch(const struct zygote_ops *ops)
{
	int ret;

	if (zygote.watched)
		return 0;
	if (zygote.src.fd < 0)
		return -ESRCH;
	zygote.src.fn = zygote_event;
	zygote.ops = ops;
	ret = loop_add(&zygote.src, EPOLLIN);
	zygote.watched = !ret;
	return ret;
}

/** zygote_next_id - the number of the next request; 0 is the zygote itself */
uint32_t zygote_next_id(void)
{
	if (!++zygote.last_id)
		zygote.last_id = 1;
	return zygote.last_id;
}

/** zygote_send - send a request, with its ZYGOTE_FDS descriptors */
int zygote_send(uint32_t id, const int *fds)
{
	struct zygote_request req = { .id = id };
	ssize_t n = fd_pass_send(zygote.src.fd, &req, sizeof(req), fds,
				 ZYGOTE_FDS, MSG_DONTWAIT);

	return n == -EPIPE || n == -ECONNRESET ? -ESRCH : n < 0 ? (int)n : 0;
}

/** zygote_reaped - a child has ended, which may be the zygote */
void zygote_reaped(pid_t pid)
{
	reports();
	if (pid == zygote.pid)
		zygote.pid = 0;
}
