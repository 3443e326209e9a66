/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For tests whose kernel has a tap and is driven by a saturated loop: streams
 * and datagrams to the host, which checks every byte.
 */
#ifndef TESTS_ONLOOP_H
#define TESTS_ONLOOP_H

#include "ontap.h"

#include <poll.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define TAG		(1ULL << 40)
#define UDP_PORT	7474

/* Sizes of datagrams */
#define COPIED_MAX	200
#define LENT_MIN	400
#define WHOLE_MAX	1472
#define LARGE_MAX	20000

#define MS		1000000ULL

static int ep, dev_id;
static struct lkl_netdev *dev;

/* Results of the process that receives datagrams: their number, and errors */
static struct {
	volatile unsigned int ready, got, disordered, broken;
} *far;

static inline void turn(long long max_ns)
{
	struct epoll_event ev[8];
	struct timespec ts = { 0 };
	long long ns = lkl_loop_step();
	int i, n;

	if (ns < -1)
		_exit(50);
	ts.tv_nsec = ns == -1 || ns > max_ns ? max_ns : ns;
	ppoll(&(struct pollfd){ .fd = ep, .events = POLLIN }, 1, &ts, NULL);
	n = epoll_wait(ep, ev, 8, 0);
	for (i = 0; i < n; i++)
		lkl_loop_event(ev[i].data.u64, ev[i].events);
}

/* Runs the loop for so long */
static inline void turns(unsigned int ms)
{
	uint64_t end = now_ns() + ms * MS;

	while (now_ns() < end)
		turn(10 * MS);
}

static inline int attach_dev(int offload)
{
	int ifindex;

	dev = lkl_netdev_tap_create(DEV, offload);
	if (!dev)
		return -errno;
	dev_id = lkl_netdev_add(dev, NULL);
	ifindex = lkl_netdev_get_ifindex(dev_id);
	if (ifindex < 0)
		return ifindex;
	lkl_if_set_ipv4(ifindex, inet_addr(OURS), 24);
	return lkl_if_up(ifindex);
}

