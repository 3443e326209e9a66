// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like conform.c, for datagrams: errors, sizes, ancillary data, groups, raw
 * sockets.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "conform.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define BURST 40	/* datagrams of runs(), which fit into the default buffer */

static char big[80000];

static int v6(int family)
{
	return family == AF_INET6;
}

/** bound - make a bound datagram socket */
static int bound(int family)
{
	struct sockaddr_storage ss;
	int fd = socket(family, SOCK_DGRAM, 0);

	if (bind(fd, (struct sockaddr *)&ss, lo(&ss, family, 0)))
		say("bound", -1);
	return fd;
}

/** to - connect @fd to the address of @peer */
static void to(int fd, int family, int peer)
{
	struct sockaddr_storage ss;

	if (connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port_of(peer))))
		say("to", -1);
}

/** nobody - return a port that no socket uses */
static int nobody(int family)
{
	int fd = bound(family), port = port_of(fd);

	close(fd);
	return port;
}

/** on - set an int option */
static void on(int fd, int level, int opt, int v)
{
	if (setsockopt(fd, level, opt, &v, sizeof(v)))
		say("setsockopt", -1);
}

/** receive - call recvmsg(); print length, name, flags and ancillary data */
static void receive(const char *what, int fd, int flags, size_t room)
{
	union {
		struct cmsghdr cm;
		char buf[1024];
	} u;
	static char data[70000];
	struct sockaddr_storage from;
	struct iovec iov = { data, room };
	struct msghdr mh = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov,
			     .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };
	struct cmsghdr *cm;

	if (say(what, recvmsg(fd, &mh, flags)) < 0)
		return;
	printf("  name %u flags %#x\n", mh.msg_namelen, (unsigned int)mh.msg_flags);
	for (cm = CMSG_FIRSTHDR(&mh); cm; cm = CMSG_NXTHDR(&mh, cm)) {
		int v = 0;

		memcpy(&v, CMSG_DATA(cm), cm->cmsg_len - CMSG_LEN(0) < 4 ? 1 : 4);
		if ((cm->cmsg_level == SOL_SOCKET && cm->cmsg_type != SO_RXQ_OVFL) ||
		    (cm->cmsg_level == IPPROTO_IP && cm->cmsg_type == IP_PKTINFO))
			v = 0;
		if (cm->cmsg_level == IPPROTO_IPV6 && cm->cmsg_type == IPV6_PKTINFO)
			v = 0;
		printf("  cmsg %d %d %zu: %d\n", cm->cmsg_level, cm->cmsg_type, (size_t)cm->cmsg_len, v);
		if ((cm->cmsg_level == IPPROTO_IP && cm->cmsg_type == IP_RECVERR) ||
		    (cm->cmsg_level == IPPROTO_IPV6 && cm->cmsg_type == IPV6_RECVERR)) {
			struct sock_extended_err ee;

			memcpy(&ee, CMSG_DATA(cm), sizeof(ee));
			printf("  error %u origin %u type %u code %u info %u\n", ee.ee_errno, ee.ee_origin,
			       ee.ee_type, ee.ee_code, ee.ee_info);
		}
	}
	fflush(stdout);
}

/** at_once - whether most datagrams over loopback are there when sendto() returns */
static void at_once(int family)
{
	struct sockaddr_storage ss;
	int a = bound(family), b = bound(family), i, there = 0;
	socklen_t len = lo(&ss, family, port_of(a));
	struct pollfd p = { a, POLLIN, 0 };
	char c;

	printf("# at once, family %d\n", family);
	for (i = 0; i < 200; i++) {
		sendto(b, "x", 1, 0, (struct sockaddr *)&ss, len);
		if (poll(&p, 1, 0) == 1 && recv(a, &c, 1, MSG_DONTWAIT) == 1)
			there++;
		else
			recv(a, &c, 1, 0);
	}
	say("at once", there > i / 2);
	close(a);
	close(b);
}

