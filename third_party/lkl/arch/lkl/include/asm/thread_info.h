/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_THREAD_INFO_H
#define _ASM_LKL_THREAD_INFO_H

#include <asm/page.h>

#define THREAD_SIZE_ORDER	CONFIG_KERNEL_STACK_ORDER
#define THREAD_SIZE		(PAGE_SIZE << THREAD_SIZE_ORDER)

#ifndef __ASSEMBLY__

struct thread_info {
	unsigned long flags;
	int preempt_count;
};

#define INIT_THREAD_INFO(tsk)			\
{						\
	.flags = 0,				\
	.preempt_count = INIT_PREEMPT_COUNT,	\
}

#endif

#define TIF_SYSCALL_TRACE	0
#define TIF_NEED_RESCHED	1
#define TIF_SIGPENDING		2
#define TIF_NOTIFY_RESUME	3
#define TIF_NOTIFY_SIGNAL	4
#define TIF_RESTORE_SIGMASK	5
#define TIF_MEMDIE		6

#define _TIF_NEED_RESCHED	(1 << TIF_NEED_RESCHED)
#define _TIF_SIGPENDING		(1 << TIF_SIGPENDING)
#define _TIF_NOTIFY_RESUME	(1 << TIF_NOTIFY_RESUME)
#define _TIF_NOTIFY_SIGNAL	(1 << TIF_NOTIFY_SIGNAL)

#endif
