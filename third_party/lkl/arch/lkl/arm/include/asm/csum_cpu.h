/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CSUM_CPU_H
#define _ASM_LKL_CSUM_CPU_H

/**
 * lkl_csum_block - add 64 bytes to a one's complement sum
 *
 * Word by word, because ldm requires aligned addresses.
 */
static inline unsigned long lkl_csum_block(const unsigned char *p,
					   unsigned long sum)
{
	unsigned long a, b;

#define TWO(first, i)							\
	"ldr	%[a], [%[p], #" #i " * 8]\n\t"				\
	"ldr	%[b], [%[p], #" #i " * 8 + 4]\n\t"			\
	first "	%[s], %[s], %[a]\n\t"					\
	"adcs	%[s], %[s], %[b]\n\t"
	asm(TWO("adds", 0) TWO("adcs", 1) TWO("adcs", 2) TWO("adcs", 3)
	    TWO("adcs", 4) TWO("adcs", 5) TWO("adcs", 6) TWO("adcs", 7)
	    "adc	%[s], %[s], #0"
	    : [s] "+&r" (sum), [a] "=&r" (a), [b] "=&r" (b)
	    : [p] "r" (p), "m" (*(const char (*)[64])p)
	    : "cc");
#undef TWO
	return sum;
}

#endif