/** errors - results if no socket receives the datagrams */
static void errors(int family)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct sockaddr_storage ss;
	int fd, port = nobody(family);
	char c;

	printf("# datagram errors, family %d\n", family);
	fd = socket(family, SOCK_DGRAM, 0);
	connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
	say("to nobody", send(fd, "x", 1, 0));
	events("error", fd, POLLIN, POLLIN | POLLOUT, LIMIT_MS);
	say("plain recv", recv(fd, &c, 1, 0));
	events("no more", fd, 0, POLLIN | POLLOUT, 0);
	say("to nobody", send(fd, "x", 1, 0));
	events("error", fd, POLLIN, POLLIN, LIMIT_MS);
	say("plain send", send(fd, "x", 1, 0));
	say("plain send again", send(fd, "x", 1, 0));
	events("error", fd, POLLIN, POLLIN, LIMIT_MS);
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	get_int("SO_ERROR again", fd, SOL_SOCKET, SO_ERROR);
	events("no more", fd, 0, POLLIN | POLLOUT, 0);
	say("blocked till it comes", send(fd, "x", 1, 0));
	events("error", fd, POLLIN, POLLIN, LIMIT_MS);
	receive("recvmsg", fd, 0, 10);
	close(fd);

	fd = bound(family);
	say("to itself", sendto(fd, "kept", 4, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(fd))));
	events("there", fd, POLLIN, POLLIN, LIMIT_MS);
	connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
	say("to nobody", send(fd, "x", 1, 0));
	events("error", fd, 0, 0, LIMIT_MS);
	say("disconnect", connect(fd, &none, sizeof(none)));
	get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	receive("recvmsg", fd, 0, 10);
	close(fd);

	fd = socket(family, SOCK_DGRAM, 0);
	say("not connected", sendto(fd, "x", 1, 0, (struct sockaddr *)&ss, lo(&ss, family, port)));
	msleep(20);
	say("nothing", recv(fd, &c, 1, MSG_DONTWAIT));
	say("no address, plain send", send(fd, "x", 1, 0));
	say("no address, write", write(fd, "x", 1));
	close(fd);

	for (int connected = 0; connected < 2; connected++) {
		fd = socket(family, SOCK_DGRAM, 0);
		on(fd, v6(family) ? IPPROTO_IPV6 : IPPROTO_IP, v6(family) ? IPV6_RECVERR : IP_RECVERR, 1);
		printf("with RECVERR, connected %d\n", connected);
		lo(&ss, family, port);
		if (connected)
			connect(fd, (struct sockaddr *)&ss, lo(&ss, family, port));
		say("sendto", sendto(fd, "query", 5, 0, connected ? NULL : (struct sockaddr *)&ss,
				     connected ? 0 : lo(&ss, family, port)));
		events("error", fd, POLLIN, POLLIN | POLLOUT, LIMIT_MS);
		receive("queue", fd, MSG_ERRQUEUE, 100);
		receive("queue, empty", fd, MSG_ERRQUEUE, 100);
		events("no more", fd, 0, POLLIN | POLLOUT, 0);
		get_int("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
		say("sendto", sendto(fd, "query", 5, 0, connected ? NULL : (struct sockaddr *)&ss,
				     connected ? 0 : lo(&ss, family, port)));
		events("error", fd, POLLIN, POLLIN | POLLOUT, LIMIT_MS);
		receive("recvmsg says it", fd, 0, 100);
		receive("queue", fd, MSG_ERRQUEUE, 100);
		close(fd);
	}
}

/** sizes - largest, smallest and truncated datagrams */
static void sizes(int family)
{
	struct sockaddr_storage ss, from;
	int a = bound(family), b = socket(family, SOCK_DGRAM, 0), n, max = v6(family) ? 65527 : 65507;
	socklen_t len = sizeof(from);
	time_t start = time(NULL) - 1;	/* time(2) may lag by a tick */
	long stamp[2] = { 0, 0 };
	char buf[16];
	size_t i;

	printf("# datagram sizes, family %d\n", family);
	to(b, family, a);
	lo(&ss, family, port_of(a));
	on(b, SOL_SOCKET, SO_SNDBUF, 300000);
	on(a, SOL_SOCKET, SO_RCVBUF, 300000);
	say("name at the end of the address space",
	    getsockname(a, (void *)(UINTPTR_MAX - 100), &len));
	len = sizeof(from);
	say("SIOCGSTAMP, nothing received", ioctl(a, SIOCGSTAMP_OLD, stamp));
	say("SIOCGSTAMPNS, nothing received", ioctl(a, SIOCGSTAMPNS_OLD, stamp));
	say("SIOCATMARK", ioctl(a, SIOCATMARK, &n));
	for (i = 0; i < 4; i++) {
		static const int plus[] = { 0, 1, 2, 5000 };

		printf("max + %d\n", plus[i]);
		say(plus[i] == 1 ? "plain send, one more" : "send", send(b, big, (size_t)(max + plus[i]), 0));
		say("sendto", sendto(b, big, (size_t)(max + plus[i]), 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(a))));
	}
	for (i = 0; i < 2; i++) {
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		say("recv", recv(a, big, sizeof(big), MSG_DONTWAIT));
	}
	say("no more", recv(a, big, sizeof(big), MSG_DONTWAIT));
	say("SIOCGSTAMP", ioctl(a, SIOCGSTAMP_OLD, stamp));
	printf("its time %s\n", stamp[0] >= start && stamp[0] <= start + 100 ? "right" : "wrong");
	say("send 0", send(b, "", 0, 0));
	say("sendto 0", sendto(b, "", 0, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(a))));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	say("FIONREAD", ioctl(a, FIONREAD, &n) ? -1 : n);
	say("plain", recv(a, buf, 10, 0));
	say("with address", recvfrom(a, buf, 10, 0, (struct sockaddr *)&from, &len));
	say("long", send(b, "0123456789", 10, 0));
	say("peek", recv(a, buf, 4, MSG_PEEK));
	say("peek, full length", recv(a, buf, 4, MSG_PEEK | MSG_TRUNC));
	receive("recvmsg peek", a, MSG_PEEK, 4);
	receive("recvmsg", a, 0, 4);
	say("long", send(b, "0123456789", 10, 0));
	say("read, cut", read(a, buf, 4));
	say("nothing left of it", recv(a, buf, 4, MSG_DONTWAIT));
	say("long", send(b, "0123456789", 10, 0));
	receive("room for nothing", a, MSG_TRUNC, 0);
	close(a);
	close(b);
}

