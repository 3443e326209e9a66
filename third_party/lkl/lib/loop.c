// SPDX-License-Identifier: GPL-2.0-only
/* Loop mode: a single thread of the caller drives the kernel. */
#include "internal.h"
#include "writer.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#define REFS_TRIES	4
#define LENT_NS		1000000	/* interval to check what another thread has written */

int loop_epfd = -1;
uint64_t loop_tag;

API int lkl_loop_init(int epfd, uint64_t tag)
{
	if (!host_ops || lkl_usable())
		return -EBUSY;
	if (epfd < 0 || tag & 0xffff)
		return -EINVAL;
	loop_epfd = epfd;
	loop_tag = tag;
	loop_mode = 1;
	return 0;
}

API void lkl_loop_event(uint64_t data, uint32_t events)
{
	netdev_event(data & 0xffff, events);
}

/* Nanoseconds until the deadline, -1 if there is none */
static long long until_deadline(void)
{
	unsigned long long d = events_deadline(), now;

	if (!d)
		return -1;
	now = lklh_mono();
	return d > now ? (long long)(d - now) : 0;
}

API long long lkl_loop_step(void)
{
	struct thread *t = self;

	if (unlikely(!lkl_usable()))
		return -EIO;
	if (unlikely(!t || !loop_mode || t->busy != IN_USER))
		return -EDEADLK;
	events_timer_due();
	coalesce_due();
	if (lklk_has_work())
		cpu_run(t);
	if (unlikely(lkl_dead))
		return -EIO;
	if (netdevs_more())
		return 0;
	if (writer_rest())
		return 0;
	coalesce_sleep();
	return until_deadline();
}

API long long lkl_loop_rest(void)
{
	struct thread *t = self;
	unsigned long irqs = loop_irqs;

	if (unlikely(!lkl_usable()))
		return -EIO;
	if (unlikely(!t || !loop_mode || t->busy != IN_USER))
		return -EDEADLK;
	if (lklk_has_work())
		return 0;
	cpu_rest(t);
	if (unlikely(lkl_dead))
		return -EIO;
	return irqs == loop_irqs ? until_deadline() : 0;
}

struct watch_args {
	int epfd;
	int *flag;
};

static long do_watch(void *arg)
{
	struct watch_args *a = arg;

	return lklk_watch(a->epfd, a->flag);
}

API int lkl_loop_watch(int epfd, int *flag)
{
	struct watch_args a = { epfd, flag };

	return loop_mode ? kernel_call(do_watch, &a) : -EINVAL;
}

struct refs_args {
	int fd, max;
	struct lkl_iov *iov;
	unsigned long len;
};

static long do_refs(void *arg)
{
	struct refs_args *a = arg;

	return lklk_refs(a->fd, a->iov, a->max, a->len);
}

API int lkl_loop_refs(int fd, struct iovec *iov, int max, unsigned long len)
{
	struct refs_args a = { fd, max, (struct lkl_iov *)iov, len };
	int i, ret;

	if (!loop_mode)
		return -EINVAL;
	for (i = 0; i < REFS_TRIES; i++) {
		unsigned long irqs = loop_irqs;

		ret = kernel_call(do_refs, &a);
		/*
		 * Data that arrived meanwhile may have moved the data listed
		 * before.
		 */
		if (irqs == loop_irqs)
			return ret;
	}
	return -EOPNOTSUPP;
}

/* In threaded mode the flag is the first member of this struct. */
struct epoll_watch {
	int flag;
	void (*fn)(void *arg);
	void *arg;
};

void lklh_flag_set(int *flag)
{
	struct epoll_watch *w = (struct epoll_watch *)flag;

	if (!loop_mode)
		w->fn(w->arg);
}

API int lkl_epoll_watch(int epfd, void (*fn)(void *arg), void *arg)
{
	struct watch_args a = { .epfd = epfd };
	struct epoll_watch *w;
	int ret;

	if (loop_mode)
		return -EINVAL;
	w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->fn = fn;
	w->arg = arg;
	a.flag = &w->flag;
	ret = kernel_call(do_watch, &a);
	if (ret)
		free(w);
	return ret;
}

API unsigned long lkl_loop_blocked(void)
{
	return loop_blocked;
}

API void lkl_loop_set_limit(unsigned int ms)
{
	loop_limit_ms = ms;
}

/**
 * events_wait_loop - wait on behalf of a call in loop mode
 * @until: monotonic time to give up, all ones for never
 *
 * Returns a negative value if a signal arrived.
 */
int events_wait_loop(unsigned long long until)
{
	struct pollfd fds[LKL_NET_MAX];
	int ids[LKL_NET_MAX], i, n, ret;
	unsigned long long d = events_deadline(), t = lklh_mono();
	struct timespec ts, *tsp = &ts;
	int theirs;

	if (virtual_now)
		return virtual_wait(until);
	writer_rest();
	theirs = writer_waited_for();
	if (__atomic_load_n(&lkl_irq_pending, __ATOMIC_SEQ_CST))
		return 0;
	if (!d || d > until)
		d = until;
	/* the writer's eventfd is not polled here */
	if (theirs && d > t + LENT_NS)
		d = t + LENT_NS;
	if (d == ~0ULL) {
		tsp = NULL;
	} else {
		t = d > t ? d - t : 0;
		ts.tv_sec = t / 1000000000;
		ts.tv_nsec = t % 1000000000;
	}
	n = netdevs_pollfds(fds, ids, LKL_NET_MAX);
	ret = ppoll(fds, n, tsp, NULL);
	for (i = 0; ret > 0 && i < n; i++)
		if (fds[i].revents)
			netdev_event(ids[i], fds[i].revents);
	events_timer_due();
	return ret < 0 && errno == EINTR ? -1 : 0;
}
