/* SPDX-License-Identifier: GPL-2.0-only */
/* What lklhost gives up before it reads a byte from the network. */
#ifndef LKLHOST_ISOLATION_H
#define LKLHOST_ISOLATION_H

void isolate_descriptors(void);
void isolate(void);

#endif
