// SPDX-License-Identifier: GPL-2.0-only
/*
 * Scheduling on the single CPU.
 *
 * Theory of operation
 *
 * The CPU is a lock of the host library. The thread that holds it, the owner,
 * executes kernel code. There are two kinds of contexts:
 *
 * - Floating contexts (kernel threads and idle) live on kernel stacks. Any
 *   owner runs them by switching to their stack.
 * - Host tasks belong to one host thread each. They run system calls on that
 *   thread's own stack, and only on that thread.
 *
 * When the scheduler switches from a host task to a floating context, the
 * thread saves its place (its anchor) and becomes the executor. It runs
 * floating contexts until the scheduler picks a host task or idle has nothing
 * left to do. Then it returns to its anchor. Only there, off the stack of the
 * context it leaves, does it pass on the CPU: to itself, to another thread, or
 * to nobody.
 *
 * Lazy current: after a system call the task stays current and on the run
 * queue, although its thread is back in user mode. So the next call of the same
 * thread needs no switch. If something else becomes runnable, or a tick passes
 * without a call, the owner of the CPU parks the task: TASK_PARKED, off the run
 * queue, safe from stray wake-ups. Parking calls schedule() on behalf of the
 * task on whatever stack the owner has; that frame is never resumed. The
 * thread's next call enters through schedule_tail(), like a new task.
 */
#include <linux/interrupt.h>
#include <linux/init.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sched/debug.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/start_kernel.h>
#include <linux/cpu.h>
#include <linux/hardirq.h>
#include <linux/tick.h>
#include <asm/context.h>
#include <asm/irq_regs.h>
#include <asm/switch_to.h>
#include <asm/setup.h>
#include <asm/lkl.h>

struct task_struct *lkl_current = &init_task;
unsigned long lkl_irq_flags;

/* The thread that owns the CPU */
struct lkl_hthread *lkl_runner;
/* What the executor does at its anchor: see lklk_run() in host.h */
static struct lkl_hthread *lkl_handoff;
/* A thread that wants to enter and whose task is still current */
static struct lkl_hthread *lkl_lazy_enter;
/* The task that ran before current, for schedule_tail() */
static struct task_struct *lkl_last;
/* Handlers run while the current task is in user mode */
static bool lkl_user;
/* The host is about to sleep: stop the tick */
static bool lkl_resting;

asmlinkage void schedule_tail(struct task_struct *prev);

/**
 * __switch_to - switch from one context to another
 *
 * Returns when @prev runs again, on a thread that may run it.
 */
struct task_struct *__switch_to(struct task_struct *prev,
				struct task_struct *next)
{
	struct lkl_hthread *me = lkl_runner;
	struct lkl_hthread *from = prev->thread.host;
	struct lkl_hthread *to = next->thread.host;
	bool gone = false;

	lkl_current = next;
	lkl_last = prev;
	lkl_handoff = to;

	if (from) {
		gone = from->parked;
		if (READ_ONCE(prev->__state) == TASK_DEAD) {
			me->anchor = me->last_anchor;
			gone = true;
		}
	}

	if (gone) {
		lkl_jump(to ? me->anchor : next->thread.sp, 0);
	} else if (!from) {
		lkl_switch(&prev->thread.sp, to ? me->anchor : next->thread.sp);
	} else {
		if (!to)
			lkl_switch(&me->anchor, next->thread.sp);
		lklh_wait(from, lkl_handoff);
		lkl_runner = from;
	}
	return lkl_last;
}

/**
 * lkl_floating_entry - entry point of a new kernel thread
 */
void lkl_floating_entry(void)
{
	schedule_tail(lkl_last);
	current->thread.fn(current->thread.arg);
	/* Only pid 1 gets here: it has "executed" /init. */
	lkl_init_loop();
}

/**
 * arch_cpu_idle_enter - a turn of the idle loop, before it checks the tick
 */
void arch_cpu_idle_enter(void)
{
	if (lkl_resting)
		tick_nohz_idle_stop_tick();
}

/**
 * arch_cpu_idle - nothing to run
 *
 * The executor leaves for its anchor. Later another executor returns here with
 * an interrupt pending. Interrupts are off all the time.
 */
void arch_cpu_idle(void)
{
	if (READ_ONCE(lkl_irq_pending))
		return;
	lkl_handoff = NULL;
	lkl_switch(&current->thread.sp, lkl_runner->anchor);
}

/* Handles the requests of a thread. Called as an interrupt handler. */
static void handle_request(struct lkl_hthread *t, unsigned int req)
{
	struct task_struct *task = t->task;

	if (req & LKL_REQ_NEW)
		lkl_new_task(t);
	if (req & LKL_REQ_ENTER) {
		if (t->parked)
			wake_up_state(task, TASK_PARKED);
		else
			lkl_lazy_enter = t;
	}
	if (req & LKL_REQ_INTR) {
		/*
		 * Not TIF_SIGPENDING, which schedule_tail() clears at the
		 * entry.
		 */
		set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL);
		wake_up_state(task, TASK_INTERRUPTIBLE);
	}
}

/**
 * lkl_irq_run - run the handlers of all pending interrupts
 *
 * Interrupts have just been enabled, and are enabled again on return.
 */
void lkl_irq_run(void)
{
	struct lkl_hthread *t;
	struct pt_regs *old, regs = { .user = lkl_user };
	unsigned int bits, req;

	lkl_irq_flags = ARCH_IRQ_DISABLED;
	trace_hardirqs_off();
	lkl_user = false;
	while ((bits = lklh_irq_take())) {
		old = set_irq_regs(&regs);
		irq_enter();
		if (bits & LKL_IRQ_TIMER)
			lkl_timer_interrupt();
		if (bits & LKL_IRQ_REQ)
			while ((t = lklh_next_request(&req)))
				handle_request(t, req);
		if (bits & LKL_IRQ_NET)
			lkl_net_interrupt();
		irq_exit();
		set_irq_regs(old);
	}
	trace_hardirqs_on();
	lkl_irq_flags = ARCH_IRQ_ENABLED;
}

