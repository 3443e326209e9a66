// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loop mode: one thread drives the kernel; two such kernels are joined by a
 * socket.
 */
#include "tap.h"

#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#define TAG	(1ULL << 40)

static int ep, flag;
static long turns;

/* One turn of a program's loop: the step, then a sleep of at most @max_ns. */
static int turn(long long max_ns)
{
	struct epoll_event ev[8];
	struct timespec ts;
	long long ns = lkl_loop_step();
	int i, n;

	if (ns < -1)
		return ns;
	if (ns == -1 || ns > max_ns)
		ns = max_ns;
	if (flag)
		ns = 0;
	ts.tv_sec = ns / 1000000000;
	ts.tv_nsec = ns % 1000000000;
	ppoll(&(struct pollfd){ .fd = ep, .events = POLLIN }, 1, &ts, NULL);
	n = epoll_wait(ep, ev, 8, 0);
	for (i = 0; i < n; i++)
		lkl_loop_event(ev[i].data.u64, ev[i].events);
	turns++;
	return 0;
}

static void loop_boot(int fd, int flags, const char *ip)
{
	int id, ifindex;

	lkl_init(&quiet_ops);
	ep = epoll_create1(EPOLL_CLOEXEC);
	if (lkl_loop_init(ep, TAG) || lkl_start_kernel("mem=64M loglevel=0")) {
		printf("Bail out! boot\n");
		exit(2);
	}
	if (fd < 0)
		return;
	id = lkl_netdev_add(lkl_netdev_fd_create(fd, flags), NULL);
	ifindex = lkl_netdev_get_ifindex(id);
	lkl_if_set_ipv4(ifindex, inet_addr(ip), 24);
	lkl_if_up(ifindex);
}

static int threads(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

/*
 * Whether lkl_loop_rest() stops the tick that a call has started. Another timer
 * may be due as early as the tick, so it tries several times.
 */
static int rests(void)
{
	long long tick, ns;
	int i;

	for (i = 0; i < 10; i++) {
		L0(getpid);
		tick = lkl_loop_step();
		ns = lkl_loop_rest();
		if (tick >= 0 && tick <= 1000000 && (ns == -1 || ns > 5000000))
			return 1;
		turn(20000000);
	}
	return 0;
}

/* Bytes with a pattern that shows their position */
static void pattern(unsigned char *p, long n, unsigned long at)
{
	long i;

	for (i = 0; i < n; i++)
		p[i] = (at + i) * 2654435761u >> 13;
}

#define TOTAL	(200L << 20)

static unsigned char buf[65536], want[65536];

/*
 * Checks received data in place and consumes most of it; returns the number of
 * correct bytes. The remaining data must come next.
 */
static long refs(long s, unsigned long at)
{
	struct iovec iov[7];
	long i, n = lkl_loop_refs(s, iov, 7, sizeof(want)), len = 0;

	for (i = 0; i < n; i++) {
		pattern(want, iov[i].iov_len, at + len);
		if (memcmp(iov[i].iov_base, want, iov[i].iov_len))
			return -3;
		len += iov[i].iov_len;
	}
	if (n > 0 && (!len || len > (long)sizeof(want)))
		return -4;
	if (n <= 0)	/* the end, an error, or nothing yet */
		return n ? n : L6(recvfrom, s, buf, 1, MSG_PEEK, 0, 0);
	if (len > 1000)
		len -= at % 1000;
	return L6(recvfrom, s, 0, len, MSG_TRUNC, 0, 0) == len ? len : -5;
}

/* How the receiver gets the data */
enum how { SEND, READ, REFS };

/*
 * Moves TOTAL bytes over a non-blocking socket; returns the number of correct
 * bytes
 */
static long transfer(long s, enum how how, unsigned long blocked)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
	long iep = L1(epoll_create1, 0), n, at = 0;
	uint64_t end = now_ns() + (uint64_t)slow(40e9);

	L4(epoll_ctl, iep, EPOLL_CTL_ADD, s, &ev);
	lkl_loop_watch(iep, &flag);
	while (at < TOTAL && now_ns() < end) {
		n = sizeof(buf) < (unsigned long)(TOTAL - at) ? (long)sizeof(buf) : TOTAL - at;
		if (how == SEND) {
			pattern(buf, n, at);
			n = L3(write, s, buf, n);
		} else if (how == REFS) {
			n = refs(s, at);
			if (n == 0 || (n < 0 && n != -EAGAIN))
				break;
		} else {
			n = L3(read, s, buf, n);
			if (n == 0)
				break;
			if (n > 0) {
				pattern(want, n, at);
				if (memcmp(buf, want, n))
					return -1;
			}
		}
		if (n > 0) {
			at += n;
			turn(0);
			continue;
		}
		if (n != -EAGAIN && n != -ENOTCONN)
			return n;
		while (!flag && now_ns() < end)
			turn(100000000);
		flag = 0;
		L5(epoll_pwait, iep, &ev, 1, 0, 0);
	}
	if (lkl_loop_blocked() != blocked)
		return -2;
	return at;
}

