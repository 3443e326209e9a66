// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors in messages on unix sockets.
 *
 * A socket of the stack cannot be sent to another process: sendmsg() returns
 * EOPNOTSUPP. Within this process it can: the engine holds a reference until
 * the receiver takes it, and identifies the socket by the placeholder's inode.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "engine/preload/internal.h"

#define FLIGHT_MAX	64
#define RIGHTS_MAX	253	/* SCM_MAX_FD */
#define CONTROL_MAX	2048

/* Sockets sent and not yet received */
static struct {
	uint64_t ino;
	int sfd, sock;
} flight[FLIGHT_MAX];
static int in_flight;

/**
 * rights - the descriptors that a message carries
 * @max: room in @fds
 *
 * Returns their number, at most that of one SCM_RIGHTS, or 0.
 */
static int rights(const struct msghdr *user, int *fds, int max)
{
	union {
		char buf[CONTROL_MAX];
		struct cmsghdr align;
	} u;
	struct msghdr mh;
	struct cmsghdr *cm;
	int n;

	if (preload_copy(&mh, user, sizeof(mh)) || !mh.msg_control ||
	    mh.msg_controllen < sizeof(*cm) || mh.msg_controllen > sizeof(u) ||
	    preload_copy(u.buf, mh.msg_control, mh.msg_controllen))
		return 0;
	mh.msg_control = u.buf;
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS ||
		    cm->cmsg_len < CMSG_LEN(sizeof(int)) ||
		    (char *)cm + cm->cmsg_len > u.buf + mh.msg_controllen)
			continue;
		n = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (n > max)
			n = max;
		memcpy(fds, CMSG_DATA(cm), (size_t)n * sizeof(int));
		return n;
	}
	return 0;
}

/** to_ourselves - whether the other end belongs to this process */
static bool to_ourselves(int fd)
{
	struct ucred uc;
	int len = sizeof(uc);

	return !RAW5(getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &uc, &len) &&
	       uc.pid == owner_pid;
}

/** hold - keep a socket until it is received */
static int hold(int fd)
{
	long sfd = STACK(fcntl, entries[fd].sfd, F_DUPFD_CLOEXEC, 3, 0, 0, 0);
	int i;

	if (sfd < 0)
		return (int)sfd;
	lock();
	for (i = 0; i < FLIGHT_MAX && flight[i].ino; i++)
		;
	if (i < FLIGHT_MAX) {
		flight[i].ino = sock_of(fd)->ino;
		flight[i].sfd = (int)sfd;
		flight[i].sock = entries[fd].sock;
		sock_of(fd)->refs++;
		in_flight++;
	}
	unlock();
	if (i < FLIGHT_MAX)
		return 0;
	STACK(close, sfd, 0, 0, 0, 0, 0);
	return -ETOOMANYREFS;
}

/** rights_send - sendmsg(2) on a socket of the host */
long rights_send(long nr, const long *a)
{
	int fds[RIGHTS_MAX], n, i, ret;

	n = rights((void *)a[1], fds, RIGHTS_MAX);
	for (i = 0; i < n; i++) {
		if (!is_sock(fds[i]))
			continue;
		ret = to_ourselves((int)a[0]) ? hold(fds[i]) : -EOPNOTSUPP;
		if (ret)
			return ret;
	}
	return native(nr, a);
}

/** register_fd - register a received descriptor */
static void register_fd(int fd)
{
	struct stat st;
	int i;

	if (fd < 0 || fd >= ENTRY_FDS ||
	    RAW4(newfstatat, fd, "", &st, AT_EMPTY_PATH) || !S_ISSOCK(st.st_mode))
		return;
	lock();
	for (i = 0; i < FLIGHT_MAX; i++) {
		if (flight[i].ino != st.st_ino)
			continue;
		table_set(fd, flight[i].sfd, flight[i].sock, KIND_SOCK);
		flight[i].ino = 0;
		in_flight--;
		break;
	}
	unlock();
}

/** rights_recv - recvmsg(2) on a socket of the host */
long rights_recv(long nr, const long *a)
{
	int fds[RIGHTS_MAX], n, i;
	long ret = native(nr, a);

	if (likely(!in_flight) || ret < 0)
		return ret;
	n = rights((void *)a[1], fds, RIGHTS_MAX);
	for (i = 0; i < n; i++)
		register_fd(fds[i]);
	return ret;
}
