// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prints the results of the socket calls, one per line. It runs once on the
 * host's own sockets and once under lklhost, and the two outputs must be the
 * same (test_conform.py). It uses only the loopback addresses, and prints no
 * ports or times.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conform.h"

/** unconnected - calls on a new stream socket */
static void unconnected(int family)
{
	int fd = socket(family, SOCK_STREAM, 0);
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	printf("# unconnected stream, family %d\n", family);
	say("getpeername", getpeername(fd, (struct sockaddr *)&ss, &len));
	say("getsockname", getsockname(fd, (struct sockaddr *)&ss, &len));
	printf("name: family %d len %u\n", ss.ss_family, len);
	events("fresh", fd, POLLIN | POLLOUT | POLLRDHUP, POLLIN | POLLOUT | POLLRDHUP, 0);
	say("accept", accept(fd, NULL, NULL));
	get_int("SO_TYPE", fd, SOL_SOCKET, SO_TYPE);
	get_int("SO_DOMAIN", fd, SOL_SOCKET, SO_DOMAIN);
	get_int("SO_PROTOCOL", fd, SOL_SOCKET, SO_PROTOCOL);
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	get_int("SO_ACCEPTCONN", fd, SOL_SOCKET, SO_ACCEPTCONN);
	get_int("SO_REUSEADDR", fd, SOL_SOCKET, SO_REUSEADDR);
	get_int("TCP_NODELAY", fd, IPPROTO_TCP, TCP_NODELAY);
	get_int("bad option", fd, SOL_SOCKET, 9999);
	say("bad address length", connect(fd, (struct sockaddr *)&ss, 3));
	say("null address", connect(fd, NULL, 16));
	say("bad pointer", bind(fd, (struct sockaddr *)8, 16));
	say("negative length", bind(fd, (struct sockaddr *)&ss, (socklen_t)-1));
	say("setsockopt bad pointer", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, (void *)8, 4));
	say("setsockopt short", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &len, 1));
	say("listen unbound", listen(fd, 1));
	printf("got a port: %d\n", port_of(fd) > 0);
	close(fd);
	say("connect on closed", connect(fd, (struct sockaddr *)&ss, 16));
	say("bad type", socket(family, 77, 0));
	say("bad protocol", socket(family, SOCK_STREAM, IPPROTO_UDP));
	say("bad protocol dgram", socket(family, SOCK_DGRAM, IPPROTO_TCP));
	say("seqpacket", socket(family, SOCK_SEQPACKET, 0));
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	printf("flags: %d %d\n", !!(fcntl(fd, F_GETFL) & O_NONBLOCK), fcntl(fd, F_GETFD));
	close(fd);
}

