// SPDX-License-Identifier: GPL-2.0-only
/*
 * The CPU: a lock, a grant, and a list of requests.
 *
 * Theory of operation
 *
 * A thread takes the CPU if it is free. Otherwise it adds itself to the request
 * list and sets LKL_IRQ_REQ. The owner finds the bit when the kernel enables
 * interrupts, or when it releases the CPU. To release it, the owner unlocks
 * with a full barrier and checks the bits again; if one is set, it takes the
 * lock back unless another thread was faster. So a thread that sets a bit and
 * then fails to take the lock knows that the bit will be seen.
 *
 * If another thread's task is to run, the owner does not unlock but grants the
 * CPU: the lock stays taken and passes to that thread through a word of its
 * struct.
 */
#include "internal.h"
#include "host_call.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>

unsigned int lkl_irq_pending;

int loop_mode;
unsigned int loop_limit_ms = 3000;
unsigned long loop_blocked;
unsigned long loop_irqs;	/* number of turns that handled some; for loop mode */

/*
 * After sending this many frames, a thread that leaves the kernel checks for
 * replies.
 */
#define GLANCE_FRAMES	8

static unsigned int glanced_at;		/* lkl_net_sent at that time */
static unsigned int cpu_lock __attribute__((aligned(64)));
static struct lkl_hthread *requests __attribute__((aligned(64)));
static struct lkl_hthread *taken;	/* requests in order; used by the owner only */

static long futex(unsigned int *word, int op, unsigned int val)
{
	return host_call(SYS_futex, (long)word, op | FUTEX_PRIVATE_FLAG, val, 0, 0,
			 0);
}

void lklh_irq_raise(unsigned int bits)
{
	__atomic_fetch_or(&lkl_irq_pending, bits, __ATOMIC_SEQ_CST);
}

unsigned int lklh_irq_take(void)
{
	if (!__atomic_load_n(&lkl_irq_pending, __ATOMIC_RELAXED))
		return 0;
	loop_irqs++;
	return __atomic_exchange_n(&lkl_irq_pending, 0, __ATOMIC_SEQ_CST);
}

/*
 * The thread that sets @queued owns @req_next until the entry leaves the list.
 */
