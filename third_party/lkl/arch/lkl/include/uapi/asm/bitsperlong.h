/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _UAPI_ASM_LKL_BITSPERLONG_H
#define _UAPI_ASM_LKL_BITSPERLONG_H
#ifdef __LP64__
#define __BITS_PER_LONG 64
#else
#define __BITS_PER_LONG 32
#endif
#include <asm-generic/bitsperlong.h>
#endif
