/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_BARRIER_H
#define _ASM_LKL_BARRIER_H

/*
 * Host threads and devices run concurrently, but there are no other CPUs:
 * smp_*() of asm-generic are compiler barriers.
 */
#define mb()	__sync_synchronize()

#include <asm-generic/barrier.h>

#endif
