/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The entry point of patched system calls.
 *
 * preload_entry: as after `syscall`, all registers except rax, rcx and r11 must
 * keep their values, and the caller may use the 128 bytes below its stack
 * pointer. rax is the call number, r11 the address where the program continues.
 * Calls on descriptors of the host take the short path, which touches nothing
 * else.
 */
#include "engine/preload/entry.h"

	.text
	.p2align 6
	.globl preload_entry
	.hidden preload_entry
	.type preload_entry, @function
preload_entry:
	.cfi_startproc
	.cfi_def_cfa rsp, 0
	.cfi_register rip, r11
	lea	-128(%rsp), %rsp
	.cfi_adjust_cfa_offset 128
	push	%r11
	.cfi_adjust_cfa_offset 8
	.cfi_offset rip, -136
	cmp	$ENTRY_CALLS, %rax
	jae	.Lnative
	lea	preload_class(%rip), %rcx
	movzbl	(%rcx,%rax), %ecx
	cmp	$CLASS_FD, %ecx
	jb	.Lnative
	ja	.Lslow
	mov	%edi, %r11d
	cmp	$ENTRY_FDS, %r11
	jae	.Lnative
	mov	preload_kind(%rip), %rcx
	testb	$KIND_MASK, (%rcx,%r11)
	jnz	.Lslow
.Lnative:
	.globl preload_native
	.hidden preload_native
preload_native:
	syscall
	pop	%r11
	.cfi_remember_state
	.cfi_adjust_cfa_offset -8
	.cfi_register rip, r11
	lea	128(%rsp), %rsp
	.cfi_adjust_cfa_offset -128
	jmp	*%r11
	.cfi_restore_state
.Lslow:
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_offset rbp, -144
	mov	%rsp, %rbp
	.cfi_def_cfa rbp, 144
	sub	$48, %rsp
	mov	%rdi, -48(%rbp)
	mov	%rsi, -40(%rbp)
	mov	%rdx, -32(%rbp)
	mov	%r10, -24(%rbp)
	mov	%r8, -16(%rbp)
	mov	%r9, -8(%rbp)
	and	$-16, %rsp
	sub	$256, %rsp
	movaps	%xmm0, (%rsp)
	movaps	%xmm1, 16(%rsp)
	movaps	%xmm2, 32(%rsp)
	movaps	%xmm3, 48(%rsp)
	movaps	%xmm4, 64(%rsp)
	movaps	%xmm5, 80(%rsp)
	movaps	%xmm6, 96(%rsp)
	movaps	%xmm7, 112(%rsp)
	movaps	%xmm8, 128(%rsp)
	movaps	%xmm9, 144(%rsp)
	movaps	%xmm10, 160(%rsp)
	movaps	%xmm11, 176(%rsp)
	movaps	%xmm12, 192(%rsp)
	movaps	%xmm13, 208(%rsp)
	movaps	%xmm14, 224(%rsp)
	movaps	%xmm15, 240(%rsp)
	mov	%rax, %rdi
	lea	-48(%rbp), %rsi
	call	preload_dispatch
	movaps	(%rsp), %xmm0
	movaps	16(%rsp), %xmm1
	movaps	32(%rsp), %xmm2
	movaps	48(%rsp), %xmm3
	movaps	64(%rsp), %xmm4
	movaps	80(%rsp), %xmm5
	movaps	96(%rsp), %xmm6
	movaps	112(%rsp), %xmm7
	movaps	128(%rsp), %xmm8
	movaps	144(%rsp), %xmm9
	movaps	160(%rsp), %xmm10
	movaps	176(%rsp), %xmm11
	movaps	192(%rsp), %xmm12
	movaps	208(%rsp), %xmm13
	movaps	224(%rsp), %xmm14
	movaps	240(%rsp), %xmm15
	mov	-48(%rbp), %rdi
	mov	-40(%rbp), %rsi
	mov	-32(%rbp), %rdx
	mov	-24(%rbp), %r10
	mov	-16(%rbp), %r8
	mov	-8(%rbp), %r9
	mov	%rbp, %rsp
	pop	%rbp
	.cfi_def_cfa rsp, 136
	.cfi_restore rbp
	pop	%r11
	.cfi_adjust_cfa_offset -8
	.cfi_register rip, r11
	lea	128(%rsp), %rsp
	.cfi_adjust_cfa_offset -128
	jmp	*%r11
	.cfi_endproc
	.size preload_entry, . - preload_entry

	.section .note.GNU-stack,"",@progbits
