// SPDX-License-Identifier: GPL-2.0-only
/*
 * The seccomp filter: which of the target's calls come to the supervisor.
 *
 * Theory of operation
 *
 * Few calls are notified, because a notified call costs some microseconds and
 * because what runs natively on real descriptors behaves natively: read, write,
 * poll, epoll, close, dup, fork, shutdown and fcntl never come here. close, dup
 * and fork must not: a signal that arrives before the supervisor has received
 * the call makes it fail with EINTR.
 *
 * The filter is inherited by fork and exec and cannot be taken off, so that a
 * socket of the Internet families never comes from the host, whatever network
 * namespace its maker is in.
 *
 * Doors that are shut here: io_uring makes sockets without a system call, so
 * its calls say ENOSYS, as on a kernel without it. The x32 calls say ENOSYS
 * too. A call of a foreign architecture (i386) is notified, to be refused with
 * a message: its numbers mean something else. request_key(2) with information for
 * a program that finds the key has the kernel start that program in the host's
 * namespaces, where it asks the host's name servers. TIOCSTI types into the
 * terminal from which lklrun was started, whose shell may be another user's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host.h"
#include "notify.h"

#define MAX_INSNS	128
#define X32_BIT		0x40000000u
#define WIRELESS_LAST	0x8bff	/* SIOCIWLAST, linux/wireless.h */

#define ARG_LO(n)	(offsetof(struct seccomp_data, args) + 8 * (n))
#define ARG_HI(n)	(ARG_LO(n) + 4)		/* little-endian */

/* Notified whatever the arguments. */
static const uint32_t always[] = {
	SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4,
	SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
	SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_setns,
	SYS_syslog, SYS_pidfd_getfd,
#ifdef __arm__
	SYS_recvmmsg_time64, SYS_recv,
#endif
};

/* As on a kernel that does not have them. */
static const uint32_t never[] = {
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
};

static struct sock_filter prog[MAX_INSNS];
static unsigned int len;

/** emit - append an instruction */
static void emit(uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	prog[len++] = (struct sock_filter){ code, jt, jf, k };
}

/** emit_load - load a word of struct seccomp_data */
static void emit_load(uint32_t off)
{
	emit(BPF_LD | BPF_W | BPF_ABS, off, 0, 0);
}

/** emit_ret - end with an action */
static void emit_ret(uint32_t action)
{
	emit(BPF_RET | BPF_K, action, 0, 0);
}

/** emit_if_nr - when the accumulator is @k return @action, else go on */
static void emit_if(uint32_t k, uint32_t action)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
	emit_ret(action);
}

/**
 * emit_if_addr - notify @nr when its fifth argument, an address, is not NULL, or
 * its fourth has one of @flags
 */
static void emit_if_addr(uint32_t nr, uint32_t flags)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 8);
	emit_load(ARG_LO(3));
	emit(BPF_JMP | BPF_JSET | BPF_K, flags, 5, 0);
	emit_load(ARG_LO(4));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
	emit_load(ARG_HI(4));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
	emit_ret(SECCOMP_RET_ALLOW);
	emit_ret(SECCOMP_RET_USER_NOTIF);
}

/** emit_arch - the beginning: @other for calls of a foreign architecture */
static void emit_arch(uint32_t other)
{
	len = 0;
	emit_load(offsetof(struct seccomp_data, arch));
	emit(BPF_JMP | BPF_JEQ | BPF_K, NOTIFY_ARCH, 1, 0);
	emit_ret(other);
	emit_load(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	emit(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | ENOSYS);
#endif
}

/** emit_key - request_key(): EPERM when its third argument is not NULL */
static void emit_key(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_request_key, 0, 6);
	emit_load(ARG_LO(2));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
	emit_load(ARG_HI(2));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
	emit_ret(SECCOMP_RET_ALLOW);
	emit_ret(SECCOMP_RET_ERRNO | EPERM);
}

/** emit_terminal - ioctl(): TIOCSTI says EIO, as where dev.tty.legacy_tiocsti is 0 */
static void emit_terminal(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4);
	emit_load(ARG_LO(1));
	emit_if(TIOCSTI, SECCOMP_RET_ERRNO | EIO);
	emit_load(offsetof(struct seccomp_data, nr));
}

/** emit_never - calls that nobody has */
static void emit_never(void)
{
	size_t i;

	for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		emit_if(never[i], SECCOMP_RET_ERRNO | ENOSYS);
	emit_key();
	emit_terminal();
}

/**
 * emit_spaces - no way into the host's network namespace, nor to a descriptor of
 * another process, which may be a socket of the host's
 *
 * setns() without a type goes to whatever the descriptor is at that moment.
 */
static void emit_spaces(void)
{
	emit_if(SYS_pidfd_getfd, SECCOMP_RET_ERRNO | EPERM);
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_setns, 0, 5);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
	emit(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWNET, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | EPERM);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * emit_interfaces - ioctl(): interfaces of the namespace that a socket was made in
 *
 * A socket of the host's that was inherited or received would show and change the
 * host's. The stack's own packet sockets ask for two things.
 */
