/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies between the kernel and the process's memory. Short copies fault at
 * instructions listed in the exception table. Long copies go to the C library,
 * which may fault anywhere: lkl_ucopy_sp then says where to return.
 */
#include <linux/linkage.h>

#define SHORT	64

.macro EX from, to
	.pushsection __ex_table, "aw"
	.balign	4
	.long	\from, \to
	.popsection
.endm

/* The address of @sym, without a text relocation */
.macro ADDRESS reg, sym
	movw	\reg, #:lower16:(\sym - (9f + 8))
	movt	\reg, #:upper16:(\sym - (9f + 8))
9:	add	\reg, \reg, pc
.endm

	.syntax	unified
	.arm
	.fpu	vfpv3-d16
	.text

/*
 * unsigned long lkl_copy_user(void *to, const void *from, unsigned long n)
 * Returns the number of bytes not copied. ldr and str accept any alignment.
 */
SYM_FUNC_START(lkl_copy_user)
	cmp	r2, #SHORT
	bhi	.Llong
	push	{r4, lr}
	and	r4, r2, #3
	lsrs	r3, r2, #2
	beq	2f
1:	ldr	r12, [r1], #4
11:	str	r12, [r0], #4
	subs	r3, r3, #1
	bne	1b
2:	cmp	r4, #0
	beq	4f
3:	ldrb	r12, [r1], #1
31:	strb	r12, [r0], #1
	subs	r4, r4, #1
	bne	3b
4:	mov	r0, #0
	pop	{r4, pc}
.Lwords:
	add	r0, r4, r3, lsl #2
	pop	{r4, pc}
.Lbytes:
	mov	r0, r4
	pop	{r4, pc}
	EX 1b, .Lwords
	EX 11b, .Lwords
	EX 3b, .Lbytes
	EX 31b, .Lbytes

/* The C library may fault anywhere in a vector routine. */
.Llong:
	ADDRESS	r12, lkl_memcpy
	ldr	r12, [r12]
.Lguarded:
	push	{r2, r4-r11, lr}
	vpush	{d8-d15}
	ADDRESS	r3, lkl_ucopy_sp
	str	sp, [r3]
	blx	r12
	ADDRESS	r3, lkl_ucopy_sp
	mov	r0, #0
	str	r0, [r3]
	add	sp, sp, #(64 + 36)
	pop	{pc}
SYM_FUNC_END(lkl_copy_user)

/* lkl_ucopy_fault - where the fault handler continues with lkl_ucopy_sp */
SYM_FUNC_START(lkl_ucopy_fault)
	ADDRESS	r3, lkl_ucopy_sp
	mov	r0, #0
	str	r0, [r3]
	vpop	{d8-d15}
	pop	{r0, r4-r11, pc}
SYM_FUNC_END(lkl_ucopy_fault)

/* unsigned long lkl_clear_user(void *to, unsigned long n) */
SYM_FUNC_START(lkl_clear_user)
	mov	r2, r1
	mov	r1, #0
	ADDRESS	r12, lkl_memset
	ldr	r12, [r12]
	b	.Lguarded
SYM_FUNC_END(lkl_clear_user)

	.section .note.GNU-stack, "", %progbits
