// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes the parsers of files in the stack's /proc/net. The target can choose
 * device names and counters in these files.
 */
#include <stdlib.h>

#include "engine/common/proc_text.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	bool group = get8(&in) & 1;
	size_t room = get8(&in), text_len = left(&in);
	char *text = malloc(text_len + 1), *buf = malloc(room + 1);
	uint64_t queued = 0;

	fill(&in, text, text_len);
	text[text_len] = '\0';
	if (!group)
		text_orphans(text, &queued);
	else if (text_group(text, "TcpExt", buf, room) > room)
		abort();
	free(text);
	free(buf);
	return 0;
}
