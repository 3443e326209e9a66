/* SPDX-License-Identifier: GPL-2.0-only */
/* Destinations of --host-net: interface of hostnet.c and hostnet_rules.c. */
#ifndef LKLHOST_HOSTNET_H
#define LKLHOST_HOSTNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct call;
struct conn;
struct task;

/* hostnet.c */
int64_t hostnet_connect(struct call *c, const struct sockaddr_storage *ss,
			int64_t len);
int64_t hostnet_send(struct call *c, const struct sockaddr_storage *ss,
		     int64_t len);
int64_t hostnet_serve(struct call *c);

/* hostnet_rules.c */
int hostnet_add(const char *text);
bool hostnet_any(void);
bool hostnet_option(const struct conn *conn, int level, int name);
bool hostnet_control(const struct conn *conn, struct msghdr *mh);
bool hostnet_chosen(const struct sockaddr_storage *ss, int64_t len);
void hostnet_count(struct task *t, const struct sockaddr_storage *ss);
void hostnet_uncount(struct task *t);
size_t hostnet_stats(char *buf, size_t len);

#endif