/** connects - all outcomes of connect() */
static void connects(int family)
{
	struct sockaddr_storage ss;
	socklen_t len;
	int fd, l, port, one = 1, a;

	printf("# connect, family %d\n", family);
	l = listener(family, 0, &port);
	close(l);
	len = lo(&ss, family, port);
	fd = socket(family, SOCK_STREAM, 0);
	say("refused", connect(fd, (struct sockaddr *)&ss, len));
	get_int("SO_ERROR after", fd, SOL_SOCKET, SO_ERROR);
	say("refused again", connect(fd, (struct sockaddr *)&ss, len));
	close(fd);
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say("non-blocking, nobody there", connect(fd, (struct sockaddr *)&ss, len));
	events("refused", fd, POLLIN, POLLIN | POLLOUT, LIMIT_MS);
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	get_int("SO_ERROR again", fd, SOL_SOCKET, SO_ERROR);
	close(fd);
	l = listener(family, 0, &port);
	len = lo(&ss, family, port);
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say("non-blocking", connect(fd, (struct sockaddr *)&ss, len));
	events("connected", fd, POLLIN | POLLOUT, POLLIN | POLLOUT, LIMIT_MS);
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	say("connect again", connect(fd, (struct sockaddr *)&ss, len));
	say("and again", connect(fd, (struct sockaddr *)&ss, len));
	a = accept(l, NULL, NULL);
	say("send", send(fd, "x", 1, 0));
	events("data", a, POLLIN, POLLIN | POLLOUT, LIMIT_MS);
	close(fd);
	events("closed", a, POLLRDHUP, POLLIN | POLLRDHUP, LIMIT_MS);
	close(a);
	fd = socket(family, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	say("bind in use", bind(fd, (struct sockaddr *)&ss, len));
	say("connect blocking", connect(fd, (struct sockaddr *)&ss, len));
	say("connect connected", connect(fd, (struct sockaddr *)&ss, len));
	say("bind connected", bind(fd, (struct sockaddr *)&ss, len));
	say("listen connected", listen(fd, 1));
	say("connect on listener", connect(l, (struct sockaddr *)&ss, len));
	say("recv on listener", recv(l, &one, 1, MSG_DONTWAIT) < 0 ? -1 : 0);
	close(fd);
	close(l);
}

/** transfer - data, end of file and resets */
static void transfer(int family)
{
	char buf[4096];
	struct linger now = { 1, 0 };
	int sv[2], n;
	struct iovec iov[2] = { { buf, 3 }, { buf + 3, 4 } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };
	struct sockaddr_storage ss;
	socklen_t len;

	printf("# transfer, family %d\n", family);
	tcp_pair(family, sv);
	say("empty, don't wait", recv(sv[1], buf, 1, MSG_DONTWAIT));
	say("write", write(sv[0], "hello world", 11));
	events("readable", sv[1], POLLIN, POLLIN | POLLOUT, LIMIT_MS);
	say("FIONREAD", ioctl(sv[1], FIONREAD, &n) ? -1 : n);
	say("peek", recv(sv[1], buf, 5, MSG_PEEK));
	say("read", read(sv[1], buf, 2));
	len = sizeof(ss);
	say("recvfrom", recvfrom(sv[1], buf, 2, 0, (struct sockaddr *)&ss, &len));
	printf("name length %u\n", len);
	mh.msg_name = &ss;
	mh.msg_namelen = sizeof(ss);
	say("recvmsg with a name", recvmsg(sv[1], &mh, 0));
	printf("name length %u, data %.7s\n", mh.msg_namelen, buf);
	mh.msg_name = NULL;
	say("sendmsg", sendmsg(sv[1], &mh, 0));
	say("recv all", recv(sv[0], buf, 7, MSG_WAITALL));
	say("sendto with address", sendto(sv[0], "ab", 2, 0, (struct sockaddr *)&ss, lo(&ss, family, 9)));
	say("recv 2", recv(sv[1], buf, 2, MSG_WAITALL));
	say("send 0", send(sv[0], buf, 0, 0));
	say("shutdown WR", shutdown(sv[0], SHUT_WR));
	signal(SIGPIPE, SIG_IGN);
	say("write after", write(sv[0], "x", 1));
	events("eof", sv[1], POLLRDHUP, POLLIN | POLLOUT | POLLRDHUP, LIMIT_MS);
	say("read eof", read(sv[1], buf, 10));
	say("half-open write", write(sv[1], "still", 5));
	say("half-open read", recv(sv[0], buf, 5, MSG_WAITALL));
	close(sv[1]);
	events("both ended", sv[0], POLLHUP, POLLIN | POLLOUT | POLLRDHUP, LIMIT_MS);
	say("eof", read(sv[0], buf, 10));
	close(sv[0]);

	tcp_pair(family, sv);
	say("before the reset", write(sv[0], "last", 4));
	events("data", sv[1], POLLIN, POLLIN, LIMIT_MS);
	setsockopt(sv[0], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(sv[0]);
	msleep(50);
	say("data first", read(sv[1], buf, 4));
	say("then the reset", read(sv[1], buf, 4));
	say("then eof", read(sv[1], buf, 4));
	say("write", write(sv[1], "x", 1));
	get_int("SO_ERROR", sv[1], SOL_SOCKET, SO_ERROR);
	close(sv[1]);

	tcp_pair(family, sv);
	say("unread", write(sv[0], "unread", 6));
	events("data", sv[1], POLLIN, POLLIN, LIMIT_MS);
	close(sv[1]);
	msleep(50);
	events("reset by unread", sv[0], POLLIN, POLLIN | POLLOUT, LIMIT_MS);
	say("read", read(sv[0], buf, 4));
	close(sv[0]);
}

/** bulk - transfer much data both ways, with a slow reader */
static void bulk(int family)
{
	size_t total = 8 << 20, sent = 0, got = 0;
	char *buf = malloc(1 << 16);
	unsigned int sum = 0;
	int sv[2];
	pid_t pid;

	printf("# bulk, family %d\n", family);
	tcp_pair(family, sv);
	fcntl(sv[0], F_SETFL, O_NONBLOCK);
	memset(buf, 0, 1 << 16);
	while (sent < total * 16 && write(sv[0], buf, 1 << 16) > 0)
		sent += 1 << 16;
	printf("a full socket: %d\n", sent < total * 16 && errno == EAGAIN);
	events("full", sv[0], POLLOUT, POLLOUT, 0);
	close(sv[0]);
	close(sv[1]);
	tcp_pair(family, sv);
	pid = fork();
	if (!pid) {
		close(sv[0]);
		for (sent = 0; sent < total;) {
			ssize_t n;

			for (size_t i = 0; i < 1 << 16; i++)
				buf[i] = (char)((sent + i) * 7 >> 3);
			n = send(sv[1], buf, total - sent < 1 << 16 ? total - sent : 1 << 16, 0);
			if (n <= 0)
				_exit(1);
			sent += (size_t)n;
		}
		_exit(0);
	}
	close(sv[1]);
	for (;;) {
		ssize_t n = read(sv[0], buf, 1 << 16);

		if (n <= 0) {
			say("end", n);
			break;
		}
		for (ssize_t i = 0; i < n; i++)
			sum = sum * 31 + (unsigned char)buf[i];
		got += (size_t)n;
		if (got % (1 << 20) < 30000)
			msleep(1);
	}
	printf("got %zu\n", got);
	waitpid(pid, NULL, 0);
	close(sv[0]);
	free(buf);
}

/** accepts - blocking and non-blocking accepts, timeouts, many connections */
static void accepts(int family)
{
	struct timeval tv = { 0, 100000 };
	struct sockaddr_storage ss, me;
	socklen_t len, full;
	int l, port, fd, a, i, epfd;
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

	printf("# accept, family %d\n", family);
	l = listener(family, SOCK_NONBLOCK, &port);
	say("nobody", accept(l, NULL, NULL));
	events("nobody", l, POLLIN, POLLIN, 0);
	get_int("SO_ACCEPTCONN", l, SOL_SOCKET, SO_ACCEPTCONN);
	full = lo(&ss, family, port);
	epfd = epoll_create1(0);
	epoll_ctl(epfd, EPOLL_CTL_ADD, l, &ev);
	fd = socket(family, SOCK_STREAM, 0);
	say("connect", connect(fd, (struct sockaddr *)&ss, full));
	say("edge", epoll_wait(epfd, &ev, 1, LIMIT_MS));
	say("no second edge", epoll_wait(epfd, &ev, 1, 50));
	len = 4;
	a = accept4(l, (struct sockaddr *)&me, &len, SOCK_CLOEXEC);
	printf("accepted %d, length %u, flags %d %d\n", a >= 0, len,
	       fcntl(a, F_GETFL) & O_NONBLOCK, fcntl(a, F_GETFD));
	len = sizeof(me);
	getpeername(a, (struct sockaddr *)&me, &len);
	printf("same peer: %d\n", ntohs(((struct sockaddr_in *)&me)->sin_port) == port_of(fd));
	events("taken", l, POLLIN, POLLIN, 0);
	say("bad flags", accept4(l, NULL, NULL, 1));
	say("bad pointer", accept(l, (struct sockaddr *)8, &len));
	close(a);
	close(fd);
	for (i = 0; i < 5; i++) {
		fd = socket(family, SOCK_STREAM, 0);
		connect(fd, (struct sockaddr *)&ss, full);
	}
	say("edge", epoll_wait(epfd, &ev, 1, LIMIT_MS));
	for (i = 0; i < 6; i++)
		say("of five", accept(l, NULL, NULL) < 0 ? -1 : 0);
	close(l);
	close(epfd);
	l = listener(family, 0, &port);
	full = lo(&ss, family, port);
	for (i = a = 0; i < 300; i++) {
		struct pollfd p = { l, POLLIN, 0 };

		fd = socket(family, SOCK_STREAM, 0);
		connect(fd, (struct sockaddr *)&ss, full);
		poll(&p, 1, LIMIT_MS);
		close(accept(l, NULL, NULL));
		a += poll(&p, 1, 0);
		close(fd);
	}
	printf("readable with nobody there: %d\n", a);
	close(l);
	l = listener(family, 0, &port);
	setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	say("time-out", accept(l, NULL, NULL));
	close(l);
	fd = socket(family, SOCK_STREAM, 0);
	full = lo(&ss, family, port);
	say("the closed listener's port", bind(fd, (struct sockaddr *)&ss, full));
	close(fd);
}

/** udp - datagrams */
static void udp(int family)
{
	struct sockaddr_storage ss, from;
	char buf[70000] = "";
	socklen_t len;
	int a = socket(family, SOCK_DGRAM, 0), b = socket(family, SOCK_DGRAM, 0), n;
	struct timeval tv = { 0, 100000 };
	struct mmsghdr mm[3];
	struct iovec iov[3] = { { buf, 10 }, { buf + 10, 10 }, { buf + 20, 10 } };

	printf("# udp, family %d\n", family);
	len = lo(&ss, family, 0);
	say("bind", bind(a, (struct sockaddr *)&ss, len));
	events("fresh", a, POLLIN | POLLOUT, POLLIN | POLLOUT, 0);
	len = lo(&ss, family, port_of(a));
	say("sendto", sendto(b, "datagram", 8, 0, (struct sockaddr *)&ss, len));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	say("FIONREAD", ioctl(a, FIONREAD, &n) ? -1 : n);
	len = sizeof(from);
	say("cut, full length", recvfrom(a, buf, 4, MSG_TRUNC, (struct sockaddr *)&from, &len));
	printf("from b: %d, length %u\n", ntohs(((struct sockaddr_in *)&from)->sin_port) == port_of(b), len);
	say("empty", recv(a, buf, 1, MSG_DONTWAIT));
	say("empty, with address", recvfrom(a, buf, 1, MSG_DONTWAIT, (struct sockaddr *)&from, &len));
	say("reply", sendto(a, "re", 2, 0, (struct sockaddr *)&from, len));
	say("plain recv", recv(b, buf, 10, 0));
	len = lo(&ss, family, port_of(a));
	say("connect", connect(b, (struct sockaddr *)&ss, len));
	say("send", send(b, "c1", 2, 0));
	say("write 0", write(b, "", 0));
	say("recv", recv(a, buf, 10, 0));
	events("zero", a, POLLIN, POLLIN, LIMIT_MS);
	say("recv 0", recv(a, buf, 10, 0));
	say("getpeername", getpeername(b, (struct sockaddr *)&from, &len));
	say("sendto elsewhere ok", sendto(b, "d", 1, 0, (struct sockaddr *)&ss, len));
	say("recv", recv(a, buf, 10, 0));
	ss.ss_family = AF_UNSPEC;
	say("disconnect", connect(b, (struct sockaddr *)&ss, sizeof(ss)));
	say("getpeername", getpeername(b, (struct sockaddr *)&from, &len));
	say("too big", sendto(b, buf, 70000, 0, (struct sockaddr *)&ss, (len = lo(&ss, family, port_of(a)))));
	say("biggest", sendto(b, buf, 65000, 0, (struct sockaddr *)&ss, len));
	say("recv biggest", recv(a, buf, sizeof(buf), 0));
	say("no port", sendto(b, buf, 1, 0, (struct sockaddr *)&ss, lo(&ss, family, 0)));
	say("listen", listen(a, 1));
	say("accept", accept(a, NULL, NULL));
	setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	say("time-out", recv(a, buf, 1, 0));
	len = sizeof(from);
	say("time-out, with address", recvfrom(a, buf, 1, 0, (struct sockaddr *)&from, &len));
	len = lo(&ss, family, port_of(a));
	memset(mm, 0, sizeof(mm));
	for (n = 0; n < 3; n++) {
		mm[n].msg_hdr.msg_iov = &iov[n];
		mm[n].msg_hdr.msg_iovlen = 1;
		mm[n].msg_hdr.msg_name = &ss;
		mm[n].msg_hdr.msg_namelen = len;
	}
	say("sendmmsg", sendmmsg(b, mm, 3, 0));
	printf("lengths %u %u %u\n", mm[0].msg_len, mm[1].msg_len, mm[2].msg_len);
	for (n = 0; n < 3; n++)
		mm[n].msg_hdr.msg_name = NULL;
	msleep(20);
	say("recvmmsg", recvmmsg(a, mm, 3, MSG_WAITFORONE, NULL));
	printf("lengths %u %u %u\n", mm[0].msg_len, mm[1].msg_len, mm[2].msg_len);
	close(b);
	b = socket(family, SOCK_DGRAM, 0);
	len = lo(&ss, family, port_of(a));
	close(a);
	say("bind the closed one's port", bind(b, (struct sockaddr *)&ss, len));
	close(b);
	a = socket(family, SOCK_DGRAM, 0);
	connect(a, (struct sockaddr *)&ss, len);
	say("to nobody", send(a, "x", 1, 0));
	events("refused", a, 0, POLLIN | POLLOUT, LIMIT_MS);
	len = sizeof(from);
	say("refused", recvfrom(a, buf, 1, 0, (struct sockaddr *)&from, &len));
	get_int("SO_ERROR", a, SOL_SOCKET, SO_ERROR);
	close(a);
}

/** pktinfo - ancillary data */
static void pktinfo(void)
{
	union {
		struct cmsghdr cm;
		char buf[256];
	} u;
	char data[16];
	int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
	struct sockaddr_storage ss, from;
	struct iovec iov = { data, sizeof(data) };
	struct msghdr mh = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov,
			     .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };
	struct cmsghdr *cm;
	int i;

	printf("# pktinfo\n");
	bind(a, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0));
	setsockopt(a, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one));
	setsockopt(a, IPPROTO_IP, IP_RECVTTL, &one, sizeof(one));
	for (i = 0; i < 2; i++) {
		mh.msg_controllen = i ? 8 : sizeof(u);
		sendto(b, "pk", 2, 0, (struct sockaddr *)&ss, lo(&ss, AF_INET, port_of(a)));
		msleep(20);
		say("recvmsg", recvmsg(a, &mh, 0));
		printf("flags %#x\n", (unsigned int)mh.msg_flags & (MSG_CTRUNC | MSG_TRUNC));
		for (cm = i ? NULL : CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm))
			printf("cmsg %d %d %zu\n", cm->cmsg_level, cm->cmsg_type, (size_t)cm->cmsg_len);
	}
	close(a);
	close(b);
}

