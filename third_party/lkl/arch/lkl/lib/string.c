// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory routines: they call those of the C library, which are optimized for
 * the CPU. Nothing here may be called before lklk_boot().
 */
#include <linux/types.h>
#include <asm/string.h>

void *(*lkl_memcpy)(void *to, const void *from, size_t n);
void *(*lkl_memmove)(void *to, const void *from, size_t n);
void *(*lkl_memset)(void *s, int c, size_t n);
int (*lkl_memcmp)(const void *a, const void *b, size_t n);
size_t (*lkl_strlen)(const char *s);

#undef memcpy
void *memcpy(void *to, const void *from, size_t n)
{
	return lkl_memcpy(to, from, n);
}

#undef memmove
void *memmove(void *to, const void *from, size_t n)
{
	return lkl_memmove(to, from, n);
}

#undef memset
void *memset(void *s, int c, size_t n)
{
	return lkl_memset(s, c, n);
}

#undef memcmp
int memcmp(const void *a, const void *b, size_t n)
{
	return lkl_memcmp(a, b, n);
}

#undef strlen
size_t strlen(const char *s)
{
	return lkl_strlen(s);
}