/** many - sendmmsg and recvmmsg */
static void many(int family)
{
	struct sockaddr_storage ss[4], from[4];
	struct timespec ts = { 0, 100 * 1000000 };
	int a = bound(family), b = bound(family), i;
	struct mmsghdr mm[4];
	struct iovec iov[4];
	char buf[4][8] = { "" };

	printf("# many datagrams, family %d\n", family);
	memset(mm, 0, sizeof(mm));
	for (i = 0; i < 4; i++) {
		iov[i] = (struct iovec){ buf[i], (size_t)i + 1 };
		mm[i].msg_hdr.msg_iov = &iov[i];
		mm[i].msg_hdr.msg_iovlen = 1;
		mm[i].msg_hdr.msg_name = &ss[i];
		mm[i].msg_hdr.msg_namelen = lo(&ss[i], family, port_of(a));
	}
	say("sendmmsg", sendmmsg(b, mm, 3, 0));
	mm[1].msg_hdr.msg_namelen = 3;
	say("the second is bad", sendmmsg(b, mm, 3, 0));
	say("the first is bad", sendmmsg(b, mm + 1, 2, 0));
	say("none", sendmmsg(b, mm, 0, 0));
	msleep(20);
	for (i = 0; i < 4; i++) {
		iov[i].iov_len = 8;
		mm[i].msg_hdr.msg_name = &from[i];
		mm[i].msg_hdr.msg_namelen = sizeof(from[i]);
	}
	say("recvmmsg", recvmmsg(a, mm, 4, MSG_DONTWAIT, NULL));
	for (i = 0; i < 4; i++)
		printf("  len %u name %u right %d\n", mm[i].msg_len, mm[i].msg_hdr.msg_namelen,
		       ntohs(((struct sockaddr_in *)&from[i])->sin_port) == port_of(b));
	sendto(b, "x", 1, 0, (struct sockaddr *)&ss[0], lo(&ss[0], family, port_of(a)));
	sendto(b, "y", 1, 0, (struct sockaddr *)&ss[0], lo(&ss[0], family, port_of(a)));
	msleep(20);
	say("WAITFORONE", recvmmsg(a, mm, 4, MSG_WAITFORONE, &ts));
	ts.tv_nsec = 2000000000;
	say("bad time", recvmmsg(a, mm, 4, MSG_WAITFORONE, &ts));
	close(a);
	close(b);
}

