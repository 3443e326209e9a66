/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_PROCESSOR_H
#define _ASM_LKL_PROCESSOR_H

#include <linux/compiler.h>
#include <asm/ptrace.h>

struct lkl_hthread;

/**
 * struct thread_struct - location of a task's context
 * @sp: stack pointer of a floating context (kernel thread, idle) that is not
 *	running
 * @host: the host thread of this task, NULL for a floating context
 * @fn: first function of a new floating context
 * @arg: its argument
 * @regs: dummy
 */
struct thread_struct {
	void *sp;
	struct lkl_hthread *host;
	int (*fn)(void *arg);
	void *arg;
	struct pt_regs regs;
};

#define INIT_THREAD	{ }

#define TASK_SIZE		(~0UL)
#define TASK_UNMAPPED_BASE	0
#define STACK_TOP		TASK_SIZE
#define STACK_TOP_MAX		STACK_TOP

#define KSTK_EIP(tsk)		0UL
#define KSTK_ESP(tsk)		0UL

static inline void cpu_relax(void)
{
	barrier();
}

static inline void start_thread(struct pt_regs *regs, unsigned long pc,
				unsigned long sp)
{
}

static inline unsigned long __get_wchan(struct task_struct *p)
{
	return 0;
}

static inline void flush_thread(void)
{
}

#endif
