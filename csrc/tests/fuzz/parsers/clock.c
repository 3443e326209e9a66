// SPDX-License-Identifier: GPL-2.0-only
/* The clock of a fuzzer, which the input advances. */
#define _GNU_SOURCE
#include <time.h>

#include "fuzz.h"

static uint64_t clock_ns = 1000000000;

/** fuzz_clock - replaces clock_gettime() for CLOCK_MONOTONIC */
static int fuzz_clock(clockid_t id, struct timespec *ts)
{
	(void)id;
	ts->tv_sec = (time_t)(clock_ns / 1000000000);
	ts->tv_nsec = (long)(clock_ns % 1000000000);
	return 0;
}

#define clock_gettime fuzz_clock
#include "base/later.c"

/** fuzz_clock_add - let time pass */
void fuzz_clock_add(uint32_t ms)
{
	clock_ns += ms * 1000000ull;
}
