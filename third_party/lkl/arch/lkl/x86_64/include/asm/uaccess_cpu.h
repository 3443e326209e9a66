/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_UACCESS_CPU_H
#define _ASM_LKL_UACCESS_CPU_H

/*
 * One load and one store, either of which may access user memory. The exception
 * table has the generic layout: two absolute addresses.
 */
#define lkl_ldst(err, to, from, type, suffix)				\
do {									\
	type __v;							\
									\
	asm volatile("1:	mov" suffix " %3, %1\n"			\
		     "2:	mov" suffix " %1, %2\n"			\
		     "3:\n"						\
		     ".section .text.fixup,\"ax\"\n"			\
		     "4:	mov %4, %0\n"				\
		     "	jmp 3b\n"					\
		     ".previous\n"					\
		     ".section __ex_table,\"aw\"\n"			\
		     "	.balign 8\n"					\
		     "	.quad 1b, 4b\n"					\
		     "	.quad 2b, 4b\n"					\
		     ".previous\n"					\
		     : "+r" (err), "=&q" (__v), "=m" (*(type *)(to))	\
		     : "m" (*(const type *)(from)), "i" (-EFAULT));	\
} while (0)

#define lkl_ldst1(err, to, from)	lkl_ldst(err, to, from, u8, "b")
#define lkl_ldst2(err, to, from)	lkl_ldst(err, to, from, u16, "w")
#define lkl_ldst4(err, to, from)	lkl_ldst(err, to, from, u32, "l")
#define lkl_ldst8(err, to, from)	lkl_ldst(err, to, from, u64, "q")

#endif
