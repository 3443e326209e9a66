// SPDX-License-Identifier: GPL-2.0-only
/*
 * Host threads and their tasks.
 */
#include "internal.h"

#include <pthread.h>
#include <sys/mman.h>

__thread struct thread *self;
struct thread *all_threads;

static pthread_key_t key;
static int have_key;

/**
 * thread_new - a struct for a thread
 *
 * Own pages rather than malloc(): a signal handler may come here.
 */
struct thread *thread_new(void)
{
	struct thread *t;

	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t == MAP_FAILED)
		return NULL;
	t->next = __atomic_load_n(&all_threads, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&all_threads, &t->next, t, 1,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	return t;
}

/**
 * thread_get - the caller's struct, made at its first call
 */
struct thread *thread_get(void)
{
	struct thread *t = self;

	if (!t) {
		t = thread_new();
		if (!t)
			return NULL;
		self = t;
		if (have_key)
			pthread_setspecific(key, t);
	}
	return t;
}

static void end_task(struct thread *t)
{
	struct lkl_hthread *next;

	if (!t->k.task || !lkl_usable() || t->busy != IN_USER)
		return;
	if (cpu_enter(t))
		return;
	next = lklk_exit(&t->k);
	cpu_put(t, next);
	t->busy = IN_USER;
}

/* A thread ends: so do its tasks. Its pages stay on the list until halt. */
static void thread_gone(void *arg)
{
	struct thread *t = arg;

	for (; t; t = t->inner) {
		self = t;
		end_task(t);
	}
	self = NULL;
}

int threads_init(void)
{
	if (pthread_key_create(&key, thread_gone))
		return -1;
	have_key = 1;
	return 0;
}

/**
 * threads_free - after the kernel's death, when nobody is inside any more
 */
void threads_free(void)
{
	struct thread *t, *next;

	if (have_key)
		pthread_key_delete(key);
	have_key = 0;
	for (t = all_threads; t; t = next) {
		next = t->next;
		munmap(t, sizeof(*t));
	}
	all_threads = NULL;
	self = NULL;
}
