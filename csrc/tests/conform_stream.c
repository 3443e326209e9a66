// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like conform.c, for streams: rare calls, calls in an unusual order, and calls
 * that wait.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <asm/ioctls.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "conform.h"

static char big[1 << 16];

/** fast_open - data with the SYN, or right after the handshake */
static void fast_open(int family)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int port, l = listener(family, 0, &port), fd, a, one = 1, five = 5;
	char buf[16];
	struct iovec iov = { "msgs", 4 };
	struct msghdr mh = { .msg_name = &ss, .msg_iov = &iov, .msg_iovlen = 1 };

	printf("# fast open, family %d\n", family);
	say("TCP_FASTOPEN", setsockopt(l, IPPROTO_TCP, TCP_FASTOPEN, &five, sizeof(five)));
	mh.msg_namelen = len = lo(&ss, family, port);
	fd = socket(family, SOCK_STREAM, 0);
	say("sendto MSG_FASTOPEN", sendto(fd, "fast", 4, MSG_FASTOPEN, (struct sockaddr *)&ss, len));
	a = accept(l, NULL, NULL);
	say("recv", recv(a, buf, 4, MSG_WAITALL));
	say("answer", send(a, "ok", 2, 0));
	say("recv", recv(fd, buf, 2, MSG_WAITALL));
	say("again", sendto(fd, "more", 4, MSG_FASTOPEN, (struct sockaddr *)&ss, len));
	close(fd);
	close(a);
	fd = socket(family, SOCK_STREAM, 0);
	say("sendmsg MSG_FASTOPEN", sendmsg(fd, &mh, MSG_FASTOPEN));
	a = accept(l, NULL, NULL);
	say("recv", recv(a, buf, 4, MSG_WAITALL));
	close(fd);
	close(a);
	fd = socket(family, SOCK_STREAM, 0);
	say("no address", send(fd, "x", 1, MSG_FASTOPEN) < 0 ? -1 : 0);
	close(fd);
	fd = socket(family, SOCK_STREAM, 0);
	say("TCP_FASTOPEN_CONNECT", setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one)));
	get_int("back", fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT);
	say("connect", connect(fd, (struct sockaddr *)&ss, len));
	say("write", write(fd, "data", 4));
	a = accept(l, NULL, NULL);
	say("recv", recv(a, buf, 4, MSG_WAITALL));
	close(fd);
	close(a);
	close(l);
	fd = socket(family, SOCK_STREAM, 0);
	say("nobody there", sendto(fd, "fast", 4, MSG_FASTOPEN, (struct sockaddr *)&ss, len));
	close(fd);
}

/** at_once - whether most connections over loopback are there when connect() returns */
static void at_once(int family)
{
	struct sockaddr_storage ss;
	int port, l = listener(family, 0, &port), kind, i;
	socklen_t len = lo(&ss, family, port);
	struct pollfd p = { l, POLLIN, 0 };

	for (kind = 0; kind <= SOCK_NONBLOCK; kind += SOCK_NONBLOCK) {
		int pending = 0, writable = 0;

		printf("# at once, family %d, %s\n", family, kind ? "not blocking" : "blocking");
		for (i = 0; i < 100; i++) {
			int fd = socket(family, SOCK_STREAM | kind, 0);
			struct pollfd w = { fd, POLLOUT, 0 };

			connect(fd, (struct sockaddr *)&ss, len);
			writable += poll(&w, 1, 0) == 1;
			pending += poll(&p, 1, 0) == 1;
			wait_for(l, POLLIN);
			close(accept(l, NULL, NULL));
			close(fd);
		}
		say("at once", writable > i / 2);
		say("at once", pending > i / 2);
	}
	close(l);
}

