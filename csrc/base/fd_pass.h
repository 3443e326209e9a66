/* SPDX-License-Identifier: GPL-2.0-only */
/* Messages that carry descriptors (SCM_RIGHTS, unix(7)). */
#ifndef LKLHOST_FD_PASS_H
#define LKLHOST_FD_PASS_H

#include <stddef.h>
#include <sys/types.h>

#define FD_PASS_MAX	4

ssize_t fd_pass_send(int sock, const void *buf, size_t len, const int *fds,
		     unsigned int n, int flags);
ssize_t fd_pass_recv(int sock, void *buf, size_t len, int *fds,
		     unsigned int *n);

#endif
