/* SPDX-License-Identifier: GPL-2.0-only */
/* The back ends of the stack: declarations shared by the files of this room. */
#ifndef LKLHOST_STACK_BACKEND_H
#define LKLHOST_STACK_BACKEND_H

#include "stack/stack.h"

/* Tag in the epoll data of the stack library's own descriptors. */
#define LOOP_STACK_TAG	0x8000000000000000ull

extern const struct stack_ops stack_old_ops;
extern const struct stack_ops stack_new_ops;

int stack_native_bind(void *lib, char *err, size_t errlen);
void *stack_symbol(void *lib, const char *name, char *err, size_t errlen);

/*
 * Access to the library: stack_dl.c loads it; builds for other machines are
 * linked with it (stack_linked.c). Exactly one of the two files is linked.
 *
 * stack_lib_open() returns a handle of the library at @path, or NULL with one
 * line for the user in @err. stack_lib_find() returns one of its functions, or
 * NULL if it has none of this name.
 */
void *stack_lib_open(const char *path, char *err, size_t errlen);
void *stack_lib_find(void *lib, const char *name);

#endif
