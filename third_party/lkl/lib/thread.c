// SPDX-License-Identifier: GPL-2.0-only
/*
 * Host threads and their tasks.
 */
#include "internal.h"
#include "host_call.h"

#include <pthread.h>
#include <sys/mman.h>

__thread struct thread *self;
struct thread *all_threads;

static pthread_key_t key;
static int have_key;

/**
 * thread_new - allocate a struct for a thread
 *
 * In pages of its own, not with malloc(): a signal handler may make the first
 * call.
 */
struct thread *thread_new(void)
{
	struct thread *t;
	int yes;

	/* reuse one that a thread has left behind */
	for (t = __atomic_load_n(&all_threads, __ATOMIC_ACQUIRE); t; t = t->next) {
		yes = 1;
		if (__atomic_compare_exchange_n(&t->unused, &yes, 0, 0,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return t;
	}
	t = host_pages(sizeof(*t));
	if (!t)
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

/*
 * Ends the task of a thread that ends. Its page is reused for the next thread.
 */
static void thread_gone(void *arg)
{
	struct thread *t = arg;

	self = t;
	if (t->k.task && lkl_usable() && t->busy == IN_USER && !cpu_enter(t)) {
		t->in_call = 0;
		cpu_put(t, lklk_exit(&t->k));
		to_user(t);
	}
	self = NULL;
	if (!t->k.task && t->busy == IN_USER)
		__atomic_store_n(&t->unused, 1, __ATOMIC_SEQ_CST);
}

int threads_init(void)
{
	if (pthread_key_create(&key, thread_gone))
		return -1;
	have_key = 1;
	return 0;
}

/**
 * threads_free - free all structs after the kernel's death, when no thread is
 * inside
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
