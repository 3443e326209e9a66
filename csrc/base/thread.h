/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The helper threads of lklhost. docs/explanation/internals.md lists them by
 * name, and TestThreads compares this list with running processes.
 */
#ifndef LKLHOST_THREAD_H
#define LKLHOST_THREAD_H

#include <pthread.h>

int thread_start(pthread_t *thread, const char *name, void *(*work)(void *arg), void *arg);

#endif
