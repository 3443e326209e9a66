/* SPDX-License-Identifier: GPL-2.0-only */
/* Between patch.c and what it has of each CPU (x86_64/patch.c, arm64/patch.c). */
#ifndef PRELOAD_PATCH_H
#define PRELOAD_PATCH_H

#include <stddef.h>
#include <stdint.h>

#include "internal.h"

/**
 * struct text - the executable part of the C library
 * @fn: an address in it, to find it by
 * @start, @end: where it is; read here, for the copy is what is written
 * @page: the page it begins with, @len bytes in all
 * @copy: of the whole, which takes its place when it is patched
 */
struct text {
	uintptr_t fn;
	unsigned char *start, *end;
	unsigned char *page, *copy;
	size_t len;
};

/** text_at - where to write what shall stand at @p */
static inline unsigned char *text_at(const struct text *t, const unsigned char *p)
{
	return t->copy + (p - t->page);
}

/* pool_take - memory for a trampoline, where jumps from the text reach it; NULL: used up */
unsigned char *pool_take(size_t len) HIDDEN;

/* arch_patch - patch every system call of interest in the copy; how many, or a
 * negative errno */
int arch_patch(const struct text *t) HIDDEN;

/* How far a jump of the CPU's goes, with something to spare */
extern HIDDEN const long arch_reach;

#endif
