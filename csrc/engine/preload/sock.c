// SPDX-License-Identifier: GPL-2.0-only
/* Calls that create and connect sockets of the stack, and set their options. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "engine/common/loopback.h"
#include "engine/common/netd.h"
#include "engine/preload/internal.h"

#define TYPE_MASK	0xf	/* SOCK_TYPE_MASK, include/linux/net.h */

/*
 * Not in every libc; from include/uapi/asm-generic/socket.h, linux/if_packet.h.
 */
#define OPT_RCVTIMEO_NEW	66
#define OPT_SNDTIMEO_NEW	67
#define OPT_ZEROCOPY		60
#define OPT_ATTACH_BPF		50
#define OPT_REUSEPORT_EBPF	52
#define OPT_PACKET_RX_RING	5
#define OPT_PACKET_TX_RING	13

/** is_stacks - whether such sockets belong to the stack */
static bool is_stacks(int domain, int proto)
{
	switch (domain) {
	case AF_INET:
	case AF_INET6:
	case AF_PACKET:
		return true;
	case AF_NETLINK:
		/*
		 * The others (audit, uevent, ...) concern the host, and an
		 * empty network namespace shows nothing of it.
		 */
		return proto == NETLINK_ROUTE || proto == NETLINK_SOCK_DIAG ||
		       proto == NETLINK_GENERIC || proto == NETLINK_NETFILTER ||
		       proto == NETLINK_XFRM;
	}
	return false;
}

/**
 * is_nobodys - whether such sockets are refused: neither kernel may provide
 * them
 *
 * The same list as in lklhost's filter (target/filter.c), for hosts without
 * seccomp filters: some of these families ignore network namespaces.
 */
static bool is_nobodys(int domain)
{
	return domain != AF_UNIX && domain != AF_ALG && domain != AF_NETLINK &&
	       !is_stacks(domain, 0);
}

/** stack_socket - make a socket in the stack, MPTCP instead of TCP if enabled */
static long stack_socket(int domain, int type, int proto, bool *mptcp)
{
	long fd;

	type |= SOCK_CLOEXEC;
	if (use_mptcp && (type & TYPE_MASK) == SOCK_STREAM &&
	    (domain == AF_INET || domain == AF_INET6) &&
	    (proto == 0 || proto == IPPROTO_TCP)) {
		fd = STACK(socket, domain, type, IPPROTO_MPTCP, 0, 0, 0);
		*mptcp = fd >= 0;
		/* The stack has no MPTCP, or it is disabled. */
		if (fd >= 0 || (fd != -EPROTONOSUPPORT && fd != -ENOPROTOOPT &&
				fd != -EINVAL))
			return fd;
	}
	return STACK(socket, domain, type, proto, 0, 0, 0);
}

/** call_socket - socket(2) */
long call_socket(long nr, const long *a)
{
	int domain = (int)a[0], type = (int)a[1], proto = (int)a[2], fd;
	bool mptcp = false;
	long sfd;

	if (is_nobodys(domain)) {
		COUNT(refused, 1);
		return -EAFNOSUPPORT;
	}
	if (!is_stacks(domain, proto) || borrowed())
		return native(nr, a);
	if (memory_full()) {
		COUNT(refused, 1);
		return -ENOBUFS;
	}
	fd = table_reserve(type);
	if (fd < 0)
		return fd;
	sfd = stack_socket(domain, type, proto, &mptcp);
	if (sfd < 0) {
		RAW1(close, fd);
		COUNT(refused, 1);
		return sfd;
	}
	fd = table_give(fd, (int)sfd, domain, type & TYPE_MASK, proto);
	if (fd >= 0) {
		sock_of(fd)->mptcp = mptcp;
		COUNT(made, 1);
	}
	return fd;
}

/**
 * accept_limit - apply SO_RCVTIMEO of an MPTCP listener, which accept() ignores
 * in Linux 6.12
 */
