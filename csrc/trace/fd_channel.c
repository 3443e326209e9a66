// SPDX-License-Identifier: GPL-2.0-only
/*
 * The socket through which lklhost and a traced process exchange descriptors.
 *
 * It listens at a name in the target's network namespace. The target makes it
 * before its exec, and passes it to lklhost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "trace/trace.h"

#define BACKLOG	64

static int meeting = -1;

/**
 * trace_meeting_name - set @addr, a struct sockaddr_un, to the name
 *
 * Returns its length.
 */
size_t trace_meeting_name(void *addr)
{
	struct sockaddr_un *un = addr;

	un->sun_family = AF_UNIX;
	un->sun_path[0] = '\0';
	return offsetof(struct sockaddr_un, sun_path) + 1 +
	       (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
				"lklrun%016llx.trace",
				(unsigned long long)host.instance);
}

/** trace_meeting_open - create the socket, in the target */
int trace_meeting_open(void)
{
	struct sockaddr_un un;
	socklen_t len = (socklen_t)trace_meeting_name(&un);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&un, len) || listen(fd, BACKLOG)) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

/** trace_meeting_set - store the socket, in lklhost */
void trace_meeting_set(int fd)
{
	meeting = fd;
}

/** trace_meeting - get the socket */
int trace_meeting(void)
{
	return meeting;
}
