// SPDX-License-Identifier: GPL-2.0-only
/* The state of lklhost as a whole. */
#include "base/lklhost.h"

struct lklhost host = { .ctl_fd = 3, .lock_fd = -1, .cleanup_fd = -1, .gateway_fd = -1,
			.abi = "auto" };
