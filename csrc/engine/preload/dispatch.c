// SPDX-License-Identifier: GPL-2.0-only
/* Dispatches intercepted system calls, and enters the kernel library. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/preload/internal.h"

#define CALL_STACK	(192UL << 10)
#define GUARD		4096UL
#define PARK_MS		200

__thread struct inside me;
struct preload_stack lkl;
struct counts counts;

unsigned char preload_class[ENTRY_CALLS];
static call_fn handlers[ENTRY_CALLS];
static bool installed;
static pthread_key_t key;
static void (*tell)(const char *line);
static struct inside *threads;		/* those with a stack for calls */
static struct inside *volatile parked_by;	/* set when all other threads are parked */

/*
 * For each call: how entry.S classifies it, and the function that handles it.
 */
static const struct {
	short nr;
	unsigned char class;
	call_fn fn;
} table[] = {
	{ SYS_read, CLASS_FD, call_read },
	{ SYS_readv, CLASS_FD, call_read },
	{ SYS_preadv2, CLASS_FD, call_read },
	{ SYS_recvfrom, CLASS_FD, call_read },
	{ SYS_recvmsg, CLASS_LOOK, call_recvmsg },
	{ SYS_recvmmsg, CLASS_FD, call_pass },
	{ SYS_write, CLASS_FD, call_write },
	{ SYS_writev, CLASS_FD, call_write },
	{ SYS_pwritev2, CLASS_FD, call_write },
	{ SYS_sendto, CLASS_FD, call_write },
	{ SYS_sendmsg, CLASS_LOOK, call_sendmsg },
	{ SYS_sendmmsg, CLASS_FD, call_write },
	{ SYS_bind, CLASS_FD, call_pass },
	{ SYS_getsockname, CLASS_FD, call_pass },
	{ SYS_getpeername, CLASS_FD, call_pass },
	{ SYS_shutdown, CLASS_FD, call_pass },
	{ SYS_socket, CLASS_LOOK, call_socket },
	{ SYS_accept, CLASS_LOOK, call_accept },
	{ SYS_accept4, CLASS_LOOK, call_accept },
	{ SYS_connect, CLASS_FD, call_connect },
	{ SYS_listen, CLASS_FD, call_listen },
	{ SYS_getsockopt, CLASS_FD, call_getsockopt },
	{ SYS_setsockopt, CLASS_FD, call_setsockopt },
	{ SYS_close, CLASS_LOOK, call_close },
	{ SYS_close_range, CLASS_LOOK, call_close_range },
	{ SYS_dup, CLASS_LOOK, call_dup },
	{ SYS_dup3, CLASS_LOOK, call_dup2 },
	{ SYS_fcntl, CLASS_LOOK, call_fcntl },
	{ SYS_ioctl, CLASS_LOOK, call_ioctl },
	{ SYS_sendfile, CLASS_LOOK, call_sendfile },
	{ SYS_splice, CLASS_LOOK, call_splice },
	{ SYS_ppoll, CLASS_LOOK, call_poll },
	{ SYS_pselect6, CLASS_LOOK, call_select },
	{ SYS_epoll_create1, CLASS_LOOK, call_epoll_create },
	{ SYS_epoll_ctl, CLASS_LOOK, call_epoll_ctl },
	{ SYS_epoll_pwait, CLASS_FD, call_epoll_wait },
	{ SYS_epoll_pwait2, CLASS_FD, call_epoll_wait },
	{ SYS_rt_sigaction, CLASS_LOOK, call_sigaction },
	{ SYS_exit_group, CLASS_LOOK, call_exit },
	{ SYS_io_uring_setup, CLASS_LOOK, call_nosys },
	{ SYS_openat, CLASS_LOOK, call_open },
	{ SYS_lseek, CLASS_FD, call_file },
	{ SYS_pread64, CLASS_FD, call_file },
	{ SYS_fstat, CLASS_FD, call_file },
	{ SYS_newfstatat, CLASS_FD, call_file },
	/* Newer architectures lack these calls. */
#ifdef SYS_open
	{ SYS_dup2, CLASS_LOOK, call_dup2 },
	{ SYS_poll, CLASS_LOOK, call_poll },
	{ SYS_select, CLASS_LOOK, call_select },
	{ SYS_epoll_create, CLASS_LOOK, call_epoll_create },
	{ SYS_epoll_wait, CLASS_FD, call_epoll_wait },
	{ SYS_open, CLASS_LOOK, call_open },
#endif
	/*
	 * Listed only because the library itself makes descriptors with them
	 * (own.c).
	 */
	{ SYS_eventfd2, CLASS_LOOK, native },
	{ SYS_timerfd_create, CLASS_LOOK, native },
	{ SYS_memfd_create, CLASS_LOOK, native },
};

