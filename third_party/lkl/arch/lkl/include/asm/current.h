/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CURRENT_H
#define _ASM_LKL_CURRENT_H

struct task_struct;

/*
 * There is one CPU, so this is a plain variable. A task stays current after it
 * has left the kernel: see "Lazy current" in kernel/cpu.c.
 */
extern struct task_struct *lkl_current;

#define current	lkl_current

#endif
