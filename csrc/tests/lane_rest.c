// SPDX-License-Identifier: GPL-2.0-only
/*
 * lane_rest SEED POSITION: reads standard input to its end and checks that it is the
 * stream's rest. Static, so that nothing can be loaded into it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lane_bytes.h"

int main(int argc, char **argv)
{
	static char buf[100000];
	uint32_t seed = argc > 2 ? (uint32_t)atol(argv[1]) : 0;
	uint64_t pos = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	ssize_t n;

	while ((n = read(0, buf, sizeof(buf))) > 0) {
		if (wrong(buf, seed, pos, (size_t)n) >= 0)
			return 1;
		pos += (uint64_t)n;
	}
	printf("rest: up to %llu\n", (unsigned long long)pos);
	return n ? 1 : 0;
}
