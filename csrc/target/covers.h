/* SPDX-License-Identifier: GPL-2.0-only */
/* Hide files of the host from the target, and keep them hidden. */
#ifndef LKLHOST_COVERS_H
#define LKLHOST_COVERS_H

void covers_make(int sync, const char *resolv);

#endif