static long accept_limit(int lfd)
{
	struct pollfd p = { .fd = lfd, .events = POLLIN };
	struct timeval tv = { 0, 0 };
	socklen_t len = sizeof(tv);
	struct timespec ts;
	long ret;

	if (STACK(getsockopt, lfd, SOL_SOCKET, SO_RCVTIMEO, &tv, &len, 0) ||
	    (!tv.tv_sec && !tv.tv_usec))
		return 0;
	ts.tv_sec = tv.tv_sec;
	ts.tv_nsec = tv.tv_usec * 1000;
	ret = stack_wait(SYS_ppoll, (long[6]){ (long)&p, 1, (long)&ts, 0, 8 }, false);
	return ret ? (ret < 0 ? ret : 0) : -EAGAIN;
}

/** call_accept - accept(2) and accept4(2) */
long call_accept(long nr, const long *a)
{
	int flags = nr == SYS_accept4 ? (int)a[3] : 0, fd;
	int lfd = entries[is_sock(a[0]) ? a[0] : 0].sfd;
	struct sock *lis, *s;
	long sfd;

	if (!is_sock(a[0]))
		return native(nr, a);
	if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
		return -EINVAL;
	COUNT(calls, 1);
	lis = sock_of(a[0]);
	if (memory_full())
		return -ENOBUFS;
	if (lis->listening) {
		struct pollfd p = { .fd = lfd, .events = POLLIN };

		/* Avoid making a descriptor if no connection is waiting. */
		if (STACK(fcntl, lfd, F_GETFL, 0, 0, 0, 0) & O_NONBLOCK) {
			if (!poll_stack(&p))
				return -EAGAIN;
		} else if (lis->mptcp && lis->timeo) {
			sfd = accept_limit(lfd);
			if (sfd)
				return sfd;
		}
	}
	/* Reserve the descriptor before the wait, as the kernel does. */
	fd = table_reserve(flags);
	if (fd < 0)
		return fd;
	sfd = stack_wait(SYS_accept4,
			 (long[6]){ lfd, a[1], a[2], flags | SOCK_CLOEXEC },
			 !lis->timeo);
	if (sfd < 0) {
		RAW1(close, fd);
		return sfd;
	}
	fd = table_give(fd, (int)sfd, lis->domain, lis->type, lis->proto);
	if (fd < 0)
		return fd;
	s = sock_of(fd);
	s->mptcp = lis->mptcp;
	s->timeo = lis->timeo;
	s->fresh = false;
	s->accepted = true;
	COUNT(accepted, 1);
	return fd;
}

/** is_hidden - whether connect(2) is to a service that the program must not use */
static bool is_hidden(const long *a)
{
	char text[sizeof(struct sockaddr_un) + 1] = "";
	sa_family_t family;
	size_t len = (size_t)(unsigned int)a[2];
	const char *path;

	if (len > sizeof(text) - 1)
		return false;		/* the kernel returns EINVAL */
	if (preload_copy(text, (void *)a[1], len))
		return false;		/* EFAULT */
	memcpy(&family, text, sizeof(family));
	path = text + offsetof(struct sockaddr_un, sun_path);
	return family == AF_UNIX && (netd_marks(path) || netd_names(path));
}

/**
 * note_refused - report that no server of the stack accepts a connect to
 * loopback
 *
 * The stack's loopback interface has answered before the call returns, but a
 * non-blocking call does not return that answer.
 */
static void note_refused(int sfd, const struct sock *s, const long *a, long ret)
{
	struct sockaddr_storage ss = { 0 };
	char text[LOOPBACK_TEXT];
	struct loopback to;
	struct tcp_info info;
	socklen_t len = (socklen_t)a[2];
	bool first;

	if (s->type != SOCK_STREAM || len > sizeof(ss) ||
	    preload_copy(&ss, (void *)a[1], len))
		return;
	to = loopback_of(&ss, len);
	if (!to.port)
		return;
	if (ret == -EINPROGRESS) {
		len = sizeof(info);
		if (STACK(getsockopt, sfd, IPPROTO_TCP, TCP_INFO, &info, &len,
			  0) || info.tcpi_state != TCP_CLOSE)
			return;
	}
	lock();
	first = loopback_refused(to, text);
	unlock();
	if (first)
		warn_refused(text);
}