/** ancillary - ancillary data of a datagram, on connected and unconnected sockets */
static void ancillary(int family)
{
	int connected, i;

	for (connected = 0; connected < 2; connected++) {
		int a = bound(family), b = bound(family);
		union {
			struct cmsghdr cm;
			char buf[CMSG_SPACE(4)];
		} u = { .cm = { .cmsg_len = CMSG_LEN(4), .cmsg_level = v6(family) ? IPPROTO_IPV6 : IPPROTO_IP,
				.cmsg_type = v6(family) ? IPV6_HOPLIMIT : IP_TTL } };
		struct iovec iov = { big, 3 };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };

		printf("# ancillary data, family %d, connected %d\n", family, connected);
		to(b, family, a);
		if (connected)
			to(a, family, b);
		if (v6(family)) {
			on(a, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
			on(a, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
			on(a, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
			on(b, IPPROTO_IPV6, IPV6_TCLASS, 0x30);
		} else {
			on(a, IPPROTO_IP, IP_PKTINFO, 1);
			on(a, IPPROTO_IP, IP_RECVTTL, 1);
			on(a, IPPROTO_IP, IP_RECVTOS, 1);
			on(b, IPPROTO_IP, IP_TOS, 0x30);
		}
		for (i = 0; i < 3; i++) {
			int ttl = 40 + i;

			memcpy(CMSG_DATA(&u.cm), &ttl, 4);
			say("sendmsg", sendmsg(b, &mh, 0));
		}
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		msleep(20);
		receive("peek", a, MSG_PEEK, 100);
		receive("recvmsg", a, 0, 100);
		say("read", read(a, big, 10));
		events("one more", a, POLLIN, POLLIN, LIMIT_MS);
		receive("recvmsg", a, 0, 100);
		receive("empty", a, MSG_DONTWAIT, 100);
		on(a, SOL_SOCKET, SO_TIMESTAMP, 1);
		send(b, "t", 1, 0);
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		receive("stamped", a, 0, 100);
		on(a, SOL_SOCKET, SO_TIMESTAMPNS, 1);
		send(b, "t", 1, 0);
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		receive("stamped, ns", a, 0, 100);
		on(a, SOL_SOCKET, SO_TIMESTAMPNS, 0);
		on(a, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
		send(b, "t", 1, 0);
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		receive("SO_TIMESTAMPING", a, 0, 100);
		on(a, SOL_SOCKET, SO_RXQ_OVFL, 1);
		send(b, "t", 1, 0);
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		receive("SO_RXQ_OVFL", a, 0, 100);
		close(a);
		close(b);
	}
}

/** sent_stamps - transmit timestamps of datagrams, from the error queue */
static void sent_stamps(int family)
{
	int connected;

	for (connected = 0; connected < 2; connected++) {
		int a = bound(family), b = bound(family);
		struct sockaddr_storage ss;
		socklen_t len = lo(&ss, family, port_of(a));

		printf("# transmit time stamps, family %d, connected %d\n", family, connected);
		if (connected)
			to(b, family, a);
		on(b, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
		   SOF_TIMESTAMPING_OPT_ID | SOF_TIMESTAMPING_OPT_TSONLY);
		say("sendto", sendto(b, "x", 1, 0, (struct sockaddr *)&ss, len));
		events("sent", b, POLLIN, POLLIN, LIMIT_MS);
		receive("queue", b, MSG_ERRQUEUE, 100);
		events("no more", b, 0, POLLIN | POLLOUT, 0);
		say("recv has nothing", recv(b, big, 1, MSG_DONTWAIT));
		say("sendto", sendto(b, "x", 1, 0, (struct sockaddr *)&ss, len));
		events("sent", b, POLLIN, POLLIN, LIMIT_MS);
		say("plain recv has nothing", recv(b, big, 1, MSG_DONTWAIT));
		say("recvfrom has nothing", recvfrom(b, big, 1, MSG_DONTWAIT, (struct sockaddr *)&ss, &len));
		receive("queue", b, MSG_ERRQUEUE, 100);
		close(a);
		close(b);
	}
}

/** segments - UDP_SEGMENT and UDP_GRO */
static void segments(int family)
{
	int a = bound(family), b = bound(family), i;
	union {
		struct cmsghdr cm;
		char buf[CMSG_SPACE(2)];
	} u = { .cm = { .cmsg_len = CMSG_LEN(2), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT } };
	struct iovec iov = { big, 3500 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };
	uint16_t size = 1000;

	printf("# segments, family %d\n", family);
	to(b, family, a);
	memcpy(CMSG_DATA(&u.cm), &size, 2);
	say("sendmsg", sendmsg(b, &mh, 0));
	for (i = 0; i < 4; i++) {
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		say("segment", recv(a, big, 4000, MSG_DONTWAIT));
	}
	on(b, IPPROTO_UDP, UDP_SEGMENT, 1200);
	get_int("UDP_SEGMENT", b, IPPROTO_UDP, UDP_SEGMENT);
	say("plain", send(b, big, 2000, 0));
	for (i = 0; i < 2; i++) {
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		say("segment", recv(a, big, 4000, MSG_DONTWAIT));
	}
	to(a, family, b);
	on(a, IPPROTO_UDP, UDP_GRO, 1);
	say("plain", send(b, big, 3000, 0));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	receive("joined", a, 0, 4000);
	say("nothing more", recv(a, big, 4000, MSG_DONTWAIT));
	close(a);
	close(b);
}

/** content - the byte at @at of datagram @n */
static char content(unsigned int n, size_t at)
{
	return (char)(n * 31 + at * 7 + (at >> 8));
}

/**
 * length - length of datagram @n: runs of one size with shorter and longer ones, and in
 * later bursts with very small and large ones, which the engine does not merge
 */
static size_t length(unsigned int n)
{
	static const size_t sizes[] = { 64, 1400, 40, 1000, 300, 1450 };
	size_t size = sizes[n / BURST % (sizeof(sizes) / sizeof(sizes[0]))];
	int small = n / BURST % 64 >= 40;

	if (small && size == 1000)
		size = 3000;
	switch (n % BURST) {
	case 11:
		return small ? 1 : size;
	case 12:
		return size / 2;
	case 20:
		return small ? 0 : size;
	case 21:
		return size + 1;
	}
	return size;
}

/** is_right - whether @buf has the first @room bytes of datagram @n */
static int is_right(const char *buf, long len, size_t room, unsigned int n)
{
	size_t i;

	if (len != (long)length(n))
		return 0;
	for (i = 0; i < (size_t)len && i < room; i++)
		if (buf[i] != content(n, i))
			return 0;
	return 1;
}

/** send_burst - send the datagrams from @n on: one by one, or with one call */
static void send_burst(int fd, unsigned int n, int together)
{
	static char data[BURST][4000];
	static struct mmsghdr mm[BURST];
	static struct iovec iov[BURST];
	size_t i, at;
	int sent = 0, more;

	for (i = 0; i < BURST; i++) {
		iov[i].iov_base = data[i];
		iov[i].iov_len = length(n + (unsigned int)i);
		for (at = 0; at < iov[i].iov_len; at++)
			data[i][at] = content(n + (unsigned int)i, at);
		mm[i].msg_hdr = (struct msghdr){ .msg_iov = &iov[i], .msg_iovlen = 1 };
		if (!together && send(fd, data[i], iov[i].iov_len, 0) != (ssize_t)iov[i].iov_len)
			say("send", -1);
	}
	while (together && sent < BURST) {
		more = sendmmsg(fd, mm + sent, (unsigned int)(BURST - sent), 0);
		if (more <= 0) {
			say("sendmmsg", -1);
			return;
		}
		sent += more;
	}
}

/** receive_burst - receive the datagrams from @n on in different ways; returns those right */
static int receive_burst(int fd, unsigned int n, int way)
{
	static char data[8][4000];
	struct mmsghdr mm[8];
	struct iovec iov[8];
	struct sockaddr_storage ss;
	socklen_t len;
	int right = 0, i, k, got;

	for (i = 0; i < BURST; i += got) {
		unsigned int next = n + (unsigned int)i;

		got = 1;
		switch (way) {
		case 0:
			right += is_right(big, recv(fd, big, sizeof(big), 0), sizeof(big), next);
			break;
		case 1:		/* truncated, with the full length */
			right += is_right(big, recv(fd, big, 10, MSG_TRUNC), 10, next);
			break;
		case 2:
			len = sizeof(ss);
			right += is_right(big, recvfrom(fd, big, sizeof(big), MSG_PEEK,
							(struct sockaddr *)&ss, &len), sizeof(big), next) &&
				 is_right(big, recvfrom(fd, big, sizeof(big), 0,
							(struct sockaddr *)&ss, &len), sizeof(big), next);
			break;
		case 3:
			for (k = 0; k < 8; k++) {
				iov[k] = (struct iovec){ data[k], sizeof(data[k]) };
				mm[k].msg_hdr = (struct msghdr){ .msg_iov = &iov[k], .msg_iovlen = 1 };
			}
			got = recvmmsg(fd, mm, 8, MSG_WAITFORONE, NULL);
			for (k = 0; k < got; k++)
				right += is_right(data[k], mm[k].msg_len, sizeof(data[k]), next + (unsigned int)k);
			break;
		}
		if (got <= 0 || right < i + got) {
			printf("datagram %d of the burst is wrong\n", i);
			break;
		}
	}
	return right;
}

/** rcvbuf - get SO_RCVBUF */
static int rcvbuf(int fd)
{
	socklen_t len = sizeof(int);
	int v = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &v, &len))
		say("SO_RCVBUF", -1);
	return v;
}

/** default_rcvbuf - get the default of the socket's kernel, from a netlink socket */
static int default_rcvbuf(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, 0), v = rcvbuf(fd);

	close(fd);
	return v;
}

