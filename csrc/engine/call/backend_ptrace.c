// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine trace: catch calls with ptrace(2), and exchange descriptors with
 * the calling threads.
 *
 * Theory of operation
 *
 * trace/ reports calls and answers them. Only descriptors need more than that,
 * because no request of ptrace(2) adds one to another process. The caller
 * itself therefore executes these calls while it waits for its answer
 * (trace/step.c):
 *
 *	socket			which lklhost connects to itself
 *	recvmsg			of the descriptor that lklhost sends
 *	dup3, close		so that it gets the lowest free number
 *
 * The caller keeps no descriptor for this, because a program may close all
 * descriptors that it does not know. It keeps one page of memory for the
 * arguments of these calls. A new process inherits this page. If the page no
 * longer contains the expected number, lklhost maps another one.
 *
 * If the caller is frozen meanwhile, it closes the socket when it runs again. The
 * call is parked until then, and starts again (paged_park()).
 *
 * lklhost duplicates a descriptor of the caller with pidfd_getfd(2). Without
 * this call, before Linux 5.6, the caller sends it in the same way.
 *
 * The socket is in the network namespace in which the target started. A process
 * that moves to another one thus gets no sockets.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "engine/call/call.h"
#include "engine/call/catch.h"
#include "engine/call/nofile.h"
#include "engine/call/paged_access.h"
#include "engine/call/watchdog.h"
#include "trace/trace.h"

#define PAGE		4096
#define TRIES		8	/* to connect, if other processes fill the queue */
#define QUEUE		128	/* connections, more than the queue holds */
#ifdef SYS_mmap2
#define NR_MMAP		SYS_mmap2
#else
#define NR_MMAP		SYS_mmap
#endif

/**
 * struct page - the page in the caller's memory
 * @cookie: shows that the page is still ours
 * @un, @mh, @iov, @byte, @ctl: arguments of the calls
 */
