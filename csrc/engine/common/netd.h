/* SPDX-License-Identifier: GPL-2.0-only */
/* The sockets of netd, Android's network daemon. */
#ifndef LKLHOST_NETD_H
#define LKLHOST_NETD_H

#include <stdbool.h>

bool netd_marks(const char *path);
bool netd_names(const char *path);

#endif
