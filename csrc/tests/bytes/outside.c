// SPDX-License-Identifier: GPL-2.0-only
/*
 * A connection that a process outside the run uses. lklhost sees none of the
 * calls of this process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "bytes.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd	438
#endif

#define SEED		7
#define OTHERS		(8 * MB)

/**
 * struct note - message to the process outside
 * @fd: descriptor of the connection in the sender; -1: it is attached to this
 *	message
 * @pos: position of the next byte
 */
struct note {
	int fd;
	uint64_t pos;
};

/** meet - make a unix socket at @path, connected or listening */
static int meet(const char *path, bool listens)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(un.sun_path, path, sizeof(un.sun_path) - 1);
	if (fd < 0 || (listens ? bind(fd, (struct sockaddr *)&un, sizeof(un)) ||
				 listen(fd, 1) :
				 connect(fd, (struct sockaddr *)&un, sizeof(un))))
		die("meet", 0);
	return fd;
}

/** await - receive a number from the other process */
static uint64_t await(int to)
{
	uint64_t n;

	errno = 0;
	if (read(to, &n, sizeof(n)) != sizeof(n))
		die("the other process", 0);
	return n;
}

/** tell - send a number to the other process */
static void tell(int to, uint64_t n)
{
	if (write(to, &n, sizeof(n)) != sizeof(n))
		die("tell", 0);
}

/** hand - send the note, with @fd attached unless the note contains its number */
static void hand(int to, struct note *note, int fd)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl = { 0 };
	struct iovec iov = { note, sizeof(*note) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm = &ctl.align;

	if (note->fd < 0) {
		mh.msg_control = ctl.buf;
		mh.msg_controllen = sizeof(ctl.buf);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	if (sendmsg(to, &mh, 0) != sizeof(*note))
		die("hand over", 0);
}

/** given - let the process outside receive on a connection, then receive the rest here */
void given(const char *path, bool taken)
{
	struct stream s[2];
	int to = meet(path, false);
	struct note note;

	begin(&s[0], SEED, sender);
	begin(&s[1], 2, sender);
	take("before", &s[0], 4 * MB);
	take("before", &s[1], 2 * MB);
	note = (struct note){ taken ? s[0].fd : -1, s[0].pos };
	hand(to, &note, s[0].fd);
	s[0].pos += await(to);	/* number of bytes that it has moved into a pipe */
	take("others", &s[1], OTHERS);
	tell(to, 1);		/* let it read */
	await(to);		/* it has read */
	take("after", &s[0], 2 * MB);
	printf("%s: right\n", taken ? "taken" : "given");
}

/** receive - receive the note and the connection */
static int receive(int from, struct note *note)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} ctl = { 0 };
	struct iovec iov = { note, sizeof(*note) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1,
			     .msg_control = ctl.buf,
			     .msg_controllen = sizeof(ctl.buf) };
	struct ucred uc;
	socklen_t len = sizeof(uc);
	int fd;

	if (recvmsg(from, &mh, 0) != sizeof(*note))
		die("the note", 0);
	if (note->fd < 0) {
		if (!CMSG_FIRSTHDR(&mh))
			die("no descriptor came", 0);
		memcpy(&fd, CMSG_DATA(&ctl.align), sizeof(fd));
		return fd;
	}
	if (getsockopt(from, SOL_SOCKET, SO_PEERCRED, &uc, &len))
		die("whose it is", 0);
	fd = (int)syscall(SYS_pidfd_open, uc.pid, 0);
	return (int)syscall(SYS_pidfd_getfd, fd, note->fd, 0);
}

/** outside - main function of the other process */
int outside(const char *path)
{
	int l = meet(path, true), to;
	struct stream s = { .seed = SEED };
	struct note note;
	struct hold h;

	to = accept(l, NULL, NULL);
	s.fd = receive(to, &note);
	if (s.fd < 0)
		die("the connection", 0);
	s.pos = note.pos;
	hold_open(&h, WAY_SENDFILE);
	hold_take(&h, &s, HELD);
	tell(to, h.len);
	await(to);
	hold_check(&h, &s);
	tell(to, 1);
	hold_close(&h);
	printf("outside: right\n");
	return 0;
}
