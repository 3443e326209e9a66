/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_TIMEX_H
#define _ASM_LKL_TIMEX_H

#define CLOCK_TICK_RATE		1000000

typedef unsigned long cycles_t;

#if defined(__x86_64__)
static inline cycles_t get_cycles(void)
{
	unsigned int lo, hi;

	__asm__ __volatile__("rdtsc" : "=a" (lo), "=d" (hi));
	return lo | (unsigned long)hi << 32;
}
#elif defined(__aarch64__)
static inline cycles_t get_cycles(void)
{
	cycles_t v;

	__asm__ __volatile__("mrs %0, cntvct_el0" : "=r" (v));
	return v;
}
#else
/* 32-bit Arm has no counter that programs can always read. */
unsigned long long lklh_mono(void);

static inline cycles_t get_cycles(void)
{
	return lklh_mono();
}
#endif
#define get_cycles get_cycles

static inline unsigned long random_get_entropy(void)
{
	return get_cycles();
}
#define random_get_entropy random_get_entropy

#endif