/** runs - many datagrams at once, which the engine may move together */
static void runs(int family)
{
	int a = bound(family), b = bound(family), i, way;
	struct timeval limit = { LIMIT_MS / 1000, 0 };
	int size = default_rcvbuf();
	unsigned int n = 0;
	char c;

	printf("# runs, family %d\n", family);
	setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	to(b, family, a);
	printf("the default SO_RCVBUF: %d\n", rcvbuf(a) == size);
	/* Unconnected at first, then connected to the sender. */
	for (i = 0; i < 96; i++, n += BURST) {
		if (i == 48)
			to(a, family, b);
		way = i % 4;
		send_burst(b, n, i / 4 & 1);
		printf("burst %d in way %d: %d are right\n", i, way, receive_burst(a, n, way));
	}
	say("nothing more", recv(a, &c, 1, MSG_DONTWAIT));
	printf("the default SO_RCVBUF: %d\n", rcvbuf(a) == size);
	get_int("UDP_GRO", a, IPPROTO_UDP, UDP_GRO);

	/* Options that concern single datagrams, while some wait. */
	send_burst(b, n, 1);
	on(a, SOL_SOCKET, SO_RXQ_OVFL, 1);
	printf("before the option: %d are right\n", receive_burst(a, n, 0));
	on(a, SOL_SOCKET, SO_TIMESTAMP, 1);
	for (i = 0; i < 3; i++, n += BURST) {
		send_burst(b, n, 1);
		printf("with timestamps: %d are right\n", receive_burst(a, n, 3));
	}
	send_burst(b, n, 1);
	receive("with its timestamp", a, 0, 4000);
	receive("with its timestamp", a, 0, 4000);
	close(a);

	/* The program itself asks for merged datagrams, and then no longer. */
	a = bound(family);
	setsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	to(b, family, a);
	for (i = 0; i < 8; i++, n += BURST) {
		send_burst(b, n, 1);
		if (receive_burst(a, n, 0) != BURST)
			say("a burst is wrong", 0);
	}
	on(a, IPPROTO_UDP, UDP_GRO, 1);
	get_int("UDP_GRO", a, IPPROTO_UDP, UDP_GRO);
	on(b, IPPROTO_UDP, UDP_SEGMENT, 1000);
	say("plain", send(b, big, 4500, 0));
	receive("joined", a, 0, 6000);
	on(a, IPPROTO_UDP, UDP_GRO, 0);
	get_int("UDP_GRO", a, IPPROTO_UDP, UDP_GRO);
	say("plain", send(b, big, 4500, 0));
	for (i = 0; i < 5; i++)
		say("single", recv(a, big, 6000, 0));
	on(b, IPPROTO_UDP, UDP_SEGMENT, 0);
	for (i = 0; i < 8; i++, n += BURST) {
		send_burst(b, n, 1);
		printf("again: %d are right\n", receive_burst(a, n, i % 4));
	}
	close(a);
	close(b);
}

