/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_TIMEX_H
#define _ASM_LKL_TIMEX_H

#define CLOCK_TICK_RATE		1000000
#define random_get_entropy	random_get_entropy

typedef unsigned long cycles_t;

static inline cycles_t get_cycles(void)
{
#ifdef __x86_64__
	unsigned int lo, hi;

	__asm__ __volatile__("rdtsc" : "=a" (lo), "=d" (hi));
	return lo | (unsigned long)hi << 32;
#else
	cycles_t v;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r" (v));
	return v;
#endif
}
#define get_cycles get_cycles

static inline unsigned long random_get_entropy(void)
{
	return get_cycles();
}

#endif
