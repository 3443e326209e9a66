// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like conform.c, for sockets of several processes: passed, inherited and
 * shared ones. Also frequent signals during every call that waits.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "conform.h"

/** give - send a descriptor */
static void give(int un, int fd)
{
	union {
		struct cmsghdr cm;
		char buf[CMSG_SPACE(sizeof(int))];
	} u = { .cm = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { "d", 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };

	memcpy(CMSG_DATA(&u.cm), &fd, sizeof(int));
	say("give", sendmsg(un, &mh, 0));
}

/** take - receive a descriptor */
static int take(int un)
{
	union {
		struct cmsghdr cm;
		char buf[CMSG_SPACE(sizeof(int))];
	} u;
	char c;
	struct iovec iov = { &c, 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };
	int fd = -1;

	if (recvmsg(un, &mh, 0) == 1 && mh.msg_controllen >= sizeof(u))
		memcpy(&fd, CMSG_DATA(&u.cm), sizeof(int));
	return fd;
}

/** passed - use descriptors from a process that has ended */
static void passed(int family)
{
	struct sockaddr_storage ss, me;
	int un[2], l, port, fd, u, a, st;
	socklen_t len;
	char buf[16];

	printf("# passed on by a process that ends, family %d\n", family);
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, un))
		say("socketpair", -1);
	if (!fork()) {
		int sv[2];

		l = listener(family, 0, &port);
		give(un[1], l);
		tcp_pair(family, sv);
		if (write(sv[0], "before", 6) != 6)
			_exit(1);
		give(un[1], sv[1]);
		u = socket(family, SOCK_DGRAM, 0);
		bind(u, (struct sockaddr *)&ss, lo(&ss, family, 0));
		give(un[1], u);
		_exit(0);
	}
	l = take(un[0]);
	a = take(un[0]);
	u = take(un[0]);
	wait(&st);
	printf("ended with %d\n", st);
	msleep(50);
	port = port_of(l);
	fd = socket(family, SOCK_STREAM, 0);
	say("connect to the listener", connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port)));
	say("send", send(fd, "hello", 5, 0));
	st = accept(l, NULL, NULL);
	say("recv", recv(st, buf, 5, MSG_WAITALL));
	close(st);
	close(fd);
	close(l);
	fd = socket(family, SOCK_STREAM, 0);
	say("the listener is closed", connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port)));
	close(fd);
	say("what came before", recv(a, buf, 6, MSG_WAITALL));
	say("its end", recv(a, buf, 6, 0));
	len = sizeof(me);
	say("getpeername", getpeername(a, (struct sockaddr *)&me, &len));
	get_int("SO_ERROR", a, SOL_SOCKET, SO_ERROR);
	close(a);
	port = port_of(u);
	fd = socket(family, SOCK_DGRAM, 0);
	say("sendto", sendto(fd, "dgram", 5, 0, (struct sockaddr *)&ss, lo(&ss, family, port)));
	len = sizeof(me);
	say("recvfrom", recvfrom(u, buf, 16, 0, (struct sockaddr *)&me, &len));
	say("reply", sendto(u, "re", 2, 0, (struct sockaddr *)&me, len));
	say("recv", recv(fd, buf, 16, 0));
	close(u);
	close(fd);
	close(un[0]);
	close(un[1]);
}

/** shared - one listener, four processes that accept */
static void shared(int family)
{
	struct sockaddr_storage ss;
	int l, port, i, n = 0, st;
	pid_t pid[4];
	char c;

	printf("# four processes at one listener, family %d\n", family);
	fflush(stdout);
	l = listener(family, 0, &port);
	for (i = 0; i < 4; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		for (;;) {
			int a = accept(l, NULL, NULL);

			if (a < 0 || read(a, &c, 1) != 1 || write(a, "k", 1) != 1)
				_exit(1);
			close(a);
			if (c == 'q')
				_exit(0);
		}
	}
	for (i = 0; i < 100; i++) {
		int fd = socket(family, SOCK_STREAM, 0);

		connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
		if (write(fd, i < 96 ? "x" : "q", 1) == 1 && read(fd, &c, 1) == 1)
			n++;
		close(fd);
	}
	printf("answered %d\n", n);
	for (i = 0; i < 4; i++) {
		waitpid(pid[i], &st, 0);
		n -= !st;
	}
	printf("ended well: %d\n", 100 - n);
	close(l);
}

