/* SPDX-License-Identifier: GPL-2.0-only */
/* Between the files of this architecture. */
#ifndef _ASM_LKL_LKL_H
#define _ASM_LKL_LKL_H

#include <linux/compiler.h>
#include <asm/host.h>

struct task_struct;

extern struct lkl_hthread *lkl_runner;
extern void (*lkl_print)(const char *str, int len);

int lkl_host_task(void *arg);
void lkl_floating_entry(void);
void lkl_new_task(struct lkl_hthread *t);
void __noreturn lkl_init_loop(void);
void __noreturn lkl_die_jump(int why);
void lkl_timer_interrupt(void);
void lkl_net_interrupt(void);
void lkl_paging_init(void);

#endif
