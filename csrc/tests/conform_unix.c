// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prints the results of recvmsg() and recvmmsg() on unix sockets. It runs
 * natively and under lklhost, which carries out these calls itself
 * (engine/carrier/scm_rights.c).
 */
#define _GNU_SOURCE
#include "conform.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define OPT_PASSPIDFD	76
#define CMSG_PIDFD	4

static char data[1 << 20];
static union {
	struct cmsghdr align;
	char buf[4096];
} ctl;

/** put - send a message with @n descriptors, all copies of standard input */
static void put(int fd, size_t len, int n)
{
	struct iovec iov = { data, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	union {
		struct cmsghdr align;
		char buf[1024];
	} c;
	int i, p[2];

	if (pipe(p))
		say("pipe", -1);
	memset(&c, 0, sizeof(c));
	if (n) {
		mh.msg_control = c.buf;
		mh.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c.align.cmsg_level = SOL_SOCKET;
		c.align.cmsg_type = SCM_RIGHTS;
		c.align.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		for (i = 0; i < n; i++)
			memcpy(CMSG_DATA(&c.align) + (size_t)i * sizeof(int), &p[i & 1], sizeof(int));
	}
	if (sendmsg(fd, &mh, 0) != (ssize_t)len)
		say("sendmsg", -1);
	close(p[0]);
	close(p[1]);
}

/** kind - return the kind of a descriptor */
static const char *kind(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return "none";
	return S_ISFIFO(st.st_mode) ? "pipe" : S_ISSOCK(st.st_mode) ? "socket" : "other";
}

/** show - print ancillary data; closes received descriptors */
static void show(struct msghdr *mh)
{
	struct cmsghdr *cm;
	struct ucred u;
	int fd;
	size_t i;

	printf("  flags %x name %u control %zu\n", (unsigned int)mh->msg_flags,
	       mh->msg_namelen, mh->msg_controllen);
	for (cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
		printf("  type %d length %zu", cm->cmsg_type, cm->cmsg_len);
		if (cm->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&u, CMSG_DATA(cm), sizeof(u));
			printf(" pid %d uid %d gid %d", u.pid == getpid(), u.uid == getuid(),
			       u.gid == getgid());
		} else if (cm->cmsg_type == SCM_RIGHTS || cm->cmsg_type == CMSG_PIDFD) {
			for (i = 0; CMSG_LEN((i + 1) * sizeof(fd)) <= cm->cmsg_len; i++) {
				memcpy(&fd, CMSG_DATA(cm) + i * sizeof(fd), sizeof(fd));
				if (i < 4)
					printf(" %d:%s:%d", fd, cm->cmsg_type == SCM_RIGHTS ? kind(fd) : "",
					       fcntl(fd, F_GETFD));
				close(fd);
			}
		}
		printf("\n");
	}
	fflush(stdout);
}

/** get - call recvmsg() with room for @len bytes and @room bytes of ancillary data */
static void get(const char *name, int fd, size_t len, size_t room, int flags)
{
	struct sockaddr_un un;
	struct iovec iov[2] = { { data, len / 2 }, { data + len / 2, len - len / 2 } };
	struct msghdr mh = { .msg_name = &un, .msg_namelen = sizeof(un), .msg_iov = iov,
			     .msg_iovlen = 2, .msg_control = room ? ctl.buf : NULL,
			     .msg_controllen = room };

	memset(&ctl, 0, sizeof(ctl));
	if (say(name, recvmsg(fd, &mh, flags)) >= 0)
		show(&mh);
}