/** executed - a server's socket as standard input, as inetd does it */
static void executed(int family)
{
	int sv[2], st;
	char buf[64];

	printf("# executed with a socket, family %d\n", family);
	fflush(stdout);
	tcp_pair(family, sv);
	if (!fork()) {
		dup2(sv[1], 0);
		dup2(sv[1], 1);
		close(sv[0]);
		execlp("tr", "tr", "a-z", "A-Z", NULL);
		_exit(1);
	}
	close(sv[1]);
	say("write", write(sv[0], "inetd", 5));
	shutdown(sv[0], SHUT_WR);
	st = (int)recv(sv[0], buf, sizeof(buf), MSG_WAITALL);
	printf("%d %.*s\n", st, st, buf);
	wait(&st);
	printf("ended with %d\n", st);
	close(sv[0]);
}

/** undumpable - a process whose memory others cannot read */
static void undumpable(int family)
{
	int sv[2], st;
	char c;

	printf("# PR_SET_DUMPABLE 0, family %d\n", family);
	fflush(stdout);
	if (!fork()) {
		prctl(PR_SET_DUMPABLE, 0);
		tcp_pair(family, sv);
		if (write(sv[0], "x", 1) != 1 || read(sv[1], &c, 1) != 1)
			_exit(1);
		_exit(0);
	}
	wait(&st);
	printf("ended with %d\n", st);
}

static volatile int count;

static void on_signal(int sig)
{
	(void)sig;
	count++;
}

/** storm - send a signal every millisecond from now on; @flags: of its handler */
static void storm(int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };
	struct itimerval it = { { 0, 1000 }, { 0, 1000 } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

static void calm(void)
{
	struct itimerval none = { { 0, 0 }, { 0, 0 } };

	setitimer(ITIMER_REAL, &none, NULL);
	signal(SIGALRM, SIG_IGN);
}

/** until - repeat a call while signals interrupt it; sets @hit if one did */
#define until(call, hit) ({					\
	long until_ret;						\
	while ((until_ret = (call)) < 0 && errno == EINTR)	\
		(hit) = 1;					\
	until_ret; })

/**
 * stormy - make every call that waits, during signals, with a slow peer
 *
 * Under engine supervise, a signal may interrupt any call before lklhost
 * receives it (limits.md).
 */
static void stormy(int family, int flags)
{
	static char big[1 << 20];
	struct sockaddr_storage ss, from;
	socklen_t len = sizeof(from);
	int l, port, a, u, hit = 0, st, i, fails = 0;
	pid_t pid;
	long n, got = 0;

	printf("# a signal every millisecond, SA_RESTART %d, family %d\n", flags != 0, family);
	fflush(stdout);
	l = listener(family, 0, &port);
	u = socket(family, SOCK_DGRAM, 0);
	bind(u, (struct sockaddr *)&ss, lo(&ss, family, 0));
	pid = fork();
	if (!pid) {
		int fd, uport = port_of(u);

		msleep(100);
		fd = socket(family, SOCK_STREAM, 0);
		connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
		msleep(100);
		n = write(fd, "hello", 5);
		msleep(100);
		while (got < 3 << 20 && (n = read(fd, big, sizeof(big))) > 0)
			got += n;
		close(fd);
		fd = socket(family, SOCK_DGRAM, 0);
		for (i = 0; i < 3; i++) {
			msleep(100);
			sendto(fd, "d", 1, 0, (struct sockaddr *)&ss, lo(&ss, family, uport));
		}
		_exit(got != 3 << 20);
	}
	storm(flags);
	a = (int)until(accept(l, NULL, NULL), hit);
	say("accept", a < 0 ? -1 : 0);
	say("recv", until(recv(a, big, 5, MSG_WAITALL), hit));
	for (i = 0; i < 3 << 20; i += (int)n) {
		size_t left = (size_t)((3 << 20) - i);

		n = until(send(a, big, left < sizeof(big) ? left : sizeof(big), 0), hit);
		if (n < 0)
			break;
	}
	say("sent", n < 0 ? -1 : i);
	say("eof", until(recv(a, big, 5, 0), hit));
	say("recvfrom", until(recvfrom(u, big, 5, 0, (struct sockaddr *)&from, &len), hit));
	say("plain recv", until(recv(u, big, 5, 0), hit));
	say("recvfrom", until(recvfrom(u, big, 5, 0, (struct sockaddr *)&from, &len), hit));
	for (i = 0; i < 200; i++) {
		int fd = (int)until(socket(family, SOCK_STREAM, 0), hit);

		n = until(connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port)), hit);
		fails += fd < 0 || (n < 0 && errno != EISCONN && errno != EALREADY);
		st = (int)until(accept(l, NULL, NULL), hit);
		fails += st < 0 || send(fd, "x", 1, 0) != 1 || until(recv(st, big, 1, 0), hit) != 1;
		close(st);
		close(fd);
	}
	calm();
	printf("failed: %d, interrupted %d, signals %d\n", fails, hit, count > 100);
	waitpid(pid, &st, 0);
	printf("ended with %d\n", st);
	close(a);
	close(l);
	close(u);
}

