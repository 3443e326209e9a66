// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's memcpy().
 *
 * The C library's memcpy() is good for short copies. Above a certain length it
 * uses "rep movsb". On Zen 4 this falls to a twentieth of its speed if the
 * target is 1 to 15 bytes after the source within a page. A stream meets that
 * now and then, and a program with an unlucky buffer always. Vector code has no
 * such weakness.
 */
#include "internal.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define LONG	1024	/* shorter copies go to the C library */

__attribute__((target("avx2")))
static void *copy_avx2(void *to, const void *from, size_t n)
{
	const char *s = from;
	char *d = to;
	size_t skip;

	if (n < LONG)
		return memcpy(to, from, n);
	_mm256_storeu_si256((__m256i *)d, _mm256_loadu_si256((const __m256i *)s));
	skip = 32 - ((unsigned long)d & 31);
	d += skip;
	s += skip;
	n -= skip;
	for (; n > 128; n -= 128, d += 128, s += 128) {
		__m256i a = _mm256_loadu_si256((const __m256i *)s);
		__m256i b = _mm256_loadu_si256((const __m256i *)(s + 32));
		__m256i c = _mm256_loadu_si256((const __m256i *)(s + 64));
		__m256i e = _mm256_loadu_si256((const __m256i *)(s + 96));

		_mm256_store_si256((__m256i *)d, a);
		_mm256_store_si256((__m256i *)(d + 32), b);
		_mm256_store_si256((__m256i *)(d + 64), c);
		_mm256_store_si256((__m256i *)(d + 96), e);
	}
	for (; n > 32; n -= 32, d += 32, s += 32)
		_mm256_store_si256((__m256i *)d,
				   _mm256_loadu_si256((const __m256i *)s));
	_mm256_storeu_si256((__m256i *)(d + n - 32),
			    _mm256_loadu_si256((const __m256i *)(s + n - 32)));
	return to;
}

/**
 * copy_routine - the best routine for this processor
 */
void *(*copy_routine(void))(void *, const void *, size_t)
{
	return __builtin_cpu_supports("avx2") ? copy_avx2 : memcpy;
}
#else
void *(*copy_routine(void))(void *, const void *, size_t)
{
	return memcpy;
}
#endif
