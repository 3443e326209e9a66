// SPDX-License-Identifier: GPL-2.0-only
/* The state that the files of the engine share; internal.h describes it. */
#define _GNU_SOURCE
#include "engine/preload/internal.h"

__thread struct inside me;
struct preload_stack lkl;
struct counts counts;
bool use_mptcp;

unsigned char preload_class[ENTRY_CALLS];
unsigned char *preload_kind;
struct entry *entries;
struct sock *socks;
int max_fd;

int owner_pid;
/* On a page that is empty in a child after fork() */
volatile int *alive;
