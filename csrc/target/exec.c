// SPDX-License-Identifier: GPL-2.0-only
/*
 * CTL_EXEC: run more programs on the running stack.
 *
 * Theory of operation
 *
 * lklhost forwards a request to the zygote (zygote.c). It passes the client's
 * descriptors unchanged, and the rest of the request in a memfd, because it may
 * be too large for a packet. The program that the zygote starts is a child of
 * lklhost. lklhost always learns of the program's start before its end. The
 * reply to the client contains the wait status.
 *
 *	client gone	SIGHUP, SIGTERM, SIGCONT to the program's group;
 *			SIGKILL after GRACE_MS
 *	the run ends	the program is killed with the target's tree; the reply
 *			contains CTL_EXEC_RUN_ENDED
 *	panic		the program is killed too; the reply is -EIO
 *
 * The loop watches the zygote's socket only after the first request
 * (process/zygote_link.c).
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

#include "base/lklhost.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/carrier/foreign_sock.h"
#include "process/zygote_link.h"
#include "target/child.h"
#include "target/target.h"

#define EXECS_MAX	256
#define GRACE_MS	5000
#define MS		1000000ull

/**
 * struct exec - a program
 * @cl: its client; NULL after the client has disconnected
 * @hdr: header of the request
 * @id: number that lklhost and the zygote use for it
 * @pid: its pid; 0 until it is known
 * @pending, @pending_group: signals to send when @pid is known
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

static struct list execs = LIST_INIT(execs);
static unsigned int n_execs;

/** exec_free - remove a program from the list and free it */
static void exec_free(struct exec *x)
{
	list_del(&x->link);
	n_execs--;
	timer_cancel(&x->grace);
	free(x);
}

/** finish - reply to the client and free the program */
static void finish(struct exec *x, int32_t error, int status)
{
	struct ctl_exec_rep rep = { .wait_status = status, .error = x->error,
				    .how = x->how };

	if (x->cl)
		ctl_reply(x->cl, &x->hdr, error, &rep,
			  error ? 0 : sizeof(rep));
	exec_free(x);
}

/**
 * finish_all - reply to the remaining requests
 * @started: also to those whose programs are running
 */
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

/** started - store the pid of a program, and send the pending signals */
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

/** heard - handle a report from the zygote or a program */
static void heard(const struct zygote_report *r)
{
	struct list *pos, *tmp;

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

/**
 * gone - fail the waiting requests: the zygote cannot start programs any more
 */
static void gone(void)
{
	finish_all(-ESRCH, false);
}

static const struct zygote_ops zygote_ops = { .reported = heard,
					      .gone = gone };

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

/**
 * memfd - create a memory file with @len bytes of @data
 *
 * Returns the file or a negative errno.
 */
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
	int i;

	for (i = 0; i < 3; i++)
		foreign_sock_allow(fds[i]);
	return zygote_send(id, fds);
}

/**
 * grace_over - kill a program that did not end after its client disconnected
 */
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
	ret = zygote_watch(&zygote_ops);
	if (ret)
		return ret;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->id = zygote_next_id();
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
 * exec_request - handle CTL_EXEC
 *
 * The reply is sent when the program has ended.
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

/** exec_signal - handle CTL_EXEC_SIGNAL */
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

/** exec_reaped - handle the end of a child, which may be one of the programs */
void exec_reaped(pid_t pid, int status)
{
	struct list *pos, *tmp;

	zygote_reaped(pid);	/* handles the report of the start first */
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

/** exec_run_ended - reply to all requests, because the whole tree was killed */
void exec_run_ended(void)
{
	finish_all(0, true);
}

/**
 * exec_panicked - reply to all requests, because the stack's kernel has
 * panicked
 */
void exec_panicked(void)
{
	finish_all(-EIO, true);
}
