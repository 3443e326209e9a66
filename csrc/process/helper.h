/* SPDX-License-Identifier: GPL-2.0-only */
/* Helper processes, forked before lklhost gives up rights and namespaces. */
#ifndef LKLHOST_HELPER_H
#define LKLHOST_HELPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HELPER_FDS	3	/* number of the first in a helper */

void helper_out_of_reach(void);
pid_t helper_fork(const char *name, const int *fds, unsigned int n);
void helper_add(pid_t pid);
bool helper_is(pid_t pid);
bool helper_close_from(unsigned int first);

/* keeper.c */
int keeper_start(void);
bool keeper_cleanup(void);

/* caps.c: capabilities(7), by number or as a bit mask of numbers */
bool caps_have(int cap);
void caps_drop(uint64_t caps);
void caps_limit(uint64_t keep);
uint64_t caps_suspend(void);
void caps_resume(uint64_t had);

#endif
