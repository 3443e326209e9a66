/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls that C cannot express. */

	.text

/*
 * long preload_on_stack(long nr, long *args, long (*fn)(long, long *), void *top)
 */
	.p2align 4
	.globl preload_on_stack
	.hidden preload_on_stack
	.type preload_on_stack, %function
preload_on_stack:
	.cfi_startproc
	hint	#34
	stp	x29, x30, [sp, #-16]!
	.cfi_adjust_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	.cfi_def_cfa_register x29
	mov	sp, x3
	blr	x2
	mov	sp, x29
	.cfi_def_cfa_register sp
	ldp	x29, x30, [sp], #16
	.cfi_adjust_cfa_offset -16
	.cfi_restore x29
	.cfi_restore x30
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
	.type preload_copy, %function
preload_copy:
	.cfi_startproc
	hint	#34
	.globl preload_copy_begin, preload_copy_end, preload_copy_fault
	.hidden preload_copy_begin, preload_copy_end, preload_copy_fault
preload_copy_begin:
	subs	x2, x2, #8
	b.lo	2f
1:	ldr	x3, [x1], #8
	str	x3, [x0], #8
	subs	x2, x2, #8
	b.hs	1b
2:	adds	x2, x2, #8
	b.eq	4f
3:	ldrb	w3, [x1], #1
	strb	w3, [x0], #1
	subs	x2, x2, #1
	b.ne	3b
preload_copy_end:
4:	mov	w0, #0
	ret
preload_copy_fault:
	mov	w0, #-14
	ret
	.cfi_endproc
	.size preload_copy, . - preload_copy

	.section .note.GNU-stack,"",%progbits
