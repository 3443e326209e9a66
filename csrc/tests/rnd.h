/* SPDX-License-Identifier: GPL-2.0-only */
/* Reproducible random numbers from a seed, separate for each thread. */
#ifndef RND_H
#define RND_H

#include <stdint.h>

extern __thread uint64_t rnd_state;	/* defined in one file of each program */

/** rnd_seed - set the seed of the calling thread */
static inline void rnd_seed(uint64_t seed)
{
	rnd_state = (seed + 1) * 0x9e3779b97f4a7c15ull;
}

/** rnd - return a random number (xorshift64*) */
static inline uint64_t rnd(void)
{
	rnd_state ^= rnd_state >> 12;
	rnd_state ^= rnd_state << 25;
	rnd_state ^= rnd_state >> 27;
	return rnd_state * 0x2545f4914f6cdd1dull;
}

/** below - return a random number from 0 to @n - 1 */
static inline uint64_t below(uint64_t n)
{
	return (rnd() >> 11) % n;
}

#endif