/*
 * Takes the current task off the run queue, on its behalf; see the top of this
 * file.
 */
static long park_current(void *unused)
{
	__set_current_state(TASK_PARKED);
	schedule();
	BUG();
}

static struct lkl_hthread *park(struct lkl_hthread *me)
{
	current->thread.host->parked = 1;
	lkl_anchor_call(&me->anchor, park_current, NULL);
	return lkl_handoff;
}

static bool others_want(void)
{
	return need_resched() || !single_task_running();
}

static long run(void *arg)
{
	struct lkl_hthread *me = arg, *cur;

	lkl_handoff = NULL;
	if (is_idle_task(current)) {
		lkl_switch(&me->anchor, current->thread.sp);
		return 0;
	}

	/* The current task is in user mode. */
	cur = current->thread.host;
	if (READ_ONCE(lkl_irq_pending)) {
		bool tick = lkl_irq_pending & LKL_IRQ_TIMER;

		lkl_user = true;
		lkl_irq_run();
		if (lkl_lazy_enter == cur) {
			lkl_lazy_enter = NULL;
			lkl_handoff = cur;
			return 0;
		}
		if (tick) {
			if (cur->calls == cur->calls_tick) {
				park(me);
				return 0;
			}
			cur->calls_tick = cur->calls;
		}
	}
	if (others_want())
		park(me);
	return 0;
}

/*
 * The idle loop keeps the tick until it has seen one, and a lazy current task
 * is parked at the second tick. So without this, the host would wake up three
 * times after a packet. It is not done while the host polls: the tick would
 * have to be started again at once.
 */
static long rest(void *arg)
{
	struct lkl_hthread *me = arg;

	lkl_handoff = NULL;
	lkl_resting = true;
	if (is_idle_task(current))
		lkl_switch(&me->anchor, current->thread.sp);
	else
		park(me);
	lkl_resting = false;
	return 0;
}

static struct lkl_hthread *execute(struct lkl_hthread *me, long (*fn)(void *))
{
	void *unwind = me->unwind;

	lkl_runner = me;
	if (lkl_anchor_call(&me->unwind, fn, me))
		lkl_handoff = NULL;	/* dead */
	me->unwind = unwind;
	return lkl_handoff;
}

struct lkl_hthread *lklk_run(struct lkl_hthread *me)
{
	return execute(me, run);
}

struct lkl_hthread *lklk_rest(struct lkl_hthread *me)
{
	return execute(me, rest);
}

int lklk_ticks(const struct lkl_hthread *me)
{
	return is_idle_task(current) ? !tick_nohz_tick_stopped() :
	       current->thread.host == me;
}

int lklk_has_work(void)
{
	return READ_ONCE(lkl_irq_pending) ||
	       (!is_idle_task(current) && others_want());
}

int lklk_is_current(const struct lkl_hthread *me)
{
	return lkl_current == me->task && me->task;
}

void lklk_resume(struct lkl_hthread *me)
{
	lkl_runner = me;
	if (me->parked) {
		me->parked = 0;
		schedule_tail(lkl_last);
	}
}

struct lkl_hthread *lklk_leave(struct lkl_hthread *me)
{
	if (others_want())
		return park(me);
	return NULL;
}

static long exit_task(void *unused)
{
	do_exit(0);
}

struct lkl_hthread *lklk_exit(struct lkl_hthread *me)
{
	lkl_anchor_call(&me->last_anchor, exit_task, NULL);
	me->task = NULL;
	return lkl_handoff;
}

void lklk_unwind(struct lkl_hthread *me)
{
	lkl_jump(me->unwind, lkl_dead == LKL_DEAD_HALT ? -ENODEV : -EIO);
}

/**
 * lkl_die_jump - let the thread that runs the dead kernel leave
 */
void __noreturn lkl_die_jump(int why)
{
	lkl_dead = why;
	if (why == LKL_DEAD_PANIC)
		lklh_panic();
	lkl_jump(lkl_runner->unwind, why == LKL_DEAD_HALT ? -ENODEV : -EIO);
}

static long start(void *arg)
{
	struct lkl_hthread *me = arg;
	void *top = (void *)init_stack + THREAD_SIZE;

	lkl_handoff = NULL;
	lkl_switch(&me->anchor, lkl_context_init(top, (void (*)(void))start_kernel));
	return 0;
}

/* From lib/string.c */
extern void *(*lkl_memcpy)(void *to, const void *from, size_t n);
extern void *(*lkl_memmove)(void *to, const void *from, size_t n);
extern void *(*lkl_memset)(void *s, int c, size_t n);
extern int (*lkl_memcmp)(const void *a, const void *b, size_t n);
extern size_t (*lkl_strlen)(const char *s);

void lklk_boot(struct lkl_hthread *me, const struct lkl_boot *boot)
{
	lkl_memcpy = boot->memcpy;
	lkl_memmove = boot->memmove;
	lkl_memset = boot->memset;
	lkl_memcmp = boot->memcmp;
	lkl_strlen = boot->strlen;
	lkl_print = boot->print;
	lkl_mem_start = boot->mem_start;
	lkl_mem_end = boot->mem_end;
	strscpy(boot_command_line, boot->cmdline, COMMAND_LINE_SIZE);

	lkl_runner = me;
	lkl_anchor_call(&me->unwind, start, me);
}
