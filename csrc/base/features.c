// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the ways in which lklhost works on older kernels: the environment
 * variable names features, separated by commas, that lklhost must not use. The
 * same variable serves lklrun (internal/run/preflight).
 */
#include <stdlib.h>
#include <string.h>

#include "base/features.h"

#define LACKS_ENV	"LKLRUN_TEST_LACKS"

/** feature_hidden - whether a test hides this feature of the host's kernel */
bool feature_hidden(const char *feature)
{
	const char *p = getenv(LACKS_ENV);
	size_t len = strlen(feature);

	for (; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, feature, len) && (!p[len] || p[len] == ','))
			return true;
	}
	return false;
}
