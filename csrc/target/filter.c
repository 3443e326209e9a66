// SPDX-License-Identifier: GPL-2.0-only
/*
 * The seccomp filter, which decides which of the target's calls are notified to
 * the supervisor.
 *
 * Theory of operation
 *
 * Only few calls are notified, for two reasons. First, a notified call costs
 * some microseconds. Second, calls that run natively on real descriptors have
 * native behaviour. The calls read, write, poll, epoll, close, dup, fork and
 * fcntl are never notified, and shutdown only if it ends sending alone
 * (engine/stream/half_close.c). In particular, close, dup and fork must not be
 * notified: if a signal arrives before the supervisor has received a call, the
 * call fails with EINTR.
 *
 * fork and exec inherit the filter, and no process can remove it. The target
 * therefore cannot create an Internet socket of the host, in any network
 * namespace.
 *
 * The filter also prevents other ways to bypass the stack:
 *
 * - io_uring creates sockets without a system call. Its calls fail with ENOSYS,
 *   as on a kernel without it.
 * - x32 calls fail with ENOSYS too.
 * - Calls of a foreign architecture (i386) are notified and refused with a
 *   message, because their numbers have other meanings. With the engine trace,
 *   they kill the process: a filter of the target's own could change the data
 *   that tells lklhost about them.
 * - request_key(2) with callout information makes the kernel start a program in
 *   the host's namespaces, which queries the host's name servers.
 * - TIOCSTI inserts input into the terminal from which lklrun was started. The
 *   shell of this terminal may belong to another user.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/features.h"
#include "base/lklhost.h"
#include "target/child.h"

#ifndef MAX_INSNS	/* a test makes it smaller */
#define MAX_INSNS	160
#endif
#define X32_BIT		0x40000000u
#define WIRELESS_LAST	0x8bff	/* SIOCIWLAST, linux/wireless.h */

#define ARG_LO(n)	(offsetof(struct seccomp_data, args) + 8 * (n))
#define ARG_HI(n)	(ARG_LO(n) + 4)		/* little-endian */

/* These calls are notified with any arguments. */
static const uint32_t always[] = {
	SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4,
	SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
	SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_setns,
	SYS_syslog, SYS_pidfd_getfd,
#ifdef __arm__
	SYS_recvmmsg_time64, SYS_recv,
#endif
};

/* These calls fail as on a kernel without them. */
static const uint32_t never[] = {
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
};

static struct sock_filter prog[MAX_INSNS];
static unsigned int len;

/* The action for calls that the supervisor answers. */
static uint32_t caught = SECCOMP_RET_USER_NOTIF;

/**
 * emit - append an instruction
 *
 * If there is no room, the process ends before it executes the command.
 */
static void emit(uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (len == MAX_INSNS)
		abort();
	prog[len++] = (struct sock_filter){ code, jt, jf, k };
}

/** emit_target - let the jump at @jump lead here if its condition is false */
static void emit_target(unsigned int jump)
{
	if (len - jump - 1 > UINT8_MAX)
		abort();
	prog[jump].jf = (uint8_t)(len - jump - 1);
}

/** emit_load - load a word of struct seccomp_data */
static void emit_load(uint32_t off)
{
	emit(BPF_LD | BPF_W | BPF_ABS, off, 0, 0);
}

/** emit_ret - end the filter with an action */
static void emit_ret(uint32_t action)
{
	emit(BPF_RET | BPF_K, action, 0, 0);
}

/** emit_if - return @action if the accumulator is @k */
static void emit_if(uint32_t k, uint32_t action)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
	emit_ret(action);
}

/**
 * emit_if_addr - notify call @nr if it has an address, its fifth argument
 *
 * The call is also notified if its fourth argument contains one of @flags.
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
	emit_ret(caught);
}

/**
 * emit_arch - take action @other for calls of a foreign architecture
 *
 * This also loads the call number.
 */
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

/**
 * emit_key - request_key() fails with EPERM if its third argument is not NULL
 */
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

/** emit_request - ioctl() with this request fails with @error */
static void emit_request(uint32_t request, uint32_t error)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4);
	emit_load(ARG_LO(1));
	emit_if(request, SECCOMP_RET_ERRNO | error);
	emit_load(offsetof(struct seccomp_data, nr));
}