static int woken;

/** on_alarm - signal handler */
static void on_alarm(int sig)
{
	(void)sig;
	woken++;
}

/** alarm_in - have SIGALRM sent after @ms, with or without SA_RESTART */
static void alarm_in(int ms, int flags)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = flags };
	struct itimerval it = { .it_value = { ms / 1000, ms % 1000 * 1000 } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

/** late_connect - a thread that connects after a while */
static void *late_connect(void *arg)
{
	struct sockaddr_storage ss;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	msleep(400);
	connect(fd, (struct sockaddr *)&ss, lo(&ss, AF_INET, *(int *)arg));
	return NULL;
}

/** signals - EINTR and restarts */
static void signals(void)
{
	int port, l = listener(AF_INET, 0, &port), u = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char c;
	pthread_t t;

	printf("# signals\n");
	bind(u, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0));
	alarm_in(100, 0);
	say("accept interrupted", accept(l, NULL, NULL));
	alarm_in(100, 0);
	say("recvfrom interrupted", recvfrom(u, &c, 1, 0, (struct sockaddr *)&ss, &len));
	alarm_in(100, 0);
	say("recv interrupted", recv(u, &c, 1, 0));
	alarm_in(100, SA_RESTART);
	pthread_create(&t, NULL, late_connect, &port);
	say("accept restarted", accept(l, NULL, NULL) < 0 ? -1 : 0);
	printf("handlers ran: %d\n", woken);
	pthread_join(t, NULL);
	close(l);
	close(u);
}

