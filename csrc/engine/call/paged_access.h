/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads for operations that may take any time; see paged_access.c. */
#ifndef LKLHOST_PAGED_ACCESS_H
#define LKLHOST_PAGED_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;
struct iovec;
struct task;

bool pages_present(const struct call *c, const struct iovec *iov, size_t n,
		   size_t len, bool write);
int64_t paged_read(const struct call *c, const struct iovec *from, size_t n,
		   void *buf, size_t len);
int64_t paged_write(const struct call *c, int fd, const struct iovec *to,
		    const void *buf);
int64_t paged_run(const struct call *c, int64_t (*fn)(void *arg), void *arg,
		  size_t len, bool again);
void paged_start(void);
int paged_park(const struct call *c);
void paged_unpark(const struct call *c);
bool paged_waits(const struct call *c);
void paged_close(const struct call *c, int fd);
void paged_close_held(const struct call *c, int fd);
void paged_close_later(int fd);
void paged_forget(const struct task *t);

#endif
