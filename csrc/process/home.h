/* SPDX-License-Identifier: GPL-2.0-only */
/* The helper that stays in the host's network namespace. */
#ifndef LKLHOST_HOME_H
#define LKLHOST_HOME_H

#include <sys/types.h>

int home_start(void);
int home_socket(int domain, int type, int proto);

#endif