/** rights - receive descriptors, with and without room for them */
static void rights(int type)
{
	struct rlimit old, few = { 8, 8 };
	int sv[2];

	printf("# descriptors, type %d\n", type);
	if (socketpair(AF_UNIX, type, 0, sv))
		say("socketpair", -1);
	put(sv[0], 10, 2);
	get("two", sv[1], 100, 256, 0);
	put(sv[0], 10, 1);
	get("close-on-exec", sv[1], 100, 256, MSG_CMSG_CLOEXEC);
	put(sv[0], 10, 2);
	get("peek", sv[1], 100, 256, MSG_PEEK);
	get("after the peek", sv[1], 100, 256, 0);
	put(sv[0], 10, 3);
	get("room for one", sv[1], 100, CMSG_LEN(sizeof(int)), 0);
	put(sv[0], 10, 3);
	get("room for a header", sv[1], 100, CMSG_LEN(0), 0);
	put(sv[0], 10, 3);
	get("no room", sv[1], 100, 0, 0);
	getrlimit(RLIMIT_NOFILE, &old);
	few.rlim_max = old.rlim_max;
	put(sv[0], 10, 20);
	setrlimit(RLIMIT_NOFILE, &few);
	get("too many", sv[1], 100, 256, 0);
	setrlimit(RLIMIT_NOFILE, &old);
	put(sv[0], 100, 253);
	get("as many as may be", sv[1], 10, 2048, 0);
	if (type == SOCK_STREAM)
		get("the rest", sv[1], 1000, 2048, MSG_DONTWAIT);
	put(sv[0], 10, 0);
	put(sv[0], 10, 1);
	put(sv[0], 10, 0);
	get("nothing, then one", sv[1], 100, 256, 0);
	get("then", sv[1], 100, 256, MSG_DONTWAIT);
	get("then", sv[1], 100, 256, MSG_DONTWAIT);
	close(sv[0]);
	get("the end", sv[1], 100, 256, type == SOCK_DGRAM ? MSG_DONTWAIT : 0);
	close(sv[1]);
}