/** signalled - SIGIO for a listener and a stream, with another signal */
static void signalled(int family)
{
	int l, port, fd, a, i;
	struct sockaddr_storage ss;
	sigset_t set;
	siginfo_t si;
	struct timespec limit = { LIMIT_MS / 1000, 0 }, none = { 0, 0 };
	char c;

	printf("# SIGIO, streams, family %d\n", family);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	while (sigtimedwait(&set, &si, &none) > 0)
		;
	l = listener(family, SOCK_NONBLOCK, &port);
	fcntl(l, F_SETOWN, getpid());
	fcntl(l, F_SETSIG, SIGRTMIN + 1);
	say("O_ASYNC", fcntl(l, F_SETFL, O_ASYNC | O_NONBLOCK));
	fd = socket(family, SOCK_STREAM, 0);
	connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
	i = sigtimedwait(&set, &si, &limit);
	printf("connection: %d, descriptor %d\n", i == SIGRTMIN + 1, si.si_fd == l);
	a = accept(l, NULL, NULL);
	fcntl(a, F_SETOWN, getpid());
	fcntl(a, F_SETSIG, SIGRTMIN + 1);
	fcntl(a, F_SETFL, O_ASYNC);
	send(fd, "x", 1, 0);
	do
		i = sigtimedwait(&set, &si, &limit);
	while (i > 0 && si.si_fd != a);
	printf("data: %d\n", i == SIGRTMIN + 1);
	say("recv", recv(a, &c, 1, 0));
	close(fd);
	do
		i = sigtimedwait(&set, &si, &limit);
	while (i > 0 && si.si_fd != a);
	printf("end: %d\n", i == SIGRTMIN + 1);
	close(a);
	close(l);
}

/** accepter - wait in accept() */
static void *accepter(void *arg)
{
	say("accepted", accept(*(int *)arg, NULL, NULL) < 0 ? -1 : 0);
	return NULL;
}

/**
 * ended - send a signal that has no handler to a process that waits in accept()
 * @threads: another thread than the main thread waits
 */
static void ended(int sig, int threads)
{
	struct sockaddr_storage ss;
	int port, l = listener(AF_INET, 0, &port), fd, st = 0, i;
	socklen_t len = lo(&ss, AF_INET, port);
	pid_t pid;

	printf("# signal %d without a handler, %s\n", sig, threads ? "another thread" : "main thread");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		pthread_t t;

		if (threads && !pthread_create(&t, NULL, accepter, &l))
			pthread_join(t, NULL);
		else
			accepter(&l);
		_exit(0);
	}
	msleep(100);		/* it is in accept() now */
	kill(pid, sig);
	msleep(100);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (sig == SIGWINCH || sig == SIGCHLD)	/* it still waits */
		connect(fd, (struct sockaddr *)&ss, len);
	for (i = 0; i < LIMIT_MS && !waitpid(pid, &st, WNOHANG); i++)
		msleep(1);
	if (i == LIMIT_MS) {
		kill(pid, SIGKILL);
		waitpid(pid, &st, 0);
	}
	printf("ended by signal %d\n", WIFSIGNALED(st) ? WTERMSIG(st) : 0);
	close(fd);
	close(l);
}

