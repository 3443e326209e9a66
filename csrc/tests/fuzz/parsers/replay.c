// SPDX-License-Identifier: GPL-2.0-only
/*
 * replay FILE...: runs a fuzzer on the given inputs without libFuzzer, for the
 * ordinary tests, which have no clang. It prints TAP. An input that triggers a
 * bug ends the program.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

/** run - run one input, in memory that ends with it; false if it is unreadable */
static bool run(const char *path)
{
	FILE *f = fopen(path, "re");
	uint8_t *data;
	long len = -1;

	if (f && !fseek(f, 0, SEEK_END))
		len = ftell(f);
	data = len < 0 ? NULL : malloc((size_t)len + !len);
	if (data)
		rewind(f);
	if (!data || fread(data, 1, (size_t)len, f) != (size_t)len)
		len = -1;
	if (f)
		fclose(f);
	if (len >= 0)
		LLVMFuzzerTestOneInput(data, (size_t)len);
	free(data);
	return len >= 0;
}

/** main - see the top of this file */
int main(int argc, char **argv)
{
	int i, bad = argc < 2;

	for (i = 1; i < argc; i++) {
		/*
		 * Print the name before the run, so that the last line names an
		 * input that ends the program.
		 */
		printf("# %s\n", argv[i]);
		fflush(stdout);
		if (run(argv[i])) {
			printf("ok %d - %s\n", i, argv[i]);
		} else {
			printf("not ok %d - %s: cannot be read\n", i, argv[i]);
			bad = 1;
		}
	}
	printf("1..%d\n", argc - 1);
	return bad;
}
