/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by patch.c, patch_pool.c and the code of each CPU (x86_64/patch.c,
 * arm64/patch.c).
 */
#ifndef PRELOAD_PATCH_H
#define PRELOAD_PATCH_H

#include <stddef.h>
#include <stdint.h>

#include "engine/preload/internal.h"

/**
 * struct text - the executable part of the C library
 * @fn: an address inside it, to find it
 * @start, @end: its bounds; code is read here and written in the copy
 * @readable: it is mapped readable, not only executable
 * @page: the page it begins with, @len bytes in all
 * @copy: a copy of all pages, which replaces them once it is patched
 */
struct text {
	uintptr_t fn;
	unsigned char *start, *end;
	bool readable;
	unsigned char *page, *copy;
	size_t len;
};

/** text_at - the address in the copy that corresponds to @p */
static inline unsigned char *text_at(const struct text *t, const unsigned char *p)
{
	return t->copy + (p - t->page);
}

/*
 * pool_make - allocate memory for trampolines, at most @reach bytes away from the
 * text
 */
int pool_make(const struct text *t, long reach) HIDDEN;

/*
 * pool_take - memory for a trampoline within reach of the text; NULL if used up
 */
unsigned char *pool_take(size_t len) HIDDEN;

/*
 * pool_seal - make the trampolines executable and read-only; returns -1 and sets
 * errno on failure
 */
int pool_seal(void) HIDDEN;

/*
 * arch_patch - patch every system call of interest in the copy
 *
 * Returns the number of patched calls, or a negative errno.
 */
int arch_patch(const struct text *t) HIDDEN;

/* The reach of the CPU's jumps, minus a margin */
extern HIDDEN const long arch_reach;

#endif
