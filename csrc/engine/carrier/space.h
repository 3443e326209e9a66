/* SPDX-License-Identifier: GPL-2.0-only */
/* Network namespaces that the target has made, see space.c. */
#ifndef LKLHOST_SPACE_H
#define LKLHOST_SPACE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct call;
struct conn;
struct space;

/* space.c */
int space_init(void);
int space_serve(int netns);
int64_t space_setns(struct call *c);
int64_t space_unshare(struct call *c);
int space_of(struct call *c, struct space **space);
int space_enter_of(pid_t tid);
int space_enter(const struct space *s);
void space_leave(void);
int space_control_fd(struct space *s, int domain);
int space_stack_fd(int fd);
int space_open(pid_t pid);
int space_number(uint64_t ino);
int space_enter_number(int number);
size_t space_list(uint64_t *inos, size_t room);
void space_stop(void);

/* space_names.c */
void space_references(const struct call *c, const struct conn *conn, char *msgs,
		      size_t len);

#endif
