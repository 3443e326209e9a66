// SPDX-License-Identifier: GPL-2.0-only
/*
 * 1,000 boots and halts, each in a fresh process, some with work in progress.
 * HALTS=n sets another number.
 */
#include "tap.h"

static long connection(void)
{
	long s = llisten("127.0.0.1", 80, 0), c = lconnect("127.0.0.1", 80, 0);
	char buf[1000] = "";

	return s < 0 || c < 0 ? -1 : L3(write, c, buf, sizeof(buf));
}

static void *blocked(void *arg)
{
	char c;

	(void)arg;
	L3(read, L2(eventfd2, 0, 0), &c, 8);
	return NULL;
}

int main(void)
{
	const char *env = getenv("HALTS");
	int n = env ? atoi(env) : 1000 / slow(1), i, status, good = 0;
	double slowest = 0, sum = 0;
	uint64_t t;
	pid_t pid;

	start(280);
	for (i = 0; i < n; i++) {
		int fds[2];
		double ms = 0;

		if (pipe(fds))
			break;
		pid = fork();
		if (!pid) {
			pthread_t th;

			alarm(20);
			if (i % 4 == 1) {
				int ep = dup(fds[0]);	/* any descriptor does */

				lkl_init(&quiet_ops);
				lkl_loop_init(ep, 0);
			}
			t = now_ns();
			boot(i % 2 ? "mem=32M loglevel=0" : "mem=64M loglevel=0");
			ms = (now_ns() - t) / 1e6;
			if (i % 4 == 2 && connection() != 1000)
				_exit(1);
			if (i % 4 == 0)
				pthread_create(&th, NULL, blocked, NULL);
			if (write(fds[1], &ms, sizeof(ms)) < 0)
				_exit(1);
			_exit(lkl_sys_halt() ? 1 : 0);
		}
		waitpid(pid, &status, 0);
		if (!status && read(fds[0], &ms, sizeof(ms)) == sizeof(ms)) {
			good++;
			sum += ms;
			slowest = ms > slowest ? ms : slowest;
		} else {
			printf("# boot %d ended with status %x\n", i, status);
		}
		close(fds[0]);
		close(fds[1]);
	}
	ok(good == n, "%d of %d boots and halts", good, n);
	printf("# boot took %.1f ms on average, %.1f at most\n", sum / good, slowest);
	return finish();
}
