/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_ATOMIC_H
#define _ASM_LKL_ATOMIC_H

/*
 * With one CPU and synchronous interrupts nothing can run between a load and a
 * store, so atomics are plain C. The host library has atomics of its own.
 */

#include <linux/types.h>
#include <asm/cmpxchg.h>
#include <asm/barrier.h>
#include <asm/lkl_compat.h>

#define arch_atomic_read(v)	READ_ONCE((v)->counter)
#define arch_atomic_set(v, i)	WRITE_ONCE((v)->counter, (i))
#define arch_atomic64_read(v)	READ_ONCE((v)->counter)
#define arch_atomic64_set(v, i)	WRITE_ONCE((v)->counter, (i))

#ifndef CONFIG_64BIT
typedef struct {
	s64 __aligned(8) counter;
} atomic64_t;
#endif

#define ATOMIC64_INIT(i)	{ (i) }

#define LKL_ATOMIC_OP(pfx, vtype, type, op, c_op)			\
static __always_inline void						\
arch_##pfx##_##op(type i, vtype *v)					\
{									\
	v->counter = v->counter c_op i;					\
}									\
static __always_inline type						\
arch_##pfx##_fetch_##op(type i, vtype *v)				\
{									\
	type old = v->counter;						\
									\
	v->counter = old c_op i;					\
	return old;							\
}

#define LKL_ATOMIC_RETURN(pfx, vtype, type, op, c_op)			\
static __always_inline type						\
arch_##pfx##_##op##_return(type i, vtype *v)				\
{									\
	return v->counter = v->counter c_op i;				\
}

#define LKL_ATOMIC(pfx, vtype, type)					\
	LKL_ATOMIC_OP(pfx, vtype, type, add, +)				\
	LKL_ATOMIC_OP(pfx, vtype, type, sub, -)				\
	LKL_ATOMIC_OP(pfx, vtype, type, and, &)				\
	LKL_ATOMIC_OP(pfx, vtype, type, or, |)				\
	LKL_ATOMIC_OP(pfx, vtype, type, xor, ^)				\
	LKL_ATOMIC_OP(pfx, vtype, type, andnot, & ~)			\
	LKL_ATOMIC_RETURN(pfx, vtype, type, add, +)			\
	LKL_ATOMIC_RETURN(pfx, vtype, type, sub, -)

LKL_ATOMIC(atomic, atomic_t, int)
LKL_ATOMIC(atomic64, atomic64_t, s64)

#define arch_atomic_add			arch_atomic_add
#define arch_atomic_sub			arch_atomic_sub
#define arch_atomic_and			arch_atomic_and
#define arch_atomic_or			arch_atomic_or
#define arch_atomic_xor			arch_atomic_xor
#define arch_atomic_andnot		arch_atomic_andnot
#define arch_atomic_add_return		arch_atomic_add_return
#define arch_atomic_sub_return		arch_atomic_sub_return
#define arch_atomic_fetch_add		arch_atomic_fetch_add
#define arch_atomic_fetch_sub		arch_atomic_fetch_sub
#define arch_atomic_fetch_and		arch_atomic_fetch_and
#define arch_atomic_fetch_or		arch_atomic_fetch_or
#define arch_atomic_fetch_xor		arch_atomic_fetch_xor
#define arch_atomic_fetch_andnot	arch_atomic_fetch_andnot
#define arch_atomic64_add		arch_atomic64_add
#define arch_atomic64_sub		arch_atomic64_sub
#define arch_atomic64_and		arch_atomic64_and
#define arch_atomic64_or		arch_atomic64_or
#define arch_atomic64_xor		arch_atomic64_xor
#define arch_atomic64_andnot		arch_atomic64_andnot
#define arch_atomic64_add_return	arch_atomic64_add_return
#define arch_atomic64_sub_return	arch_atomic64_sub_return
#define arch_atomic64_fetch_add		arch_atomic64_fetch_add
#define arch_atomic64_fetch_sub		arch_atomic64_fetch_sub
#define arch_atomic64_fetch_and		arch_atomic64_fetch_and
#define arch_atomic64_fetch_or		arch_atomic64_fetch_or
#define arch_atomic64_fetch_xor		arch_atomic64_fetch_xor
#define arch_atomic64_fetch_andnot	arch_atomic64_fetch_andnot

#endif
