// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets of every family. If a socket uses the host's addresses, the stack
 * must answer. A family that the stack lacks must not be available.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/genetlink.h>
#include <linux/if_packet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"

#define ETHERTYPE_TEST	0x88b5		/* IEEE 802, local experimental */
#define SMC_PROTOCOL	256		/* IPPROTO_SMC, Linux 6.11 */

/* If set, make calls by an instruction that no library intercepts. */
static bool bare;

/** make_socket - socket(2), depending on @bare */
static int make_socket(int family, int type, int protocol)
{
	return bare ? (int)RAW(SYS_socket, family, type, protocol) :
		      socket(family, type, protocol);
}

/** make_connect - connect(2), depending on @bare */
static int make_connect(int fd, const void *name, socklen_t len)
{
	return bare ? (int)RAW(SYS_connect, fd, name, len) :
		      connect(fd, name, len);
}

/** make_sendto - sendto(2), depending on @bare */
static ssize_t make_sendto(int fd, const void *data, size_t n, int flags,
			   const void *name, socklen_t len)
{
	return bare ? RAW(SYS_sendto, fd, data, n, flags, name, len) :
		      sendto(fd, data, n, flags, name, len);
}

/** address - make the @nth address of the host: loopback, then that of its wire */
static socklen_t address(struct sockaddr_storage *ss, int family, int nth,
			 const char *port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	ss->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		in->sin_port = htons((uint16_t)number(port));
		inet_pton(AF_INET, nth ? setting("HOST4") : "127.0.0.1",
			  &in->sin_addr);
		return sizeof(*in);
	}
	in6->sin6_port = htons((uint16_t)number(port));
	inet_pton(AF_INET6, nth ? setting("HOST6") : "::1", &in6->sin6_addr);
	return sizeof(*in6);
}

/** finish - wait for a connect in progress; 0 or a positive errno */
static int finish(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (poll(&p, 1, 3000) != 1)
		return ETIMEDOUT;
	if (bare)
		RAW(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &err, &len);
	else
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	return err;
}

/** connected - connect to an address; 0 or a positive errno */
static int connected(int family, int protocol, int nth, const char *name)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, family, nth, "TCP");
	int fd = make_socket(family, SOCK_STREAM | SOCK_NONBLOCK, protocol);
	int err = 0;

	if (fd < 0)
		return errno;
	if (make_connect(fd, &ss, len))
		err = errno == EINPROGRESS ? finish(fd) : errno;
	if (!err)
		mark(fd, name);
	close(fd);
	return err;
}

/** stream - connect to both addresses; returns the error of the second */
static const char *stream(const struct attempt *at)
{
	int err = connected((int)at->a, (int)at->b, 0, at->name);

	if (err)
		err = connected((int)at->a, (int)at->b, 1, at->name);
	return err ? failure(err) : "reached";
}

/** connect_out - connect by the C library, for attempts that do something else first */
const char *connect_out(const struct attempt *at)
{
	const struct attempt tcp = { at->name, stream, AF_INET, 0 };

	return stream(&tcp);
}

/** datagram - send to both addresses; returns the error of the second */
static const char *datagram(const struct attempt *at)
{
	struct sockaddr_storage ss;
	char text[64];
	int fd = make_socket((int)at->a, SOCK_DGRAM, (int)at->b), nth, n;
	ssize_t ret = -1;

	if (fd < 0)
		return failure(errno);
	n = snprintf(text, sizeof(text), "lklrun-escape %s", at->name);
	for (nth = 0; nth < 2; nth++) {
		socklen_t len = address(&ss, (int)at->a, nth, "UDP");

		ret = make_sendto(fd, text, (size_t)n, 0, &ss, len);
	}
	return ret < 0 ? failure(errno) : "reached";
}

/** raw_packet - send a packet with our own header to the wire's address */
static const char *raw_packet(const struct attempt *at)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, (int)at->a, 1, "UDP");
	/* IPv4, 40 bytes, TTL 64, protocol 253; the addresses are its last bytes. */
	unsigned char packet[40] = { 0x45, 0, 0, 40, 0, 1, 0, 0, 64, 253 };
	int fd = make_socket((int)at->a, SOCK_RAW, (int)at->b);

	if (fd < 0)
		return failure(errno);
	memcpy(packet + 16, &((struct sockaddr_in *)&ss)->sin_addr, 4);
	memcpy(packet + 20, "lklrun-escape", 13);
	if (at->a == AF_INET6)
		((struct sockaddr_in6 *)&ss)->sin6_port = 0;
	return make_sendto(fd, packet, sizeof(packet), 0, &ss, len) < 0 ?
	       failure(errno) : "reached";
}

