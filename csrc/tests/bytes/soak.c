// SPDX-License-Identifier: GPL-2.0-only
/*
 * All ways at once. Each thread has its own connections, sends by send(),
 * sendfile() and splice(), and holds received bytes for a while in all ways. It
 * also closes connections with unread bytes, so that other connections reuse
 * that memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

#include "bytes.h"

#define WORKERS		4
#define STUCK_S		60
#define TICK_NS		2000000
#define PIECE		(48 * KB)	/* fits into a pipe */

/**
 * struct worker - a thread
 * @steps: incremented while the thread makes progress
 */
struct worker {
	pthread_t thread;
	uint64_t seed;
	_Atomic uint64_t steps;
};

static struct worker workers[WORKERS];
static _Atomic uint64_t seeds, checked, held[WAYS], connections;
static _Atomic bool over;

/** from_file - send a piece by sendfile(); the file is never written again */
static bool from_file(int fd, const char *buf)
{
	int file = memfd_create("bytes", MFD_CLOEXEC);
	size_t left = PIECE;
	off_t at = 0;

	if (file < 0 || write(file, buf, PIECE) != PIECE)
		die("memfd", 0);
	while (left) {
		ssize_t n = sendfile(fd, file, &at, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		left -= (size_t)n;
	}
	close(file);
	return !left;
}

/** from_pipe - send a piece by splice() */
static bool from_pipe(int fd, const char *buf)
{
	size_t left = PIECE;
	int p[2];

	if (pipe(p) || write(p[1], buf, PIECE) != PIECE)
		die("pipe", 0);
	while (left) {
		ssize_t n = splice(p[0], NULL, fd, NULL, left, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		left -= (size_t)n;
	}
	close(p[0]);
	close(p[1]);
	return !left;
}

/** in_all_ways - thread that sends in all ways */
static void *in_all_ways(void *arg)
{
	char buf[PIECE];
	struct stream s = *(struct stream *)arg;
	bool more = true;

	free(arg);
	rnd_seed(s.seed);
	while (more) {
		fill(buf, s.seed, s.pos, sizeof(buf));
		s.pos += sizeof(buf);
		switch (below(8)) {
		case 0:
			more = from_file(s.fd, buf);
			break;
		case 1:
			more = from_pipe(s.fd, buf);
			break;
		default:
			more = put(s.fd, buf, sizeof(buf));
		}
	}
	close(s.fd);
	return NULL;
}

/** anew - replace a connection by a new one */
static void anew(struct stream *s)
{
	sigset_t sigs;

	if (s->fd >= 0)
		close(s->fd);
	/* After EINTR, connect() needs a poll(); this test is not about that. */
	sigemptyset(&sigs);
	sigaddset(&sigs, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &sigs, NULL);
	begin(s, ++seeds, in_all_ways);
	pthread_sigmask(SIG_UNBLOCK, &sigs, NULL);
	connections++;
}

/** turn - hold bytes of the first connection while others arrive on the second */
static void turn(struct stream s[2], struct hold *h)
{
	size_t between = 1 + below(MB);

	h->way = (enum way)below(WAYS);
	hold_take(h, &s[0], 1 + below(HELD));
	held[h->way] += h->len;
	take("in between", &s[1], between);
	checked += h->len + between;
	hold_check(h, &s[0]);
}

/** work - main function of a worker */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct stream s[2] = { { .fd = -1 }, { .fd = -1 } };
	struct hold h;

	rnd_seed(w->seed);
	hold_open(&h, WAY_READ);
	while (!over) {
		if (s[0].fd < 0 || !below(16))
			anew(&s[0]);
		if (s[1].fd < 0 || !below(16))
			anew(&s[1]);
		turn(s, &h);
		w->steps++;
	}
	hold_close(&h);
	close(s[0].fd);
	close(s[1].fd);
	return NULL;
}

/** nothing - signal handler that does nothing */
static void nothing(int sig)
{
	(void)sig;
}

/** now_s - CLOCK_MONOTONIC, seconds */
static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/** watch - interrupt the workers in turn until @end, and check that they make progress */
static void watch(double end)
{
	const struct timespec tick = { 0, TICK_NS };
	double since[WORKERS];
	uint64_t steps[WORKERS] = { 0 };
	int i;

	for (i = 0; i < WORKERS; i++)
		since[i] = now_s();
	while (now_s() < end) {
		nanosleep(&tick, NULL);
		pthread_kill(workers[below(WORKERS)].thread, SIGUSR1);
		for (i = 0; i < WORKERS; i++) {
			if (steps[i] != workers[i].steps) {
				steps[i] = workers[i].steps;
				since[i] = now_s();
			}
			errno = ETIMEDOUT;
			if (now_s() - since[i] > STUCK_S)
				die("a thread is stuck", (uint64_t)i);
		}
	}
}

/** report - print the counters */
static void report(double seconds)
{
	int i;

	printf("%.0f seconds: %llu connections, %.2f GB checked\n", seconds,
	       (unsigned long long)connections, (double)checked / 1e9);
	for (i = 1; i < WAYS; i++)
		printf("%10.2f GB held by %s\n", (double)held[i] / 1e9, way_names[i]);
}

/** soak - run the soak test for @seconds */
int soak(uint64_t seed, unsigned int seconds)
{
	struct sigaction sa = { .sa_handler = nothing };
	double began = now_s();
	int i;

	sigaction(SIGUSR1, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);	/* sendfile() has no MSG_NOSIGNAL */
	rnd_seed(seed);
	for (i = 0; i < WORKERS; i++) {
		workers[i].seed = seed * WORKERS + (uint64_t)i + 1;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("a thread", 0);
	}
	watch(began + seconds);
	over = true;
	alarm(STUCK_S);
	for (i = 0; i < WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	report(now_s() - began);
	return 0;
}