/** emit_never - refuse the calls that are refused in every run */
static void emit_never(void)
{
	size_t i;

	for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		emit_if(never[i], SECCOMP_RET_ERRNO | ENOSYS);
	emit_key();
	emit_request(TIOCSTI, EIO);	/* as with dev.tty.legacy_tiocsti=0 */
}

/**
 * emit_spaces - block the host's network namespace and foreign descriptors
 *
 * A descriptor of another process may be a socket of the host. setns() without
 * a type enters the namespace that the descriptor refers to, which may be a
 * network namespace.
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
 * emit_interfaces - block ioctl() requests for network interfaces
 *
 * A socket of the host that the target has inherited or received would
 * otherwise show and change the host's interfaces. Two requests remain allowed,
 * because the stack's own packet sockets need them.
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
	emit_target(jump);
}

/**
 * emit_socketpair - refuse AF_TIPC, the only network family with socket pairs
 */
static void emit_socketpair(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 4);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_TIPC, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * emit_no_network - handle socket() without a stack
 *
 * Families that a stack would have fail with ENETDOWN, others with
 * EAFNOSUPPORT. Netlink protocols that do not concern the network are allowed,
 * and belong to the host.
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
	if (host.shared_netns) {	/* as engine/sock/sock.c */
		emit_if(NETLINK_KOBJECT_UEVENT, SECCOMP_RET_ALLOW);
		emit_ret(SECCOMP_RET_ERRNO | EPROTONOSUPPORT);
	}
	emit_ret(SECCOMP_RET_ALLOW);
	emit_target(netlink);
	emit_ret(SECCOMP_RET_ERRNO | EAFNOSUPPORT);
	emit_target(jump);
}

/**
 * emit_socket - handle socket(): allow local families, take @other for the rest
 */
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
 * emit_dumpable - prctl(PR_SET_DUMPABLE, 0) returns 0 without effect
 *
 * The supervisor can access a process that is not dumpable only if it has
 * CAP_SYS_PTRACE over it (ptrace(2)). The supervisor has this capability only
 * in its own user namespace. A program clears this flag to be safe from other
 * processes of its user. The program remains as safe as the supervisor, which
 * is dumpable.
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

/** emit_unshare - notify unshare() of a network namespace, see space.c */
static void emit_unshare(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 4);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWNET, 0, 1);
	emit_ret(caught);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * emit_mount - notify the calls that replace /sys (supervise/sysfs.c)
 *
 * They are mount() without data and without flags but MS_RDONLY, and umount2()
 * with MNT_DETACH.
 */
static void emit_mount(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_umount2, 0, 4);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JEQ | BPF_K, MNT_DETACH, 0, 1);
	emit_ret(caught);
	emit_ret(SECCOMP_RET_ALLOW);
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 0, 6);
	emit_load(ARG_LO(3));
	emit(BPF_JMP | BPF_JSET | BPF_K, ~(uint32_t)MS_RDONLY, 3, 0);
	emit_load(ARG_LO(4));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
	emit_ret(caught);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * emit_tracers - refuse other tracers and supervisors
 *
 * A process that is not traced could get the target itself as its tracer, which
 * would let its calls pass. lklhost refuses ptrace(2) with a message. The answer
 * of a seccomp listener of the target's own has priority over SECCOMP_RET_TRACE.
 * With seccomp notification, the kernel itself refuses a second listener.
 */
static void emit_tracers(void)
{
	emit_if(SYS_ptrace, caught);
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 4);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JSET | BPF_K, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | EBUSY);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * emit_untraced - refuse threads that have no tracer
 *
 * lklhost could not stop such a thread, see trace/alone.c. If it executed a
 * program, lklhost would also wait for ever for the first thread of its process,
 * whose end the kernel does not report then. The flags of clone3() are in memory;
 * C libraries use clone() in its place.
 */
static void emit_untraced(void)
{
	emit_if(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JSET | BPF_K, CLONE_UNTRACED, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | EPERM);
	emit_ret(SECCOMP_RET_ALLOW);
}

