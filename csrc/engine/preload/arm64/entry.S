/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The entry point of patched system calls.
 *
 * `svc` changes no register except x0. The entry point therefore saves and
 * restores all others, including the flags and the vector registers, of which
 * the kernel preserves 128 bits each. AAPCS64 has no red zone below sp, so the
 * registers are saved there.
 */
#include <asm/unistd.h>

#include "engine/preload/entry.h"

#define TRAMP_FRAME	48

	.text
/*
 * preload_tramp: the template of the trampolines. Each patched `svc` jumps to a
 * copy of it, in which patch.c fills in the two words at the end and the last
 * jump.
 *
 * Some calls leave the thread with another stack, or with none. For these calls
 * the trampoline does not touch the stack, before or after. It recognizes their
 * numbers with no register but x8.
 */
	.p2align 3
	.globl preload_tramp
	.hidden preload_tramp
preload_tramp:
	sub	x8, x8, #__NR_exit
	cbz	w8, 5f
	sub	x8, x8, #__NR_rt_sigreturn - __NR_exit
	cbz	w8, 4f
	sub	x8, x8, #__NR_munmap - __NR_rt_sigreturn
	cbz	w8, 3f
	sub	x8, x8, #__NR_clone - __NR_munmap
	cbz	w8, 2f
	sub	x8, x8, #__NR_clone3 - __NR_clone
	cbz	w8, 1f
	add	x8, x8, #__NR_clone3
	stp	x16, x17, [sp, #-TRAMP_FRAME]!
	stp	x29, x30, [sp, #16]
	ldr	x17, .Ldata + 8
	str	x17, [sp, #32]
	ldr	x16, .Ldata
	blr	x16
	ldp	x29, x30, [sp, #16]
	ldp	x16, x17, [sp], #TRAMP_FRAME
	b	.Ljump
1:	add	x8, x8, #__NR_clone3 - __NR_clone
2:	add	x8, x8, #__NR_clone - __NR_munmap
3:	add	x8, x8, #__NR_munmap - __NR_rt_sigreturn
4:	add	x8, x8, #__NR_rt_sigreturn - __NR_exit
5:	add	x8, x8, #__NR_exit
	svc	#0
.Ljump:
	b	.Ljump
	.p2align 3
.Ldata:
	.quad	0		/* preload_entry */
	.quad	0		/* where to continue */
.Lend:

/*
 * preload_tramp_at: the length of the template, and the offsets of its jump and
 * words
 */
	.section .rodata
	.p2align 2
	.globl preload_tramp_at
	.hidden preload_tramp_at
preload_tramp_at:
	.word	.Lend - preload_tramp
	.word	.Ljump - preload_tramp
	.word	.Ldata - preload_tramp

	.text

/*
 * preload_entry: called by a trampoline. The trampoline's frame of TRAMP_FRAME
 * bytes holds x16, x17, x29, x30 and the address where the program continues.
 * x8 is the call number. Calls on descriptors of the host take the short path.
 *
 * An unwinder sees this frame as called by the program's code, at the
 * instruction that was patched. The return address has a column of its own, the
 * one that libgcc uses for signal frames, because x30 belongs to the program.
 */
#define RA	96

	.p2align 6
	.globl preload_entry
	.hidden preload_entry
	.type preload_entry, %function
preload_entry:
	.cfi_startproc
	.cfi_return_column RA
	.cfi_def_cfa sp, TRAMP_FRAME
	.cfi_offset x16, -TRAMP_FRAME
	.cfi_offset x17, 8 - TRAMP_FRAME
	.cfi_offset x29, 16 - TRAMP_FRAME
	.cfi_offset x30, 24 - TRAMP_FRAME
	.cfi_offset RA, 32 - TRAMP_FRAME
	hint	#34		/* bti c */
	lsr	w16, w8, #ENTRY_CALLS_SHIFT
	cbnz	w16, .Lnative
	adrp	x16, preload_class
	add	x16, x16, :lo12:preload_class
	ldrb	w16, [x16, w8, uxtw]
	cbz	w16, .Lnative
	sub	w16, w16, #CLASS_LOOK
	cbz	w16, .Lslow
	lsr	w16, w0, #ENTRY_FDS_SHIFT
	cbnz	w16, .Lnative
	adrp	x16, preload_kind
	ldr	x16, [x16, :lo12:preload_kind]
	ldrb	w16, [x16, w0, uxtw]
	and	w16, w16, #KIND_MASK
	cbnz	w16, .Lslow
.Lnative:
	.globl preload_native
	.hidden preload_native
preload_native:
	svc	#0
	ret

#define FRAME	688		/* 176 for general registers, 512 for vector registers */

.Lslow:
	sub	sp, sp, #FRAME
	.cfi_adjust_cfa_offset FRAME
	stp	x0, x1, [sp]
	stp	x2, x3, [sp, #16]
	stp	x4, x5, [sp, #32]
	stp	x6, x7, [sp, #48]
	stp	x8, x9, [sp, #64]
	stp	x10, x11, [sp, #80]
	stp	x12, x13, [sp, #96]
	stp	x14, x15, [sp, #112]
	mrs	x16, nzcv
	stp	x18, x30, [sp, #128]
	str	x16, [sp, #144]
	stp	q0, q1, [sp, #176]
	stp	q2, q3, [sp, #208]
	stp	q4, q5, [sp, #240]
	stp	q6, q7, [sp, #272]
	stp	q8, q9, [sp, #304]
	stp	q10, q11, [sp, #336]
	stp	q12, q13, [sp, #368]
	stp	q14, q15, [sp, #400]
	stp	q16, q17, [sp, #432]
	stp	q18, q19, [sp, #464]
	stp	q20, q21, [sp, #496]
	stp	q22, q23, [sp, #528]
	stp	q24, q25, [sp, #560]
	stp	q26, q27, [sp, #592]
	stp	q28, q29, [sp, #624]
	stp	q30, q31, [sp, #656]
	sxtw	x0, w8
	mov	x1, sp
	bl	preload_dispatch
	ldp	q0, q1, [sp, #176]
	ldp	q2, q3, [sp, #208]
	ldp	q4, q5, [sp, #240]
	ldp	q6, q7, [sp, #272]
	ldp	q8, q9, [sp, #304]
	ldp	q10, q11, [sp, #336]
	ldp	q12, q13, [sp, #368]
	ldp	q14, q15, [sp, #400]
	ldp	q16, q17, [sp, #432]
	ldp	q18, q19, [sp, #464]
	ldp	q20, q21, [sp, #496]
	ldp	q22, q23, [sp, #528]
	ldp	q24, q25, [sp, #560]
	ldp	q26, q27, [sp, #592]
	ldp	q28, q29, [sp, #624]
	ldp	q30, q31, [sp, #656]
	ldr	x16, [sp, #144]
	ldp	x18, x30, [sp, #128]
	msr	nzcv, x16
	ldr	x1, [sp, #8]
	ldp	x2, x3, [sp, #16]
	ldp	x4, x5, [sp, #32]
	ldp	x6, x7, [sp, #48]
	ldp	x8, x9, [sp, #64]
	ldp	x10, x11, [sp, #80]
	ldp	x12, x13, [sp, #96]
	ldp	x14, x15, [sp, #112]
	add	sp, sp, #FRAME
	.cfi_adjust_cfa_offset -FRAME
	ret
	.cfi_endproc
	.size preload_entry, . - preload_entry

	.section .note.GNU-stack,"",%progbits
