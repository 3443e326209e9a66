/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stack switch. A saved context consists of its callee-saved registers and a
 * return address on its stack; the stack pointer is stored elsewhere. All three
 * routines use the same layout, so each can resume what another saved.
 */
#include <linux/linkage.h>

.macro SAVE
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
.endm

.macro RESTORE
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
.endm

	.text

/* void lkl_switch(void **save, void *load) */
SYM_FUNC_START(lkl_switch)
	SAVE
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	RESTORE
	ret
SYM_FUNC_END(lkl_switch)

/*
 * long lkl_anchor_call(void **save, long (*fn)(void *), void *arg) Returns when
 * fn returns, or when another context jumps to *save.
 */
SYM_FUNC_START(lkl_anchor_call)
	SAVE
	movq	%rsp, (%rdi)
	subq	$8, %rsp
	movq	%rdx, %rdi
	call	*%rsi
	addq	$8, %rsp
	RESTORE
	ret
SYM_FUNC_END(lkl_anchor_call)

/* void lkl_jump(void *load, long ret) */
SYM_FUNC_START(lkl_jump)
	movq	%rsi, %rax
	movq	%rdi, %rsp
	RESTORE
	ret
SYM_FUNC_END(lkl_jump)

/*
 * long lkl_syscall_anchored(void **save, fn, const long *params) Like
 * lkl_anchor_call(), with the six arguments of a system call.
 */
SYM_FUNC_START(lkl_syscall_anchored)
	SAVE
	movq	%rsp, (%rdi)
	subq	$8, %rsp
	movq	%rsi, %rax
	movq	%rdx, %r10
	movq	(%r10), %rdi
	movq	8(%r10), %rsi
	movq	16(%r10), %rdx
	movq	24(%r10), %rcx
	movq	32(%r10), %r8
	movq	40(%r10), %r9
	call	*%rax
	addq	$8, %rsp
	RESTORE
	ret
SYM_FUNC_END(lkl_syscall_anchored)

	.section .note.GNU-stack, "", @progbits