/** no_peer - calls on a socket that was never connected */
static void no_peer(int family)
{
	int fd = socket(family, SOCK_STREAM, 0), n = -1, port, l;
	struct sockaddr_storage ss;
	char c;
	socklen_t len = sizeof(ss);
	struct iovec iov = { &c, 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	printf("# no peer, family %d\n", family);
	signal(SIGPIPE, SIG_IGN);
	say("unconnected recv", recv(fd, &c, 1, 0));
	say("unconnected read", read(fd, &c, 1));
	say("unconnected recvfrom", recvfrom(fd, &c, 1, 0, (struct sockaddr *)&ss, &len));
	say("unconnected recvmsg", recvmsg(fd, &mh, 0));
	say("unconnected send", send(fd, "x", 1, 0));
	say("unconnected sendto", sendto(fd, "x", 1, 0, (struct sockaddr *)&ss, lo(&ss, family, 9)));
	say("unconnected sendmsg", sendmsg(fd, &mh, 0));
	say("unconnected shutdown", shutdown(fd, SHUT_RDWR));
	say("FIONREAD", ioctl(fd, FIONREAD, &n) ? -1 : n);
	say("SIOCOUTQ", ioctl(fd, SIOCOUTQ, &n) ? -1 : n);
	say("SIOCATMARK", ioctl(fd, SIOCATMARK, &n) ? -1 : n);
	close(fd);
	l = listener(family, 0, &port);
	say("listener FIONREAD", ioctl(l, FIONREAD, &n) ? -1 : 0);
	say("listener recvmsg", recvmsg(l, &mh, 0));
	say("listener send", send(l, "x", 1, 0));
	say("listen again", listen(l, 1));
	say("bind again", bind(l, (struct sockaddr *)&ss, lo(&ss, family, 0)));
	say("unknown ioctl", ioctl(l, 0x89ff, &n));
	n = getpid();
	say("FIOSETOWN", ioctl(l, FIOSETOWN, &n));
	n = 0;
	say("SIOCGPGRP", ioctl(l, SIOCGPGRP, &n));
	printf("own: %d\n", n == getpid());
	close(l);
}

/** struct limits - limits that a thread sets in turn */
struct limits {
	struct rlimit few;
	int done;	/* atomic */
	int lost;	/* changes that another thread undid */
};

static void *limiter(void *arg)
{
	struct limits *l = arg;
	struct rlimit now;
	int i, k;

	for (i = 0; !__atomic_load_n(&l->done, __ATOMIC_ACQUIRE); i++) {
		l->few.rlim_cur = 50 + i % 10;
		setrlimit(RLIMIT_NOFILE, &l->few);
		/* In the middle of another thread's call it is higher. */
		for (k = 0; k < 20000; k++) {
			usleep(50);
			getrlimit(RLIMIT_NOFILE, &now);
			if (now.rlim_cur == l->few.rlim_cur)
				break;
		}
		l->lost += k == 20000;
	}
	return NULL;
}

/** limited - disconnect a number above a limit that another thread changes */
static void limited(int fd, int l_fd, struct sockaddr_storage *ss, socklen_t len, rlim_t most)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct limits l = { .few = { 50, most } };
	pthread_t t;
	int i, bad = 0;

	pthread_create(&t, NULL, limiter, &l);
	for (i = 0; i < 300; i++) {
		if (connect(fd, (struct sockaddr *)ss, len))
			bad++;
		else
			close(accept(l_fd, NULL, NULL));
		bad += connect(fd, &none, sizeof(none)) != 0;
	}
	__atomic_store_n(&l.done, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	printf("  %d calls failed, %d changes of the limit were lost\n", bad, l.lost);
}

/** gone - connect to AF_UNSPEC, and another connect after it */
static void gone(int family)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct rlimit old, few;
	struct sockaddr_storage ss;
	socklen_t len;
	int port, l = listener(family, 0, &port), own = socket(family, SOCK_STREAM, 0), fd, a;
	char c;

	printf("# disconnect, family %d\n", family);
	getrlimit(RLIMIT_NOFILE, &old);
	few = (struct rlimit){ 60, old.rlim_max };
	len = lo(&ss, family, port);
	fd = fcntl(own, F_DUPFD, 100);
	close(own);
	say("fresh", connect(fd, &none, sizeof(none)));
	say("connect", connect(fd, (struct sockaddr *)&ss, len));
	a = accept(l, NULL, NULL);
	say("write", write(fd, "1", 1));
	wait_for(a, POLLIN);
	say("disconnect", connect(fd, &none, sizeof(none)));
	wait_for(a, POLLHUP);
	say("getpeername", getpeername(fd, (struct sockaddr *)&ss, &len));
	close(a);
	len = lo(&ss, family, port);
	say("connect again", connect(fd, (struct sockaddr *)&ss, len));
	a = accept(l, NULL, NULL);
	say("write", write(fd, "2", 1));
	say("read", read(a, &c, 1));
	printf("  %c\n", c);
	close(a);
	wait_for(fd, POLLRDHUP);
	say("eof", read(fd, &c, 1));
	say("disconnect after the end", connect(fd, &none, sizeof(none)));
	say("and connect", connect(fd, (struct sockaddr *)&ss, len));
	a = accept(l, NULL, NULL);
	say("write", write(fd, "3", 1));
	say("read", read(a, &c, 1));
	close(a);

	setrlimit(RLIMIT_NOFILE, &few);
	say("disconnect above the limit", connect(fd, &none, sizeof(none)));
	limited(fd, l, &ss, len, old.rlim_max);
	setrlimit(RLIMIT_NOFILE, &old);
	say("and connect", connect(fd, (struct sockaddr *)&ss, len));
	close(accept(l, NULL, NULL));

	/* Finding 13: lklhost cannot replace a number above the hard limit. */
	if (!fork()) {
		few.rlim_max = few.rlim_cur;
		setrlimit(RLIMIT_NOFILE, &few);
		connect(fd, &none, sizeof(none));
		/* The address is in use: lklhost looks for closed sockets. */
		own = socket(family, SOCK_STREAM, 0);
		_exit(!bind(own, (struct sockaddr *)&ss, len));
	}
	wait(&a);
	say("child", a);
	say("disconnect once more", connect(fd, &none, sizeof(none)));
	say("and connect", connect(fd, (struct sockaddr *)&ss, len));
	a = accept(l, NULL, NULL);
	say("write", write(fd, "4", 1));
	say("read", read(a, &c, 1));
	close(fd);
	close(a);
	close(l);
}

