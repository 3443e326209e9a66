/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_PAGE_SIZE_H
#define _ASM_LKL_PAGE_SIZE_H

#include <linux/const.h>

#define PAGE_SHIFT	12
#define PAGE_SIZE	(_AC(1, UL) << PAGE_SHIFT)
#define PAGE_MASK	(~(PAGE_SIZE - 1))

#endif
