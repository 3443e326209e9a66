// SPDX-License-Identifier: GPL-2.0-only
/*
 * The seal: a list of the calls that the gateway may make, before it sees a frame.
 *
 * Theory of operation
 *
 * The gateway parses packets in a whole kernel, and holds sockets of the host's
 * network that lklrun has connected. An attacker who takes over the gateway with a
 * packet could connect such a socket to another destination: connect(2) with
 * AF_UNSPEC dissolves a connection, and sendto(2) and sendmsg(2) name a destination.
 * So the filter permits on descriptors only what moves bytes along a connection:
 *
 *	read, write, readv, writev, recvfrom, recvmsg, shutdown, close, getsockopt
 *	sendto without an address
 *	setsockopt of SO_LINGER, for a reset
 *
 * No call makes a descriptor, but fcntl, which duplicates one, and recvmsg, which
 * receives those that lklrun sends.
 * There is no socket, connect, bind, listen, accept, sendmsg (which could also pass
 * a descriptor on), sendmmsg, splice, io_uring, open, execve, clone, ptrace,
 * pidfd_getfd or ioctl. The rest of the list concerns memory, time, waiting and the
 * gateway's own threads. Memory never becomes executable.
 *
 * A call that is not listed fails with EPERM, unless isolation.c kills for it. The
 * list is exact, because only our own stack library can be a gateway's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arch.h"
#include "gateway/gateway.h"

#define MAX_INSNS	256
#define X32_BIT		0x40000000u
#define ARM_OWN		0x0f0000u	/* calls specific to arm */
#define NR		offsetof(struct seccomp_data, nr)
#define ARG(n)		(offsetof(struct seccomp_data, args) + 8 * (n))	/* low half: little-endian */
#define ARG_HIGH(n)	(ARG(n) + 4)

static const uint32_t allowed[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev,
	SYS_recvfrom, SYS_recvmsg, SYS_shutdown, SYS_close, SYS_getsockopt,
	SYS_epoll_ctl, SYS_epoll_pwait, SYS_ppoll,
	SYS_futex, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_nanosleep,
	SYS_sched_yield, SYS_sched_getaffinity, SYS_getpid, SYS_gettid,
	SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_sigaltstack,
	SYS_restart_syscall, SYS_exit, SYS_exit_group, SYS_getrandom,
	SYS_set_robust_list, SYS_lseek, SYS_membarrier,
#ifdef SYS_fstat
	SYS_fstat,
#endif
#ifdef SYS_fstat64
	SYS_fstat64,
#endif
	/* C libraries for 32 bits give some of these other names. */
#ifdef SYS_clock_gettime
	SYS_clock_gettime,
#endif
#ifdef SYS_clock_gettime32
	SYS_clock_gettime32,
#endif
#ifdef SYS_clock_gettime64
	SYS_clock_gettime64,
#endif
#ifdef SYS_clock_nanosleep
	SYS_clock_nanosleep,
#endif
#ifdef SYS_clock_nanosleep_time64
	SYS_clock_nanosleep_time64,
#endif
#ifdef SYS_gettimeofday
	SYS_gettimeofday,
#endif
#ifdef SYS_timer_settime
	SYS_timer_settime, SYS_timerfd_settime,
#endif
#ifdef SYS_timer_settime64
	SYS_timer_settime64, SYS_timerfd_settime64,
#endif
#ifdef SYS_futex_time64
	SYS_futex_time64, SYS_ppoll_time64,
#endif
#ifdef SYS_epoll_pwait2
	SYS_epoll_pwait2,
#endif
#ifdef SYS_epoll_wait
	SYS_epoll_wait, SYS_poll,
#endif
#ifdef SYS_send		/* arm */
	SYS_send, SYS_recv, SYS_sigreturn,
#endif
#ifdef SYS_rseq
	SYS_rseq,
#endif
};

/* The calls whose argument must have one of the values. */
static const struct {
	uint32_t nr;
	unsigned int arg;
	uint32_t value;
} only[] = {
	{ SYS_fcntl, 1, F_DUPFD_CLOEXEC },
	{ SYS_fcntl, 1, F_GETFL },
	{ SYS_fcntl, 1, F_SETFL },
	{ SYS_fcntl, 1, F_GETFD },
	{ SYS_fcntl, 1, F_SETFD },
	{ SYS_fcntl, 1, F_GET_SEALS },
#ifdef SYS_fcntl64
	{ SYS_fcntl64, 1, F_DUPFD_CLOEXEC },
	{ SYS_fcntl64, 1, F_GETFL },
	{ SYS_fcntl64, 1, F_SETFL },
	{ SYS_fcntl64, 1, F_GETFD },
	{ SYS_fcntl64, 1, F_SETFD },
	{ SYS_fcntl64, 1, F_GET_SEALS },
#endif
};

