// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many threads: simultaneous first calls, exits, calls that wait for each
 * other.
 */
#include "tap.h"

#include <sys/eventfd.h>

#define THREADS	128

static pthread_barrier_t barrier;
static int good;

static void *first_call(void *arg)
{
	(void)arg;
	pthread_barrier_wait(&barrier);
	if (L0(getpid) == 1)
		__atomic_fetch_add(&good, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static int run_threads(int n, void *(*fn)(void *), long arg)
{
	pthread_t th[THREADS];
	pthread_attr_t attr;
	int i, made = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	pthread_barrier_init(&barrier, NULL, n);
	for (i = 0; i < n; i++)
		made += !pthread_create(&th[i], &attr, fn, (void *)arg);
	for (i = 0; i < made; i++)
		pthread_join(th[i], NULL);
	pthread_barrier_destroy(&barrier);
	return made == n;
}

static void *many_calls(void *arg)
{
	long efd = (long)arg;
	uint64_t v = 1;
	int i;

	pthread_barrier_wait(&barrier);
	for (i = 0; i < 2000; i++)
		if (L3(write, efd, &v, 8) != 8)
			return NULL;
	__atomic_fetch_add(&good, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Two threads pass a byte back and forth through the stack. */
static long pipes[4];

static void *ponger(void *arg)
{
	char c;

	(void)arg;
	while (L3(read, pipes[0], &c, 1) == 1 && L3(write, pipes[3], &c, 1) == 1)
		;
	return NULL;
}

static long threads_in_stack(void)
{
	char buf[4096], *p;

	if (lread_file("/proc/1/status", buf, sizeof(buf)) < 0)
		return -1;
	p = strstr(buf, "Threads:");
	return p ? atol(p + 8) : -1;
}

int main(void)
{
	int fds[2], round, all = 0;
	uint64_t v = 0, t;
	pthread_t th;
	long efd, n;
	char c = 1;

	start(120);
	boot("mem=64M loglevel=0");
	lkl_mount_fs("proc");

	for (round = 0; round < 40; round++) {
		good = 0;
		if (run_threads(THREADS, first_call, 0) && good == THREADS)
			all++;
	}
	ok(all == 40, "%d threads make their first call at once, %d of 40 rounds",
	   THREADS, all);
	for (t = now_ns(); (n = threads_in_stack()) > 2 && now_ns() - t < 2e9;)
		;
	ok(n <= 2, "their tasks are gone (%ld threads left)", n);

	efd = L2(eventfd2, 0, EFD_NONBLOCK);
	good = 0;
	n = run_threads(32, many_calls, efd);
	L3(read, efd, &v, 8);
	ok(n && good == 32 && v == 64000,
	   "32 threads with 2000 calls each: %lu of 64000 counted", (unsigned long)v);

	L2(pipe2, fds, 0);
	pipes[0] = fds[0];
	pipes[1] = fds[1];
	L2(pipe2, fds, 0);
	pipes[2] = fds[0];
	pipes[3] = fds[1];
	pthread_create(&th, NULL, ponger, NULL);
	t = now_ns();
	for (n = 0; n < 20000; n++)
		if (L3(write, pipes[1], &c, 1) != 1 || L3(read, pipes[2], &c, 1) != 1)
			break;
	ok(n == 20000, "20000 hand-overs between two threads, %.1f us each",
	   (now_ns() - t) / 1e3 / n);
	L1(close, pipes[1]);
	pthread_join(th, NULL);

	ok(L1(exit, 0) == 0 && L0(getpid) == 1, "exit ends the task, the next call has a new one");
	lkl_sys_halt();
	return finish();
}
