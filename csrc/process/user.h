/* SPDX-License-Identifier: GPL-2.0-only */
/* --user: the user that the target runs as. */
#ifndef LKLHOST_USER_H
#define LKLHOST_USER_H

#include <stdbool.h>

bool user_set(const char *text);
int user_rehearse(void);
int user_change(void);
int user_become(void);
bool user_has_namespace(void);
void user_file_ids(void);

#endif
