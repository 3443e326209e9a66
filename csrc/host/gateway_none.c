// SPDX-License-Identifier: GPL-2.0-only
/* In place of gateway_mode.c: an lklhost that cannot be the kernel of a gateway. */
#include <errno.h>

#include "host/host.h"

int gateway_start(char *err, size_t errlen)
{
	(void)err;
	(void)errlen;
	return -EOPNOTSUPP;
}
