// SPDX-License-Identifier: GPL-2.0-only
/*
 * Streams by all ways to read and write, in sizes of one byte to a megabyte, every byte
 * checked: for the library that puts large writes into shared memory (lane/).
 *
 * It prints the same lines on any sockets. LANE_MIX in the environment names those parts
 * that are to run; lane_*.c have them. Beside it lies lane_rest, which it executes.
 */
#include "lane_stream.h"

#define TIME	100		/* seconds for all */

char rest[4096];

/**
 * both_ways - streams in both directions of one connection at a time, of @pairs
 * @us: signals come so often, 0: none
 */
static void both_ways(const char *name, enum how how, int raw, uint64_t total, int pairs, int us)
{
	struct stream s[4 * 8];
	pthread_t t[4 * 8];
	int i, n = pairs * 4;
	bool bad = false;

	memset(s, 0, sizeof(s));
	for (i = 0; i < pairs; i++) {
		int sv[2], k;

		tcp_pair(i % 2 ? AF_INET6 : AF_INET, sv);
		for (k = 0; k < 4; k++) {
			int fd = sv[k & 1];

			if (how != BLOCK)
				fcntl(fd, F_SETFL, O_NONBLOCK);
			s[4 * i + k] = (struct stream){ .fd = fd, .how = how, .raw = raw,
				.reads = k / 2, .total = total,
				.seed = (uint32_t)(1 + 10 * i + (k == 0 || k == 3)) };
		}
	}
	every(us);
	for (i = 0; i < n; i++)
		pthread_create(&t[i], NULL, run_stream, &s[i]);
	for (i = 0; i < n; i++) {
		pthread_join(t[i], NULL);
		if (s[i].err || s[i].pos != total) {
			printf("%s: %s %u at %llu: %s\n", name, s[i].reads ? "reading" : "writing",
			       s[i].seed, (unsigned long long)s[i].pos,
			       s[i].err > 0 ? strerrorname_np(s[i].err) : "the end");
			bad = true;
		}
	}
	every(0);
	if (us)
		printf("signals: %d\n", alarms > 0);
	if (bad)
		_exit(fflush(stdout) ? 2 : 1);
	for (i = 0; i < n; i += 4) {
		close(s[i].fd);
		close(s[i + 1].fd);
	}
	printf("%s: %d streams of %llu bytes\n", name, pairs * 2, (unsigned long long)total);
	fflush(stdout);
}

/** turns - large requests and answers, and how long one takes */
static void turns(enum how how, size_t n)
{
	static char buf[2][MOST];
	struct timespec a, b;
	int sv[2], i;
	double us;

	tcp_pair(AF_INET, sv);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < 400; i++) {
		struct stream r = { .fd = sv[~i & 1], .how = how,
				    .seed = (uint32_t)i, .reads = true };
		ssize_t k, done;

		fill(buf[0], (uint32_t)i, 0, n);
		for (done = 0; done < (ssize_t)n; done += k) {
			k = write(sv[i & 1], buf[0] + done, n - (size_t)done);
			if (k <= 0)
				die("turn", &r, done);
		}
		for (done = 0; done < (ssize_t)n; done += k) {
			wait_fd(&r);
			k = read(r.fd, buf[1] + done, n - (size_t)done);
			if (k <= 0 || wrong(buf[1] + done, (uint32_t)i, (uint64_t)done, (size_t)k) >= 0)
				die("turn", &r, done);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	us = ((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3) / 400;
	fprintf(stderr, "# turns of %zu: %.0f us each\n", n, us);
	printf("turns: in time %d\n", us < 20000);
	fflush(stdout);
	close(sv[0]);
	close(sv[1]);
}

/** watch - nothing of this takes forever */
static void *watch(void *arg)
{
	unsigned int left = TIME;

	(void)arg;
	while (left)
		left = sleep(left);	/* signals end it */
	printf("not ended after %d s\n", TIME);
	fflush(stdout);
	_exit(3);
}

int main(void)
{
	const char *only = getenv("LANE_MIX");
	pthread_t t;

	if (readlink("/proc/self/exe", rest, sizeof(rest) - sizeof("lane_rest")) < 0)
		return 1;
	strcpy(strrchr(rest, '/') + 1, "lane_rest");
	rnd_seed(1);
	pthread_create(&t, NULL, watch, NULL);
#define DO(name, what) do { if (!only || !*only || strstr(only, name)) what; } while (0)
	DO("block", both_ways("blocking", BLOCK, 0, 24 * MB, 1, 0));
	DO("mixed", both_ways("mixed with raw calls", BLOCK, 40, 16 * MB, 1, 0));
	DO("poll", both_ways("poll", POLL, 0, 16 * MB, 1, 0));
	DO("select", both_ways("select", SELECT, 20, 12 * MB, 1, 0));
	DO("level", both_ways("epoll, levels", LEVEL, 0, 12 * MB, 1, 0));
	DO("edge", both_ways("epoll, edges", EDGE, 20, 12 * MB, 1, 0));
	DO("several", both_ways("several", BLOCK, 10, 4 * MB, 6, 0));
	DO("turns", in_turns());
	DO("moved", moved());
	DO("given", given_away(false));
	DO("given", given_away(true));
	DO("writers", two_writers());
	DO("handler", from_handler());
	DO("ends", ends());
	DO("burst", burst());
	DO("killed", killed(false));
	DO("killed", killed(true));
	DO("limits", limits());
	DO("signals", both_ways("interrupted", BLOCK, 10, 8 * MB, 1, 700));
	DO("large", turns(BLOCK, 65536));
	DO("large", turns(POLL, 65536));
	DO("large", turns(POLL, 20000));
	DO("large", turns(BLOCK, 400000));
	return 0;
}
