/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies between the kernel and the process's memory. Short copies fault at
 * instructions listed in the exception table. Long copies go to the C library,
 * which may fault anywhere: lkl_ucopy_sp then says where to return.
 */
#include <linux/linkage.h>

#define SHORT	96
#define FRAME	176

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
	cmp	x2, #SHORT
	b.hi	.Llong
	and	x4, x2, #7
	lsr	x3, x2, #3
	cbz	x3, 2f
1:	ldr	x5, [x1], #8
11:	str	x5, [x0], #8
	subs	x3, x3, #1
	b.ne	1b
2:	cbz	x4, 4f
3:	ldrb	w5, [x1], #1
31:	strb	w5, [x0], #1
	subs	x4, x4, #1
	b.ne	3b
4:	mov	x0, #0
	ret
.Lwords:
	add	x0, x4, x3, lsl #3
	ret
.Lbytes:
	mov	x0, x4
	ret
	EX 1b, .Lwords
	EX 11b, .Lwords
	EX 3b, .Lbytes
	EX 31b, .Lbytes

/* The C library may fault anywhere in a vector routine. */
.Llong:
	adrp	x9, lkl_memcpy
	ldr	x9, [x9, #:lo12:lkl_memcpy]
.Lguarded:
	stp	x29, x30, [sp, #-FRAME]!
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
	stp	d8, d9, [sp, #96]
	stp	d10, d11, [sp, #112]
	stp	d12, d13, [sp, #128]
	stp	d14, d15, [sp, #144]
	str	x2, [sp, #160]
	mov	x10, sp
	adrp	x11, lkl_ucopy_sp
	str	x10, [x11, #:lo12:lkl_ucopy_sp]
	blr	x9
	adrp	x11, lkl_ucopy_sp
	str	xzr, [x11, #:lo12:lkl_ucopy_sp]
	ldp	x29, x30, [sp], #FRAME
	mov	x0, #0
	ret
SYM_FUNC_END(lkl_copy_user)

/* lkl_ucopy_fault - where the fault handler continues with lkl_ucopy_sp */
SYM_FUNC_START(lkl_ucopy_fault)
	adrp	x11, lkl_ucopy_sp
	str	xzr, [x11, #:lo12:lkl_ucopy_sp]
	ldr	x0, [sp, #160]
	ldp	d14, d15, [sp, #144]
	ldp	d12, d13, [sp, #128]
	ldp	d10, d11, [sp, #112]
	ldp	d8, d9, [sp, #96]
	ldp	x27, x28, [sp, #80]
	ldp	x25, x26, [sp, #64]
	ldp	x23, x24, [sp, #48]
	ldp	x21, x22, [sp, #32]
	ldp	x19, x20, [sp, #16]
	ldp	x29, x30, [sp], #FRAME
	ret
SYM_FUNC_END(lkl_ucopy_fault)

/* unsigned long lkl_clear_user(void *to, unsigned long n) */
SYM_FUNC_START(lkl_clear_user)
	mov	x2, x1
	mov	w1, #0
	adrp	x9, lkl_memset
	ldr	x9, [x9, #:lo12:lkl_memset]
	b	.Lguarded
SYM_FUNC_END(lkl_clear_user)

	.section .note.GNU-stack, "", %progbits
