// SPDX-License-Identifier: GPL-2.0-only
/*
 * Virtual time: an hour passes at once, and the same seed gives the same packets
 * at the same times.
 */
#include "tap.h"

#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/epoll.h>
#include <sys/personality.h>

#define TAG	(1ULL << 40)
#define BEGIN	1000000000ULL
#define REAL	1700000000000000000ULL
#define TOTAL	300000
#define HOUR	3600ULL

static unsigned long long now = BEGIN;

/* The results of a kernel, which its parent process compares with those of another kernel */
struct report {
	uint64_t hash, packets, end;
};

static void mix(struct report *r, const void *p, long n)
{
	const unsigned char *c = p;

	while (n-- > 0)
		r->hash = (r->hash ^ *c++) * 1099511628211ULL;
}

/* Runs the kernel until it waits, and then advances the clock. 0: to no timer */
static int turn(void)
{
	long long ns;

	do {
		while ((ns = lkl_loop_step()) == 0)
			;
		ns = lkl_loop_rest();
	} while (ns == 0);
	if (ns < -1)
		_exit(50);
	if (ns > 0)
		now += ns;
	return ns > 0;
}

static void boot_virtual(uint64_t seed)
{
	lkl_init(&quiet_ops);
	if (lkl_loop_init(epoll_create1(EPOLL_CLOEXEC), TAG) ||
	    lkl_set_virtual(&now, REAL, seed) ||
	    lkl_start_kernel("mem=64M loglevel=0"))
		_exit(51);
	lkl_if_up(1);
}

static long tap_lo(void)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_ifindex = 1,
				  .sll_protocol = htons(ETH_P_ALL) };
	long p = L3(socket, AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	int room = 8 << 20;

	L5(setsockopt, p, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	return L3(bind, p, &ll, sizeof(ll)) ? -1 : p;
}

/* A transfer over loopback whose reader pauses, so that timers take part */
static void transfer(uint64_t seed, int out)
{
	static char buf[65536];
	struct sockaddr_in sa = addr4("127.0.0.1", 5000);
	struct report r = { .hash = 14695981039346656037ULL };
	long p, l, c, a, n, sent = 0, got = 0;

	boot_virtual(seed);
	p = tap_lo();
	l = L3(socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	L3(bind, l, &sa, sizeof(sa));
	L2(listen, l, 1);
	c = L3(socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	L3(connect, c, &sa, sizeof(sa));
	while ((a = L4(accept4, l, 0, 0, SOCK_NONBLOCK)) == -EAGAIN && turn())
		;
	while (got < TOTAL) {
		n = TOTAL - sent < (long)sizeof(buf) ? TOTAL - sent : (long)sizeof(buf);
		n = n ? L3(write, c, buf, n) : 0;
		sent += n > 0 ? n : 0;
		n = L3(read, a, buf, 1000);
		got += n > 0 ? n : 0;
		if (n != 1000 && !turn() && sent == TOTAL && n <= 0)
			_exit(52);
		while ((n = L6(recvfrom, p, buf, sizeof(buf), 0, 0, 0)) > 0) {
			mix(&r, &now, sizeof(now));
			mix(&r, buf, n);
			memset(buf, 0, n);
			r.packets++;
		}
	}
	r.end = now;
	_exit(write(out, &r, sizeof(r)) != sizeof(r));
}

/* A kernel in a process of its own */
static struct report in_child(void (*fn)(uint64_t, int), uint64_t seed)
{
	struct report r = { 0 };
	int out[2], status;
	pid_t pid;

	if (pipe(out))
		return r;
	pid = fork();
	if (!pid) {
		alarm(slow(60));
		fn(seed, out[1]);
	}
	close(out[1]);
	if (read(out[0], &r, sizeof(r)) != sizeof(r))
		memset(&r, 0, sizeof(r));
	close(out[0]);
	waitpid(pid, &status, 0);
	if (status)
		printf("# status %x\n", status);
	return r;
}

/* Sleeps, by a call that waits and by a timer; and what the clocks say */
static void sleeps(uint64_t seed, int out)
{
	struct timespec mono, real, ts = { 1, 500000000 };
	struct report r = { 0 };
	uint64_t begin, host = now_ns();

	boot_virtual(seed);
	begin = now;
	r.packets = L2(nanosleep, &ts, 0) == 0 && now - begin >= 1500000000 &&
		    now - begin < 1510000000;
	while (now < begin + HOUR * 1000000000)
		if (!turn())
			now = begin + HOUR * 1000000000;
	turn();
	L2(clock_gettime, CLOCK_MONOTONIC, &mono);
	L2(clock_gettime, CLOCK_REALTIME, &real);
	r.hash = mono.tv_sec * 1000000000ULL + mono.tv_nsec == now &&
		 real.tv_sec * 1000000000ULL + real.tv_nsec == now + REAL;
	/* rdtsc of other code of this process is that of the host */
	r.end = now_ns() - host;
	_exit(write(out, &r, sizeof(r)) != sizeof(r));
}

int main(int argc, char **argv)
{
	struct report first, r;
	int i, same = 0;

	(void)argc;
	/* The kernel's hash tables depend on addresses. */
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
		personality(ADDR_NO_RANDOMIZE);
		execv("/proc/self/exe", argv);
	}
	start(120);
	ok(lkl_set_virtual(&now, REAL, 1) == -EBUSY, "only before a loop's kernel boots");
	r = in_child(sleeps, 1);
	ok(r.packets, "a call sleeps 1.5 s of virtual time");
	ok(r.hash, "the kernel's clocks are the virtual ones");
	ok(r.end > 0 && r.end < slow(5e9), "an hour took %.0f ms", r.end / 1e6);
	first = in_child(transfer, 7);
	for (i = 0; i < 19; i++) {
		r = in_child(transfer, 7);
		same += !memcmp(&r, &first, sizeof(r));
	}
	ok(first.packets && same == 19, "%d of 19 repetitions of %llu packets in %.6f s are equal",
	   same, (unsigned long long)first.packets, (first.end - BEGIN) / 1e9);
	r = in_child(transfer, 8);
	ok(r.packets && r.hash != first.hash, "another seed gives other packets");
	return finish();
}
