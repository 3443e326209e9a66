/* SPDX-License-Identifier: GPL-2.0-only */
/* What of the host's the target must not see, and stays covered. */
#ifndef LKLHOST_COVERS_H
#define LKLHOST_COVERS_H

#include <stdbool.h>

void covers_make(int sync, const char *resolv);
bool covers_refuse(const char *socket);

#endif
