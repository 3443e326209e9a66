// SPDX-License-Identifier: GPL-2.0-only
/* The program's threads in the kernel library: their stacks, tasks and calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"

#define CALL_STACK	(192UL << 10)
#define GUARD		4096UL
#define PARK_MS		200

static pthread_key_t key;
static struct inside *threads;		/* those with a stack for calls */
struct inside *volatile parked_by;
static int locked;

/** lock - lock the tables; the caller is inside until unlock() */
void lock(void)
{
	enter();
	while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
		RAW0(sched_yield);
}

void unlock(void)
{
	__atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
	leave();
}

/** park - block this thread until the process ends */
void park(void)
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
	if (me.own_poller)
		me.give_back(me.own_poller);
	me.own_poller = NULL;
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
