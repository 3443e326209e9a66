// SPDX-License-Identifier: GPL-2.0-only
/*
 * Looking for a while instead of sleeping.
 *
 * Theory of operation
 *
 * To wake a processor that has gone to sleep takes longer than most answers do.
 * So a leader looks for them itself, for spin_ns at most. It pays when the wait
 * ends meanwhile. Each time that it does not, twice as many waits as before go to
 * sleep at once, until one is short again.
 *
 * Who has one processor only does not know where the one is that shall answer. If
 * on the same, looking keeps the answer from being made, until the host takes the
 * processor away, which shows as a gap between two looks: it has not paid then.
 */
#include "internal.h"

#include <sched.h>

#define SPIN_NS		50000	/* unless lkl_set_spin() says something else */
#define GAP_NS		3000	/* between two looks: somebody else has run */
#define LOOK_AGAIN	1024	/* waits after which the processors are counted */

/* 1 << this: waits between two attempts, at most */
#define FAILS_MAX	7
#define FAILS_ALONE	10

static unsigned int spin_ns = SPIN_NS;
static unsigned int fails;	/* attempts since the last that paid */
static unsigned int skip;	/* waits that are not to be attempted */
static unsigned int waits;
static int alone;		/* there is one processor for us */

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
 * Looks; negative: nothing has come, else the longest time between two looks, 0
 * if it was there at the first.
 */
static long look(struct thread *t)
{
	unsigned int pending = __atomic_load_n(&lkl_irq_pending, __ATOMIC_RELAXED);
	unsigned long long now = lklh_mono(), end = now + spin_ns, last, d;
	long gap = 0;

	do {
		if (events_look() > 0)
			return gap;
		/* What was pending before is not ours: it has an owner. */
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
 * spin - look for events instead of sleeping, where that pays
 *
 * 1: something has come, or is @t's to do; 0: sleep.
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
