// SPDX-License-Identifier: GPL-2.0-only
/* Time: clocks, sleeps, the timer wheel, and the cost of an idle stack. */
#include "tap.h"

#include <poll.h>
#include <pthread.h>
#include <sys/timerfd.h>

static double clock_diff_ms(clockid_t id)
{
	struct timespec a, b;

	L2(clock_gettime, id, &a);
	clock_gettime(id, &b);
	return (b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6;
}

static int near(double got, double want, double late)
{
	return got >= want - 1.1 && got <= want + slow(late);
}

static double ms_since(uint64_t t)
{
	return (now_ns() - t) / 1e6;
}

/*
 * Waits in the kernel, and therefore for its events, without an early timer of
 * its own.
 */
static void *long_sleeper(void *arg)
{
	struct timespec ts = { 4, 0 };
	struct pollfd pfd = { .fd = -1 };

	L5(ppoll, &pfd, 1, &ts, 0, 8);
	__atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/*
 * Another thread's timers, each sooner than the last, expire on time meanwhile.
 */
static void sooner_timers(unsigned int spin)
{
	struct timespec ts = { 0 };
	int i, over = 0;
	pthread_t th;
	uint64_t t;
	double d = 0;

	lkl_set_spin(spin);
	pthread_create(&th, NULL, long_sleeper, &over);
	for (i = 40; i > 0; i -= 4) {
		ts.tv_nsec = i * 1000000;
		t = now_ns();
		L2(nanosleep, &ts, 0);
		if (ms_since(t) - i > d)
			d = ms_since(t) - i;
	}
	ok(!over && d < slow(500), "spin %u: sleeps of 40 to 4 ms beside a thread that waits are %.2f ms late at most",
	   spin, d);
	pthread_join(th, NULL);
	ok(over, "and that thread's own wait ends");
}

int main(void)
{
	struct timespec ts = { 0, 5000000 };
	struct itimerspec it = { .it_value = { 0, 30000000 } };
	struct timeval tv = { 0, 50000 };
	struct sockaddr_in sa = addr4("127.0.0.1", 9);
	struct pollfd pfd;
	uint64_t t, ticks;
	double d, c;
	char buf[16];
	long s, ret;
	int i;

	start(60);
	boot("mem=64M loglevel=0");

	d = clock_diff_ms(CLOCK_REALTIME);
	ok(d > -1 && d < 5, "wall clock differs by %.3f ms", d);
	d = clock_diff_ms(CLOCK_MONOTONIC);
	ok(d > -1 && d < 5, "monotonic clock differs by %.3f ms", d);

	t = now_ns();
	ret = L2(nanosleep, &ts, 0);
	d = ms_since(t);
	ok(ret == 0 && near(d, 5, 30), "nanosleep of 5 ms takes %.2f", d);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += 20000000;
	if (ts.tv_nsec >= 1000000000) {
		ts.tv_nsec -= 1000000000;
		ts.tv_sec++;
	}
	t = now_ns();
	ret = L4(clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0);
	ok(ret == 0 && near(ms_since(t), 20, 40),
	   "sleep until a time of the host's clock, 20 ms ahead, takes %.2f",
	   ms_since(t));

	s = L3(socket, AF_INET, SOCK_DGRAM, 0);
	L3(bind, s, &sa, sizeof(sa));
	ret = L5(setsockopt, s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	t = now_ns();
	ret = ret ? ret : L3(read, s, buf, sizeof(buf));
	/*
	 * The time counts from the last tick, which is late on an emulated CPU.
	 */
	ok(ret == -EAGAIN && near(ms_since(t) + slow(1) - 1, 50, 60),
	   "SO_RCVTIMEO of 50 ms (timer wheel) ends the read after %.2f", ms_since(t));
	pfd.fd = s;
	pfd.events = POLLIN;
	t = now_ns();
	ts = (struct timespec){ 0, 40000000 };
	ret = L5(ppoll, &pfd, 1, &ts, 0, 8);
	ok(ret == 0 && near(ms_since(t), 40, 60), "poll of 40 ms takes %.2f",
	   ms_since(t));

	ret = L2(timerfd_create, CLOCK_MONOTONIC, 0);
	L4(timerfd_settime, ret, 0, &it, 0);
	t = now_ns();
	ret = L3(read, ret, &ticks, 8);
	d = ms_since(t);
	ok(ret == 8 && ticks == 1 && near(d, 30, 50),
	   "timerfd of 30 ms fires after %.2f", d);

	/* jiffies advance without any call */
	for (i = 0, d = 0; i < 20; i++) {
		ts.tv_sec = 0;
		ts.tv_nsec = 1000000;
		t = now_ns();
		L2(nanosleep, &ts, 0);
		d += ms_since(t) - 1;
	}
	ok(d / 20 < slow(5), "a sleep of 1 ms is %.3f ms late on average", d / 20);

	sooner_timers(0);
	sooner_timers(50);

	c = cpu_s();
	pfd.fd = -1;
	ppoll(&pfd, 1, &(struct timespec){ 3, 0 }, NULL);
	c = cpu_s() - c;
	ok(c < slow(0.06), "3 idle seconds cost %.1f ms of CPU", c * 1e3);

	/* and the time is still right */
	d = clock_diff_ms(CLOCK_MONOTONIC);
	ok(d > -1 && d < 5, "monotonic clock differs by %.3f ms after that", d);
	lkl_sys_halt();
	return finish();
}