/** oneself - a connection without a listener */
static void oneself(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	struct sockaddr_storage ss;
	char c;

	printf("# connected to itself, family %d\n", family);
	say("bind", bind(fd, (struct sockaddr *)&ss, lo(&ss, family, 0)));
	say("connect", connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port_of(fd))));
	say("write", write(fd, "s", 1));
	wait_for(fd, POLLIN);
	say("from itself", recv(fd, &c, 1, MSG_DONTWAIT));
	say("shutdown", shutdown(fd, SHUT_WR));
	wait_for(fd, POLLRDHUP);
	say("its end", recv(fd, &c, 1, MSG_DONTWAIT));
	close(fd);
}

/** again - connect a descriptor in an epoll again after a failure */
static void again(int family)
{
	struct epoll_event ev = { .events = EPOLLOUT, .data.u64 = 0x123456789abcull };
	struct sockaddr_storage ss;
	int port, l, fd, ep = epoll_create1(0), dead, err = 0;
	socklen_t len, elen = sizeof(err);

	printf("# connect again, in an epoll, family %d\n", family);
	l = listener(family, 0, &dead);
	close(l);
	l = listener(family, 0, &port);
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	len = lo(&ss, family, dead);
	say("nobody", connect(fd, (struct sockaddr *)&ss, len));
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	say("epoll", epoll_wait(ep, &ev, 1, LIMIT_MS));
	printf("error %d\n", !!(ev.events & EPOLLERR));
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &elen);
	printf("SO_ERROR %d\n", err);
	len = lo(&ss, family, port);
	say("connect", connect(fd, (struct sockaddr *)&ss, len));
	if (errno == ECONNABORTED || errno == ECONNREFUSED)
		say("connect", connect(fd, (struct sockaddr *)&ss, len));
	memset(&ev, 0, sizeof(ev));
	say("epoll", epoll_wait(ep, &ev, 1, LIMIT_MS));
	printf("out %d, data %d\n", !!(ev.events & EPOLLOUT), ev.data.u64 == 0x123456789abcull);
	ev.events = EPOLLIN;
	say("modify", epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev));
	say("delete", epoll_ctl(ep, EPOLL_CTL_DEL, fd, &ev));
	close(fd);
	close(l);
	close(ep);
}