static void emit_interfaces(void)
{
	unsigned int jump = len;

	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 0);
	emit_load(ARG_LO(1));
	emit_if(SIOCGIFNAME, SECCOMP_RET_ALLOW);
	emit_if(SIOCGIFFLAGS, SECCOMP_RET_ALLOW);
	emit(BPF_JMP | BPF_JGE | BPF_K, SIOCADDRT, 0, 2);
	emit(BPF_JMP | BPF_JGE | BPF_K, SIOCPROTOPRIVATE, 1, 0);
	emit_ret(SECCOMP_RET_ERRNO | ENETDOWN);
	emit(BPF_JMP | BPF_JGE | BPF_K, SIOCDEVPRIVATE, 0, 2);
	emit(BPF_JMP | BPF_JGT | BPF_K, WIRELESS_LAST, 1, 0);
	emit_ret(SECCOMP_RET_ERRNO | ENETDOWN);
	emit_ret(SECCOMP_RET_ALLOW);
	prog[jump].jf = (uint8_t)(len - jump - 1);
}

/** emit_socketpair - TIPC's would be a socket of the network; no other family has pairs */
static void emit_socketpair(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 4);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_TIPC, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * emit_no_network - socket() where there is no stack to ask: ENETDOWN for what a
 * stack would have, EAFNOSUPPORT for what it would not; netlink that is not about
 * the network is the host's
 */
static void emit_no_network(void)
{
	static const uint32_t host_families[] = { AF_UNIX, AF_ALG };
	static const uint32_t families[] = { AF_INET, AF_INET6, AF_PACKET };
	static const uint32_t protocols[] = { NETLINK_ROUTE, NETLINK_SOCK_DIAG,
		NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_XFRM };
	const uint32_t down = SECCOMP_RET_ERRNO | ENETDOWN;
	unsigned int jump = len, netlink;
	size_t i;

	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 0);
	emit_load(ARG_LO(0));
	for (i = 0; i < sizeof(host_families) / sizeof(host_families[0]); i++)
		emit_if(host_families[i], SECCOMP_RET_ALLOW);
	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		emit_if(families[i], down);
	netlink = len;
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 0);
	emit_load(ARG_LO(2));
	for (i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
		emit_if(protocols[i], down);
	emit_ret(SECCOMP_RET_ALLOW);
	prog[netlink].jf = (uint8_t)(len - netlink - 1);
	emit_ret(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	prog[jump].jf = (uint8_t)(len - jump - 1);
}

/** emit_socket - socket(): the local families are the host's, else @other */
static void emit_socket(uint32_t other)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_ALG, 0, 1);
	emit_ret(SECCOMP_RET_ALLOW);
	emit_ret(other);
}

/**
 * emit_dumpable - prctl(PR_SET_DUMPABLE, 0) says 0 and does nothing
 *
 * Who is not dumpable is out of reach of a supervisor without CAP_SYS_PTRACE over
 * it (ptrace(2)), which it has in a user namespace of its own and nowhere else. A
 * program that asks for it wants to be safe from others of its user, and is as
 * safe as the supervisor, which is not.
 */
static void emit_dumpable(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 6);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_DUMPABLE, 0, 3);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | 0);
	emit_ret(SECCOMP_RET_ALLOW);
}

/** build - write the program */
static void build(void)
{
	unsigned int jump;
	size_t i;

	emit_arch(SECCOMP_RET_USER_NOTIF);
	for (i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		emit_if(always[i], SECCOMP_RET_USER_NOTIF);
	emit_never();
	emit_socket(SECCOMP_RET_USER_NOTIF);

	if (host.shared_netns)
		emit_dumpable();

	emit_socketpair();
	emit_if_addr(SYS_sendto, MSG_FASTOPEN);
	emit_if_addr(SYS_recvfrom, MSG_ERRQUEUE | MSG_TRUNC);

	/* ioctl(): the socket range, <linux/sockios.h>, that of wireless
	 * devices, <linux/wireless.h>, and SIOCOUTQ. */
	jump = len;
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 0);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JEQ | BPF_K, SIOCOUTQ, 3, 0);
	emit(BPF_ALU | BPF_AND | BPF_K, 0xffffff00, 0, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0x8b00, 1, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0x8900, 0, 1);
	emit_ret(SECCOMP_RET_USER_NOTIF);
	prog[jump].jf = (uint8_t)(len - jump - 1);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * filter_install - for this process and all that come from it
 *
 * Returns the listener, close-on-exec, or a negative errno. Needs CAP_SYS_ADMIN
 * in the user namespace or no_new_privs.
 */
int filter_install(void)
{
	struct sock_fprog fprog = { .filter = prog };
	unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
	long fd;

	build();
	fprog.len = (unsigned short)len;
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		     flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &fprog);
	if (fd < 0 && errno == EINVAL)	/* before Linux 5.19 */
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
	return fd < 0 ? -errno : (int)fd;
}

/**
 * filter_install_plain - with a kernel inside the process: nobody is asked
 *
 * What the library does not catch, and what children do that have no kernel,
 * gets no socket of the host's. A foreign architecture's calls end the process, as
 * with the other engine: families that know of no namespaces (AF_VSOCK) would be
 * there for them, and io_uring.
 */
int filter_install_plain(void)
{
	struct sock_fprog fprog = { .filter = prog };

	emit_arch(SECCOMP_RET_KILL_PROCESS);
	emit_never();
	emit_if(SYS_syslog, SECCOMP_RET_ERRNO | EPERM);	/* the host's log */
	emit_spaces();
	emit_interfaces();
	emit_socketpair();
	emit_no_network();
	emit_ret(SECCOMP_RET_ALLOW);
	fprog.len = (unsigned short)len;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) ?
	       -errno : 0;
}
