// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that send and receive data, and calls that need only another
 * descriptor.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "engine/preload/internal.h"

/** pass - repeat the call in the stack, if the descriptor is still a socket of it */
static inline long pass(long nr, const long *a)
{
	unsigned int was;
	long ret;

	do {
		was = __atomic_load_n(&dups, __ATOMIC_ACQUIRE);
		ret = unlikely(!is_sock(a[0])) ? native(nr, a) :
		      stack_wait(nr,
				 (long[6]){ entries[(unsigned int)a[0]].sfd, a[1], a[2], a[3], a[4], a[5] },
				 !sock_of(a[0])->timeo);
	} while (exchanged(ret, was));
	return ret;
}

/** call_pass - a call whose first argument is a descriptor */
long call_pass(long nr, const long *a)
{
	if (!is_sock(a[0]))
		return native(nr, a);
	COUNT(calls, 1);
	return pass(nr, a);
}

/** call_read - read(2) and similar calls */
long call_read(long nr, const long *a)
{
	struct sock *s;
	long ret;

	if (!is_sock(a[0]))
		return native(nr, a);
	COUNT(calls, 1);
	s = sock_of(a[0]);
	ret = pass(nr, a);
	if (ret > 0) {
		if (s->type == SOCK_STREAM)
			COUNT_BYTES(s, in, ret);
		else if (s->domain)	/* otherwise a file */
			COUNT(dgrams_in, 1);
	}
	return ret;
}

/** broken_pipe - raise SIGPIPE, which the stack does not do */
void broken_pipe(const struct sock *s, long ret, long flags)
{
	if (likely(ret != -EPIPE) || (flags & MSG_NOSIGNAL) ||
	    s->type != SOCK_STREAM)
		return;
	RAW3(tgkill, RAW0(getpid), RAW0(gettid), SIGPIPE);
}

/** put - send through the socket @a[0]; @flags: MSG_* flags */
static inline long put(long nr, const long *a, long flags)
{
	struct sock *s = sock_of(a[0]);
	long ret;

	COUNT(calls, 1);
	if (unlikely(s->domain == AF_NETLINK) && memory_full())
		return -ENOBUFS;
	ret = pass(nr, a);
	if (likely(ret > 0)) {
		if (s->type == SOCK_STREAM)
			COUNT_BYTES(s, out, ret);
		else if (s->domain)	/* otherwise a file */
			COUNT(dgrams_out, nr == SYS_sendmmsg ? ret : 1);
	} else {
		broken_pipe(s, ret, flags);
	}
	return ret;
}

/** call_write - write(2) and similar calls */
long call_write(long nr, const long *a)
{
	return is_sock(a[0]) ? put(nr, a, nr == SYS_sendto || nr == SYS_sendmmsg ? a[3] : 0) :
			       native(nr, a);
}

/** call_sendmsg - sendmsg(2); on a unix socket the message may carry descriptors */
long call_sendmsg(long nr, const long *a)
{
	return is_sock(a[0]) ? put(nr, a, a[2]) : rights_send(nr, a);
}

/** call_recvmsg - recvmsg(2) */
long call_recvmsg(long nr, const long *a)
{
	return is_sock(a[0]) ? call_read(nr, a) : rights_recv(nr, a);
}

/** call_fcntl - fcntl(2) */
long call_fcntl(long nr, const long *a)
{
	long ret;

	if (likely(!(kind_of(a[0]) & KIND_MASK)))
		return native(nr, a);
	switch (a[1]) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		ret = native(nr, a);
		return ret < 0 || borrowed() ? ret : dup_to((int)a[0], ret);
	case F_GETFL:
	case F_SETFL:
	case F_SETOWN:
	case F_GETOWN:
	case F_SETSIG:
	case F_GETSIG:
		if (is_sock(a[0]))
			return stack_now(nr, (long[6]){ entries[a[0]].sfd, a[1], a[2] });
	}
	return native(nr, a);
}

/** control - a private socket in the stack, for ioctl requests */
static long control(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = (int)STACK(socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0, 0, 0);
	return fd;
}

/** call_ioctl - ioctl(2) */
long call_ioctl(long nr, const long *a)
{
	unsigned int cmd = (unsigned int)a[1];
	int domain, len = sizeof(domain);
	long sfd;

	if (is_sock(a[0])) {
		if (cmd == FIOCLEX || cmd == FIONCLEX)
			return native(nr, a);
		return stack_now(nr, (long[6]){ entries[a[0]].sfd, a[1], a[2] });
	}
	/* The C library asks a unix socket for the interfaces. */
	if (likely(cmd < SIOCADDRT || cmd >= SIOCPROTOPRIVATE) ||
	    RAW5(getsockopt, a[0], SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	    domain != AF_UNIX)
		return native(nr, a);
	sfd = control();
	return sfd < 0 ? sfd : stack_now(nr, (long[6]){ sfd, a[1], a[2] });
}

/** call_nosys - reject the call: io_uring could create sockets that the engine does not see */
long call_nosys(long nr, const long *a)
{
	(void)nr;
	(void)a;
	return -ENOSYS;
}