/** sizes - long and short messages */
static void sizes(int type)
{
	int sv[2], big = 8 << 20;
	struct msghdr mh = { 0 };

	printf("# sizes, type %d\n", type);
	socketpair(AF_UNIX, type, 0, sv);
	setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	put(sv[0], 1000, 0);
	get("cut", sv[1], 100, 0, 0);
	get("what is left", sv[1], 100, 0, MSG_DONTWAIT);
	put(sv[0], 1000, 0);
	get("cut, and its length", sv[1], 100, 0, MSG_TRUNC);
	while (recv(sv[1], data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	put(sv[0], 150000, 0);
	get("long", sv[1], 200000, 0, type == SOCK_STREAM ? MSG_WAITALL | MSG_DONTWAIT : 0);
	get("nothing there", sv[1], 10, 0, MSG_DONTWAIT);
	get("error queue", sv[1], 10, 100, MSG_ERRQUEUE | MSG_DONTWAIT);
	put(sv[0], 10, 0);
	say("no buffer", recvmsg(sv[1], &mh, 0));
	put(sv[0], 10, 0);
	say("no header", recvmsg(sv[1], NULL, 0));
	mh.msg_iovlen = 1025;
	say("too many pieces", recvmsg(sv[1], &mh, 0));
	close(sv[0]);
	close(sv[1]);
}

/** later - a child that sends pieces after a while, or closes */
static pid_t later(int fd, int other, int pieces)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	close(other);
	while (pieces-- > 0) {
		msleep(50);
		put(fd, 10, 0);
	}
	msleep(50);
	_exit(0);
}

/** waiting - callers that wait */
static void waiting(int type)
{
	struct timeval tv = { 0, 100000 }, never = { 0, 0 };
	int sv[2], low = 15, one = 1;

	printf("# waiting, type %d\n", type);
	socketpair(AF_UNIX, type, 0, sv);
	later(sv[0], sv[1], 1);
	get("one", sv[1], 100, 256, 0);
	wait(NULL);
	later(sv[0], sv[1], 3);
	get("all", sv[1], 30, 256, MSG_WAITALL);
	wait(NULL);
	while (recv(sv[1], data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	setsockopt(sv[1], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	get("a limit", sv[1], 100, 256, 0);
	put(sv[0], 10, 0);
	get("all, with a limit", sv[1], 30, 256, MSG_WAITALL);
	setsockopt(sv[1], SOL_SOCKET, SO_RCVTIMEO, &never, sizeof(never));
	setsockopt(sv[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
	later(sv[0], sv[1], 2);
	get("so many at least", sv[1], 100, 256, 0);
	wait(NULL);
	setsockopt(sv[1], SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	while (recv(sv[1], data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	if (!fork()) {		/* the end comes with the data */
		msleep(50);
		put(sv[0], 10, 0);
		shutdown(sv[0], SHUT_WR);
		_exit(0);
	}
	close(sv[0]);
	if (type != SOCK_DGRAM) {
		get("all, up to the end", sv[1], 30, 256, MSG_WAITALL);
		get("the end", sv[1], 100, 256, 0);
	}
	wait(NULL);
	close(sv[1]);
}

static void nothing(int sig)
{
	(void)sig;
}

/** signalled - a signal interrupts callers that wait */
static void signalled(int type)
{
	struct sigaction sa = { .sa_handler = nothing };
	int sv[2];

	printf("# a signal, type %d\n", type);
	sigaction(SIGALRM, &sa, NULL);
	socketpair(AF_UNIX, type, 0, sv);
	ualarm(100000, 0);
	get("interrupted", sv[1], 100, 256, 0);
	put(sv[0], 10, 0);
	ualarm(100000, 0);
	get("interrupted, with some", sv[1], 30, 256, MSG_WAITALL);
	ualarm(0, 0);
	close(sv[0]);
	close(sv[1]);
}

/** credentials - SCM_CREDENTIALS of the sender */
static void credentials(int type)
{
	int sv[2], one = 1;

	printf("# credentials, type %d\n", type);
	socketpair(AF_UNIX, type, 0, sv);
	setsockopt(sv[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	put(sv[0], 10, 0);
	get("who", sv[1], 100, 256, 0);
	put(sv[0], 10, 1);
	get("who, and a descriptor", sv[1], 100, 256, 0);
	if (!setsockopt(sv[1], SOL_SOCKET, OPT_PASSPIDFD, &one, sizeof(one))) {
		put(sv[0], 10, 1);
		get("and a pidfd", sv[1], 100, 256, 0);
	}
	put(sv[0], 10, 1);
	get("room for who", sv[1], 100, CMSG_SPACE(sizeof(struct ucred)), 0);
	close(sv[0]);
	close(sv[1]);
}

/** several - receive several messages with recvmmsg() */
static void several(int type)
{
	struct iovec iov[4];
	struct mmsghdr m[4];
	struct timespec ts = { 0, 100000000 };
	int sv[2], i, n;

	printf("# several, type %d\n", type);
	socketpair(AF_UNIX, type, 0, sv);
	for (i = 0; i < 4; i++) {
		iov[i] = (struct iovec){ data + i * 10, 10 };
		m[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &iov[i], .msg_iovlen = 1 } };
	}
	for (i = 0; i < 4; i++)
		put(sv[0], 10, 0);
	n = (int)say("four", recvmmsg(sv[1], m, 4, 0, NULL));
	for (i = 0; i < n; i++)
		printf("  %u bytes\n", m[i].msg_len);
	put(sv[0], 10, 0);
	put(sv[0], 10, 0);
	say("not waiting", recvmmsg(sv[1], m, 4, MSG_DONTWAIT, NULL));
	say("nothing there", recvmmsg(sv[1], m, 4, MSG_DONTWAIT, NULL));
	put(sv[0], 10, 0);
	say("wait for one", recvmmsg(sv[1], m, 4, MSG_WAITFORONE, NULL));
	later(sv[0], sv[1], 4);
	say("waiting for four", recvmmsg(sv[1], m, 4, 0, NULL));
	wait(NULL);
	ts.tv_nsec = -1;
	say("a bad limit", recvmmsg(sv[1], m, 4, 0, &ts));
	close(sv[0]);
	close(sv[1]);
}

/** named - messages from a socket with an address */
static void named(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 20;
	int s = socket(AF_UNIX, SOCK_DGRAM, 0), r = socket(AF_UNIX, SOCK_DGRAM, 0);

	printf("# a name\n");
	snprintf(a.sun_path + 1, 19, "conform-r-%d", getpid());
	bind(r, (struct sockaddr *)&a, len);
	connect(s, (struct sockaddr *)&a, len);
	put(s, 10, 0);
	get("none", r, 100, 0, 0);
	a.sun_path[9] = 's';
	bind(s, (struct sockaddr *)&a, len);
	put(s, 10, 0);
	get("one", r, 100, 0, 0);
	close(s);
	close(r);
}

/** elsewhere - the same calls on other descriptors */
static void elsewhere(void)
{
	struct msghdr mh = { 0 };
	int p[2];

	printf("# no socket\n");
	if (pipe(p))
		say("pipe", -1);
	say("a pipe", recvmsg(p[0], &mh, 0));
	say("nothing", recvmsg(999, &mh, 0));
	say("several, of nothing", recvmmsg(999, NULL, 1, 0, NULL));
	p[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	get("without a peer", p[0], 10, 0, 0);
	listen(p[0], 1);
	get("that listens", p[0], 10, 0, 0);
}

int main(void)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		rights(types[i]);
		sizes(types[i]);
		waiting(types[i]);
		signalled(types[i]);
		credentials(types[i]);
		several(types[i]);
	}
	named();
	elsewhere();
	return 0;
}