/** peers - connect, connect to another peer, disconnect */
static void peers(int family)
{
	int a = bound(family), b = bound(family), c = bound(family);
	struct sockaddr_storage ss;
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	socklen_t len = lo(&ss, family, port_of(a));
	char buf[16];

	printf("# peers, family %d\n", family);
	say("from b", sendto(b, "b1", 2, 0, (struct sockaddr *)&ss, len));
	say("from c", sendto(c, "c1", 2, 0, (struct sockaddr *)&ss, len));
	msleep(20);
	to(a, family, b);
	say("from c, not heard", sendto(c, "c2", 2, 0, (struct sockaddr *)&ss, len));
	say("from b", sendto(b, "b2", 2, 0, (struct sockaddr *)&ss, len));
	msleep(20);
	for (int i = 0; i < 4; i++)
		if (say("recv", recv(a, buf, 10, MSG_DONTWAIT)) > 0)
			printf("  %.2s\n", buf);
	to(a, family, c);
	say("to c", send(a, "hello", 5, 0));
	say("c has", recv(c, buf, 16, 0));
	say("sendto b", sendto(a, "hi", 2, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(b))));
	say("b has", recv(b, buf, 16, 0));
	say("from c", sendto(c, "c3", 2, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(a))));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	say("nobody", connect(a, &none, sizeof(none)));
	say("recv", recv(a, buf, 10, MSG_DONTWAIT));
	say("bind again", bind(a, (struct sockaddr *)&ss, lo(&ss, family, 0)));
	say("from b", sendto(b, "b3", 2, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(a))));
	msleep(20);
	say("recv", recv(a, buf, 10, MSG_DONTWAIT));
	printf("port kept: %d\n", port_of(a) != 0);
	to(a, family, b);
	say("shutdown WR", shutdown(a, SHUT_WR));
	signal(SIGPIPE, SIG_IGN);
	say("send", send(a, "x", 1, 0));
	say("sendto", sendto(a, "x", 1, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(b))));
	say("sendmsg", sendmsg(a, &(struct msghdr){ 0 }, 0));
	say("from b", sendto(b, "b4", 2, 0, (struct sockaddr *)&ss, lo(&ss, family, port_of(a))));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	say("recv", recv(a, buf, 10, MSG_DONTWAIT));
	say("shutdown RD", shutdown(a, SHUT_RD));
	say("recv", recv(a, buf, 10, MSG_DONTWAIT));
	close(a);
	close(b);
	close(c);
	a = bound(family);
	lo(&ss, family, port_of(a));
	to(a, family, a);
	say("to itself", send(a, "self", 4, 0));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	say("recv", recv(a, buf, 16, MSG_DONTWAIT));
	say("bind twice", bind(a, (struct sockaddr *)&ss, lo(&ss, family, 0)));
	b = socket(family, SOCK_DGRAM, 0);
	say("in use", bind(b, (struct sockaddr *)&ss, lo(&ss, family, port_of(a))));
	say("other family", connect(b, (struct sockaddr *)&ss, lo(&ss, v6(family) ? AF_INET : AF_INET6, 9)));
	say("bad flags", send(b, "x", 1, MSG_OOB));
	close(a);
	close(b);
}

