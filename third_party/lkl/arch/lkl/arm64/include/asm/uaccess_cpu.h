/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_UACCESS_CPU_H
#define _ASM_LKL_UACCESS_CPU_H

/*
 * One load and one store, either of which may access user memory. The exception
 * table has the generic layout: two absolute addresses.
 */
#define lkl_ldst(err, to, from, type, suffix, w)			\
do {									\
	type __v;							\
									\
	asm volatile("1:	ldr" suffix " %" w "1, %3\n"		\
		     "2:	str" suffix " %" w "1, %2\n"		\
		     "3:\n"						\
		     ".section .text.fixup,\"ax\"\n"			\
		     "4:	mov %w0, %4\n"				\
		     "	b 3b\n"						\
		     ".previous\n"					\
		     ".section __ex_table,\"aw\"\n"			\
		     "	.balign 8\n"					\
		     "	.quad 1b, 4b\n"					\
		     "	.quad 2b, 4b\n"					\
		     ".previous\n"					\
		     : "+r" (err), "=&r" (__v), "=Q" (*(type *)(to))	\
		     : "Q" (*(const type *)(from)), "i" (-EFAULT));	\
} while (0)

#define lkl_ldst1(err, to, from)	lkl_ldst(err, to, from, u8, "b", "w")
#define lkl_ldst2(err, to, from)	lkl_ldst(err, to, from, u16, "h", "w")
#define lkl_ldst4(err, to, from)	lkl_ldst(err, to, from, u32, "", "w")
#define lkl_ldst8(err, to, from)	lkl_ldst(err, to, from, u64, "", "x")

#endif
