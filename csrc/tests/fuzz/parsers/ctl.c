// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes the control server with frames of up to four clients, the first of
 * which is lklrun, and with events of the stack and the zygote.
 */
#include "clients.h"
#include "base/lklhost.h"
#include "shared/ctl_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	static bool started;
	unsigned int n;

	if (!started)
		fuzz_loop_start();
	started = true;
	fake_start(&in);
	host.state = get8(&in) % 4;
	clients_start();
	for (n = 0; left(&in) && n < 200; n++) {
		clients_step(&in, get8(&in));
		fuzz_turn();
	}
	fake_end();
	clients_end();
	fuzz_settle();
	return 0;
}
