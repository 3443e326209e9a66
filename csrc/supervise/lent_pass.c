// SPDX-License-Identifier: GPL-2.0-only
/*
 * Carriers that the target hands to others.
 *
 * SCM_RIGHTS may take a carrier to a process that has not our filter, and could do
 * with the bytes what lent.c does not see. What is sent by sendmsg() comes here
 * before the host's kernel carries it out, unless the socket is a carrier itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lent.h"
#include "msg.h"

#define FDS_MAX		253		/* SCM_MAX_FD, include/net/scm.h */
#define CONTROL_MAX	1152		/* so many, and a little beside */

/** passed - @fd of the caller's is handed on */
static bool passed(const struct call *c, int fd)
{
	int dup = task_getfd(c->task, fd);
	struct conn *conn;
	bool ok = true;
	uint32_t id;

	if (dup < 0)
		return true;		/* the kernel's to say */
	if (!carrier_identify(dup, &id)) {
		conn = conn_find(id);
		if (conn && conn->kind == KIND_STREAM)
			ok = lent_never(conn);
	}
	close(dup);
	return ok;
}

/** look_at - one message; false without memory */
static bool look_at(const struct call *c, uint64_t addr)
{
	union {
		struct cmsghdr align;
		char buf[CONTROL_MAX];
	} ctl;
	struct msghdr mh = { .msg_control = ctl.buf };
	static struct user_msg um;
	struct cmsghdr *cm;

	if (msg_get_hdr(c, addr, &um) || um.controllen < sizeof(*cm))
		return true;
	mh.msg_controllen = um.controllen < CONTROL_MAX ? um.controllen : CONTROL_MAX;
	if (mem_read(c, um.control, ctl.buf, mh.msg_controllen))
		return true;
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm)) {
		const char *end = ctl.buf + mh.msg_controllen, *p;
		int fd, n = 0;

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		for (p = (char *)CMSG_DATA(cm); n < FDS_MAX && p + sizeof(fd) <= end &&
		     p + sizeof(fd) <= (char *)cm + cm->cmsg_len; p += sizeof(fd), n++) {
			memcpy(&fd, p, sizeof(fd));
			if (!passed(c, fd))
				return false;
		}
	}
	return true;
}

/**
 * lent_passes - a call on a socket that is none of ours
 *
 * Returns 0, or -ENOMEM for the caller.
 */
int lent_passes(const struct call *c)
{
	uint64_t i;

	if (c->nr == SYS_sendmsg)
		return look_at(c, c->args[1]) ? 0 : -ENOMEM;
	if (c->nr != SYS_sendmmsg)
		return 0;
	for (i = 0; i < c->args[2] && i < MSG_IOV_MAX /* of these, too */; i++)
		if (!look_at(c, c->args[1] + i * sizeof(struct mmsghdr)))
			return -ENOMEM;
	return 0;
}
