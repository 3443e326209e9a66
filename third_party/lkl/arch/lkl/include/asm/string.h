/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_LKL_STRING_H
#define _ASM_LKL_STRING_H

#include <linux/types.h>

/*
 * The C library's routines, which are optimized for the CPU; called through
 * lib/string.c.
 */
#define __HAVE_ARCH_MEMCPY
extern void *memcpy(void *to, const void *from, size_t n);
#define __HAVE_ARCH_MEMMOVE
extern void *memmove(void *to, const void *from, size_t n);
#define __HAVE_ARCH_MEMSET
extern void *memset(void *s, int c, size_t n);
#define __HAVE_ARCH_MEMCMP
extern int memcmp(const void *a, const void *b, size_t n);
#define __HAVE_ARCH_STRLEN
extern size_t strlen(const char *s);

#endif