/** without_library - make one of the attempts above by raw system calls */
static const char *without_library(const struct attempt *at)
{
	const char *outcome;

	bare = true;
	outcome = at->b == SOCK_STREAM ?
		  stream(&(struct attempt){ at->name, NULL, at->a, 0 }) :
		  datagram(&(struct attempt){ at->name, NULL, at->a, 0 });
	bare = false;
	return outcome;
}

/** fast_open - data with the SYN */
static const char *fast_open(const struct attempt *at)
{
	struct sockaddr_storage ss;
	socklen_t len = address(&ss, AF_INET, 1, "TCP");
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)at;
	if (fd < 0)
		return failure(errno);
	return sendto(fd, "lklrun-escape tfo", 17, MSG_FASTOPEN,
		      (struct sockaddr *)&ss, len) < 0 ?
	       failure(errno) : "reached";
}

/** zero_copy - have the kernel send the program's own pages */
static const char *zero_copy(const struct attempt *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	(void)at;
	if (fd < 0)
		return failure(errno);
	return setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) ?
	       failure(errno) : "stack";
}

/** frames - send a frame to each device that a packet socket might see */
static const char *frames(const struct attempt *at)
{
	static const unsigned char frame[60] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1,
		ETHERTYPE_TEST >> 8, ETHERTYPE_TEST & 0xff,
		'l', 'k', 'l', 'r', 'u', 'n', '-', 'e', 's', 'c', 'a', 'p', 'e',
	};
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_halen = 6,
				  .sll_protocol = htons(ETHERTYPE_TEST) };
	int fd;

	bare = at->b;
	fd = make_socket(AF_PACKET, (int)at->a, htons(ETHERTYPE_TEST));
	bare = false;
	if (fd < 0)
		return failure(errno);
	memset(ll.sll_addr, 0xff, 6);
	for (ll.sll_ifindex = 1; ll.sll_ifindex < 64; ll.sll_ifindex++)
		sendto(fd, frame, sizeof(frame), MSG_DONTWAIT,
		       (struct sockaddr *)&ll, sizeof(ll));
	return "stack";
}

/** ask_netlink - request a dump; "reached" if an answer contains @needle */
static const char *ask_netlink(int protocol, const void *request, size_t n,
			       const void *needle, size_t needle_len)
{
	static char buf[65536];
	struct timeval tv = { .tv_sec = 2 };
	int fd = socket(AF_NETLINK, SOCK_RAW, protocol);
	ssize_t got;

	if (fd < 0)
		return failure(errno);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	if (send(fd, request, n, 0) < 0)
		return failure(errno);
	while ((got = recv(fd, buf, sizeof(buf), 0)) > 0) {
		if (memmem(buf, (size_t)got, needle, needle_len))
			return "reached";
		if (((struct nlmsghdr *)buf)->nlmsg_type == NLMSG_DONE ||
		    ((struct nlmsghdr *)buf)->nlmsg_type == NLMSG_ERROR)
			return "stack";
	}
	return got < 0 ? failure(errno) : "stack";
}

/** netlink_route - look for the host's device */
static const char *netlink_route(const struct attempt *at)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg m;
	} req = { .h = { .nlmsg_len = sizeof(req), .nlmsg_type = RTM_GETLINK,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };

	(void)at;
	return ask_netlink(NETLINK_ROUTE, &req, sizeof(req), setting("LINK"),
			   strlen(setting("LINK")) + 1);
}