/** groups4 - multicast and broadcast */
static void groups4(void)
{
	struct ip_mreqn mr = { .imr_ifindex = (int)if_nametoindex("lo") };
	struct ip_mreq old = { .imr_interface.s_addr = htonl(INADDR_LOOPBACK) };
	struct group_req gr = { .gr_interface = if_nametoindex("lo") };
	struct sockaddr_in in = { .sin_family = AF_INET };
	int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0), i;
	char buf[8];

	printf("# groups\n");
	say("bind", bind(a, (struct sockaddr *)&in, sizeof(in)));
	in.sin_port = htons((uint16_t)port_of(a));
	say("IP_MULTICAST_IF", setsockopt(b, IPPROTO_IP, IP_MULTICAST_IF, &mr, sizeof(mr)));
	inet_pton(AF_INET, "239.1.2.3", &in.sin_addr);
	mr.imr_multiaddr = old.imr_multiaddr = in.sin_addr;
	memcpy(&gr.gr_group, &in, sizeof(in));
	for (i = 0; i < 3; i++) {
		switch (i) {
		case 0:
			say("join by index", setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mr, sizeof(mr)));
			break;
		case 1:
			say("join by address", setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &old, sizeof(old)));
			break;
		case 2:
			say("MCAST_JOIN_GROUP", setsockopt(a, IPPROTO_IP, MCAST_JOIN_GROUP, &gr, sizeof(gr)));
			break;
		}
		say("again", setsockopt(a, IPPROTO_IP, IP_ADD_MEMBERSHIP, &mr, sizeof(mr)));
		say("to the group", sendto(b, "m", 1, 0, (struct sockaddr *)&in, sizeof(in)));
		events("there", a, POLLIN, POLLIN, LIMIT_MS);
		say("recv", recv(a, buf, 8, MSG_DONTWAIT));
		say("leave", setsockopt(a, IPPROTO_IP, IP_DROP_MEMBERSHIP, &mr, sizeof(mr)));
		say("to the group", sendto(b, "m", 1, 0, (struct sockaddr *)&in, sizeof(in)));
		msleep(20);
		say("not joined", recv(a, buf, 8, MSG_DONTWAIT));
	}
	get_int("IP_MULTICAST_TTL", b, IPPROTO_IP, IP_MULTICAST_TTL);
	get_int("IP_MULTICAST_LOOP", b, IPPROTO_IP, IP_MULTICAST_LOOP);
	inet_pton(AF_INET, "127.255.255.255", &in.sin_addr);
	say("broadcast, forbidden", sendto(b, "m", 1, 0, (struct sockaddr *)&in, sizeof(in)));
	on(b, SOL_SOCKET, SO_BROADCAST, 1);
	say("broadcast", sendto(b, "m", 1, 0, (struct sockaddr *)&in, sizeof(in)));
	say("connect to it", connect(b, (struct sockaddr *)&in, sizeof(in)));
	close(a);
	close(b);
}

/** groups6 - multicast, and scopes */
static void groups6(void)
{
	struct ipv6_mreq mr = { .ipv6mr_interface = if_nametoindex("lo") };
	struct sockaddr_in6 in = { .sin6_family = AF_INET6 };
	struct group_req gr = { .gr_interface = if_nametoindex("lo") };
	int a = socket(AF_INET6, SOCK_DGRAM, 0), b = socket(AF_INET6, SOCK_DGRAM, 0), i;
	char buf[8];

	printf("# groups, IPv6\n");
	say("bind", bind(a, (struct sockaddr *)&in, sizeof(in)));
	in.sin6_port = htons((uint16_t)port_of(a));
	inet_pton(AF_INET6, "ff01::1:2", &in.sin6_addr);
	mr.ipv6mr_multiaddr = in.sin6_addr;
	on(b, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)mr.ipv6mr_interface);
	memcpy(&gr.gr_group, &in, sizeof(in));
	for (i = 0; i < 2; i++) {
		if (i)
			say("MCAST_JOIN_GROUP", setsockopt(a, IPPROTO_IPV6, MCAST_JOIN_GROUP, &gr, sizeof(gr)));
		else
			say("join", setsockopt(a, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &mr, sizeof(mr)));
		if (say("to the group", sendto(b, "m", 1, 0, (struct sockaddr *)&in, sizeof(in))) > 0)
			events("there", a, POLLIN, POLLIN, LIMIT_MS);
		say("recv", recv(a, buf, 8, MSG_DONTWAIT));
		say("leave", setsockopt(a, IPPROTO_IPV6, IPV6_DROP_MEMBERSHIP, &mr, sizeof(mr)));
	}
	inet_pton(AF_INET6, "fe80::1", &in.sin6_addr);
	say("link-local without scope", connect(b, (struct sockaddr *)&in, sizeof(in)));
	in.sin6_scope_id = mr.ipv6mr_interface;
	say("link-local on lo", connect(b, (struct sockaddr *)&in, sizeof(in)) < 0 ? -1 : 0);
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &in.sin6_addr);
	in.sin6_scope_id = 0;
	say("mapped", sendto(b, "4", 1, 0, (struct sockaddr *)&in, sizeof(in)));
	events("there", a, POLLIN, POLLIN, LIMIT_MS);
	receive("recvmsg", a, 0, 8);
	close(b);
	b = socket(AF_INET6, SOCK_DGRAM, 0);
	on(b, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	say("mapped, IPV6_V6ONLY", sendto(b, "4", 1, 0, (struct sockaddr *)&in, sizeof(in)));
	on(b, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
	get_int("IPV6_AUTOFLOWLABEL", b, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL);
	close(a);
	close(b);
}

/** raw - ICMP, and headers that the program writes itself */
static void raw(void)
{
	struct icmphdr ic = { .type = ICMP_ECHO, .un.echo.id = htons(77) };
	struct sockaddr_storage ss;
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), u;
	char buf[200];
	struct {
		struct iphdr ip;
		struct udphdr udp;
		char data[4];
	} pk = { .ip = { .version = 4, .ihl = 5, .ttl = 9, .protocol = IPPROTO_UDP } };

	printf("# raw\n");
	if (fd < 0) {
		say("raw", -1);
		return;
	}
	ic.checksum = htons((uint16_t)~(0x0800 + 77));
	say("ping", sendto(fd, &ic, sizeof(ic), 0, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0)));
	events("there", fd, POLLIN, POLLIN, LIMIT_MS);
	say("recv", recv(fd, buf, sizeof(buf), 0));
	msleep(20);
	say("recv", recv(fd, buf, sizeof(buf), MSG_DONTWAIT));
	printf("reply: %d\n", buf[20]);
	on(fd, IPPROTO_IP, IP_RECVTTL, 1);
	say("ping", sendto(fd, &ic, sizeof(ic), 0, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0)));
	msleep(20);
	receive("recvmsg", fd, 0, 100);
	close(fd);
	fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	u = bound(AF_INET);
	on(u, IPPROTO_IP, IP_RECVTTL, 1);
	pk.ip.saddr = pk.ip.daddr = htonl(INADDR_LOOPBACK);
	pk.udp.dest = htons((uint16_t)port_of(u));
	pk.udp.source = htons(9);
	pk.udp.len = htons(12);
	say("IP_HDRINCL", sendto(fd, &pk, sizeof(pk), 0, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0)));
	events("there", u, POLLIN, POLLIN, LIMIT_MS);
	receive("recvmsg", u, 0, 100);
	close(u);
	close(fd);
	fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
	say("IPv6", fd < 0 ? -1 : 0);
	say("no checksum offset for it", setsockopt(fd, IPPROTO_IPV6, IPV6_CHECKSUM, buf, 4) < 0 ? -1 : 0);
	close(fd);
}

