// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clocks, and the kernel's deadline.
 *
 * Theory of operation
 *
 * The deadline belongs to the kernel's single clock event. In threaded mode a
 * timerfd in the leader's epoll (event.c) ends its sleep. Unlike the timeouts
 * of poll() and epoll_wait() a timerfd has no slack, and any thread can set it
 * while the leader sleeps. It is only set to earlier times. If the deadline has
 * moved later, the leader wakes up for nothing and finds out then; deadlines
 * move often, and mostly later.
 */
#include "internal.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static unsigned long long deadline;	/* of the kernel's clock event; 0: none */
static unsigned long long armed;	/* expiry time of the timer; 0: not set */
static int timer = -1;

static unsigned long long now(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

unsigned long long lklh_mono(void)
{
	return unlikely(virtual_now) ? *virtual_now : now(CLOCK_MONOTONIC);
}

unsigned long long lklh_real(void)
{
	return unlikely(virtual_now) ? virtual_real() : now(CLOCK_REALTIME);
}

void lklh_getrandom(void *buf, unsigned long len)
{
	if (unlikely(virtual_now))
		virtual_random(buf, len);
	else if (getrandom(buf, len, 0) != (ssize_t)len)
		getentropy(buf, len);
}

/**
 * clock_init - make the timer; returns its descriptor
 */
int clock_init(void)
{
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return timer;
}

void clock_exit(void)
{
	if (timer >= 0)
		close(timer);
	timer = -1;
	armed = 0;
}

/**
 * clock_arm - set the timer to end a sleep at the deadline
 */
void clock_arm(void)
{
	unsigned long long d = events_deadline();
	unsigned long long old = __atomic_load_n(&armed, __ATOMIC_SEQ_CST);
	struct itimerspec it = { { 0, 0 }, { 0, 0 } };

	if (!d)
		return;
	do {
		if (old && old <= d)
			return;
	} while (!__atomic_compare_exchange_n(&armed, &old, d, 0,
					      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	/*
	 * Two threads may be here: the one that sets the timer last sees the
	 * right value.
	 */
	do {
		it.it_value.tv_sec = d / 1000000000;
		it.it_value.tv_nsec = d % 1000000000;
		timerfd_settime(timer, TFD_TIMER_ABSTIME, &it, NULL);
		old = d;
		d = __atomic_load_n(&armed, __ATOMIC_SEQ_CST);
	} while (d && d != old);
}

/**
 * clock_fired - the timer has expired
 */
void clock_fired(void)
{
	__atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST);
}

void lklh_set_deadline(unsigned long long ns)
{
	publish(&deadline, ns);
	if (ns && events_sleeps())
		clock_arm();
}

/**
 * events_deadline - when a sleep must end: at the kernel's deadline or at the
 * end of a hold (coalesce.c); 0: never
 */
unsigned long long events_deadline(void)
{
	unsigned long long d = __atomic_load_n(&deadline, __ATOMIC_SEQ_CST);
	unsigned long long held = coalesce_until();

	return held && (!d || held < d) ? held : d;
}

/**
 * events_timer_due - post the timer interrupt if the deadline has passed
 */
void events_timer_due(void)
{
	unsigned long long d = __atomic_load_n(&deadline, __ATOMIC_SEQ_CST);

	if (d && lklh_mono() >= d &&
	    __atomic_compare_exchange_n(&deadline, &d, 0, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_RELAXED))
		lklh_irq_raise(LKL_IRQ_TIMER);
}