/** emit_shutdown - notify shutdown() of sending, see engine/stream/half_close.c */
static void emit_shutdown(void)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_shutdown, 0, 4);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JEQ | BPF_K, SHUT_WR, 0, 1);
	emit_ret(caught);
	emit_ret(SECCOMP_RET_ALLOW);
}

/** build - generate the filter */
static void build(void)
{
	unsigned int jump;
	size_t i;

	emit_arch(host.trace ? SECCOMP_RET_KILL_PROCESS : caught);
	for (i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		emit_if(always[i], caught);
	emit_never();
	emit_socket(caught);
	if (host.trace) {
		emit_tracers();
		emit_untraced();
	} else {
		emit_unshare();
		emit_mount();
	}

	if (host.shared_netns)
		emit_dumpable();

	emit_socketpair();
	emit_shutdown();
	emit_if_addr(SYS_sendto, MSG_FASTOPEN);
	/* A stop of the thread would make MSG_WAITALL return the bytes so far. */
	emit_if_addr(SYS_recvfrom, MSG_ERRQUEUE | MSG_TRUNC |
				   (host.trace ? MSG_WAITALL : 0));

	/*
	 * ioctl(): the requests of sockets <linux/sockios.h>, those of wireless
	 * devices <linux/wireless.h>, SIOCOUTQ, and those of tun devices, whose
	 * upper half is a size.
	 */
	jump = len;
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 0);
	emit_load(ARG_LO(1));
	emit(BPF_JMP | BPF_JEQ | BPF_K, SIOCOUTQ, 7, 0);
	emit(BPF_ALU | BPF_AND | BPF_K, 0xffff, 0, 0);
	emit(BPF_JMP | BPF_JGE | BPF_K, TUNSETNOCSUM & 0xffff, 0, 1);
	emit(BPF_JMP | BPF_JGT | BPF_K, 0x54ff, 0, 4);
	emit_load(ARG_LO(1));
	emit(BPF_ALU | BPF_AND | BPF_K, 0xffffff00, 0, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0x8b00, 1, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0x8900, 0, 1);
	emit_ret(caught);
	emit_target(jump);
	emit_ret(SECCOMP_RET_ALLOW);
}

/**
 * filter_install - install the filter for this process and its descendants
 *
 * Returns the listener, which is close-on-exec, or a negative errno. This
 * requires CAP_SYS_ADMIN in the user namespace, or no_new_privs.
 */
int filter_install(void)
{
	struct sock_fprog fprog = { .filter = prog };
	unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
	long fd;

	build();
	fprog.len = (unsigned short)len;
	if (!feature_hidden("wait-killable"))
		flags |= SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
	flags &= ~(unsigned long)SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	if (fd < 0 && errno == EINVAL)	/* Linux before 5.19 */
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
	return fd < 0 ? -errno : (int)fd;
}

/**
 * filter_install_trace - install the filter for the engine trace
 *
 * The calls that filter_install() notifies stop the calling thread instead. If
 * the thread has no tracer, they fail with ENOSYS.
 */
int filter_install_trace(void)
{
	struct sock_fprog fprog = { .filter = prog };

	caught = SECCOMP_RET_TRACE;
	build();
	fprog.len = (unsigned short)len;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) ?
	       -errno : 0;
}

/**
 * filter_install_plain - install a filter without notification, for engine
 * preload
 *
 * The filter denies sockets of the host to calls that the library does not
 * intercept, and to children without a stack. Calls of a foreign architecture
 * kill the process, as with the other engine. Such calls could otherwise use
 * io_uring and families that ignore namespaces (AF_VSOCK).
 */
int filter_install_plain(void)
{
	struct sock_fprog fprog = { .filter = prog };

	emit_arch(SECCOMP_RET_KILL_PROCESS);
	emit_never();
	emit_if(SYS_syslog, SECCOMP_RET_ERRNO | EPERM);	/* log of the host */
	/*
	 * In the host's network namespace, a user may attach to a tap that root
	 * has created for this user.
	 */
	if (host.shared_netns)
		emit_request(TUNSETIFF, EPERM);
	emit_spaces();
	emit_interfaces();
	emit_socketpair();
	emit_no_network();
	emit_ret(SECCOMP_RET_ALLOW);
	fprog.len = (unsigned short)len;
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog) ?
	       -errno : 0;
}
