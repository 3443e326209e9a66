// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control server in the program: a thread that answers the requests that
 * lklhost forwards.
 *
 * Theory of operation
 *
 * The thread runs a small loop over the link, an eventfd that signals readiness
 * in the stack, and the timers of waiting calls. control/ctl_call.c makes the
 * calls in the stack. Each client of lklhost is a struct client here, which
 * holds only descriptors of the stack and waiting calls.
 *
 * The thread blocks all signals and has descriptors of its own, both in the
 * stack and on the host (preload_own()). Sending (link_out.c) blocks, which is safe
 * because lklhost always reads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/lklhost.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/preload/link.h"
#include "stack/stack.h"

#define STACK_SIZE	(512 << 10)

/**
 * union thread_attr - pthread_attr_t of any C library the program may use
 *
 * On arm64, musl's type is smaller than glibc's. The build for devices is
 * compiled against musl but also runs in programs that use glibc.
 */
union thread_attr {
	pthread_attr_t a;
	char room[128];
};

/** thread_start - start a thread with a stack of STACK_SIZE; 0 or a negative errno */
static int thread_start(pthread_t *thread, bool detached, void *(*fn)(void *arg), void *arg)
{
	union thread_attr attr;
	int ret;

	pthread_attr_init(&attr.a);
	pthread_attr_setstacksize(&attr.a, STACK_SIZE);
	if (detached)
		pthread_attr_setdetachstate(&attr.a, PTHREAD_CREATE_DETACHED);
	ret = -pthread_create(thread, &attr.a, fn, arg);
	pthread_attr_destroy(&attr.a);
	return ret;
}
#define TEXT_MAX	(256 * 1024)
#define CMDLINE_MAX	4096

/* The handshake between the program's thread and the server. */
enum going { BEFORE_GO, GO, TAKEN, GONE };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	enum going state;
	int ret;
} going = { .lock = PTHREAD_MUTEX_INITIALIZER,
	    .cond = PTHREAD_COND_INITIALIZER };

static int wake = -1;
static uint8_t *in;
static int in_fd = -1;		/* the descriptor that came with the frame */
static struct list clients = LIST_INIT(clients);

/** say - set the state; @ret is a result for the program's thread */
static void say(enum going state, int ret)
{
	pthread_mutex_lock(&going.lock);
	going.ret = ret;
	going.state = state;
	pthread_cond_broadcast(&going.cond);
	pthread_mutex_unlock(&going.lock);
}

/** hear - wait for a state; returns the result of the other thread */
static int hear(enum going state)
{
	int ret;

	pthread_mutex_lock(&going.lock);
	while (going.state < state)
		pthread_cond_wait(&going.cond, &going.lock);
	ret = going.ret;
	pthread_mutex_unlock(&going.lock);
	return ret;
}

/** link_await_go - let the program's thread wait for GO */
void link_await_go(void)
{
	hear(GO);
}

/**
 * link_going - report whether the program continues to main()
 * @ret: 0, or the error
 *
 * Returns only after lklhost has been told, because main() may end the process.
 */
void link_going(int ret)
{
	say(TAKEN, ret);
	hear(GONE);
}

/** go - release the program */
static void go(struct client *cl, const struct ctl_hdr *h, const uint8_t *body)
{
	uint32_t pid = (uint32_t)getpid();
	struct ctl_go req;
	int ret;

	memcpy(&req, body, sizeof(req));
	preload_mptcp(req.flags & CTL_GOF_MPTCP);
	say(GO, 0);
	ret = hear(TAKEN);
	if (!ret) {
		preload_spin(req.spin_us);
		preload_coalesce(req.coalesce_us);
		host.state = CTL_STATE_RUNNING;
	}
	ctl_reply(cl, h, ret, &pid, ret ? 0 : sizeof(pid));
	say(GONE, ret);
}

/** client_of - find or make the client with that number; NULL on failure */
static struct client *client_of(uint16_t number)
{
	struct list *pos;
	struct client *cl;

	list_for_each(pos, &clients) {
		cl = container_of(pos, struct client, link);
		if (cl->link_id == number)
			return cl;
	}
	cl = calloc(1, sizeof(*cl));
	if (!cl)
		return NULL;
	cl->link_id = number;
	list_init(&cl->waiters);
	list_add_tail(&cl->link, &clients);
	return cl;
}