/** warn_line - print a line for the user; to stderr in a child, which has no link */
void warn_line(const char *fmt, ...)
{
	char line[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if (tell && *alive) {
		tell(line);
		return;
	}
	n = (int)strlen(line);
	line[n++] = '\n';
	RAW3(write, 2, "lklrun: ", 8);
	RAW3(write, 2, line, n);
}

void preload_warn(void (*fn)(const char *line))
{
	tell = fn;
}

/** park - block this thread until the process ends */
static void park(void)
{
	static const struct timespec wait = { .tv_sec = 1 };

	for (;;)
		RAW2(nanosleep, &wait, 0);
}

/**
 * threads_park - stop all other threads from making calls in the stack
 *
 * Called when the process ends. A thread that waits in the stack holds its
 * socket, which then could not be closed.
 */
void threads_park(void)
{
	static const struct timespec wait = { .tv_nsec = 1000000 };
	struct inside *t;
	int i, busy = 1;

	parked_by = &me;
	for (i = 0; busy && i < PARK_MS; i++) {
		busy = 0;
		lock();
		for (t = threads; t; t = t->next) {
			if (t == &me || t->own || !t->depth || !t->lkl)
				continue;
			lkl.interrupt(t->lkl);
			busy++;
		}
		unlock();
		if (busy)
			RAW2(nanosleep, &wait, 0);
	}
}

/** thread_gone - when a thread ends, end its task in the stack */
static void thread_gone(void *arg)
{
	char *top = arg;
	struct inside **p;

	lock();
	for (p = &threads; *p && *p != &me; p = &(*p)->next)
		;
	if (*p)
		*p = me.next;
	unlock();
	me.lkl = NULL;
	if (*alive && me.depth == 0) {
		enter();
		preload_on_stack(SYS_exit, (long[6]){ 0 }, lkl.syscall, top);
		leave();
	}
	if (me.poller)
		poller_leave(me.poller);
	me.poller = NULL;
	me.top = NULL;
	RAW2(munmap, top - CALL_STACK, CALL_STACK);
}

/**
 * threads_init - create the thread key
 *
 * Must be called before the library makes its own key, so that this destructor
 * runs first.
 */
int threads_init(void)
{
	return -pthread_key_create(&key, thread_gone);
}

/**
 * thread_ready - give the thread a stack for calls and a task in the stack
 *
 * From here on signals interrupt its waits, so this must come before the first
 * call that may wait.
 */
int thread_ready(void)
{
	static const long none[6];
	void *self;
	char *p;

	if (likely(me.top))
		return 0;
	p = pages(CALL_STACK);
	if (!p)
		return -ENOMEM;
	RAW3(mprotect, p, GUARD, PROT_NONE);
	lock();
	me.next = threads;
	threads = &me;
	me.top = p + CALL_STACK;
	self = lkl.self();
	unlock();
	pthread_setspecific(key, me.top);
	if (!self)
		return -ENODEV;
	enter();
	stack_raw(SYS_getppid, none);	/* creates its task */
	me.lkl = self;
	leave();
	return 0;
}

/** stack_raw - make a call of the stack; the caller is inside */
long stack_raw(long nr, const long *a)
{
	long args[6] = { a[0], a[1], a[2], a[3], a[4], a[5] };

	if (unlikely(!me.top)) {
		int ret = thread_ready();

		if (ret)
			return ret;
	}
	return preload_on_stack(nr, args, lkl.syscall, me.top);
}

/** stack_now - make a call of the stack that does not wait */
long stack_now(long nr, const long *a)
{
	long ret;

	enter();
	ret = stack_raw(nr, a);
	leave();
	return ret;
}

/**
 * stack_wait - make a call of the stack that may wait
 * @restart: repeat it after a signal whose handler has SA_RESTART
 */
long stack_wait(long nr, const long *a, bool restart)
{
	long ret;
	int had;

	if (unlikely(!me.top)) {
		ret = thread_ready();
		if (ret)
			return ret;
	}
	for (;;) {
		enter();
		ret = stack_raw(nr, a);
		had = leave();
		if (likely(ret != -EINTR))
			return ret;
		if (unlikely(parked_by && parked_by != &me))
			park();
		/*
		 * Without a signal, the interruption was for an earlier wait.
		 */
		if (had && !(restart && (had & MAY_RESTART)))
			return ret;
	}
}

/** borrowed - whether another process runs in our memory (vfork, posix_spawn) */
bool borrowed(void)
{
	return RAW0(getpid) != owner_pid;
}

/** dispatch_init - fill the tables of intercepted calls */
void dispatch_init(void)
{
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		preload_class[table[i].nr] = table[i].class;
		handlers[table[i].nr] = table[i].fn;
	}
}

/** dispatch_on - from here on the program's sockets belong to the stack */
void dispatch_on(void)
{
	installed = true;
}

/** preload_dispatch - handle a patched call; returns what the kernel would */
long preload_dispatch(long nr, const long *a)
{
	if (unlikely(me.own || me.depth))
		return own_call(nr, a);
	if (unlikely(!installed))
		return native(nr, a);
	if (unlikely(!*alive))
		return child_call(nr, a);
	if (unlikely(!handlers[nr]))
		return native(nr, a);
	/*
	 * Except the library's own thread, which still receives from the peers.
	 */
	if (unlikely(parked_by && parked_by != &me && me.top))
		park();
	return handlers[nr](nr, a);
}
