/* SPDX-License-Identifier: GPL-2.0-only */
/* Hide files of the host from the target, and keep them hidden. */
#ifndef LKLHOST_HIDE_SERVICES_H
#define LKLHOST_HIDE_SERVICES_H

void covers_make(int sync, const char *resolv, int proc);

#endif
