/* SPDX-License-Identifier: GPL-2.0-only */
/* Network namespaces that the target has made, see space.c. */
#ifndef LKLHOST_SPACE_H
#define LKLHOST_SPACE_H

#include <stddef.h>
#include <sys/types.h>

struct call;
struct conn;
struct space;

int space_init(void);
int space_serve(int netns);
int space_of(struct call *c, struct space **space);
int space_enter_of(pid_t tid);
int space_enter(const struct space *s);
void space_leave(void);
int space_control_fd(struct space *s, int domain);
void space_references(const struct conn *conn, char *msgs, size_t len);
void space_stop(void);

#endif
