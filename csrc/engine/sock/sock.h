/* SPDX-License-Identifier: GPL-2.0-only */
/* Calls that all kinds of sockets share, and calls without a socket. */
#ifndef LKLHOST_SOCK_H
#define LKLHOST_SOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Timeouts: include/uapi/asm-generic/socket.h, which C libraries lack. */
#define OPT_RCVTIMEO_OLD	20
#define OPT_SNDTIMEO_OLD	21
#define OPT_RCVTIMEO_NEW	66
#define OPT_SNDTIMEO_NEW	67

struct call;
struct conn;
struct stream;

/* sock.c, sockopt.c, ioctl.c */
int64_t sock_socket(struct call *c);
int64_t sock_bind(struct call *c);
int64_t sock_name(struct call *c, bool peer);
int64_t sock_getsockopt(struct call *c);
int64_t sock_setsockopt(struct call *c);
int64_t sock_ioctl(struct call *c);
int control_fd(int domain);
void sock_keep_ports(void);
void sock_netlink_closed(const struct conn *conn);

/* netfilter_opts.c */
bool netfilter_opt_is(int level, int name);
int64_t netfilter_opt_set(const struct call *c);
int64_t netfilter_opt_get(const struct call *c, int len);

/* tun.c */
void tun_set_stand_in(unsigned int minor_dev);
bool is_tun(int fd);
int64_t tun_ioctl(struct call *c);

/* klog.c */
int64_t klog_call(const struct call *c);

#endif