struct page {
	uint64_t cookie;
	struct sockaddr_un un;
	struct msghdr mh;
	struct iovec iov;
	char byte;
	union {
		struct cmsghdr head;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl;
};

/**
 * struct channel - a connection between lklhost and the caller
 * @c: the call
 * @at: address of the page in the caller
 * @there: the caller's end, or a negative errno
 * @here: lklhost's end, or -1
 * @limit: the limit of descriptors that more_room() has raised
 */
struct channel {
	const struct call *c;
	uint64_t at;
	int64_t there;
	int here;
	struct nofile limit;
};

/** ARGS - the arguments of a call that has fewer than six */
#define ARGS(...) ((const uint64_t[6]){ __VA_ARGS__ })

/** step - let the caller execute a call; -ESRCH if it is gone, -EINPROGRESS if blocked */
static int64_t step(const struct call *c, long nr, const uint64_t *args)
{
	int64_t ret = trace_step(c->pid, nr, args);

	return ret == TRACE_GONE ? -ESRCH : ret == TRACE_BLOCKED ? -EINPROGRESS : ret;
}

/** page_copy - copy between the caller's page and @buf */
static int page_copy(const struct call *c, uint64_t at, void *buf, size_t len,
		     bool to_caller)
{
	struct iovec here = { buf, len }, there = { (void *)(uintptr_t)at, len };
	ssize_t n = to_caller ? process_vm_writev(c->pid, &here, 1, &there, 1, 0) :
				process_vm_readv(c->pid, &here, 1, &there, 1, 0);

	return n == (ssize_t)len ? 0 : -EFAULT;
}

/** page_get - find or make the page in the caller's memory */
static int page_get(const struct call *c, uint64_t *at)
{
	pid_t tgid = task_tgid(c->task);
	uint64_t cookie;
	int64_t ret;

	*at = trace_page(tgid);
	if (*at && !page_copy(c, *at, &cookie, sizeof(cookie), false) &&
	    cookie == (host.instance ^ *at))
		return 0;
	ret = step(c, NR_MMAP, ARGS(0, PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, ~0ull));
	if (ret < 0 && ret > -PAGE)
		return (int)ret;
	*at = (uint64_t)ret;
	cookie = host.instance ^ *at;
	trace_set_page(tgid, *at);
	return page_copy(c, *at, &cookie, sizeof(cookie), true);
}

/** page_fill - write the arguments of the calls, with descriptor @fd to send */
static int page_fill(const struct call *c, uint64_t at, int fd)
{
	struct page p = {
		.cookie = host.instance ^ at,
		.mh = {
			.msg_iov = (void *)(uintptr_t)(at + offsetof(struct page, iov)),
			.msg_iovlen = 1,
			.msg_control = (void *)(uintptr_t)(at + offsetof(struct page, ctl)),
			.msg_controllen = sizeof(p.ctl),
		},
		.iov = { (void *)(uintptr_t)(at + offsetof(struct page, byte)), 1 },
		.ctl.head = { .cmsg_len = CMSG_LEN(sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS },
	};

	memcpy(CMSG_DATA(&p.ctl.head), &fd, sizeof(fd));
	trace_meeting_name(&p.un);
	return page_copy(c, at, &p, sizeof(p), true);
}

/**
 * meet - accept the connection of process @pid
 *
 * Connections of other processes are dropped.
 */
static int meet(pid_t pid)
{
	struct ucred who;
	socklen_t len = sizeof(who);
	int fd, i;

	for (i = 0; i < QUEUE; i++) {
		fd = accept4(trace_meeting(), NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return -errno;
		if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
		    who.pid == pid)
			return fd;
		close(fd);
	}
	return -EAGAIN;
}

/** is_new - whether @fd can be the socket that the caller has just made */
static bool is_new(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	       !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) &&
	       domain == AF_UNIX && type == SOCK_SEQPACKET;
}

/**
 * connect_once - connect the caller's end
 * @dup: our duplicate of it, or a negative errno
 */
static int connect_once(const struct channel *ch, int dup)
{
	struct sockaddr_un un;
	size_t len = trace_meeting_name(&un);

	if (dup < 0)
		return (int)step(ch->c, SYS_connect,
				 ARGS((uint64_t)ch->there,
				      ch->at + offsetof(struct page, un), len));
	if (!connect(dup, (struct sockaddr *)&un, (socklen_t)len))
		return 0;
	return errno == EINTR ? -EAGAIN : -errno;
}

/**
 * channel_connect - connect the two ends
 *
 * lklhost itself connects the caller's end. SO_PEERCRED shows that the accepted
 * connection is this one, whatever the caller's memory contains. If the target
 * has filled the queue and removed O_NONBLOCK, the timer of trace_begin()
 * interrupts connect(2).
 *
 * Before Linux 5.6, the caller must connect. All other threads stand still then,
 * and what they have put into the queue is dropped first.
 */
static int channel_connect(struct channel *ch)
{
	int dup = task_getfd(ch->c->task, (int)ch->there), ret = -EAGAIN, i;
	pid_t pid = dup < 0 ? task_tgid(ch->c->task) : getpid();

	if (dup < 0 && dup != -ENOSYS)
		return dup;
	if (dup >= 0 && !is_new(dup))
		ret = -ECONNABORTED;
	if (dup < 0)
		(void)meet(0);
	for (i = 0; i < TRIES && ret == -EAGAIN; i++) {
		ret = connect_once(ch, dup);
		if (!ret || ret == -EAGAIN)
			ch->here = meet(pid);
	}
	if (dup >= 0)
		close(dup);
	if (ret == -ECONNREFUSED)
		return -ENETDOWN;	/* another network namespace */
	return ret ? ret : ch->here < 0 ? ch->here : 0;
}

/**
 * more_room - let the caller have one descriptor more, until channel_close()
 *
 * It needs up to two for the exchange. Returns false if it has reached its hard
 * limit.
 */
static bool more_room(struct channel *ch)
{
	pid_t pid = task_tgid(ch->c->task);
	struct rlimit now;

	return !prlimit(pid, RLIMIT_NOFILE, NULL, &now) &&
	       !nofile_raise(&ch->limit, pid, now.rlim_cur + 1);
}

/** is_beyond - whether the caller has no descriptor left within its own limit */
static bool is_beyond(const struct channel *ch)
{
	return ch->limit.pid && (rlim_t)ch->there >= ch->limit.was.rlim_cur;
}

/** channel_close - let the caller continue with its answer */
static void channel_close(struct channel *ch)
{
	if (ch->here >= 0)
		close(ch->here);
	if (ch->there >= 0)
		step(ch->c, SYS_close, ARGS((uint64_t)ch->there));
	nofile_restore(&ch->limit);
	trace_end(ch->c->pid);
	watchdog_leave();
}

/**
 * channel_open - connect to the caller
 * @fd: the caller's descriptor to send, or -1
 *
 * Returns 0 or a negative errno; the channel must be closed in either case.
 */
static int channel_open(struct channel *ch, const struct call *c, int fd)
{
	int ret;

	*ch = (struct channel){ .c = c, .there = -1, .here = -1 };
	watchdog_enter_run(c);
	ret = trace_begin(c->pid, c->id);
	if (!ret)
		ret = page_get(c, &ch->at);
	if (!ret)
		ret = page_fill(c, ch->at, fd);
	if (ret)
		return ret;
	do {
		ch->there = step(c, SYS_socket,
				 ARGS(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
					       SOCK_NONBLOCK));
	} while (ch->there == -EMFILE && !ch->limit.pid && more_room(ch));
	if (ch->there < 0)
		return (int)ch->there;
	if (fd < 0)
		ret = trace_alone(c->pid, !task_can_getfd());
	return ret ? ret : channel_connect(ch);
}

/**
 * receive - let the caller receive our descriptor @fd
 *
 * Returns its number in the caller, or a negative errno.
 */
static int receive(struct channel *ch, int fd, bool cloexec)
{
	struct page p;
	int64_t ret = fd_pass_send(ch->here, "", 1, &fd, 1, MSG_DONTWAIT);

	if (ret < 0)
		return (int)ret;
	ret = step(ch->c, SYS_recvmsg,
		   ARGS((uint64_t)ch->there, ch->at + offsetof(struct page, mh),
			MSG_DONTWAIT | (cloexec ? MSG_CMSG_CLOEXEC : 0)));
	if (ret < 0)
		return (int)ret;
	if (page_copy(ch->c, ch->at, &p, sizeof(p), false))
		return -EFAULT;
	if (p.mh.msg_controllen < CMSG_LEN(sizeof(int)))
		return -EMFILE;
	memcpy(&fd, CMSG_DATA(&p.ctl.head), sizeof(fd));
	return fd;
}

/** addfd - add a descriptor to the caller, see struct catch_ops */
static int addfd(const struct call *c, int fd, int newfd, bool cloexec)
{
	bool own = newfd < 0;
	struct channel ch;
	int ret = channel_open(&ch, c, -1), got;

	if (!ret && own && is_beyond(&ch))
		ret = -EMFILE;
	if (ret)
		goto out;
	ret = got = receive(&ch, fd, cloexec);
	if (got == -EMFILE && more_room(&ch) && !page_fill(c, ch.at, -1))
		ret = got = receive(&ch, fd, cloexec);
	if (got < 0)
		goto out;
	/* Without a number, it takes that of the channel: the lowest one. */
	if (own) {
		newfd = (int)ch.there;
		ch.there = -1;
	}
	ret = (int)step(c, SYS_dup3, ARGS((uint64_t)got, (uint64_t)newfd,
					  cloexec ? O_CLOEXEC : 0));
	if (ret == -EINPROGRESS && own)
		ch.there = newfd;
	step(c, SYS_close, ARGS((uint64_t)got));
out:
	channel_close(&ch);
	if (ret == -EINPROGRESS)
		return paged_park(c);
	return ret == -ESRCH ? -ENOENT : ret;
}

/** sent_by - get the descriptor @fd of the caller, which sends it */
static int sent_by(const struct call *c, int fd)
{
	int fds[FD_PASS_MAX], ret;
	struct channel ch;
	unsigned int n = 0;
	char byte;

	ret = channel_open(&ch, c, fd);
	if (!ret)
		ret = (int)step(c, SYS_sendmsg,
				ARGS((uint64_t)ch.there,
				     ch.at + offsetof(struct page, mh),
				     MSG_DONTWAIT | MSG_NOSIGNAL));
	if (ret >= 0)
		ret = (int)fd_pass_recv(ch.here, &byte, 1, fds, &n);
	channel_close(&ch);
	if (ret >= 0 && n == 1)
		return fds[0];
	while (n)		/* another thread has changed the page */
		close(fds[--n]);
	return ret == -EINPROGRESS ? paged_park(c) : ret < 0 ? ret : -EBADF;
}

/** getfd - duplicate a descriptor of the caller */
static int getfd(const struct call *c, int fd)
{
	int ret = task_getfd(c->task, fd);

	return ret == -ENOSYS ? sent_by(c, fd) : ret;
}

/** valid - whether the caller still waits for the answer */
static bool valid(const struct call *c)
{
	return trace_waits(c->pid, c->id);
}

/** answer - answer a call, see call_answer() */
static bool answer(const struct call *c, int64_t ret)
{
	bool ok;

	watchdog_enter_run(c);
	ok = ret == CALL_NATIVE ? trace_native(c->pid, c->id) :
				  trace_answer(c->pid, c->id, ret);
	watchdog_leave();
	return ok;
}

/** addfd_send - answer a call with a descriptor, see call_addfd_send() */
static int addfd_send(struct call *c, int fd, bool cloexec)
{
	int ret = addfd(c, fd, -1, cloexec);

	return ret < 0 || answer(c, ret) ? ret : -ENOENT;
}

const struct catch_ops catch_by_trace = {
	.valid = valid,
	.answer = answer,
	.addfd = addfd,
	.addfd_send = addfd_send,
	.getfd = getfd,
};

/** called - handle a caught call */
static void called(const struct trace_call *call)
{
	struct call c = { .id = call->id, .pid = call->tid, .nr = call->nr };

	memcpy(c.args, call->args, sizeof(c.args));
	if (call->nr == SYS_socket)	/* its answer is a descriptor */
		trace_interrupt_others(call->tid, !task_can_getfd());
	call_ops->handle(&c, false);
}

/** strayed - report a process that was killed, see struct trace_ops */
static void strayed(pid_t tid, const char *how)
{
	const struct task *t = task_get(tid);

	if (t)
		warn_user("%s (pid %d): killed, because its thread %d %s while lklhost executed a system call in it",
			  task_comm(t), task_tgid(t), tid, how);
}

/** resumed - handle that a thread runs again, see struct trace_ops */
static void resumed(pid_t tid, uint64_t id)
{
	const struct call c = { .id = id, .pid = tid };

	paged_unpark(&c);
}

static const struct trace_ops trace_ops = { .called = called,
					    .ended = task_gone,
					    .resumed = resumed,
					    .strayed = strayed };

/** by_trace_start - start to receive calls */
void by_trace_start(void)
{
	trace_start(&trace_ops);
}

/** by_trace_stop - stop to receive calls: they fail with ENOSYS */
void by_trace_stop(void)
{
	trace_stop();
}
