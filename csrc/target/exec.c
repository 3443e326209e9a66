// SPDX-License-Identifier: GPL-2.0-only
/*
 * CTL_EXEC: run further programs on the running stack.
 *
 * Theory of operation
 *
 * lklhost forwards a request to the zygote (zygote.c): the descriptors as they
 * came, the rest in a memfd, as it may be too large for a packet. The program
 * that the zygote starts is a child of lklhost. lklhost always learns of its
 * start before its end. The wait status is the reply.
 *
 *	client gone	SIGHUP, SIGTERM, SIGCONT to its group;
 *			SIGKILL after GRACE_MS
 *	the run ends	it dies with the target's tree; the reply says so
 *	panic		the same; the reply is -EIO
 *
 * The loop does not watch the zygote's socket before the first request. A run
 * without requests therefore needs no additional turn of the loop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "control/ctl.h"
#include "engine/supervise/stray.h"
#include "host/host.h"
#include "target/zygote.h"

#define EXECS_MAX	256
#define GRACE_MS	5000
#define MS		1000000ull

/**
 * struct exec - a program
 * @cl: its client; NULL once that client is gone
 * @hdr: header of the request
 * @id: its number between lklhost and the zygote
 * @pid: 0 until it is known
 * @pending, @pending_group: signals to send once @pid is known
 * @how, @error: result of the start, CTL_EXEC_*
 */
struct exec {
	struct list link;
	struct timer grace;
	struct client *cl;
	struct ctl_hdr hdr;
	uint32_t id;
	pid_t pid;
	uint64_t pending, pending_group;
	uint32_t how;
	int32_t error;
};

static struct {
	struct source src;
	int theirs;
	pid_t pid;
	bool watched;
	uint32_t last_id;
} zygote = { .src.fd = -1, .theirs = -1 };

static struct list execs = LIST_INIT(execs);
static unsigned int n_execs;

/** exec_init - create the socket pair, before the target is forked */
int exec_init(void)
{
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	zygote.src.fd = sv[0];
	zygote.theirs = sv[1];
	return sv[1];
}

/** exec_forked - close the target's end in lklhost */
void exec_forked(void)
{
	close(zygote.theirs);
	zygote.theirs = -1;
}

/** exec_free - forget a program */
static void exec_free(struct exec *x)
{
	list_del(&x->link);
	n_execs--;
	timer_cancel(&x->grace);
	free(x);
}

/** finish - reply and forget the program */
static void finish(struct exec *x, int32_t error, int status)
{
	struct ctl_exec_rep rep = { .wait_status = status, .error = x->error,
				    .how = x->how };

	if (x->cl)
		ctl_reply(x->cl, &x->hdr, error, &rep,
			  error ? 0 : sizeof(rep));
	exec_free(x);
}

/** finish_all - reply to the remaining requests; @started: also running ones */
static void finish_all(int32_t error, bool started)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &execs) {
		struct exec *x = container_of(pos, struct exec, link);

		if (!started && x->pid)
			continue;
		if (!error)
			x->how = CTL_EXEC_RUN_ENDED;
		finish(x, error, SIGKILL);
	}
}

/** send_signal - send a signal to the program or to its process group */
static void send_signal(struct exec *x, int sig, bool group)
{
	if (!x->pid) {
		*(group ? &x->pending_group : &x->pending) |= 1ull << (sig - 1);
		return;
	}
	kill(group ? -x->pid : x->pid, sig);
}

/** started - the pid is known: send pending signals */
static void started(struct exec *x, pid_t pid)
{
	int sig;

	x->pid = pid;
	for (sig = 1; sig <= 64; sig++) {
		if (x->pending >> (sig - 1) & 1)
			send_signal(x, sig, false);
		if (x->pending_group >> (sig - 1) & 1)
			send_signal(x, sig, true);
	}
}

