/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_CMPXCHG_H
#define _ASM_LKL_CMPXCHG_H

#include <linux/types.h>

/* Plain C, for the reason given in atomic.h. */

#define arch_xchg(ptr, x)						\
({									\
	__typeof__(ptr) __xp = (ptr);					\
	__typeof__(*(ptr)) __xo = *__xp;				\
									\
	*__xp = (x);							\
	__xo;								\
})

#define arch_cmpxchg(ptr, o, n)						\
({									\
	__typeof__(ptr) __cp = (ptr);					\
	__typeof__(*(ptr)) __cv = *__cp;				\
	__typeof__(*(ptr)) __cn = (__typeof__(*(ptr)))(n);		\
									\
	if (__cv == (__typeof__(*(ptr)))(o))				\
		*__cp = __cn;						\
	__cv;								\
})

#define arch_cmpxchg_local	arch_cmpxchg
#define arch_cmpxchg64		arch_cmpxchg
#define arch_cmpxchg64_local	arch_cmpxchg

#endif
