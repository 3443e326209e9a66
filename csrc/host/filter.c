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
 * a message: its numbers mean something else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host.h"
#include "notify.h"

#define MAX_INSNS	128
#define X32_BIT		0x40000000u

#define ARG_LO(n)	(offsetof(struct seccomp_data, args) + 8 * (n))
#define ARG_HI(n)	(ARG_LO(n) + 4)		/* little-endian */

/* Notified whatever the arguments. */
static const uint32_t always[] = {
	SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4,
	SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
	SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_setns,
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

/** emit_if_addr - notify @nr when its fifth argument, an address, is not NULL */
static void emit_if_addr(uint32_t nr)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 6);
	emit_load(ARG_LO(4));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
	emit_load(ARG_HI(4));
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1);
	emit_ret(SECCOMP_RET_ALLOW);
	emit_ret(SECCOMP_RET_USER_NOTIF);
}

/** build - write the program */
static void build(void)
{
	size_t i;

	len = 0;
	emit_load(offsetof(struct seccomp_data, arch));
	emit(BPF_JMP | BPF_JEQ | BPF_K, NOTIFY_ARCH, 1, 0);
	emit_ret(SECCOMP_RET_USER_NOTIF);
	emit_load(offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	emit(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
	emit_ret(SECCOMP_RET_ERRNO | ENOSYS);
#endif
	for (i = 0; i < sizeof(always) / sizeof(always[0]); i++)
		emit_if(always[i], SECCOMP_RET_USER_NOTIF);
	for (i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		emit_if(never[i], SECCOMP_RET_ERRNO | ENOSYS);

	/* socket(): the local families are the host's, all else is asked. */
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5);
	emit_load(ARG_LO(0));
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, AF_ALG, 0, 1);
	emit_ret(SECCOMP_RET_ALLOW);
	emit_ret(SECCOMP_RET_USER_NOTIF);

	emit_if_addr(SYS_sendto);
	emit_if_addr(SYS_recvfrom);

	/* ioctl(): the socket range, <linux/sockios.h>. */
	emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4);
	emit_load(ARG_LO(1));
	emit(BPF_ALU | BPF_AND | BPF_K, 0xffffff00, 0, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, 0x8900, 0, 1);
	emit_ret(SECCOMP_RET_USER_NOTIF);
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
