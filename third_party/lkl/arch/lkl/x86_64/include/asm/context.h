/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CONTEXT_H
#define _ASM_LKL_CONTEXT_H

void lkl_switch(void **save, void *load);
long lkl_anchor_call(void **save, long (*fn)(void *arg), void *arg);
long lkl_syscall_anchored(void **save, void *fn, const long *params);
void lkl_jump(void *load, long ret) __attribute__((noreturn));

/* The stack pointer at the first instruction of a function: as after a call */
#define lkl_call_sp(sp)		(((sp) & ~15UL) - 8)

/**
 * lkl_context_init - make a context that starts at @entry
 * @top: end of its stack, page aligned
 * @entry: never returns
 *
 * Six registers and the address for "ret"; the stack pointer is then off by 8
 * from a multiple of 16, as after a call.
 */
static inline void *lkl_context_init(void *top, void (*entry)(void))
{
	unsigned long *sp = (unsigned long *)top - 16;
	int i;

	for (i = 0; i < 16; i++)
		sp[i] = 0;
	sp[6] = (unsigned long)entry;
	return sp;
}

#endif
