// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets a thread wait for the stack and for the host at once.
 *
 * Theory of operation
 *
 * The thread sleeps in the stack, where it also does the stack's work
 * (third_party/lkl/lib/event.c). An event of the host ends that sleep as a
 * signal would: the descriptors of the host are put into an epoll of the host,
 * the poller's, and the library watches that epoll. No other thread has to be
 * woken.
 *
 * The order of the steps prevents lost events:
 *
 * 1. Arm the poller.
 * 2. Add the descriptors.
 * 3. Poll both sides once more.
 * 4. Sleep.
 *
 * An event after the arming ends the sleep or prevents it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"
#include "engine/preload/poller.h"

#define POLLERS		4000	/* WATCHES of the library, and room for others */

enum { IDLE, ARMED, FIRED };

static struct poller pollers[POLLERS];
static int n_pollers, free_poller = -1;

/** on_host - handle an event of the host; returns the thread to wake up */
static void *on_host(void *arg)
{
	struct poller *p = arg;
	int armed = ARMED;

	if (__atomic_compare_exchange_n(&p->state, &armed, FIRED, 0,
					__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return p->thread;
	return NULL;
}

/** poller_make - take a poller that has never been used */
static struct poller *poller_make(void)
{
	int i = __atomic_fetch_add(&n_pollers, 1, __ATOMIC_SEQ_CST);
	struct poller *p = &pollers[i];

	if (i >= POLLERS)
		return NULL;
	p->epfd = preload_own_fd((int)RAW1(epoll_create1, EPOLL_CLOEXEC));
	if (p->epfd < 0)
		return NULL;
	p->kept = -1;
	enter();
	if (lkl.host_watch(p->epfd, on_host, p)) {
		RAW1(close, p->epfd);
		p = NULL;
	}
	leave();
	return p;
}

/**
 * poller_take - the thread's poller; NULL if there are too many
 *
 * A signal handler that has interrupted its use gets another one.
 */
struct poller *poller_take(void)
{
	struct poller *p = me.own_poller;

	if (likely(p && !p->busy)) {
		p->busy = true;
		return p;
	}
	if (thread_ready())
		return NULL;
	lock();
	p = free_poller >= 0 ? &pollers[free_poller] : NULL;
	if (p)
		free_poller = p->next_free;
	unlock();
	if (!p)
		p = poller_make();
	if (p) {
		p->thread = me.lkl;
		p->busy = true;
	}
	if (!me.own_poller) {
		me.own_poller = p;
		me.give_back = poller_leave;
	}
	return p;
}

/** poller_release - mark the poller as unused for now */
void poller_release(struct poller *p)
{
	p->busy = false;
	if (p != me.own_poller)
		poller_leave(p);
}

/** poller_leave - free the poller of a thread that ends */
void poller_leave(struct poller *p)
{
	if (p->kept >= 0)
		RAW4(epoll_ctl, p->epfd, EPOLL_CTL_DEL, p->kept, 0);
	p->kept = -1;
	lock();
	p->next_free = free_poller;
	free_poller = (int)(p - pollers);
	unlock();
}

/** poller_arm - from here on events of the host end a wait. Inside. */
void poller_arm(struct poller *p)
{
	__atomic_store_n(&p->state, ARMED, __ATOMIC_SEQ_CST);
}

/**
 * poller_fired - whether an event has occurred since the arming
 *
 * Check this before the sleep: a call of the stack in between may have consumed
 * the interruption.
 */
bool poller_fired(const struct poller *p)
{
	return __atomic_load_n(&p->state, __ATOMIC_SEQ_CST) == FIRED;
}

/** poller_disarm - stop ending waits. Inside. */
void poller_disarm(struct poller *p)
{
	static const long none[6];

	if (__atomic_exchange_n(&p->state, IDLE, __ATOMIC_SEQ_CST) != FIRED)
		return;
	/*
	 * If the interruption has not ended a wait, have the stack forget it.
	 */
	stack_raw(SYS_getppid, none);
	stack_raw(SYS_getppid, none);
}

/** poller_add - wait for @fd of the host as well */
int poller_add(struct poller *p, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events };
	long ret = RAW4(epoll_ctl, p->epfd, EPOLL_CTL_ADD, fd, &ev);

	if (ret == -EEXIST) {	/* the same descriptor twice in one poll() */
		ev.events = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP;
		ret = RAW4(epoll_ctl, p->epfd, EPOLL_CTL_MOD, fd, &ev);
	}
	return (int)ret;
}

/** poller_del - stop waiting for @fd */
void poller_del(struct poller *p, int fd)
{
	RAW4(epoll_ctl, p->epfd, EPOLL_CTL_DEL, fd, 0);
}

/** poller_keep - wait for @fd now and in later calls, unless its generation changes */
int poller_keep(struct poller *p, int fd, unsigned int gen)
{
	int ret;

	if (likely(p->kept == fd && p->kept_gen == gen))
		return 0;
	if (p->kept >= 0)
		poller_del(p, p->kept);
	p->kept = -1;
	ret = poller_add(p, fd, EPOLLIN);
	if (!ret) {
		p->kept = fd;
		p->kept_gen = gen;
	}
	return ret;
}

/** mono_ns - the time of CLOCK_MONOTONIC */
int64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/** deadline_in - convert a timeout to a deadline; keeps DEADLINE_NOW and _NEVER */
int64_t deadline_in(int64_t ns)
{
	int64_t now;

	if (ns <= 0)
		return ns < 0 ? DEADLINE_NEVER : DEADLINE_NOW;
	now = mono_ns();
	return ns > INT64_MAX - now ? DEADLINE_NEVER : now + ns;
}

/** time_left - the time until a deadline as a timespec; NULL means no limit */
struct timespec *time_left(int64_t deadline, struct timespec *ts)
{
	int64_t ns = 0;

	if (deadline == DEADLINE_NEVER)
		return NULL;
	if (deadline != DEADLINE_NOW)
		ns = deadline - mono_ns();
	if (ns < 0)
		ns = 0;
	ts->tv_sec = ns / 1000000000;
	ts->tv_nsec = ns % 1000000000;
	return ts;
}

/** time_read - read the program's timespec as nanoseconds; -1 means no limit */
int64_t time_read(const void *user, int64_t *ns)
{
	struct timespec ts;

	*ns = -1;
	if (!user)
		return 0;
	if (preload_copy(&ts, user, sizeof(ts)))
		return -EFAULT;
	if (ts.tv_sec < 0 || ts.tv_nsec < 0 || ts.tv_nsec >= 1000000000)
		return -EINVAL;
	*ns = ts.tv_sec > INT64_MAX / 2000000000 ? -1 :
	      ts.tv_sec * 1000000000LL + ts.tv_nsec;
	return 0;
}

/** mask_push - set the signal mask of ppoll() and similar calls. Inside. */
int mask_push(const void *user, uint64_t *old)
{
	uint64_t mask;

	if (preload_copy(&mask, user, sizeof(mask)))
		return -EFAULT;
	return (int)RAW4(rt_sigprocmask, SIG_SETMASK, &mask, old, sizeof(mask));
}

/** mask_pop - restore the signal mask after the wait */
void mask_pop(const uint64_t *old)
{
	RAW4(rt_sigprocmask, SIG_SETMASK, old, 0, sizeof(*old));
}
