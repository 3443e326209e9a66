/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_TLB_H
#define _ASM_LKL_TLB_H
#include <asm-generic/tlb.h>
#endif