static struct sock_filter prog[MAX_INSNS];
static unsigned int len;

/** emit - append an instruction */
static void emit(uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	prog[len++] = (struct sock_filter){ code, jt, jf, k };
}

static void load(uint32_t offset)
{
	emit(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

/** ret - return @action */
static void ret(uint32_t action)
{
	emit(BPF_RET | BPF_K, action, 0, 0);
}

/** call - begin the instructions for call @nr; returns their place for call_end() */
static unsigned int call(uint32_t nr)
{
	load(NR);
	emit(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 0);
	return len - 1;
}

/** call_end - the call passed no test */
static void call_end(unsigned int at)
{
	ret(SECCOMP_RET_ERRNO | EPERM);
	prog[at].jf = (uint8_t)(len - at - 1);
}

/** unless - refuse the call if the loaded value fails test @op @k */
static void unless(uint16_t op, uint32_t k, bool wanted)
{
	emit(BPF_JMP | op | BPF_K, k, wanted ? 1 : 0, wanted ? 0 : 1);
	ret(SECCOMP_RET_ERRNO | EPERM);
}

/** no_exec - permit call @nr unless its argument 2 has PROT_EXEC */
static void no_exec(uint32_t nr)
{
	unsigned int at = call(nr);

	load(ARG(2));
	unless(BPF_JSET, PROT_EXEC, false);
	ret(SECCOMP_RET_ALLOW);
	call_end(at);
}

/** build - generate the filter */
static void build(void)
{
	unsigned int at;
	size_t i;

	len = 0;
	load(offsetof(struct seccomp_data, arch));
	emit(BPF_JMP | BPF_JEQ | BPF_K, NOTIFY_ARCH, 1, 0);
	ret(SECCOMP_RET_KILL_PROCESS);
	load(NR);
#ifdef __x86_64__
	emit(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
	ret(SECCOMP_RET_KILL_PROCESS);
#endif
#ifdef __arm__
	emit(BPF_JMP | BPF_JGE | BPF_K, ARM_OWN, 0, 1);
	ret(SECCOMP_RET_ALLOW);
#endif
	for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		emit(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		ret(SECCOMP_RET_ALLOW);
	}
	at = call(SYS_sendto);
	load(ARG(4));
	unless(BPF_JEQ, 0, true);
	load(ARG_HIGH(4));
	unless(BPF_JEQ, 0, true);
	ret(SECCOMP_RET_ALLOW);
	call_end(at);
	at = call(SYS_setsockopt);
	load(ARG(1));
	unless(BPF_JEQ, SOL_SOCKET, true);
	load(ARG(2));
	unless(BPF_JEQ, SO_LINGER, true);
	ret(SECCOMP_RET_ALLOW);
	call_end(at);
	at = call(SYS_tgkill);	/* abort() */
	load(ARG(0));
	unless(BPF_JEQ, (uint32_t)getpid(), true);
	ret(SECCOMP_RET_ALLOW);
	call_end(at);
#ifdef SYS_mmap
	no_exec(SYS_mmap);
#endif
#ifdef SYS_mmap2
	no_exec(SYS_mmap2);
#endif
	no_exec(SYS_mprotect);
	for (i = 0; i < sizeof(only) / sizeof(only[0]); i++) {
		load(NR);
		emit(BPF_JMP | BPF_JEQ | BPF_K, only[i].nr, 0, 3);
		load(ARG(only[i].arg));
		emit(BPF_JMP | BPF_JEQ | BPF_K, only[i].value, 0, 1);
		ret(SECCOMP_RET_ALLOW);
	}
	ret(SECCOMP_RET_ERRNO | EPERM);
}

int gateway_seal(void)
{
	struct sock_fprog fprog = { .filter = prog };
	long n;

	build();
	fprog.len = (unsigned short)len;
	if (prctl(PR_SET_DUMPABLE, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	n = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		    SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &fprog);
	return n < 0 ? -errno : n ? -EBUSY : 0;
}
