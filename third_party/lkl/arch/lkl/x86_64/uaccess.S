/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies between the kernel and the process's memory. Short copies fault at
 * instructions listed in the exception table. Long copies go to the C library,
 * which may fault anywhere: lkl_ucopy_sp then says where to return.
 */
#include <linux/linkage.h>

#define SHORT	96

.macro EX from, to
	.pushsection __ex_table, "aw"
	.balign	8
	.quad	\from, \to
	.popsection
.endm

	.text

/*
 * unsigned long lkl_copy_user(void *to, const void *from, unsigned long n)
 * Returns the number of bytes not copied.
 */
SYM_FUNC_START(lkl_copy_user)
	cmpq	$SHORT, %rdx
	ja	.Llong
	movl	%edx, %ecx
	shrl	$3, %ecx
	jz	2f
1:	movq	(%rsi), %rax
11:	movq	%rax, (%rdi)
	addq	$8, %rsi
	addq	$8, %rdi
	decl	%ecx
	jnz	1b
2:	andl	$7, %edx
	jz	4f
3:	movb	(%rsi), %al
31:	movb	%al, (%rdi)
	incq	%rsi
	incq	%rdi
	decl	%edx
	jnz	3b
4:	xorl	%eax, %eax
	ret
.Lwords:
	andl	$7, %edx
	leal	(%rdx, %rcx, 8), %eax
	ret
.Lbytes:
	movl	%edx, %eax
	ret
	EX 1b, .Lwords
	EX 11b, .Lwords
	EX 3b, .Lbytes
	EX 31b, .Lbytes

.Llong:
	movq	lkl_memcpy(%rip), %rax
.Lguarded:
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushq	%rdx
	movq	%rsp, lkl_ucopy_sp(%rip)
	call	*%rax
	movq	$0, lkl_ucopy_sp(%rip)
	addq	$56, %rsp
	xorl	%eax, %eax
	ret
SYM_FUNC_END(lkl_copy_user)

/* lkl_ucopy_fault - where the fault handler continues with lkl_ucopy_sp */
SYM_FUNC_START(lkl_ucopy_fault)
	movq	$0, lkl_ucopy_sp(%rip)
	popq	%rax
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret
SYM_FUNC_END(lkl_ucopy_fault)

/* unsigned long lkl_clear_user(void *to, unsigned long n) */
SYM_FUNC_START(lkl_clear_user)
	movq	%rsi, %rdx
	xorl	%esi, %esi
	movq	lkl_memset(%rip), %rax
	jmp	.Lguarded
SYM_FUNC_END(lkl_clear_user)

	.section .note.GNU-stack, "", @progbits
