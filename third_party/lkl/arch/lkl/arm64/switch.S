/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stack switch. A saved context consists of its callee-saved registers and a
 * return address on its stack; the stack pointer is stored elsewhere. All
 * routines use the same layout, so each can resume what another saved.
 *
 * The vector registers are not saved: neither the kernel nor the host library
 * is compiled to use them, so d8 to d15 always belong to the caller. x18
 * belongs to the platform (a shadow stack on Android) and is not touched
 * either.
 */
#include <linux/linkage.h>

.macro SAVE
	stp	x29, x30, [sp, #-96]!
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
.endm

.macro RESTORE
	ldp	x19, x20, [sp, #16]
	ldp	x21, x22, [sp, #32]
	ldp	x23, x24, [sp, #48]
	ldp	x25, x26, [sp, #64]
	ldp	x27, x28, [sp, #80]
	ldp	x29, x30, [sp], #96
.endm

	.text

/* void lkl_switch(void **save, void *load) */
SYM_FUNC_START(lkl_switch)
	SAVE
	mov	x9, sp
	str	x9, [x0]
	mov	sp, x1
	RESTORE
	ret
SYM_FUNC_END(lkl_switch)

/*
 * long lkl_anchor_call(void **save, long (*fn)(void *), void *arg) Returns when
 * fn returns, or when another context jumps to *save.
 */
SYM_FUNC_START(lkl_anchor_call)
	SAVE
	mov	x9, sp
	str	x9, [x0]
	mov	x0, x2
	blr	x1
	RESTORE
	ret
SYM_FUNC_END(lkl_anchor_call)

/* void lkl_jump(void *load, long ret) */
SYM_FUNC_START(lkl_jump)
	mov	sp, x0
	mov	x0, x1
	RESTORE
	ret
SYM_FUNC_END(lkl_jump)

/*
 * long lkl_syscall_anchored(void **save, fn, const long *params) Like
 * lkl_anchor_call(), with the six arguments of a system call.
 */
SYM_FUNC_START(lkl_syscall_anchored)
	SAVE
	mov	x9, sp
	str	x9, [x0]
	mov	x9, x1
	mov	x10, x2
	ldp	x0, x1, [x10]
	ldp	x2, x3, [x10, #16]
	ldp	x4, x5, [x10, #32]
	blr	x9
	RESTORE
	ret
SYM_FUNC_END(lkl_syscall_anchored)

	.section .note.GNU-stack, "", %progbits