/* Two processes with a kernel each; the child listens and sends. */
static void pair(int flags, enum how how, int proto, const char *what)
{
	int sv[2], status;
	struct sockaddr_in sa = addr4("10.70.0.1", 9000);
	uint64_t t;
	double gbit;
	long s, a;
	pid_t pid, pid2;

	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	status = 1 << 20;
	setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &status, 4);
	setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &status, 4);
	pid = fork();
	if (!pid) {
		alarm(slow(50));
		close(sv[0]);
		loop_boot(sv[1], flags, "10.70.0.1");
		s = llisten("10.70.0.1", 9000, proto);
		L3(fcntl, s, F_SETFL, O_NONBLOCK);
		for (t = now_ns(); (a = L4(accept4, s, 0, 0, SOCK_NONBLOCK)) < 0 &&
		     now_ns() - t < 10e9;)
			turn(10000000);
		s = transfer(a, SEND, 0);
		for (t = now_ns(); now_ns() - t < 2e9 && L6(recvfrom, a, &status, 1, 0, 0, 0) == -EAGAIN;)
			turn(10000000);
		_exit(s == TOTAL ? 0 : 1);
	}
	close(sv[1]);
	pid2 = fork();
	if (!pid2) {
		alarm(slow(50));
		loop_boot(sv[0], flags, "10.70.0.2");
		s = L3(socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, proto);
		for (t = now_ns(); now_ns() - t < 10e9;) {
			a = L3(connect, s, &sa, sizeof(sa));
			if (a == 0 || a == -EISCONN)
				break;
			if (a == -ECONNREFUSED) {
				L1(close, s);
				s = L3(socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, proto);
			}
			turn(10000000);
		}
		t = now_ns();
		a = transfer(s, how, 0);
		gbit = TOTAL * 8.0 / (now_ns() - t);
		printf("# %s: %.2f Gbit/s, result %ld\n", what, gbit, a);
		fflush(stdout);
		L1(close, s);
		turn(0);
		_exit(a == TOTAL && lkl_sys_halt() == 0 ? 0 : 1);
	}
	close(sv[0]);
	waitpid(pid2, &status, 0);
	ok(status == 0, "%s: 200 MB from kernel to kernel, all bytes right", what);
	waitpid(pid, &status, 0);
	ok(status == 0, "%s: the sender is content, and never blocked", what);
}

