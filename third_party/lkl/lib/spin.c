// SPDX-License-Identifier: GPL-2.0-only
/*
 * Polling for a while instead of sleeping.
 *
 * Theory of operation
 *
 * Waking up a sleeping processor takes longer than most answers. So a leader
 * first polls for events, for spin_ns at most. This pays if the wait ends
 * meanwhile. After each failure the number of waits that sleep at once doubles,
 * until a wait is short again.
 *
 * A process with a single processor cannot know where the answering process
 * runs. If it is on the same processor, polling delays the answer until the
 * host preempts the thread. That shows as a gap between two polls, and counts
 * as a failure.
 */
#include "internal.h"

#include <sched.h>

#define SPIN_NS		50000	/* unless lkl_set_spin() sets another value */
#define GAP_NS		3000	/* between two polls: another thread has run */
#define LOOK_AGAIN	1024	/* recount the processors after this many waits */

/* At most 1 << FAILS_MAX waits between two attempts */
#define FAILS_MAX	7
#define FAILS_ALONE	10

static unsigned int spin_ns = SPIN_NS;
static unsigned int fails;	/* attempts since the last success */
static unsigned int skip;	/* number of waits without an attempt */
static unsigned int waits;
static int alone;		/* we may use only one processor */

API void lkl_set_spin(unsigned int usec)
{
	spin_ns = usec < 1000000 ? usec * 1000 : 1000000000;
}

static void count_processors(void)
{
	cpu_set_t set;

	alone = !sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) < 2;
}

/*
 * Polls for events; negative: none came. Otherwise the longest time between two
 * polls, 0 if the first one succeeded.
 */
static long look(struct thread *t)
{
	unsigned int pending = __atomic_load_n(&lkl_irq_pending, __ATOMIC_RELAXED);
	unsigned long long now = lklh_mono(), end = now + spin_ns, last, d;
	long gap = 0;

	do {
		if (events_look() > 0)
			return gap;
		/* Interrupts that were pending before have an owner. */
		if (__atomic_load_n(&t->k.granted, __ATOMIC_SEQ_CST) ||
		    (__atomic_load_n(&lkl_irq_pending, __ATOMIC_SEQ_CST) & ~pending) ||
		    __atomic_load_n(&lkl_dead, __ATOMIC_SEQ_CST))
			return gap;
		last = now;
		now = lklh_mono();
		if ((long)(now - last) > gap)
			gap = now - last;
		d = events_deadline();
		if (d && now >= d)
			return gap;
	} while (now < end);
	return -1;
}

/**
 * spin - poll for events instead of sleeping, where that pays
 *
 * Returns 1 if there is an event or work for @t, 0 to sleep.
 */
int spin(struct thread *t)
{
	unsigned int most;
	long gap;

	if (!spin_ns)
		return 0;
	if (skip) {
		skip--;
		return 0;
	}
	if (waits++ % LOOK_AGAIN == 0)
		count_processors();
	gap = look(t);
	if (alone ? gap > 0 && gap < GAP_NS : gap >= 0) {
		fails = 0;
		return 1;
	}
	most = alone ? FAILS_ALONE : FAILS_MAX;
	if (gap && fails < most)
		fails++;
	skip = (1U << fails) - 1;
	return gap >= 0;
}