/** inherit - fork, exec, dup, descriptors in messages */
static void inherit(void)
{
	int sv[2], un[2], st, fd;
	char text[32], c;
	pid_t pid;
	union {
		struct cmsghdr cm;
		char buf[CMSG_SPACE(sizeof(int))];
	} u = { .cm = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { text, 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };

	printf("# inherit\n");
	tcp_pair(AF_INET, sv);
	pid = fork();
	if (!pid) {
		dup2(sv[1], 1);
		execlp("echo", "echo", "from a child", NULL);
		_exit(1);
	}
	close(sv[1]);
	st = (int)recv(sv[0], text, sizeof(text), MSG_WAITALL);
	printf("%d %.*s", st, st, text);
	waitpid(pid, &st, 0);
	printf("status %d\n", st);
	close(sv[0]);
	tcp_pair(AF_INET, sv);
	socketpair(AF_UNIX, SOCK_STREAM, 0, un);
	memcpy(CMSG_DATA(&u.cm), &sv[1], sizeof(int));
	say("sendmsg", sendmsg(un[0], &mh, 0));
	close(sv[1]);
	say("recvmsg", recvmsg(un[1], &mh, 0));
	memcpy(&fd, CMSG_DATA(&u.cm), sizeof(int));
	say("write on the passed one", write(fd, "p", 1));
	say("read", read(sv[0], &c, 1));
	st = dup(fd);
	close(fd);
	say("write on a dup", write(st, "d", 1));
	say("read", read(sv[0], &c, 1));
	get_int("SO_TYPE of a dup", st, SOL_SOCKET, SO_TYPE);
	close(st);
	say("eof", read(sv[0], &c, 1));
	close(sv[0]);
}

/** files - sendfile into a socket, splice out of it */
static void files(void)
{
	char path[] = "/tmp/conformXXXXXX", buf[100];
	int sv[2], fd = mkstemp(path), p[2];

	printf("# files\n");
	unlink(path);
	if (write(fd, "0123456789", 10) != 10 || pipe(p))
		say("file", -1);
	tcp_pair(AF_INET, sv);
	lseek(fd, 0, SEEK_SET);
	say("sendfile", sendfile(sv[0], fd, NULL, 10));
	events("data", sv[1], POLLIN, POLLIN, LIMIT_MS);
	say("splice", splice(sv[1], NULL, p[1], NULL, 10, 0));
	say("read", read(p[0], buf, 100));
	close(sv[0]);
	close(sv[1]);
	close(fd);
}

/** names - calls of the resolver and for interfaces */
static void names(void)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG }, *ai;
	struct ifaddrs *ifa, *i;
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), seen = 0, err;

	printf("# names\n");
	err = getaddrinfo("127.0.0.1", "80", &hints, &ai);

	printf("getaddrinfo: %d\n", err);
	if (!err)
		freeaddrinfo(ai);
	printf("if_nametoindex: %u\n", if_nametoindex("lo"));
	say("SIOCGIFFLAGS", ioctl(fd, SIOCGIFFLAGS, &ifr));
	printf("up, loopback: %d\n", (ifr.ifr_flags & (IFF_UP | IFF_LOOPBACK)) == (IFF_UP | IFF_LOOPBACK));
	say("getifaddrs", getifaddrs(&ifa));
	for (i = ifa; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && !strcmp(i->ifa_name, "lo"))
			seen = 1;
	freeifaddrs(ifa);
	printf("lo has an IPv4 address: %d\n", seen);
	strcpy(ifr.ifr_name, "nosuch0");
	say("SIOCGIFFLAGS nosuch0", ioctl(fd, SIOCGIFFLAGS, &ifr));
	close(fd);
}

