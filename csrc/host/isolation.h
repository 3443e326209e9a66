/* SPDX-License-Identifier: GPL-2.0-only */
/* Drop rights before lklhost reads a byte from the network. */
#ifndef LKLHOST_ISOLATION_H
#define LKLHOST_ISOLATION_H

void isolate_descriptors(void);
void isolate(void);

#endif
