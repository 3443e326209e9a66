// SPDX-License-Identifier: GPL-2.0-only
/* Memory for trampolines, which the jumps of the patched code must reach. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "engine/preload/patch.h"

#define POOL_SIZE	(256UL << 10)
#define POOL_STEP	(1L << 20)

static unsigned char *pool, *pool_next;

/** pool_try - allocate memory near @hint, if jumps from all of @t reach it */
static bool pool_try(const struct text *t, uintptr_t hint, long reach)
{
	void *p = mmap((void *)hint, POOL_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long before, behind;

	if (p == MAP_FAILED)
		return false;
	before = (long)((uintptr_t)t->end - (uintptr_t)p);
	behind = (long)((uintptr_t)p + POOL_SIZE - (uintptr_t)t->start);
	if (before < reach && behind < reach) {
		pool = pool_next = p;
		return true;
	}
	munmap(p, POOL_SIZE);
	return false;
}

/** pool_make - allocate memory for trampolines within reach of jumps from @t */
int pool_make(const struct text *t, long reach)
{
	uintptr_t start = (uintptr_t)t->start & ~(uintptr_t)(POOL_STEP - 1),
		  end = (uintptr_t)t->end | (POOL_STEP - 1);
	long away;

	for (away = POOL_STEP; away < reach; away += POOL_STEP)
		if (pool_try(t, start - (uintptr_t)away, reach) ||
		    pool_try(t, end + (uintptr_t)away + 1, reach))
			return 0;
	return -ENOMEM;
}

unsigned char *pool_take(size_t len)
{
	unsigned char *p = pool_next;

	if (p + len > pool + POOL_SIZE)
		return NULL;
	pool_next += len;
	return p;
}

int pool_seal(void)
{
	if (mprotect(pool, POOL_SIZE, PROT_READ | PROT_EXEC))
		return -1;
	__builtin___clear_cache((char *)pool, (char *)pool_next);
	return 0;
}