/**
 * learn - record the zygote's pid
 *
 * If the zygote has been reaped, its number may already be that of a program,
 * whose calls must not pass as the zygote's (exec_is_zygote()).
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
	struct list *pos, *tmp;

	/* Reject numbers that kill(2) and waitpid(2) take for groups. */
	if (r->what <= ZYGOTE_STARTED && r->value <= 1)
		return;
	if (r->what == ZYGOTE_READY)
		learn(r->value);
	list_for_each_safe(pos, tmp, &execs) {
		struct exec *x = container_of(pos, struct exec, link);

		if (x->id != r->id)
			continue;
		switch (r->what) {
		case ZYGOTE_STARTED:
			started(x, r->value);
			break;
		case ZYGOTE_FORK:
			finish(x, r->value, 0);
			break;
		case ZYGOTE_CWD:
		case ZYGOTE_COMMAND:
			x->how = r->what == ZYGOTE_CWD ? CTL_EXEC_CWD :
							 CTL_EXEC_COMMAND;
			x->error = -r->value;
			break;
		}
		return;
	}
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
	finish_all(-ESRCH, false);
}

/** zygote_event - event of the zygote's socket */
static void zygote_event(struct source *src, uint32_t events)
{
	(void)src;
	(void)events;
	reports();
}

/**
 * exec_idle_zygote - the zygote's pid, if it never got a request
 *
 * It then has no children, and gets none after it is killed. Returns 0 if there
 * is no such process.
 */
pid_t exec_idle_zygote(void)
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
 * exec_reap - reap the zygote if it is dead already
 *
 * It was killed a while ago. Waiting for it here would mean waiting for the
 * CPU; lklrun cleans up the rest.
 */
void exec_reap(void)
{
	pid_t pid = exec_idle_zygote();

	if (pid)
		waitpid(pid, NULL, WNOHANG);
}

/** exec_zygote - the zygote's pid; 0 if unknown */
pid_t exec_zygote(void)
{
	pid_t pid = exec_idle_zygote();

	if (!pid && zygote.watched && !zygote.pid)
		reports();
	return zygote.pid;
}

/** exec_is_zygote - whether a notified call comes from the zygote itself */
bool exec_is_zygote(pid_t pid)
{
	if (zygote.watched && !zygote.pid)
		reports();
	return zygote.pid && pid == zygote.pid;
}

/** watch - start to watch the zygote's socket */
static int watch(void)
{
	int ret;

	if (zygote.watched)
		return 0;
	if (zygote.src.fd < 0)
		return -ESRCH;
	zygote.src.fn = zygote_event;
	ret = loop_add(&zygote.src, EPOLLIN);
	zygote.watched = !ret;
	return ret;
}

/** body_ok - whether the body contains all strings that its header announces */
static bool body_ok(const uint8_t *body, size_t len)
{
	const uint8_t *p = body + sizeof(struct ctl_exec), *end = body + len;
	struct ctl_exec req;
	uint64_t strings = 0;

	memcpy(&req, body, sizeof(req));
	if (!req.argc || req.strings_len != len - sizeof(req))
		return false;
	for (; p < end; p++)
		strings += !*p;
	return strings == (uint64_t)req.argc + req.envc + 1 && !end[-1];
}

/** memfd - a memory file with @len bytes of @data; or a negative errno */
static int memfd(const uint8_t *data, size_t len)
{
	int fd = memfd_create("lklrun-exec", MFD_CLOEXEC);
	size_t at = 0;

	if (fd < 0)
		return -errno;
	while (at < len) {
		ssize_t n = write(fd, data + at, len - at);

		if (n < 0) {
			int ret = -errno;

			close(fd);
			return ret;
		}
		at += (size_t)n;
	}
	return fd;
}

/** hand_over - forward a request to the zygote */
static int hand_over(uint32_t id, const int *fds)
{
	struct zygote_request req = { .id = id };
	ssize_t n;
	int i;

	for (i = 0; i < 3; i++)
		stray_allow(fds[i]);
	n = fd_pass_send(zygote.src.fd, &req, sizeof(req), fds, ZYGOTE_FDS,
			 MSG_DONTWAIT);
	return n == -EPIPE || n == -ECONNRESET ? -ESRCH : n < 0 ? (int)n : 0;
}