/* Runs @fn in a process with a loop that reports saturation */
static inline int with_loop(int offload, int (*fn)(void), int one_cpu)
{
	int status, ret;
	cpu_set_t set;
	pid_t pid = fork_tied();

	if (!pid) {
		alarm(slow(60));
		if (one_cpu) {
			CPU_ZERO(&set);
			CPU_SET(sched_getcpu(), &set);
			if (sched_setaffinity(0, sizeof(set), &set))
				_exit(51);
		}
		ep = epoll_create1(EPOLL_CLOEXEC);
		lkl_init(&quiet_ops);
		if (lkl_loop_init(ep, TAG) || lkl_start_kernel("mem=64M loglevel=0"))
			_exit(52);
		lkl_mount_fs("proc");
		ret = attach_dev(offload);
		if (ret) {
			printf("# attach: %s\n", lkl_strerror(ret));
			_exit(53);
		}
		lkl_loop_load(LKL_LOAD_FULL);
		_exit(fn());
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Bytes of a socket that are in flight or with the thread */
static inline int unsent(long s)
{
	int n = -1;

	return L3(ioctl, s, SIOCOUTQ, &n) ? -1 : n;
}

/* 1: all memory lent by a datagram socket has come back in time */
static inline int given_back(long s)
{
	uint64_t end = now_ns() + (uint64_t)slow(4e9);

	while (unsent(s) && now_ns() < end)
		turn(MS);
	if (unsent(s))
		printf("# %d bytes did not come back\n", unsent(s));
	return unsent(s) == 0;
}

static uint64_t longest_wait;

static inline void waited(uint64_t begin)
{
	uint64_t t = now_ns() - begin;

	longest_wait = t > longest_wait ? t : longest_wait;
}

/* Repeats a call until it no longer returns EAGAIN; -ETIMEDOUT */
static inline long again(long no, long s, const void *buf, long n)
{
	uint64_t begin = now_ns();
	long ret;

	while ((ret = lcall(no, s, (long)buf, n, 0, 0, 0)) == -EAGAIN) {
		if (now_ns() - begin > slow(15e9))
			return -ETIMEDOUT;
		turn(MS);
	}
	waited(begin);
	return ret;
}

static inline long stream_open(void)
{
	struct sockaddr_in to = addr4(HOST, PORT);
	long s = L3(socket, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), ret;
	uint64_t end = now_ns() + (uint64_t)slow(4e9);

	do {
		ret = L3(connect, s, &to, sizeof(to));
		turn(MS);
	} while (ret && ret != -EISCONN && now_ns() < end);
	return again(SYS_write, s, "s", 1) == 1 ? s : -1;
}

static inline int stream_send(long s, uint64_t *at, unsigned long len)
{
	static unsigned char buf[65536];
	uint64_t end = *at + len;
	long n;

	while (*at < end) {
		n = sizeof(buf) - *at % 1000;
		make(buf, n, *at);
		n = again(SYS_write, s, buf, n);
		if (n <= 0)
			return 1;
		*at += n;
		turn(0);
	}
	return 0;
}

/* 0: the host has received all bytes, and each was correct */
static inline int stream_close(long s, uint64_t at)
{
	uint64_t got = 0;

	L2(shutdown, s, SHUT_WR);
	if (again(SYS_read, s, &got, sizeof(got)) != sizeof(got))
		return 1;
	L1(close, s);
	if (got != at)
		printf("# %llu bytes of %llu are right\n", (unsigned long long)got,
		       (unsigned long long)at);
	return got != at;
}

/*
 * Datagrams whose frames are copied, whose frames are lent, and both, with
 * fragments
 */
enum kind { COPIED, LENT, ALL };

/* The size depends on the number. */
static inline int size_of(unsigned int seq, enum kind kind)
{
	unsigned int r = seq * 40503u;

	if (kind == COPIED)
		return 4 + r % (COPIED_MAX - 4);
	if (kind == LENT)
		return LENT_MIN + r % (WHOLE_MAX - LENT_MIN + 1);
	return 4 + r % ((seq % 16 == 15 ? LARGE_MAX : WHOLE_MAX) - 4);
}

static inline void receive_datagrams(int u, enum kind kind)
{
	static unsigned char buf[LARGE_MAX + 1];
	unsigned int seq, next = 0;
	int i, n;

	/* Including the tap: a process that has it open keeps it. */
	for (i = 3; i < 64; i++)
		if (i != u)
			close(i);
	far->ready = 1;
	while ((n = recv(u, buf, sizeof(buf), 0)) >= 4) {
		memcpy(&seq, buf, 4);
		if (seq < next)
			far->disordered++;
		next = seq + 1;
		if (n != size_of(seq, kind))
			far->broken++;
		for (i = 4; i < n; i++)
			if (buf[i] != (unsigned char)(seq + i)) {
				far->broken++;
				break;
			}
		__atomic_fetch_add(&far->got, 1, __ATOMIC_SEQ_CST);
	}
	_exit(0);
}

/* A socket of the stack; a process of the host checks its datagrams */
static inline long datagrams_open(pid_t *pid, enum kind kind, int flags)
{
	struct sockaddr_in sa = addr4(HOST, UDP_PORT);
	int u = socket(AF_INET, SOCK_DGRAM, 0), room = 16 << 20;
	long s = L3(socket, AF_INET, SOCK_DGRAM | flags, 0);
	uint64_t begin = now_ns();

	setsockopt(u, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	if (bind(u, (struct sockaddr *)&sa, sizeof(sa)) || !echo(1))
		return -1;
	memset(far, 0, sizeof(*far));
	*pid = fork_tied();
	if (!*pid)
		receive_datagrams(u, kind);
	close(u);
	/* from then on it ends with this process */
	while (!far->ready)
		if (now_ns() - begin > slow(4e9))
			return -1;
	return L3(connect, s, &sa, sizeof(sa)) ? -1 : s;
}

static inline int datagram_send(long s, unsigned int seq, enum kind kind)
{
	static unsigned char buf[LARGE_MAX];
	long i, ret, n = size_of(seq, kind);

	memcpy(buf, &seq, 4);
	for (i = 4; i < n; i++)
		buf[i] = seq + i;
	ret = again(SYS_write, s, buf, n);
	if (ret != n)
		printf("# a datagram of %ld bytes: %ld\n", n, ret);
	return ret == n;
}

/* Waits until at most @most of @sent are missing */
static inline int arrived(unsigned int sent, unsigned int most)
{
	uint64_t begin = now_ns();

	while (sent - __atomic_load_n(&far->got, __ATOMIC_SEQ_CST) > most) {
		if (now_ns() - begin > slow(4e9)) {
			printf("# %u of %u arrived\n", far->got, sent);
			return 0;
		}
		turn(MS);
	}
	waited(begin);
	return 1;
}

static inline int far_verdict(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	printf("# %u arrived, %u out of order, %u broken\n", far->got,
	       far->disordered, far->broken);
	return far->disordered || far->broken || !far->got;
}

#endif