/** netlink_diag - look for the host's listener, which serves IPv4 and IPv6, by its port */
static const char *netlink_diag(const struct attempt *at)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} req = { .h = { .nlmsg_len = sizeof(req),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		  .r = { .sdiag_family = AF_INET6, .sdiag_protocol = IPPROTO_TCP,
			 .idiag_states = ~0u } };
	/* The begin of the listener's struct inet_diag_msg: fields of one byte and the port. */
	const uint8_t listener[] = { AF_INET6, TCP_LISTEN, 0, 0,
				     (uint8_t)(number("TCP") >> 8),
				     (uint8_t)number("TCP") };

	(void)at;
	return ask_netlink(NETLINK_SOCK_DIAG, &req, sizeof(req), listener,
			   sizeof(listener));
}

/** netlink_open - open a protocol whose state looks the same in both kernels; tell whose it is */
static const char *netlink_open(const struct attempt *at)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, (int)at->a);
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK, .nl_groups = 1 };

	if (fd < 0)
		return failure(errno);
	if (at->b && bind(fd, (struct sockaddr *)&nl, sizeof(nl)))
		return failure(errno);
	return at->b ? "own" : "stack";
}

/**
 * netlink_others - try every protocol that has no attempt of its own
 *
 * Protocols that the host's kernel offers in the target's own namespace reveal
 * nothing about its network.
 */
static const char *netlink_others(const struct attempt *at)
{
	static const bool named[32] = {
		[NETLINK_ROUTE] = true, [NETLINK_SOCK_DIAG] = true,
		[NETLINK_GENERIC] = true, [NETLINK_NETFILTER] = true,
		[NETLINK_XFRM] = true, [NETLINK_KOBJECT_UEVENT] = true,
		[NETLINK_USERSOCK] = true,
	};
	int i, err = 0;

	(void)at;
	for (i = 0; i < 32; i++) {
		int fd = named[i] ? -1 : socket(AF_NETLINK, SOCK_RAW, i);

		if (fd >= 0) {
			close(fd);
			return "own";
		}
		if (!named[i])
			err = errno;
	}
	return failure(err);
}

/** family - make a socket of a family that the stack does not have */
static const char *family(const struct attempt *at)
{
	int fd = (int)RAW(SYS_socket, at->a, at->b, 0);

	if (fd < 0)
		return failure(errno);
	close(fd);
	return at->a == AF_ALG ? "own" : "reached";
}

/** every_family - try all numbers and types, including unnamed ones */
static const char *every_family(const struct attempt *at)
{
	static const bool served[256] = {
		[AF_UNIX] = true, [AF_ALG] = true, [AF_INET] = true,
		[AF_INET6] = true, [AF_PACKET] = true, [AF_NETLINK] = true,
	};
	long f, type;

	(void)at;
	for (f = 0; f < 256; f++)
		for (type = 1; type < 7 && !served[f]; type++) {
			if (RAW(SYS_socket, f, type, 0) >= 0)
				return word("reached by family %ld", f);
			if (errno != EAFNOSUPPORT)
				return failure(errno);
		}
	return "EAFNOSUPPORT";
}

/** high_half - set the upper half of the family argument, which a filter might ignore */
static const char *high_half(const struct attempt *at)
{
	return RAW(SYS_socket, 1UL << 32 | (unsigned long)at->a, SOCK_STREAM,
		   0) < 0 ? failure(errno) : "reached";
}

/** pairs - socketpair() of all families but AF_UNIX */
static const char *pairs(const struct attempt *at)
{
	int sv[2], f, err = 0;

	for (f = at->a ? (int)at->a : 0; f < (at->a ? at->a + 1 : 256); f++) {
		if (f == AF_UNIX)
			continue;
		if (!RAW(SYS_socketpair, f, SOCK_SEQPACKET, 0, sv))
			return word("reached by family %d", f);
		err = errno;
	}
	return failure(err);
}

/** unix_name - connect to a unix socket name of the host */
static const char *unix_name(const struct attempt *at)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, (int)at->b, 0), n;

	if (at->a)	/* abstract */
		n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "%s",
			     setting("ABSTRACT")) + 1;
	else
		n = snprintf(un.sun_path, sizeof(un.sun_path), "%s",
			     setting("PATH")) + 1;
	if (connect(fd, (struct sockaddr *)&un, (socklen_t)
		    (offsetof(struct sockaddr_un, sun_path) + (size_t)n)))
		return failure(errno);
	mark(fd, at->name);
	return "reached";
}

