/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CSUM_CPU_H
#define _ASM_LKL_CSUM_CPU_H

/**
 * lkl_csum_block - add 64 bytes to a one's complement sum
 */
static inline unsigned long lkl_csum_block(const unsigned char *p,
					   unsigned long sum)
{
	unsigned long a, b, c, d;

	asm("ldp	%[a], %[b], [%[p]]\n\t"
	    "ldp	%[c], %[d], [%[p], #16]\n\t"
	    "adds	%[s], %[s], %[a]\n\t"
	    "adcs	%[s], %[s], %[b]\n\t"
	    "adcs	%[s], %[s], %[c]\n\t"
	    "adcs	%[s], %[s], %[d]\n\t"
	    "ldp	%[a], %[b], [%[p], #32]\n\t"
	    "ldp	%[c], %[d], [%[p], #48]\n\t"
	    "adcs	%[s], %[s], %[a]\n\t"
	    "adcs	%[s], %[s], %[b]\n\t"
	    "adcs	%[s], %[s], %[c]\n\t"
	    "adcs	%[s], %[s], %[d]\n\t"
	    "adc	%[s], %[s], xzr"
	    : [s] "+&r" (sum), [a] "=&r" (a), [b] "=&r" (b), [c] "=&r" (c),
	      [d] "=&r" (d)
	    : [p] "r" (p), "m" (*(const char (*)[64])p)
	    : "cc");
	return sum;
}

#endif