/** grace_over - kill a program that did not end with its client */
static void grace_over(struct timer *t)
{
	send_signal(container_of(t, struct exec, grace), SIGKILL, true);
}

/** start - watch the zygote, record a program and forward the request */
static int start(struct client *cl, const struct ctl_hdr *h, const int *fds)
{
	struct exec *x;
	int ret;

	if (host.state != CTL_STATE_RUNNING)
		return host.state < CTL_STATE_RUNNING ? -EAGAIN : -ESHUTDOWN;
	if (n_execs >= EXECS_MAX)
		return -EUSERS;
	ret = watch();
	if (ret)
		return ret;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	if (!++zygote.last_id)	/* 0 is the zygote itself */
		zygote.last_id = 1;
	x->id = zygote.last_id;
	x->cl = cl;
	x->hdr = *h;
	timer_init(&x->grace, grace_over);
	ret = hand_over(x->id, fds);
	if (ret) {
		free(x);
		return ret;
	}
	list_add_tail(&x->link, &execs);
	n_execs++;
	return 0;
}

/**
 * exec_request - CTL_EXEC
 *
 * The reply comes when the program has ended.
 */
int exec_request(struct client *cl, const struct ctl_hdr *h,
		 const uint8_t *body, size_t len)
{
	int fds[ZYGOTE_FDS], i, ret = 0;

	if (!body_ok(body, len)) {
		ctl_reply(cl, h, -EBADMSG, NULL, 0);
		return -EBADMSG;
	}
	for (i = 0; i < 3; i++) {
		fds[i] = ctl_claim_fd(cl);
		if (fds[i] < 0)
			ret = -EBADF;
	}
	fds[3] = ret ? -1 : memfd(body, len);
	if (!ret && fds[3] < 0)
		ret = fds[3];
	if (!ret)
		ret = start(cl, h, fds);
	if (ret)
		ctl_reply(cl, h, ret, NULL, 0);
	for (i = 0; i < ZYGOTE_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return 0;
}

/** exec_signal - CTL_EXEC_SIGNAL */
int exec_signal(struct client *cl, const struct ctl_hdr *h, const uint8_t *body)
{
	struct ctl_exec_signal req;
	struct list *pos;
	int ret = -ENOENT;

	memcpy(&req, body, sizeof(req));
	if (!req.signal || req.signal > 64 ||
	    (req.flags & ~(uint32_t)CTL_EXECF_GROUP)) {
		ctl_reply(cl, h, -EINVAL, NULL, 0);
		return 0;
	}
	list_for_each(pos, &execs) {
		struct exec *x = container_of(pos, struct exec, link);

		if (x->cl != cl || x->hdr.id != req.id)
			continue;
		send_signal(x, (int)req.signal, req.flags & CTL_EXECF_GROUP);
		ret = 0;
		break;
	}
	ctl_reply(cl, h, ret, NULL, 0);
	return 0;
}

/** exec_reaped - a child has ended, which may be one of the programs */
void exec_reaped(pid_t pid, int status)
{
	struct list *pos, *tmp;

	reports();	/* its start is reported before its end */
	if (pid == zygote.pid)
		zygote.pid = 0;
	list_for_each_safe(pos, tmp, &execs) {
		struct exec *x = container_of(pos, struct exec, link);

		if (x->pid != pid)
			continue;
		finish(x, 0, status);
		return;
	}
}

/** exec_client_gone - end the programs of a client that disconnected */
void exec_client_gone(struct client *cl)
{
	struct list *pos;

	list_for_each(pos, &execs) {
		struct exec *x = container_of(pos, struct exec, link);

		if (x->cl != cl)
			continue;
		x->cl = NULL;
		send_signal(x, SIGHUP, true);
		send_signal(x, SIGTERM, true);
		send_signal(x, SIGCONT, true);
		timer_arm(&x->grace, now_ns() + GRACE_MS * MS);
	}
}

/** exec_run_ended - the whole tree was killed: reply to all */
void exec_run_ended(void)
{
	finish_all(0, true);
}

/** exec_panicked - the kernel is dead, and the programs soon: reply to all */
void exec_panicked(void)
{
	finish_all(-EIO, true);
}