const struct attempt socket_attempts[] = {
	{ "inet-stream", stream, AF_INET, 0 },
	{ "inet6-stream", stream, AF_INET6, 0 },
	{ "inet-mptcp", stream, AF_INET, 262 },
	{ "inet-sctp", stream, AF_INET, IPPROTO_SCTP },
	{ "inet-smc", stream, AF_INET, SMC_PROTOCOL },
	{ "inet-dgram", datagram, AF_INET, 0 },
	{ "inet6-dgram", datagram, AF_INET6, 0 },
	{ "inet-udplite", datagram, AF_INET, IPPROTO_UDPLITE },
	{ "inet-ping", datagram, AF_INET, IPPROTO_ICMP },
	{ "inet-raw", raw_packet, AF_INET, IPPROTO_RAW },
	{ "inet6-raw", raw_packet, AF_INET6, 253 },
	{ "bare-inet-stream", without_library, AF_INET, SOCK_STREAM },
	{ "bare-inet-dgram", without_library, AF_INET, SOCK_DGRAM },
	{ "bare-inet6-stream", without_library, AF_INET6, SOCK_STREAM },
	{ "tcp-fast-open", fast_open, 0, 0 },
	{ "tcp-zero-copy", zero_copy, 0, 0 },
	{ "packet-raw", frames, SOCK_RAW, 0 },
	{ "packet-dgram", frames, SOCK_DGRAM, 0 },
	{ "bare-packet", frames, SOCK_RAW, 1 },
	{ "netlink-route", netlink_route, 0, 0 },
	{ "netlink-sock-diag", netlink_diag, 0, 0 },
	{ "netlink-generic", netlink_open, NETLINK_GENERIC, 0 },
	{ "netlink-netfilter", netlink_open, NETLINK_NETFILTER, 0 },
	{ "netlink-xfrm", netlink_open, NETLINK_XFRM, 0 },
	{ "netlink-uevent", netlink_open, NETLINK_KOBJECT_UEVENT, 1 },
	{ "netlink-usersock", netlink_open, NETLINK_USERSOCK, 1 },
	{ "netlink-others", netlink_others, 0, 0 },
	{ "vsock-stream", family, AF_VSOCK, SOCK_STREAM },
	{ "vsock-dgram", family, AF_VSOCK, SOCK_DGRAM },
	{ "bluetooth", family, AF_BLUETOOTH, SOCK_RAW },
	{ "can", family, AF_CAN, SOCK_RAW },
	{ "tipc", family, AF_TIPC, SOCK_SEQPACKET },
	{ "xdp", family, 44, SOCK_RAW },
	{ "smc", family, 43, SOCK_STREAM },
	{ "alg", family, AF_ALG, SOCK_SEQPACKET },
	{ "key", family, AF_KEY, SOCK_RAW },
	{ "pppox", family, AF_PPPOX, SOCK_DGRAM },
	{ "rds", family, AF_RDS, SOCK_SEQPACKET },
	{ "rxrpc", family, AF_RXRPC, SOCK_DGRAM },
	{ "kcm", family, AF_KCM, SOCK_DGRAM },
	{ "qipcrtr", family, AF_QIPCRTR, SOCK_DGRAM },
	{ "mctp", family, 45, SOCK_DGRAM },
	{ "ieee802154", family, AF_IEEE802154, SOCK_RAW },
	{ "nfc", family, AF_NFC, SOCK_SEQPACKET },
	{ "phonet", family, AF_PHONET, SOCK_DGRAM },
	{ "llc", family, AF_LLC, SOCK_DGRAM },
	{ "appletalk", family, AF_APPLETALK, SOCK_DGRAM },
	{ "ipx", family, AF_IPX, SOCK_DGRAM },
	{ "ax25", family, AF_AX25, SOCK_DGRAM },
	{ "x25", family, AF_X25, SOCK_SEQPACKET },
	{ "every-family", every_family, 0, 0 },
	{ "family-high-half", high_half, AF_VSOCK, 0 },
	{ "socketpair-tipc", pairs, AF_TIPC, 0 },
	{ "socketpair-any", pairs, 0, 0 },
	{ "unix-abstract", unix_name, 1, SOCK_STREAM },
	{ "unix-path", unix_name, 0, SOCK_STREAM },
	{ NULL, NULL, 0, 0 },
};