static volatile int ios;

static void on_io(int sig)
{
	(void)sig;
	ios++;
}

/** async - SIGIO */
static void async(void)
{
	int a = bound(AF_INET), b = bound(AF_INET), i;
	char c;

	printf("# SIGIO, datagrams\n");
	signal(SIGIO, on_io);
	to(b, AF_INET, a);
	say("F_SETOWN", fcntl(a, F_SETOWN, getpid()));
	say("F_SETFL", fcntl(a, F_SETFL, O_ASYNC | O_NONBLOCK));
	send(b, "x", 1, 0);
	for (i = 0; i < LIMIT_MS && !ios; i++)
		msleep(1);
	printf("signalled: %d\n", ios > 0);
	say("recv", recv(a, &c, 1, 0));
	close(a);
	close(b);
}

/** families - which socket families are available */
static void families(void)
{
	static const struct {
		const char *name;
		int domain, type, proto;
	} t[] = {
		{ "sctp stream", AF_INET, SOCK_STREAM, IPPROTO_SCTP },
		{ "sctp seqpacket", AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP },
		{ "dccp", AF_INET, SOCK_DCCP, IPPROTO_DCCP },
		{ "l2tp", AF_INET, SOCK_DGRAM, 115 },
		{ "udplite 6", AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE },
		{ "raw, proto 0", AF_INET, SOCK_RAW, 0 },
		{ "negative", AF_INET, SOCK_RAW, -1 },
		{ "too big", AF_INET, SOCK_RAW, 70000 },
		{ "type 0", AF_INET, 0, 0 },
		{ "bad family", 200, SOCK_STREAM, 0 },
		{ "negative family", -1, SOCK_STREAM, 0 },
		{ "alg", AF_ALG, SOCK_SEQPACKET, 0 },
	};
	size_t i;

	printf("# families\n");
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		int fd = socket(t[i].domain, t[i].type, t[i].proto);

		say(t[i].name, fd < 0 ? -1 : 0);
		if (fd >= 0)
			close(fd);
	}
}

int main(void)
{
	static const int f[] = { AF_INET, AF_INET6 };
	int keeper = socket(AF_INET, SOCK_DGRAM, 0);
	size_t i;

	/*
	 * The kernel starts to timestamp packets some time after the first
	 * socket requests it, and stops some time after the last such socket is
	 * gone.
	 */
	on(keeper, SOL_SOCKET, SO_TIMESTAMP, 1);
	msleep(50);
	for (i = 0; i < 2; i++) {
		at_once(f[i]);
		errors(f[i]);
		sizes(f[i]);
		many(f[i]);
		ancillary(f[i]);
		sent_stamps(f[i]);
		segments(f[i]);
		runs(f[i]);
		peers(f[i]);
	}
	groups4();
	groups6();
	raw();
	async();
	families();
	return 0;
}
