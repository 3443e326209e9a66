// SPDX-License-Identifier: GPL-2.0-only
/* Starts the helper threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/thread.h"

/** struct birth - what a new thread needs; see thread_start() */
struct birth {
	const char *name;
	void *(*work)(void *arg);
	void *arg;
};

/** begin - name the thread, then do its work */
static void *begin(void *arg)
{
	struct birth b = *(struct birth *)arg;

	free(arg);
	prctl(PR_SET_NAME, b.name);
	return b.work(b.arg);
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
	struct birth *b = malloc(sizeof(*b));
	sigset_t all, old;
	pthread_t t;
	int ret;

	if (!b)
		return -ENOMEM;
	*b = (struct birth){ name, work, arg };
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&t, NULL, begin, b);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		free(b);
	else if (thread)
		*thread = t;
	else
		pthread_detach(t);
	return -ret;
}
