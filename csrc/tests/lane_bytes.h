/* SPDX-License-Identifier: GPL-2.0-only */
/* A stream whose every byte is known by its place: for lane_mix.c, and lane_rest.c. */
#ifndef LANE_BYTES_H
#define LANE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/** byte_at - of the stream @seed */
static inline char byte_at(uint32_t seed, uint64_t pos)
{
	return (char)((pos + seed) * 0x9e3779b97f4a7c15ull >> 56);
}

/** fill - @n bytes from @pos on */
static inline void fill(char *buf, uint32_t seed, uint64_t pos, size_t n)
{
	while (n--)
		*buf++ = byte_at(seed, pos++);
}

/** wrong - the place of the first byte of @n that is not as it should be, -1: none */
static inline int64_t wrong(const char *buf, uint32_t seed, uint64_t pos, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (buf[i] != byte_at(seed, pos + i))
			return (int64_t)(pos + i);
	}
	return -1;
}

#endif
