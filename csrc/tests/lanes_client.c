// SPDX-License-Identifier: GPL-2.0-only
/* The client of lanes.h. One thread a direction. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lanes.h"

#define LOAD(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

__thread uint64_t rnd_state = 88172645463325252ull;	/* the same row in each thread */

/** fill - the bytes of the stream from position @at on */
void fill(uint64_t at, char *buf, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++, at++)
		buf[i] = (char)(at * 0x9e3779b97f4a7c15ull >> 56);
}

/** check - whether @buf has what the stream has there */
bool check(uint64_t at, const char *buf, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++, at++)
		if (buf[i] != (char)(at * 0x9e3779b97f4a7c15ull >> 56)) {
			printf("# byte %llu is not what it should be\n",
			       (unsigned long long)at);
			return false;
		}
	return true;
}

/** pair - a connection over the loopback */
void pair(struct end *a, struct end *b)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	memset(a, 0, sizeof(*a));
	memset(b, 0, sizeof(*b));
	a->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&sin, len) || listen(l, 1) ||
	    getsockname(l, (struct sockaddr *)&sin, &len) ||
	    connect(a->fd, (struct sockaddr *)&sin, len))
		ok(false, "a connection: %m");
	b->fd = accept(l, NULL, NULL);
	close(l);
}

/** shut - and its end */
void shut(struct end *a, struct end *b)
{
	lane_close(a);
	lane_close(b);
	close(a->fd);
	close(b->fd);
}

/** attach - the descriptor of the memory, or a negative errno */
int attach(int fd)
{
	long ret = syscall(SYS_ioctl, fd, LANE_CALL(LANE_ATTACH), 0);

	return ret < 0 ? -errno : (int)ret;
}

/** lane_open - attach and map */
bool lane_open(struct end *e)
{
	int fd = attach(e->fd);
	void *p;

	if (fd < 0)
		return ok(false, "attach: %s", strerror(-fd));
	p = mmap(NULL, LANE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	e->l = p == MAP_FAILED ? NULL : p;
	return e->l;
}

/** lane_close - let go of it */
void lane_close(struct end *e)
{
	if (e->l)
		munmap(e->l, LANE_SIZE);
	e->l = NULL;
}

/** outq - what is written and not read by lklhost */
int outq(int fd)
{
	int n = 0;

	return syscall(SYS_ioctl, fd, LANE_CALL(SIOCOUTQ), &n) ? -errno : n;
}

/** ring_lock - whether we are the writer now */
bool ring_lock(struct lane *l)
{
	uint32_t zero = 0;

	return __atomic_compare_exchange_n(&l->tx_lock, &zero,
					   (uint32_t)syscall(SYS_gettid), false,
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/** ring_publish - put bytes in; there is room */
void ring_publish(struct lane *l, const char *buf, size_t n)
{
	uint32_t at = l->tx_head % LANE_TX_SIZE, first = LANE_TX_SIZE - at;
	char *ring = (char *)l + LANE_TX_AT;

	if (first > n)
		first = (uint32_t)n;
	memcpy(ring + at, buf, first);
	memcpy(ring, buf + first, n - first);
	STORE(l->tx_head, l->tx_head + (uint32_t)n);
}

/** ring_put - write by the lane; bytes that went in, 0: not now */
size_t ring_put(struct end *e, const char *buf, size_t n)
{
	struct lane *l = e->l;
	uint32_t room, one = 1;
	size_t done = 0;

	if (LOAD(l->tx_off) || !ring_lock(l))
		return 0;
	room = LANE_TX_SIZE - (l->tx_head - LOAD(l->tx_tail));
	if (outq(e->fd) || LOAD(l->tx_bell) != LANE_NO_BELL || room < 2)
		goto out;
	done = n < room ? n : room;
	ring_publish(l, buf, done - 1);
	FENCE();
	if (__atomic_compare_exchange_n(&l->tx_idle, &one, 0, false,
					__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		STORE(l->tx_bell, (uint64_t)l->tx_head);
		if (send(e->fd, buf + done - 1, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) {
			STORE(l->tx_bell, LANE_NO_BELL);
			done--;
			syscall(SYS_ioctl, e->fd, LANE_CALL(LANE_KICK), 0);
		}
	} else {
		ring_publish(l, buf + done - 1, 1);
		FENCE();
		one = 1;
		if (__atomic_compare_exchange_n(&l->tx_idle, &one, 0, false,
						__ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			syscall(SYS_ioctl, e->fd, LANE_CALL(LANE_KICK), 0);
	}
out:
	STORE(l->tx_lock, 0);
	e->by_lane += done;
	return done;
}

/** wait_put - the same, waiting for a while for an empty carrier and for room */
static size_t wait_put(struct end *e, const char *buf, size_t n)
{
	size_t done = 0;
	int i;

	for (i = 0; !done && i < 2000; i++) {
		done = ring_put(e, buf, n);
		sched_yield();
	}
	return done;
}

/** get - read @n bytes at most; a limited wait */
long get(struct end *e, char *buf, size_t n)
{
	struct pollfd p = { .fd = e->fd, .events = POLLIN };

	if (poll(&p, 1, LIMIT_MS) != 1) {
		errno = ETIMEDOUT;
		return -1;
	}
	return read(e->fd, buf, n);
}

/** send_all - @n bytes in pieces of all sizes, by the lane and beside it */
bool send_all(struct end *e, size_t n)
{
	static __thread char buf[300000];

	while (n) {
		size_t len = rnd() % 8 ? rnd() % 3000 : rnd() % sizeof(buf), done;

		len = len < n ? len : n;
		if (!len)
			continue;
		fill(e->out, buf, len);
		for (done = 0; done < len;) {
			size_t put = e->l && rnd() % 8 ?
				     wait_put(e, buf + done, len - done) : 0;
			ssize_t w = put ? (ssize_t)put :
				    write(e->fd, buf + done, len - done);

			if (w < 0) {
				printf("# write: %m\n");
				return false;
			}
			done += (size_t)w;
		}
		e->out += len;
		n -= len;
	}
	return true;
}

/** receive_all - @n bytes, checked */
bool receive_all(struct end *e, size_t n)
{
	static __thread char buf[300000];

	while (n) {
		size_t len = rnd() % 8 ? sizeof(buf) : rnd() % 2000 + 1;
		long got = get(e, buf, len < n ? len : n);

		if (got <= 0) {
			printf("# after %llu bytes: read %ld (%m)\n",
			       (unsigned long long)e->in, got);
			return false;
		}
		if (!check(e->in, buf, (size_t)got))
			return false;
		e->in += (uint64_t)got;
		n -= (size_t)got;
	}
	return true;
}