static void request(struct thread *t, unsigned int bits)
{
	struct lkl_hthread *k = &t->k;

	__atomic_fetch_or(&k->req, bits, __ATOMIC_SEQ_CST);
	if (__atomic_exchange_n(&k->queued, 1, __ATOMIC_SEQ_CST))
		return;
	k->req_next = __atomic_load_n(&requests, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&requests, &k->req_next, k, 1,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	lklh_irq_raise(LKL_IRQ_REQ);
}

struct lkl_hthread *lklh_next_request(unsigned int *bits)
{
	struct lkl_hthread *k, *next;

	if (!taken) {
		k = __atomic_exchange_n(&requests, NULL, __ATOMIC_SEQ_CST);
		for (; k; k = next) {
			next = k->req_next;
			k->req_next = taken;
			taken = k;
		}
	}
	k = taken;
	if (!k)
		return NULL;
	taken = k->req_next;
	__atomic_store_n(&k->queued, 0, __ATOMIC_SEQ_CST);
	*bits = __atomic_exchange_n(&k->req, 0, __ATOMIC_SEQ_CST);
	if (!k->task)	/* its thread has ended meanwhile */
		*bits &= ~LKL_REQ_INTR;
	return k;
}

/**
 * cpu_trylock - become the owner if the CPU is free
 */
int cpu_trylock(void)
{
	if (loop_mode) {
		if (cpu_lock)
			return 0;
		cpu_lock = 1;
		return 1;
	}
	return !__atomic_exchange_n(&cpu_lock, 1, __ATOMIC_SEQ_CST);
}

/* Sets the grant word: 1: the CPU; 2: a refusal, without the CPU */
static void give(struct lkl_hthread *k, unsigned int what)
{
	struct thread *t = (struct thread *)k;

	__atomic_store_n(&k->granted, what, __ATOMIC_SEQ_CST);
	if (events_is_leader(t))
		events_kick();
	futex(&k->granted, FUTEX_WAKE, 1);
}

void lklh_refuse(struct lkl_hthread *k)
{
	give(k, 2);
}

/**
 * cpu_put - pass on the CPU as the kernel asked
 * @next: as from lklk_run()
 *
 * Returns 1 if the CPU stays with @t, whose task is to run.
 */
int cpu_put(struct thread *t, struct lkl_hthread *next)
{
	for (;;) {
		if (next == &t->k)
			return 1;
		if (unlikely(lkl_dead))
			return 0;
		if (next) {
			give(next, 1);
			return 0;
		}
		if (loop_mode) {
			cpu_lock = 0;
			if (likely(!lkl_irq_pending))
				return 0;
			cpu_lock = 1;
		} else {
			__atomic_exchange_n(&cpu_lock, 0, __ATOMIC_SEQ_CST);
			if (likely(!__atomic_load_n(&lkl_irq_pending,
						    __ATOMIC_SEQ_CST)))
				return 0;
			if (!cpu_trylock())
				return 0;
		}
		next = lklk_run(&t->k);
	}
}

/**
 * cpu_run - have pending interrupts handled, by this thread or by the owner
 *
 * For threads whose tasks do not wait.
 */
void cpu_run(struct thread *t)
{
	enum busy old = t->busy;

	t->busy = IN_KERNEL;
	if (cpu_trylock())
		cpu_put(t, lklk_run(&t->k));
	t->busy = old;
}

/**
 * cpu_rest - stop the kernel's tick, because the thread is about to sleep
 *
 * If the thread's own task is to run after all, the CPU is granted to it.
 */
void cpu_rest(struct thread *t)
{
	enum busy old = t->busy;

	t->busy = IN_KERNEL;
	if (cpu_trylock() &&
	    cpu_put(t, lklk_ticks(&t->k) ? lklk_rest(&t->k) : NULL))
		__atomic_store_n(&t->k.granted, 1, __ATOMIC_SEQ_CST);
	t->busy = old;
}

/* Like cpu_run(), for a waiting thread. 1: it has the CPU now. */
static int run_waiting(struct thread *t)
{
	int mine = 0;

	t->busy = IN_KERNEL;
	if (cpu_trylock())
		mine = cpu_put(t, lklk_run(&t->k));
	t->busy = IN_WAIT;
	return mine;
}

/**
 * cpu_interrupt - let the thread's call, or its next one, return EINTR if it
 * waits
 *
 * The caller must ensure that the request is handled.
 */
void cpu_interrupt(struct thread *t)
{
	/* Without a task it may be on the list of threads that want one. */
	if (__atomic_load_n(&t->k.task, __ATOMIC_SEQ_CST))
		request(t, LKL_REQ_INTR);
}

API void *lkl_self(void)
{
	return lkl_usable() ? thread_get() : NULL;
}

API void lkl_interrupt(void *thread)
{
	int saved = errno;

	if (!lkl_usable() || loop_mode)
		return;
	cpu_interrupt(thread);
	events_kick();
	errno = saved;
}

static void interrupt(struct thread *t)
{
	if (t->in_call)
		request(t, LKL_REQ_INTR);
}

/* Waits until the CPU is granted; works as leader meanwhile. */
static void wait_grant(struct thread *t)
{
	unsigned long long limit = 0;
	unsigned int granted;

	if (loop_mode) {
		if (t->in_call)
			loop_blocked++;
		limit = lklh_mono() + loop_limit_ms * 1000000ULL;
	}
	t->busy = IN_WAIT;
	for (;;) {
		/*
		 * Read the grant first: a dying kernel sets lkl_dead before
		 * cpu_wake_all().
		 */
		granted = __atomic_load_n(&t->k.granted, __ATOMIC_SEQ_CST);
		if (unlikely(__atomic_load_n(&lkl_dead, __ATOMIC_SEQ_CST))) {
			to_user(t);
			if (t->in_call)
				lklk_unwind(&t->k);
			return;
		}
		if (granted) {
			t->k.granted = 0;
			break;
		}
		if (loop_mode) {
			if (events_wait_loop(limit) < 0 || lklh_mono() >= limit) {
				interrupt(t);
				limit = ~0ULL;
			}
			if (run_waiting(t))
				break;
		} else if (events_try_lead(t)) {
			if (events_lead(t) < 0)
				interrupt(t);
			events_unlead(t);
			if (lkl_irq_pending && run_waiting(t))
				break;
		} else if (futex(&t->k.granted, FUTEX_WAIT, 0) == -EINTR) {
			interrupt(t);
			if (run_waiting(t))
				break;
		}
	}
	t->busy = IN_KERNEL;
}

void lklh_wait(struct lkl_hthread *me, struct lkl_hthread *next)
{
	struct thread *t = (struct thread *)me;

	if (!cpu_put(t, next))
		wait_grant(t);
}

/**
 * cpu_enter - make the caller's task the running one
 *
 * Returns 0 if the caller has the CPU, inside the kernel; else a negative
 * errno.
 */
int cpu_enter(struct thread *t)
{
	t->busy = IN_KERNEL;
	__asm__ __volatile__("" : : : "memory");
	if (likely(cpu_trylock())) {
		if (likely(lklk_is_current(&t->k)))
			goto in;
		request(t, t->k.task ? LKL_REQ_ENTER : LKL_REQ_NEW);
		if (!cpu_put(t, lklk_run(&t->k)))
			wait_grant(t);
	} else {
		request(t, t->k.task ? LKL_REQ_ENTER : LKL_REQ_NEW);
		if (!run_waiting(t))
			wait_grant(t);
		t->busy = IN_KERNEL;
	}
	if (unlikely(lkl_dead || t->k.error)) {
		int err = lkl_dead ? -ENODEV : t->k.error;

		t->k.error = 0;
		to_user(t);
		return err;
	}
in:
	lklk_resume(&t->k);
	t->in_call = 1;
	return 0;
}

/**
 * cpu_leave - return to user mode
 */
void cpu_leave(struct thread *t)
{
	t->in_call = 0;
	if (unlikely(lkl_net_sent - glanced_at >= GLANCE_FRAMES) && !loop_mode) {
		glanced_at = lkl_net_sent;
		events_glance(t);
	}
	if (likely(!lkl_dead))
		cpu_put(t, lklk_leave(&t->k));
	to_user(t);
}

/**
 * cpu_wake_all - the kernel is dead: end all waits
 */
void cpu_wake_all(void)
{
	struct thread *t;

	for (t = __atomic_load_n(&all_threads, __ATOMIC_ACQUIRE); t; t = t->next) {
		__atomic_store_n(&t->k.granted, 2, __ATOMIC_SEQ_CST);
		futex(&t->k.granted, FUTEX_WAKE, INT_MAX);
	}
	events_kick();
}
