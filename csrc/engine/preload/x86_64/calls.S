/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls that C cannot express. */

	.text

/*
 * long preload_on_stack(long nr, long *args, long (*fn)(long, long *), void *top)
 */
	.p2align 4
	.globl preload_on_stack
	.hidden preload_on_stack
	.type preload_on_stack, @function
preload_on_stack:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_offset rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register rbp
	mov	%rcx, %rsp
	call	*%rdx
	leave
	.cfi_def_cfa rsp, 8
	ret
	.cfi_endproc
	.size preload_on_stack, . - preload_on_stack

/*
 * int preload_copy(void *to, const void *from, size_t len): copy to or from
 * memory of the program. Returns -EFAULT if it is not mapped: a fault between
 * the first two labels continues at the third (signal.c).
 */
	.p2align 4
	.globl preload_copy
	.hidden preload_copy
	.type preload_copy, @function
preload_copy:
	.cfi_startproc
	mov	%rdx, %rcx
	.globl preload_copy_begin, preload_copy_end, preload_copy_fault
	.hidden preload_copy_begin, preload_copy_end, preload_copy_fault
preload_copy_begin:
	rep movsb
preload_copy_end:
	xor	%eax, %eax
	ret
preload_copy_fault:
	mov	$-14, %eax
	ret
	.cfi_endproc
	.size preload_copy, . - preload_copy

	.section .note.GNU-stack,"",@progbits