/** options - set options and read them back */
static void options(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), v;
	struct timeval tv = { 1, 500000 }, out = { 0, 0 };
	struct linger l = { 1, 5 };
	socklen_t len = sizeof(out);
	static const struct {
		const char *name;
		int level, opt, value;
	} t[] = {
		{ "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ "SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 1 },
		{ "SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT, 1 },
		{ "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 20000 },
		{ "SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 20000 },
		{ "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 2 },
		{ "SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3 },
		{ "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1 },
		{ "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 33 },
		{ "TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 5000 },
		{ "TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, 1 },
		{ "IP_TTL", IPPROTO_IP, IP_TTL, 44 },
		{ "IP_TOS", IPPROTO_IP, IP_TOS, 16 },
		{ "SO_ERROR (read-only)", SOL_SOCKET, SO_ERROR, 1 },
	};
	size_t i;

	printf("# options\n");
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		v = t[i].value;
		say(t[i].name, setsockopt(fd, t[i].level, t[i].opt, &v, sizeof(v)));
		get_int("  back", fd, t[i].level, t[i].opt);
	}
	say("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &out, &len);
	printf("  back: %ld.%06ld (%u)\n", (long)out.tv_sec, (long)out.tv_usec, len);
	say("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	say("SO_LINGER short", setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, 4));
	say("TCP_CONGESTION", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
	say("TCP_CONGESTION nosuch", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nosuch", 6));
	close(fd);
}

/** main - run all tests in order */
int main(void)
{
	static const int families[] = { AF_INET, AF_INET6 };
	size_t i;

	for (i = 0; i < 2; i++) {
		unconnected(families[i]);
		connects(families[i]);
		transfer(families[i]);
		bulk(families[i]);
		accepts(families[i]);
		udp(families[i]);
	}
	pktinfo();
	signals();
	inherit();
	files();
	names();
	options();
	return 0;
}
