/* SPDX-License-Identifier: GPL-2.0-only */
/* Messages in the target's memory: common code of sendto and sendmsg. */
#ifndef LKLHOST_MSG_H
#define LKLHOST_MSG_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "engine/call/call.h"

struct kernel_msghdr;

#define MSG_IOV_MAX	1024	/* UIO_MAXIOV; more elements fail with EMSGSIZE */

/**
 * struct user_msg - a message as the caller described it
 * @name: address of the socket address; 0 if there is none
 * @namelen: length of @name (sending) or of its buffer (receiving)
 * @namelenp: address to which a receive writes the length
 * @control: address of the ancillary data
 * @controllen: length of @control (sending) or of its buffer (receiving)
 * @hdr: address of the struct msghdr; 0 for sendto and recvfrom
 * @flags: flags of the call
 * @iov: vector of the data, with addresses in the caller
 * @iovcnt: number of entries in @iov
 * @total: sum of the lengths in @iov
 * @batch: our copy of the header, which mmsg_end() writes back; NULL: results
 *	go to @hdr
 */
struct user_msg {
	uint64_t name;
	uint32_t namelen;
	uint64_t namelenp;
	uint64_t control;
	size_t controllen;
	uint64_t hdr;
	int flags;
	struct iovec iov[MSG_IOV_MAX];
	size_t iovcnt;
	size_t total;
	struct kernel_msghdr *batch;
};

int64_t msg_get(const struct call *c, struct user_msg *um);
int64_t msg_get_named(struct call *c, struct user_msg *um);
int64_t msg_get_hdr(const struct call *c, uint64_t addr, struct user_msg *um);
int64_t msg_get_data(const struct call *c, const struct user_msg *um,
		     size_t off, void *buf, size_t len);
int64_t msg_put_data(const struct call *c, const struct user_msg *um,
		     size_t off, const void *buf, size_t len);
int64_t msg_put_result(const struct call *c, const struct user_msg *um,
		       const void *name, uint32_t namelen, const void *control,
		       size_t controllen, int flags);
uint64_t mmsg_addr(const struct call *c, uint64_t i);
int64_t mmsg_put_len(const struct call *c, uint64_t i, int64_t n);
void mmsg_begin(void);
int64_t mmsg_get(const struct call *c, uint64_t i, struct user_msg *um);
int64_t mmsg_done(const struct call *c, uint64_t i, int64_t n);
int64_t mmsg_end(const struct call *c);
uint64_t mmsg_len(const struct call *c);
int64_t mmsg_deadline(const struct call *c, uint64_t *deadline);
int64_t addr_read(const struct call *c, uint64_t addr, uint64_t len,
		  struct sockaddr_storage *ss);
int64_t addr_write(const struct call *c, uint64_t addr, uint64_t lenp,
		   const void *ss, socklen_t len);
size_t msg_cut_control(char *out, size_t room, const char *ctl, size_t len,
		       int *flags);

#endif