/** queues - number of bytes in each queue */
static void queues(int family)
{
	int sv[2], n = -1, low = 10, i;
	struct tcp_info ti;
	socklen_t len = sizeof(ti);
	int full = 0;	/* refused writes in a row */
	char buf[64];

	printf("# queues, family %d\n", family);
	tcp_pair(family, sv);
	say("SIOCOUTQ", ioctl(sv[0], SIOCOUTQ, &n) ? -1 : n);
	say("write", write(sv[0], "0123456789", 10));
	wait_for(sv[1], POLLIN);
	say("SIOCINQ", ioctl(sv[1], SIOCINQ, &n) ? -1 : n);
	for (i = 0; i < LIMIT_MS && !ioctl(sv[0], SIOCOUTQ, &n) && n; i++)
		msleep(1);
	say("SIOCOUTQ, acknowledged", n);
	say("SIOCOUTQNSD", ioctl(sv[0], SIOCOUTQNSD, &n) ? -1 : n);
	say("discard", recv(sv[1], NULL, 4, MSG_TRUNC));
	say("the rest", recv(sv[1], buf, 64, 0));
	printf("  %.6s\n", buf);
	say("SO_RCVLOWAT", setsockopt(sv[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
	say("write", write(sv[0], "01234", 5));
	events("too few", sv[1], POLLIN, POLLIN, 100);
	say("write", write(sv[0], "56789", 5));
	events("enough", sv[1], POLLIN, POLLIN, LIMIT_MS);
	say("recv", recv(sv[1], buf, 64, 0));
	say("TCP_INFO", getsockopt(sv[0], IPPROTO_TCP, TCP_INFO, &ti, &len));
	printf("state %d\n", ti.tcpi_state);
	fcntl(sv[0], F_SETFL, O_NONBLOCK);
	ti.tcpi_notsent_bytes = 0;
	for (i = n = 0; i < LIMIT_MS / 50 && (full < 3 || n <= 100000 || ti.tcpi_notsent_bytes <= 100000); i++) {
		msleep(50);
		for (full++; write(sv[0], big, sizeof(big)) > 0; full = 0)
			;
		ioctl(sv[0], SIOCOUTQ, &n);
		getsockopt(sv[0], IPPROTO_TCP, TCP_INFO, &ti, &len);
	}
	say("full", -1);
	say("SIOCOUTQ", ioctl(sv[0], SIOCOUTQ, &n) ? -1 : n > 100000);
	printf("unsent: %d\n", ti.tcpi_notsent_bytes > 100000);
	close(sv[0]);
	close(sv[1]);
}

static volatile int urg;

static void on_urg(int sig)
{
	(void)sig;
	urg++;
}

/** arrive - wait until so many bytes can be read */
static void arrive(int fd, int bytes)
{
	int i, n;

	for (i = 0; i < LIMIT_MS && !ioctl(fd, SIOCINQ, &n) && n < bytes; i++)
		msleep(1);
}

/** urgent - MSG_OOB */
static void urgent(int family)
{
	int sv[2], n, one = 1, i;
	char buf[16];

	printf("# urgent data, family %d\n", family);
	tcp_pair(family, sv);
	say("none", recv(sv[1], buf, 1, MSG_OOB | MSG_DONTWAIT));
	signal(SIGURG, on_urg);
	urg = 0;
	fcntl(sv[1], F_SETOWN, getpid());
	say("plain", send(sv[0], "abc", 3, 0));
	say("urgent", send(sv[0], "X", 1, MSG_OOB));
	wait_for(sv[1], POLLPRI);
	for (i = 0; i < LIMIT_MS && !urg; i++)
		msleep(1);
	printf("SIGURG %d\n", urg > 0);
	say("behind", send(sv[0], "def", 3, 0));
	msleep(50);
	arrive(sv[1], urg ? 3 : 7);	/* MPTCP has no mark, before which the queue ends */
	say("at the mark", ioctl(sv[1], SIOCATMARK, &n) ? -1 : n);
	say("urgent", recv(sv[1], buf, 4, MSG_OOB));
	say("before", recv(sv[1], buf, 16, MSG_DONTWAIT));
	say("at the mark", ioctl(sv[1], SIOCATMARK, &n) ? -1 : n);
	say("behind", recv(sv[1], buf, 16, MSG_DONTWAIT));
	close(sv[0]);
	close(sv[1]);
	tcp_pair(family, sv);
	setsockopt(sv[1], SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
	send(sv[0], "ab", 2, 0);
	send(sv[0], "X", 1, MSG_OOB);
	msleep(50);
	send(sv[0], "cd", 2, 0);
	arrive(sv[1], 5);
	say("inline, before", recv(sv[1], buf, 16, 0));
	say("at the mark", ioctl(sv[1], SIOCATMARK, &n) ? -1 : n);
	say("inline", recv(sv[1], buf, 16, MSG_DONTWAIT));
	say("MSG_OOB", recv(sv[1], buf, 1, MSG_OOB | MSG_DONTWAIT));
	close(sv[0]);
	close(sv[1]);
}

/** vectors - many pieces, names, ancillary data */
static void vectors(int family)
{
	struct iovec iov[1024];
	struct sockaddr_storage ss;
	struct mmsghdr mm[2];
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 1024 };
	union {
		struct cmsghdr cm;
		char buf[64];
	} u;
	int sv[2], i, p[2];

	printf("# vectors, family %d\n", family);
	tcp_pair(family, sv);
	for (i = 0; i < 1024; i++)
		iov[i] = (struct iovec){ big + i, 1 };
	say("sendmsg, 1024", sendmsg(sv[0], &mh, 0));
	say("recv", recv(sv[1], big, 1024, MSG_WAITALL));
	mh.msg_iovlen = 1025;
	say("sendmsg, 1025", sendmsg(sv[0], &mh, 0));
	mh.msg_iovlen = 100;
	mh.msg_name = &ss;
	mh.msg_namelen = lo(&ss, family, 9);
	say("with a name", sendmsg(sv[0], &mh, 0));
	mh.msg_namelen = sizeof(ss);
	mh.msg_control = u.buf;
	mh.msg_controllen = sizeof(u);
	say("recvmsg", recvmsg(sv[1], &mh, MSG_WAITALL));
	printf("name %u control %zu flags %#x\n", mh.msg_namelen, mh.msg_controllen, (unsigned int)mh.msg_flags);
	mh.msg_control = NULL;
	mh.msg_controllen = 0;
	memset(mm, 0, sizeof(mm));
	for (i = 0; i < 2; i++) {
		mm[i].msg_hdr = mh;
		mm[i].msg_hdr.msg_iovlen = 2;
		mm[i].msg_hdr.msg_namelen = lo(&ss, family, 9);
	}
	say("sendmmsg with names", sendmmsg(sv[0], mm, 2, 0));
	msleep(50);
	say("recvmmsg with names", recvmmsg(sv[1], mm, 2, MSG_DONTWAIT, NULL));
	printf("name %u, len %u\n", mm[0].msg_hdr.msg_namelen, mm[0].msg_len);
	mm[0].msg_hdr.msg_name = NULL;
	mm[1].msg_hdr.msg_name = NULL;
	say("sendmmsg", sendmmsg(sv[0], mm, 2, 0));
	say("recv", recv(sv[1], big, 4, MSG_WAITALL));
	say("pipe", pipe(p));
	say("fill", write(p[1], "through the pipe", 16));
	say("splice in", splice(p[0], NULL, sv[0], NULL, 16, 0));
	wait_for(sv[1], POLLIN);
	say("splice out", splice(sv[1], NULL, p[1], NULL, 100, 0));
	say("read", read(p[0], big, 100));
	close(sv[0]);
	wait_for(sv[1], POLLRDHUP);
	say("splice, end", splice(sv[1], NULL, p[1], NULL, 100, 0));
	close(p[0]);
	close(p[1]);
	close(sv[1]);
}

/** crowd - make a listener whose queue is full, so that a connect waits; sets @ss */
static int crowd(int family, struct sockaddr_storage *ss, int fds[3])
{
	int port, l = listener(family, 0, &port), i;

	listen(l, 0);
	for (i = 0; i < 3; i++) {
		fds[i] = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fds[i], (struct sockaddr *)ss, lo(ss, family, port));
		msleep(20);
	}
	return l;
}

static volatile int rang;

static void on_alarm(int sig)
{
	(void)sig;
	rang++;
}

/** alarm_in - have SIGALRM sent after @ms, then every @every ms if not 0; @flags: of the handler */
static void alarm_in(int ms, int every, int flags)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval it = { .it_value = { 0, ms * 1000L }, .it_interval = { 0, every * 1000L } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

/** waits - timeouts and signals */
static void waits(int family)
{
	struct timeval tv = { 0, 100000 };
	struct sockaddr_storage ss;
	socklen_t len = lo(&ss, family, 0);
	int fds[3], l = crowd(family, &ss, fds), fd, sv[2], i;
	char c;
	size_t sent = 0;

	printf("# waits, family %d\n", family);
	fd = socket(family, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	say("connect, time-out", connect(fd, (struct sockaddr *)&ss, len));
	say("connect, still", connect(fd, (struct sockaddr *)&ss, len));
	close(fd);
	fd = socket(family, SOCK_STREAM, 0);
	alarm_in(100, 0, 0);
	say("connect, interrupted", connect(fd, (struct sockaddr *)&ss, len));
	fcntl(fd, F_SETFL, O_NONBLOCK);
	say("connect, under way", connect(fd, (struct sockaddr *)&ss, len));
	events("not yet", fd, POLLOUT, POLLOUT, 0);
	close(fd);
	for (i = 0; i < 3; i++)
		close(fds[i]);
	close(l);
	tcp_pair(family, sv);
	setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(sv[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	say("recv, time-out", recv(sv[0], &c, 1, 0));
	say("recvfrom, time-out", recvfrom(sv[0], &c, 1, 0, (struct sockaddr *)&ss, &len));
	while (sent < 1 << 28) {
		ssize_t n = send(sv[0], big, sizeof(big), 0);

		if (n < 0) {
			say("send, time-out", n);
			break;
		}
		sent += (size_t)n;
	}
	alarm_in(100, 0, 0);
	say("recv, interrupted", recv(sv[1], big, sizeof(big), 0) > 0 ? 1 : -1);
	memset(&tv, 0, sizeof(tv));
	setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(sv[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	alarm_in(100, 0, 0);
	say("recv, interrupted", recv(sv[0], &c, 1, 0));
	alarm_in(100, 0, 0);
	say("recvfrom, interrupted", recvfrom(sv[0], &c, 1, 0, (struct sockaddr *)&ss, &len));
	alarm_in(10, 10, SA_RESTART);
	if (!fork()) {
		msleep(300);
		_exit(write(sv[1], "x", 1) != 1);
	}
	say("recvfrom, restarted", recvfrom(sv[0], &c, 1, 0, (struct sockaddr *)&ss, &len));
	alarm_in(0, 0, SA_RESTART);
	wait(NULL);
	close(sv[0]);
	close(sv[1]);
}

static int shut_fd;

/** shut_soon - thread that ends another thread's accept */
static void *shut_soon(void *arg)
{
	(void)arg;
	msleep(200);
	shutdown(shut_fd, SHUT_RDWR);
	return NULL;
}

/** shut_listener - shutdown() on a socket that listens */
static void shut_listener(int family)
{
	struct sockaddr_storage ss;
	int port, l = listener(family, 0, &port), fd;
	pthread_t t;

	printf("# shutdown of a listener, family %d\n", family);
	shut_fd = l;
	pthread_create(&t, NULL, shut_soon, NULL);
	say("accept", accept(l, NULL, NULL));
	pthread_join(t, NULL);
	say("accept again", accept(l, NULL, NULL));
	fd = socket(family, SOCK_STREAM, 0);
	say("connect", connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port)));
	close(fd);
	close(l);
}

/** early - connections that end before they are accepted */
static void early(int family)
{
	struct linger now = { 1, 0 };
	struct sockaddr_storage ss, me;
	socklen_t len = sizeof(me);
	int port, l = listener(family, 0, &port), fd, a, i;
	char c;

	printf("# ended before accept, family %d\n", family);
	for (i = 0; i < 2; i++) {
		fd = socket(family, SOCK_STREAM, 0);
		connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
		say("write", write(fd, "x", 1));
		if (i)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		msleep(20);
		close(fd);
		msleep(50);
		len = sizeof(me);
		a = accept(l, (struct sockaddr *)&me, &len);
		printf("accepted %d, name %u\n", a >= 0, len);
		events("state", a, POLLRDHUP, POLLIN | POLLRDHUP, LIMIT_MS);
		say("read", read(a, &c, 1));
		say("read", read(a, &c, 1));
		close(a);
	}
	close(l);
}

/** half - shutdown in both directions */
static void half(int family)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	int sv[2];
	char buf[8];

	printf("# half-open, family %d\n", family);
	tcp_pair(family, sv);
	say("SHUT_RD", shutdown(sv[0], SHUT_RD));
	events("readable", sv[0], POLLIN, POLLIN | POLLRDHUP, LIMIT_MS);
	say("eof", read(sv[0], buf, 8));
	say("still sends", write(sv[0], "x", 1));
	say("arrives", read(sv[1], buf, 8));
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	say("eof", read(sv[1], buf, 8));
	say("SHUT_WR again", shutdown(sv[0], SHUT_WR));
	say("bad how", shutdown(sv[0], 7));
	close(sv[0]);
	close(sv[1]);
	tcp_pair(family, sv);
	say("SHUT_RDWR", shutdown(sv[0], SHUT_RDWR));
	events("hung up", sv[0], POLLHUP, POLLIN | POLLRDHUP | POLLHUP, 0);
	say("eof", read(sv[1], buf, 8));
	say("write", write(sv[0], "x", 1));
	close(sv[1]);
	close(sv[0]);
	tcp_pair(family, sv);
	say("SHUT_WR", shutdown(sv[0], SHUT_WR));
	say("eof", read(sv[1], buf, 8));
	say("reset", connect(sv[0], &none, sizeof(none)));
	wait_for(sv[1], POLLHUP);
	get_int("after the reset, SO_ERROR", sv[1], SOL_SOCKET, SO_ERROR);
	say("eof", read(sv[1], buf, 8));
	say("write", write(sv[1], "x", 1));
	close(sv[1]);
	close(sv[0]);
}

/** refused - calls that return the error of a connect */
static void refused(int family)
{
	struct sockaddr_storage ss;
	int port, l = listener(family, 0, &port), fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socklen_t len = lo(&ss, family, port);

	printf("# refused, family %d\n", family);
	close(l);
	connect(fd, (struct sockaddr *)&ss, len);
	wait_for(fd, POLLHUP);
	say("empty", sendto(fd, "", 0, 0, (struct sockaddr *)&ss, len));
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	close(fd);
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect(fd, (struct sockaddr *)&ss, len);
	wait_for(fd, POLLHUP);
	say("connect again", connect(fd, (struct sockaddr *)&ss, len));
	events("has told it", fd, POLLHUP, POLLHUP, LIMIT_MS);
	getsockname(fd, (struct sockaddr *)&ss, &len);
	printf("no address: %d\n", family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&ss)->sin6_addr) :
					      !((struct sockaddr_in *)&ss)->sin_addr.s_addr);
	close(fd);
}

/** lengths - how getsockopt and setsockopt treat lengths */
static void lengths(void)
{
	static const struct {
		const char *name;
		int level, opt;
	} t[] = {
		{ "SO_TYPE", SOL_SOCKET, SO_TYPE },
		{ "SO_LINGER", SOL_SOCKET, SO_LINGER },
		{ "SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO },
		{ "SO_ERROR", SOL_SOCKET, SO_ERROR },
		{ "SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL },
		{ "SO_PEERCRED", SOL_SOCKET, SO_PEERCRED },
		{ "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF },
		{ "SO_COOKIE", SOL_SOCKET, SO_COOKIE },
		{ "SO_BINDTODEVICE", SOL_SOCKET, SO_BINDTODEVICE },
		{ "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY },
		{ "TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG },
		{ "TCP_CONGESTION", IPPROTO_TCP, TCP_CONGESTION },
		{ "TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT },
		{ "TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT },
		{ "TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2 },
		{ "TCP_WINDOW_CLAMP", IPPROTO_TCP, TCP_WINDOW_CLAMP },
		{ "TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT },
		{ "TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK },
		{ "IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER },
		{ "IP_FREEBIND", IPPROTO_IP, IP_FREEBIND },
		{ "IP_TRANSPARENT", IPPROTO_IP, IP_TRANSPARENT },
		{ "IP_MTU", IPPROTO_IP, IP_MTU },
		{ "bad level", 77, 1 },
	};
	static const int len[] = { 4, 0, 1, -1, 100 };
	int sv[2];
	size_t i, j;

	printf("# lengths\n");
	tcp_pair(AF_INET, sv);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		for (j = 0; j < 5; j++) {
			unsigned char buf[100] = { 0x55, 0x55, 0x55, 0x55 };
			socklen_t n = (socklen_t)len[j];
			long ret = getsockopt(sv[0], t[i].level, t[i].opt, buf, &n);

			say(t[i].name, ret);
			if (!ret)
				printf("  %d: %u %d\n", len[j], n, n >= 4 && len[j] >= 4 && t[i].opt != SO_COOKIE && t[i].opt != TCP_CONGESTION && t[i].opt != TCP_WINDOW_CLAMP ? *(int *)(void *)buf : -1);
		}
	close(sv[0]);
	close(sv[1]);
}

/** settings - options that a new socket accepts */
static void settings(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, mss = 1000, l1, l2, port;
	struct sockaddr_storage ss;
	int n[2] = { 0 }, i;

	printf("# settings\n");
	say("TCP_MAXSEG", setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss)));
	say("SO_BINDTODEVICE", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	say("SO_BINDTODEVICE nosuch", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nosuch", 7));
	inet_pton(AF_INET, "192.0.2.1", &in.sin_addr);
	say("not ours", bind(fd, (struct sockaddr *)&in, sizeof(in)));
	say("IP_FREEBIND", setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one)));
	say("bind", bind(fd, (struct sockaddr *)&in, sizeof(in)));
	say("TCP_REPAIR", setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &one, sizeof(one)));
	close(fd);
	l1 = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(l1, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	bind(l1, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0));
	port = port_of(l1);
	l2 = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(l2, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	say("SO_REUSEPORT", bind(l2, (struct sockaddr *)&ss, lo(&ss, AF_INET, port)));
	say("listen", listen(l1, 50));
	say("listen", listen(l2, 50));
	for (i = 0; i < 40; i++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		connect(fd, (struct sockaddr *)&ss, lo(&ss, AF_INET, port));
	}
	for (i = 0; i < 40; i++) {
		while (accept(l1, NULL, NULL) >= 0)
			n[0]++;
		while (accept(l2, NULL, NULL) >= 0)
			n[1]++;
		if (n[0] + n[1] < 40)
			msleep(10);
	}
	printf("all %d, both %d\n", n[0] + n[1] == 40, n[0] > 4 && n[1] > 4);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	get_int("IPV6_V6ONLY", fd, IPPROTO_IPV6, IPV6_V6ONLY);
	say("connect, mapped", inet_pton(AF_INET6, "::ffff:127.0.0.1", &((struct sockaddr_in6 *)&ss)->sin6_addr));
	((struct sockaddr_in6 *)&ss)->sin6_family = AF_INET6;
	((struct sockaddr_in6 *)&ss)->sin6_port = htons((uint16_t)port);
	say("connect", connect(fd, (struct sockaddr *)&ss, sizeof(struct sockaddr_in6)));
	close(fd);
	close(l1);
	close(l2);
}

int main(void)
{
	static const int f[] = { AF_INET, AF_INET6 };
	size_t i;

	for (i = 0; i < 2; i++) {
		fast_open(f[i]);
		at_once(f[i]);
		no_peer(f[i]);
		gone(f[i]);
		oneself(f[i]);
		again(f[i]);
		queues(f[i]);
		urgent(f[i]);
		vectors(f[i]);
		waits(f[i]);
		shut_listener(f[i]);
		early(f[i]);
		refused(f[i]);
		half(f[i]);
	}
	lengths();
	settings();
	return 0;
}