/** copied - copy descriptors of other processes by pidfd_getfd(2) */
static void copied(void)
{
	int un[2], p[2], fd, pidfd, i;
	pid_t pid[3];
	char c;

	printf("# pidfd_getfd\n");
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, un) || pipe(p))
		say("socketpair", -1);
	for (i = 0; i < 3; i++) {	/* a child, one that is not dumpable, one that ends */
		pid[i] = fork();
		if (!pid[i]) {
			close(p[1]);
			if (i == 1)
				prctl(PR_SET_DUMPABLE, 0);
			say("child", i);
			c = (char)prctl(PR_GET_DUMPABLE);
			send(un[1], &c, i < 2, 0);
			if (i < 2)
				(void)!read(p[0], &c, 1);
			_exit(0);
		}
		if (i < 2 && recv(un[0], &c, 1, MSG_WAITALL) != 1)
			say("recv", -1);
		pidfd = (int)syscall(SYS_pidfd_open, pid[i], 0);
		if (i == 2)
			waitpid(pid[i], NULL, 0);
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, un[1], 0);
		if (i == 1) {	/* only root may copy from it */
			say("not dumpable", (fd >= 0) == (c || !geteuid()));
			close(fd);
			close(pidfd);
			continue;
		}
		say("copy", fd < 0 ? fd : fd > 2);
		if (fd >= 0) {
			say("close-on-exec", fcntl(fd, F_GETFD));
			say("send", send(fd, "x", 1, 0));
			say("recv", recv(un[0], &c, 1, 0));
			close(fd);
		}
		say("closed number", syscall(SYS_pidfd_getfd, pidfd, 1000, 0));
		say("flags", syscall(SYS_pidfd_getfd, pidfd, un[1], 1));
		close(pidfd);
	}
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	say("own", syscall(SYS_pidfd_getfd, pidfd, 0, 0) > 2);
	say("not a pidfd", syscall(SYS_pidfd_getfd, un[0], 0, 0));
	say("closed pidfd", syscall(SYS_pidfd_getfd, 1000, 0, 0));
	close(p[1]);
}

/** wrong - socket calls on files that are no sockets */
static void wrong(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int p[2], fds[5], i, n;
	char c;
	struct iovec iov = { &c, 1 };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };
	socklen_t len = sizeof(n);

	if (pipe(p))
		say("pipe", -1);
	fds[0] = 1000;
	fds[1] = p[0];
	fds[2] = open("/", O_PATH);
	fds[3] = open("/dev/null", O_RDWR);
	fds[4] = open("/dev/ptmx", O_RDWR | O_NOCTTY);
	for (i = 0; i < 5; i++) {
		printf("# not a socket, file %d\n", i);
		fflush(stdout);
		say("recvmsg", recvmsg(fds[i], &m.msg_hdr, 0));
		say("recvmsg of nothing", recvmsg(fds[i], NULL, 0));
		say("recvmmsg", recvmmsg(fds[i], &m, 1, 0, NULL));
		say("sendmsg", sendmsg(fds[i], &m.msg_hdr, 0));
		say("getsockopt", getsockopt(fds[i], SOL_SOCKET, SO_TYPE, &n, &len));
		say("listen", listen(fds[i], 1));
		say("connect", connect(fds[i], (struct sockaddr *)&ifr, 2));
		say("SIOCGIFADDR", ioctl(fds[i], SIOCGIFADDR, &ifr));
		say("SIOCETHTOOL", ioctl(fds[i], 0x8946, &ifr));
		say("SIOCGIWNAME", ioctl(fds[i], 0x8b01, &ifr));
		say("TIOCOUTQ", ioctl(fds[i], TIOCOUTQ, &n));
		say("FIOGETOWN", ioctl(fds[i], 0x8903, &n));
		say("FIONREAD", ioctl(fds[i], FIONREAD, &n));
	}
}

int main(void)
{
	static const int f[] = { AF_INET, AF_INET6 };
	size_t i;

	signal(SIGPIPE, SIG_IGN);
	for (i = 0; i < 2; i++) {
		passed(f[i]);
		shared(f[i]);
		executed(f[i]);
		undumpable(f[i]);
		stormy(f[i], 0);
		stormy(f[i], SA_RESTART);
		signalled(f[i]);
	}
	for (i = 0; i < 2; i++) {
		ended(SIGTERM, (int)i);
		ended(SIGUSR1, (int)i);
		ended(SIGWINCH, (int)i);
		ended(SIGCHLD, (int)i);
	}
	copied();
	wrong();
	return 0;
}