int main(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct timespec ts = { 0, 20000000 };
	struct timeval tv = { 0, 30000 };
	uint64_t t, v = 1;
	double c;
	long ret, efd, iep;
	int before = threads();
	int status, sv[2];
	pid_t pid;

	start(150);
	pair(0, READ, 0, "plain frames");
	pair(LKL_NETDEV_VNET_HDR, READ, 0, "vnet header");
	pair(LKL_NETDEV_VNET_HDR | LKL_NETDEV_OFFLOAD, READ, 0, "offload");
	pair(LKL_NETDEV_VNET10 | LKL_NETDEV_OFFLOAD, READ, 0,
	     "offload, short header");
	pair(0, REFS, 0, "plain frames, seen where they lie");
	pair(LKL_NETDEV_VNET_HDR | LKL_NETDEV_OFFLOAD, REFS, 0,
	     "offload, seen where it lies");
	pair(LKL_NETDEV_VNET_HDR | LKL_NETDEV_OFFLOAD, REFS, IPPROTO_MPTCP,
	     "MPTCP, seen where it lies");

	socketpair(AF_UNIX, SOCK_DGRAM, 0, sv);
	loop_boot(sv[0], 0, "10.70.0.9");
	ok(threads() == before, "no thread is made");
	ok(L0(getpid) == 1, "a call");

	for (t = now_ns(); now_ns() - t < 500000000;)
		turn(100000000);
	turns = 0;
	c = cpu_s();
	for (t = now_ns(); now_ns() - t < 2000000000;)
		turn(2000000000 - (now_ns() - t));
	c = cpu_s() - c;
	ok(turns < 100 && c < slow(0.02), "idle: %.0f wake-ups and %.2f ms of CPU a second",
	   turns / 2.0, c * 500);

	ok(rests(), "a rest stops the tick");
	ok(L0(getpid) == 1, "a call after a rest");

	efd = L2(eventfd2, 0, O_NONBLOCK);
	iep = L1(epoll_create1, 0);
	flag = 0;
	ok(lkl_loop_watch(iep, &flag) == 0 && !flag, "watch an epoll");
	L4(epoll_ctl, iep, EPOLL_CTL_ADD, efd, &ev);
	L3(write, efd, &v, 8);
	ok(flag == 1, "the flag is set when it becomes ready");
	ok(lkl_loop_watch(12345, &flag) == -EBADF, "watch of nothing refused");

	ok(lkl_loop_blocked() == 0, "nothing has blocked");
	t = now_ns();
	ret = L2(nanosleep, &ts, 0);
	c = (now_ns() - t) / 1e6;
	ok(ret == 0 && c > 19 && c < slow(60) && lkl_loop_blocked() == 1,
	   "a call that has to wait works (20 ms: %.1f) and is counted", c);
	ret = L3(socket, AF_INET, SOCK_DGRAM, 0);
	L5(setsockopt, ret, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	t = now_ns();
	ret = L6(recvfrom, ret, &v, 8, 0, 0, 0);
	c = (now_ns() - t) / 1e6;
	/*
	 * In ticks: an emulator's may be late, and the time counts from the
	 * last one.
	 */
	ok(ret == -EAGAIN && c > 30 - slow(1) && c < slow(80), "SO_RCVTIMEO of 30 ms: %.1f", c);
	lkl_loop_set_limit(100);
	ts.tv_sec = 100;
	t = now_ns();
	ret = L2(nanosleep, &ts, 0);
	c = (now_ns() - t) / 1e6;
	ok(ret == -EINTR && c > 99 && c < slow(200), "the limit of 100 ms ends a wait after %.1f", c);
	ok(lkl_loop_step() >= -1 && L0(getpid) == 1, "and all goes on");

	/* the peer goes away */
	close(sv[1]);
	flag = 0;
	for (t = now_ns(), turns = 0; now_ns() - t < 500000000;)
		turn(100000000);
	ok(turns < 100, "a dead peer does not spin (%ld turns in 500 ms)", turns);

	pid = fork();
	if (!pid)
		_exit(lkl_loop_step() == -EIO ? 0 : 1);
	waitpid(pid, &status, 0);
	ok(status == 0, "a child after fork gets EIO from the step");
	ok(lkl_sys_halt() == 0 && lkl_loop_step() == -EIO, "halt");
	return finish();
}
