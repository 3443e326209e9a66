// SPDX-License-Identifier: GPL-2.0-only
/* Starts the helper threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/thread.h"

/** struct thread_args - the arguments of thread_start(), for the new thread */
struct thread_args {
	const char *name;
	void *(*work)(void *arg);
	void *arg;
};

/** begin - name the thread, then do its work */
static void *begin(void *arg)
{
	struct thread_args a = *(struct thread_args *)arg;

	free(arg);
	prctl(PR_SET_NAME, a.name);
	return a.work(a.arg);
}

/**
 * thread_start - start a helper thread with all signals blocked, so that the loop gets them
 * @thread: for pthread_join(); NULL: the thread is detached
 * @name: at most 15 characters
 *
 * Returns 0 or a negative errno.
 */
int thread_start(pthread_t *thread, const char *name, void *(*work)(void *arg), void *arg)
{
	struct thread_args *a = malloc(sizeof(*a));
	sigset_t all, old;
	pthread_t t;
	int ret;

	if (!a)
		return -ENOMEM;
	*a = (struct thread_args){ name, work, arg };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&t, NULL, begin, a);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		free(a);
	else if (thread)
		*thread = t;
	else
		pthread_detach(t);
	return -ret;
}