/** call_connect - connect(2) */
long call_connect(long nr, const long *a)
{
	struct sock *s;
	long ret;

	if (!is_sock(a[0]))
		return is_hidden(a) ? -ENOENT : native(nr, a);
	COUNT(calls, 1);
	s = sock_of(a[0]);
	ret = stack_wait(nr, (long[6]){ entries[a[0]].sfd, a[1], a[2] },
			 !s->timeo);
	if (s->type == SOCK_STREAM && (!ret || ret == -EINPROGRESS ||
				       ret == -EINTR)) {
		s->fresh = false;
		fallback_forget(s);
	}
	if (unlikely(ret == -EINPROGRESS || ret == -ECONNREFUSED))
		note_refused(entries[a[0]].sfd, s, a, ret);
	return ret;
}

/** call_listen - listen(2) */
long call_listen(long nr, const long *a)
{
	struct sock *s;
	long ret;

	if (!is_sock(a[0]))
		return native(nr, a);
	s = sock_of(a[0]);
	ret = stack_now(nr, (long[6]){ entries[a[0]].sfd, a[1] });
	if (!ret) {
		s->fresh = false;
		s->listening = true;
		fallback_forget(s);
	}
	return ret;
}

/** call_getsockopt - getsockopt(2) */
long call_getsockopt(long nr, const long *a)
{
	int tcp = IPPROTO_TCP, len;
	long ret;

	if (!is_sock(a[0]))
		return native(nr, a);
	ret = stack_now(nr, (long[6]){ entries[a[0]].sfd, a[1], a[2], a[3], a[4] });
	/* Report the protocol that was requested. */
	if (!ret && a[1] == SOL_SOCKET && a[2] == SO_PROTOCOL &&
	    sock_of(a[0])->mptcp &&
	    !preload_copy(&len, (void *)a[4], sizeof(len)) && len > 0)
		ret = preload_copy((void *)a[3], &tcp, (size_t)(len < 4 ? len : 4));
	return ret;
}

/** refused - the error for an option that the stack cannot provide, or 0 */
static long refused(long level, long name)
{
	/* Nothing would report when the stack no longer uses the pages. */
	if (level == SOL_SOCKET && name == OPT_ZEROCOPY)
		return -EOPNOTSUPP;
	/* These would need BPF programs, which only the host's bpf(2) loads. */
	if (level == SOL_SOCKET &&
	    (name == OPT_ATTACH_BPF || name == OPT_REUSEPORT_EBPF))
		return -EPERM;
	/* The program would have to map these rings. */
	if (level == SOL_PACKET &&
	    (name == OPT_PACKET_RX_RING || name == OPT_PACKET_TX_RING))
		return -ENOPROTOOPT;
	return 0;
}

/** note_timeout - record whether calls on the socket have a timeout */
static void note_timeout(struct sock *s, const long *a)
{
	struct timeval tv;

	if (a[1] != SOL_SOCKET ||
	    (a[2] != SO_RCVTIMEO && a[2] != SO_SNDTIMEO &&
	     a[2] != OPT_RCVTIMEO_NEW && a[2] != OPT_SNDTIMEO_NEW) ||
	    preload_copy(&tv, (void *)a[3], sizeof(tv)))
		return;
	s->timeo = tv.tv_sec || tv.tv_usec;
}

/** call_setsockopt - setsockopt(2) */
long call_setsockopt(long nr, const long *a)
{
	struct sock *s;
	long ret;

	if (!is_sock(a[0]))
		return native(nr, a);
	ret = refused(a[1], a[2]);
	if (ret)
		return ret;
	/* An option of the size of an int only changes a number. */
	if ((unsigned int)a[4] > sizeof(int) && memory_full())
		return -ENOBUFS;
	s = sock_of(a[0]);
	ret = stack_now(nr, (long[6]){ entries[a[0]].sfd, a[1], a[2], a[3], a[4] });
	if (unlikely(ret && s->mptcp && s->fresh))
		ret = fallback_to_tcp((int)a[0], (int)a[1], (int)a[2],
				      (void *)a[3], (int)a[4], ret);
	if (!ret) {
		note_timeout(s, a);
		if (s->mptcp && s->fresh)
			fallback_note(s, (int)a[1], (int)a[2], (void *)a[3],
				      (int)a[4]);
	}
	return ret;
}