/** client_free - free a client and close everything it opened */
static void client_free(struct client *cl)
{
	ctl_calls_end(cl);
	list_del(&cl->link);
	free(cl->stack_fds);
	loop_free_later(cl);
}

/** link_add - add a device on the descriptor that came with the frame */
static void link_add(struct client *cl, const struct ctl_hdr *h,
		     const uint8_t *body)
{
	struct ctl_link_rep rep = { 0 };
	struct ctl_link_add req;
	int ret = -EBADF;

	memcpy(&req, body, sizeof(req));
	if (in_fd >= 0) {
		ret = stack->link_add(in_fd, req.kind, req.flags, req.mac,
				      req.mtu);
		if (ret < 0)
			close(in_fd);
		in_fd = -1;
	}
	if (ret >= 0) {
		rep.dev = ret;
		rep.ifindex = stack_alive() ? stack->ifindex(ret) : 0;
	}
	ctl_reply(cl, h, ret < 0 ? ret : 0, &rep, ret < 0 ? 0 : sizeof(rep));
}

/** link_join - join a device to another one on its wire */
static void link_join(struct client *cl, const struct ctl_hdr *h,
		      const uint8_t *body)
{
	struct ctl_link_join req;
	int ret = -EBADF;

	memcpy(&req, body, sizeof(req));
	if (in_fd >= 0) {
		ret = stack->link_join(req.dev, in_fd);
		if (ret)
			close(in_fd);
		in_fd = -1;
	}
	ctl_reply(cl, h, ret, NULL, 0);
}

/** boot - start the kernel */
static void boot(struct client *cl, const struct ctl_hdr *h,
		 const uint8_t *body, size_t len)
{
	char cmdline[CMDLINE_MAX + 1];
	struct ctl_boot req;
	int ret = -EBADMSG;

	memcpy(&req, body, sizeof(req));
	if (req.cmdline_len <= CMDLINE_MAX &&
	    req.cmdline_len == len - sizeof(req)) {
		memcpy(cmdline, body + sizeof(req), req.cmdline_len);
		cmdline[req.cmdline_len] = '\0';
		ret = stack_boot(req.mem, cmdline);
	}
	if (!ret)
		host.state = CTL_STATE_BOOTED;
	ctl_reply(cl, h, ret, stack_release(),
		  ret ? 0 : strlen(stack_release()));
}

/**
 * struct text - a buffer to fill
 * @len: bytes used
 */
struct text {
	char *buf;
	size_t len;
};

/** stats_fill - answer STATS, on a thread of its own */
static void *stats_fill(void *arg)
{
	struct text *t = arg;

	preload_own(true);
	t->len = engine_stats(t->buf, TEXT_MAX);
	return NULL;
}

/**
 * stats - collect counters on a new thread
 *
 * The new thread shares the program's descriptors in the stack, which the
 * server's thread does not.
 */
static int stats(struct text *t)
{
	pthread_t thread;
	int ret = thread_start(&thread, false, stats_fill, t);

	if (!ret)
		pthread_join(thread, NULL);
	return ret;
}

/** told - answer STATS and OWNERS with a filled buffer */
static void told(struct client *cl, const struct ctl_hdr *h)
{
	size_t room = h->type == CTL_STATS ? TEXT_MAX :
		      CTL_FRAME_MAX - sizeof(*h);
	struct text t = { .buf = malloc(room) };
	int ret = t.buf ? 0 : -ENOMEM;

	if (!ret && h->type == CTL_STATS)
		ret = stats(&t);
	else if (!ret)
		t.len = engine_owners(t.buf, room);
	ctl_reply(cl, h, ret, t.buf, ret ? 0 : t.len);
	free(t.buf);
}

/** cancel - cancel a waiting call */
static void cancel(struct client *cl, const struct ctl_hdr *h,
		   const uint8_t *body)
{
	struct ctl_cancel req;

	memcpy(&req, body, sizeof(req));
	ctl_reply(cl, h, ctl_call_cancel(cl, req.id), NULL, 0);
}

