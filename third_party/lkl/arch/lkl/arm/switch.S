/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stack switch. A saved context consists of its callee-saved registers and a
 * return address on its stack; the stack pointer is stored elsewhere. All
 * routines use the same layout, so each can resume what another saved. r3 is
 * included for alignment.
 *
 * The VFP registers are not saved: neither the kernel nor the host library is
 * compiled to use them, so d8 to d15 always belong to the caller.
 */
#include <linux/linkage.h>

	.syntax	unified
	.arm
	.text

/* void lkl_switch(void **save, void *load) */
SYM_FUNC_START(lkl_switch)
	push	{r3-r11, lr}
	str	sp, [r0]
	mov	sp, r1
	pop	{r3-r11, pc}
SYM_FUNC_END(lkl_switch)

/*
 * long lkl_anchor_call(void **save, long (*fn)(void *), void *arg) Returns when
 * fn returns, or when another context jumps to *save.
 */
SYM_FUNC_START(lkl_anchor_call)
	push	{r3-r11, lr}
	str	sp, [r0]
	mov	r0, r2
	blx	r1
	pop	{r3-r11, pc}
SYM_FUNC_END(lkl_anchor_call)

/* void lkl_jump(void *load, long ret) */
SYM_FUNC_START(lkl_jump)
	mov	sp, r0
	mov	r0, r1
	pop	{r3-r11, pc}
SYM_FUNC_END(lkl_jump)

/*
 * long lkl_syscall_anchored(void **save, fn, const long *params) Like
 * lkl_anchor_call(), with the six arguments of a system call: the last two go
 * on the stack. A 64-bit argument takes a pair of them, as in the host's own
 * calls.
 */
SYM_FUNC_START(lkl_syscall_anchored)
	push	{r3-r11, lr}
	str	sp, [r0]
	mov	r12, r1
	ldr	r4, [r2, #16]
	ldr	r5, [r2, #20]
	push	{r4, r5}
	ldm	r2, {r0-r3}
	blx	r12
	add	sp, sp, #8
	pop	{r3-r11, pc}
SYM_FUNC_END(lkl_syscall_anchored)

	.section .note.GNU-stack, "", %progbits
