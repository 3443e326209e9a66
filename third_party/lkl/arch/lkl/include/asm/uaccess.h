/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_UACCESS_H
#define _ASM_LKL_UACCESS_H

/*
 * User memory is the process's own memory. A bad pointer raises SIGSEGV in the
 * copy; the host library's handler continues at the fixup (see lkl_fault()).
 */

#include <linux/string.h>
#include <linux/extable.h>

unsigned long lkl_copy_user(void *to, const void *from, unsigned long n);
unsigned long lkl_clear_user(void *to, unsigned long n);

#include <asm/uaccess_cpu.h>

static __always_inline int
lkl_get_user(unsigned long size, const void *from, void *to)
{
	int err = 0;

	switch (size) {
	case 1:
		lkl_ldst1(err, to, from);
		break;
	case 2:
		lkl_ldst2(err, to, from);
		break;
	case 4:
		lkl_ldst4(err, to, from);
		break;
	default:
		lkl_ldst8(err, to, from);
		break;
	}
	return err;
}

#define __get_user_fn(sz, u, k)	lkl_get_user(sz, (const void __force *)(u), k)
#define __put_user_fn(sz, u, k)	lkl_get_user(sz, k, (void __force *)(u))

static inline __must_check unsigned long
raw_copy_from_user(void *to, const void __user *from, unsigned long n)
{
	return lkl_copy_user(to, (const void __force *)from, n);
}

static inline __must_check unsigned long
raw_copy_to_user(void __user *to, const void *from, unsigned long n)
{
	return lkl_copy_user((void __force *)to, from, n);
}

#define INLINE_COPY_FROM_USER
#define INLINE_COPY_TO_USER

#define __get_kernel_nofault(dst, src, type, err_label)			\
do {									\
	if (lkl_get_user(sizeof(type), (src), (dst)))			\
		goto err_label;						\
} while (0)

#define __put_kernel_nofault(dst, src, type, err_label)			\
	__get_kernel_nofault(dst, src, type, err_label)

#define __clear_user(to, n)	lkl_clear_user((void __force *)(to), n)

#include <asm-generic/uaccess.h>

#endif
