/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_UACCESS_CPU_H
#define _ASM_LKL_UACCESS_CPU_H

/*
 * One load and one store, either of which may access user memory. The exception
 * table has the generic layout: two absolute addresses. ldr, ldrh and their
 * counterparts accept any alignment. ldrd and ldm do not, so 64 bits take two
 * word accesses.
 */
#define lkl_ldst(err, to, from, type, suffix)				\
do {									\
	unsigned int __v;						\
									\
	asm volatile("1:	ldr" suffix " %1, %3\n"			\
		     "2:	str" suffix " %1, %2\n"			\
		     "3:\n"						\
		     ".section .text.fixup,\"ax\"\n"			\
		     "4:	mov %0, %4\n"				\
		     "	b 3b\n"						\
		     ".previous\n"					\
		     ".section __ex_table,\"aw\"\n"			\
		     "	.balign 4\n"					\
		     "	.long 1b, 4b\n"					\
		     "	.long 2b, 4b\n"					\
		     ".previous\n"					\
		     : "+r" (err), "=&r" (__v), "=Q" (*(type *)(to))	\
		     : "Q" (*(const type *)(from)), "i" (-EFAULT));	\
} while (0)

#define lkl_ldst1(err, to, from)	lkl_ldst(err, to, from, u8, "b")
#define lkl_ldst2(err, to, from)	lkl_ldst(err, to, from, u16, "h")
#define lkl_ldst4(err, to, from)	lkl_ldst(err, to, from, u32, "")
#define lkl_ldst8(err, to, from)					\
do {									\
	lkl_ldst4(err, to, from);					\
	lkl_ldst4(err, (char *)(to) + 4, (const char *)(from) + 4);	\
} while (0)

#endif
