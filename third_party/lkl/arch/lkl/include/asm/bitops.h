/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_BITOPS_H
#define _ASM_LKL_BITOPS_H

#include <linux/compiler.h>
#include <asm/barrier.h>

#include <asm-generic/bitops/builtin-__ffs.h>
#include <asm-generic/bitops/builtin-ffs.h>
#include <asm-generic/bitops/builtin-__fls.h>
#include <asm-generic/bitops/builtin-fls.h>
#include <asm-generic/bitops/ffz.h>
#include <asm-generic/bitops/fls64.h>
#include <asm-generic/bitops/sched.h>
#include <asm-generic/bitops/hweight.h>
#include <asm-generic/bitops/non-atomic.h>

/* Atomic is the same as non-atomic here (see atomic.h). */
#define arch_set_bit			generic___set_bit
#define arch_clear_bit			generic___clear_bit
#define arch_change_bit			generic___change_bit
#define arch_test_and_set_bit		generic___test_and_set_bit
#define arch_test_and_clear_bit		generic___test_and_clear_bit
#define arch_test_and_change_bit	generic___test_and_change_bit

static __always_inline bool
arch_xor_unlock_is_negative_byte(unsigned long mask, volatile unsigned long *p)
{
	*p ^= mask;
	return *p & 0x80;
}

#include <asm-generic/bitops/instrumented-atomic.h>

#define arch_test_and_set_bit_lock	arch_test_and_set_bit
#define arch_clear_bit_unlock		arch_clear_bit
#define arch___clear_bit_unlock		arch_clear_bit
#include <asm-generic/bitops/instrumented-lock.h>

#include <asm-generic/bitops/le.h>
#include <asm-generic/bitops/ext2-atomic.h>

#endif
