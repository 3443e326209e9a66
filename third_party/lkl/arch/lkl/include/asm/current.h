/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CURRENT_H
#define _ASM_LKL_CURRENT_H

struct task_struct;

/* One CPU, so a plain variable. It outlives the stay of its task in the
 * kernel: see "Lazy current" in kernel/cpu.c. */
extern struct task_struct *lkl_current;

#define current	lkl_current

#endif