/** request - handle one frame; lklhost has checked its length */
static void request(const struct ctl_hdr *h, const uint8_t *body, size_t len)
{
	struct client *cl = client_of(h->flags);
	struct ctl_link_del del;

	if (!cl) {
		ctl_reply(NULL, h, -ENOMEM, NULL, 0);
		return;
	}
	switch (h->type) {
	case CTL_LINK_ADD:
		link_add(cl, h, body);
		break;
	case CTL_LINK_JOIN:
		link_join(cl, h, body);
		break;
	case CTL_LINK_DEL:
		memcpy(&del, body, sizeof(del));
		ctl_reply(cl, h, stack_alive() ? stack->link_del(del.dev) :
			  -EIO, NULL, 0);
		break;
	case CTL_BOOT:
		boot(cl, h, body, len);
		break;
	case CTL_GO:
		go(cl, h, body);
		break;
	case CTL_SYSCALL:
		ctl_call(cl, h, body, len);
		break;
	case CTL_CANCEL:
		cancel(cl, h, body);
		break;
	case CTL_STATS:
	case CTL_OWNERS:
		told(cl, h);
		break;
	case LINK_GONE:
		client_free(cl);
		break;
	default:
		ctl_reply(cl, h, -EOPNOTSUPP, NULL, 0);
	}
}

/** read_some - read up to @len bytes and a descriptor; 0 at the end */
static ssize_t read_some(void *buf, size_t len)
{
	int fds[FD_PASS_MAX];
	unsigned int n;
	ssize_t ret = fd_pass_recv(link_sock, buf, len, fds, &n);

	while (n) {	/* a frame carries one; more are closed */
		if (in_fd >= 0)
			close(in_fd);
		in_fd = fds[--n];
	}
	return ret;
}

/** read_all - read exactly @len bytes; false at the end */
static bool read_all(void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read_some((char *)buf + got, len - got);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/** frame - read one frame and handle it; false if lklhost is gone */
static bool frame(void)
{
	struct ctl_hdr h;

	if (!read_all(&h, sizeof(h)) || h.len < sizeof(h) ||
	    h.len > CTL_FRAME_MAX || !read_all(in, h.len - sizeof(h)))
		return false;
	request(&h, in, h.len - sizeof(h));
	return true;
}

/** timeout - the timeout for poll(2), until the next timer */
static int timeout(void)
{
	int64_t ns = timers_next();

	if (ns == TIMER_NEVER)
		return -1;
	return ns > 3600ll * 1000000000 ? 3600 * 1000 :
					  (int)((ns + 999999) / 1000000);
}

/** serve - the main function of the thread */
static void *serve(void *arg)
{
	struct pollfd p[] = { { .fd = link_sock, .events = POLLIN },
			      { .fd = wake, .events = POLLIN } };
	uint64_t n;

	(void)arg;
	prctl(PR_SET_NAME, "lklrun-ctl");
	preload_own(true);
	for (;;) {
		if (poll(p, 2, timeout()) < 0 && errno != EINTR)
			break;
		if ((p[1].revents & POLLIN) && read(wake, &n, sizeof(n)) < 0)
			continue;
		if (stack_alive())
			stack_turn();
		if (p[0].revents && !frame())
			break;
		timers_run();
		deferred_free_run();
	}
	/* lklhost is gone: nobody can release the program or receive an error. */
	if (host.state != CTL_STATE_RUNNING)
		_exit(127);
	return NULL;
}

static const struct ctl_ops ops = { .engine_has_fd = engine_has_stack_fd };

/**
 * link_serve - start the thread
 * @fd: our end of the link
 *
 * Sends LINK_READY on success.
 */
int link_serve(int fd)
{
	sigset_t all, old;
	pthread_t thread;
	int ret;

	link_sock = fd;
	ctl_ops = &ops;
	in = malloc(CTL_FRAME_MAX);
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!in || wake < 0)
		return -ENOMEM;
	link_stack_wake(wake);
	sigfillset(&all);
	/*
	 * The stack library handles SIGSEGV: it turns a bad pointer into
	 * EFAULT, see lib/fault.c.
	 */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSYS);	/* base/trap.c */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = thread_start(&thread, true, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!ret)
		link_send(LINK_READY, 0, "");
	return ret;
}
