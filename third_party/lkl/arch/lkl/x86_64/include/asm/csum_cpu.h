/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CSUM_CPU_H
#define _ASM_LKL_CSUM_CPU_H

/**
 * lkl_csum_block - add 64 bytes to a one's complement sum
 */
static inline unsigned long lkl_csum_block(const unsigned char *p,
					   unsigned long sum)
{
	asm("addq 0*8(%[p]), %[s]\n\t"
	    "adcq 1*8(%[p]), %[s]\n\t"
	    "adcq 2*8(%[p]), %[s]\n\t"
	    "adcq 3*8(%[p]), %[s]\n\t"
	    "adcq 4*8(%[p]), %[s]\n\t"
	    "adcq 5*8(%[p]), %[s]\n\t"
	    "adcq 6*8(%[p]), %[s]\n\t"
	    "adcq 7*8(%[p]), %[s]\n\t"
	    "adcq $0, %[s]"
	    : [s] "+&r" (sum)
	    : [p] "r" (p), "m" (*(const char (*)[64])p));
	return sum;
}

#endif
