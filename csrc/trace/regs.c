// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registers of a system call, on x86-64 and arm64. Other processors have no
 * engine trace.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "trace/internal.h"

#ifndef NT_ARM_SYSTEM_CALL
#define NT_ARM_SYSTEM_CALL	0x404
#endif

#if defined(__x86_64__)

#define CALL_SIZE	2	/* bytes of the instruction syscall */
#define TRAP_FLAG	0x100	/* in eflags: SIGTRAP after one instruction */
#define ERESTARTNOHAND	514	/* include/linux/errno.h */

/** regs_read - read the registers of a thread that waits in a stop */
int regs_read(pid_t tid, struct regs *r)
{
	struct iovec iov = { &r->user, sizeof(r->user) };

	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &iov))
		return -errno;
	r->nr = (long)r->user.orig_rax;
	return 0;
}

/** regs_write - write the registers, and the number of the call */
int regs_write(pid_t tid, const struct regs *r)
{
	struct regs copy = *r;
	struct iovec iov = { &copy.user, sizeof(copy.user) };

	copy.user.orig_rax = (unsigned long)r->nr;
	return ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &iov) ? -errno : 0;
}

/** regs_arg - get argument @i of a call */
uint64_t regs_arg(const struct regs *r, int i)
{
	const uint64_t args[] = { r->user.rdi, r->user.rsi, r->user.rdx,
				  r->user.r10, r->user.r8, r->user.r9 };

	return args[i];
}

/** regs_pc - get the program counter, which is after the instruction of a call */
uint64_t regs_pc(const struct regs *r)
{
	return r->user.rip;
}

/** regs_result - get the result of a call */
int64_t regs_result(const struct regs *r)
{
	return (int64_t)r->user.rax;
}

/** regs_set_result - set the result of a call */
void regs_set_result(struct regs *r, int64_t value)
{
	r->user.rax = (uint64_t)value;
}

/** regs_set_call - set a call and its arguments */
void regs_set_call(struct regs *r, long nr, const uint64_t args[6])
{
	r->nr = nr;
	r->user.rax = (uint64_t)nr;
	r->user.rdi = args[0];
	r->user.rsi = args[1];
	r->user.rdx = args[2];
	r->user.r10 = args[3];
	r->user.r8 = args[4];
	r->user.r9 = args[5];
}

/**
 * regs_repeat - go back to the instruction that makes the call
 *
 * If another instruction is there now, the thread stops after it. The
 * instruction syscall enters the kernel without SIGTRAP.
 */
void regs_repeat(struct regs *r)
{
	r->user.eflags |= TRAP_FLAG;
	r->user.rip -= CALL_SIZE;
	r->user.rax = (uint64_t)r->nr;
	r->nr = -1;		/* the kernel must not restart the last call */
}

/** is_restartable - whether a call may start again; one with a timeout would wait longer */
static bool is_restartable(const struct regs *r)
{
	switch (r->nr) {
	case SYS_read:
	case SYS_readv:
	case SYS_preadv2:
	case SYS_write:
	case SYS_writev:
	case SYS_pwritev2:
	case SYS_sendfile:
	case SYS_splice:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_accept:
	case SYS_accept4:
		return true;
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)regs_arg(r, 3) < 0;
	}
	return false;
}

/**
 * regs_restart - let the call start again that our stop has ended with EINTR
 *
 * If a handler of a signal runs, the kernel returns EINTR nevertheless.
 */
void regs_restart(pid_t tid)
{
	struct regs r;

	if (regs_read(tid, &r) || regs_result(&r) != -EINTR || !is_restartable(&r))
		return;
	regs_set_result(&r, -ERESTARTNOHAND);
	regs_write(tid, &r);
}

#elif defined(__aarch64__)

#define CALL_SIZE	4	/* bytes of the instruction svc */

/** regs_read - read the registers of a thread that waits in a stop */
int regs_read(pid_t tid, struct regs *r)
{
	struct iovec iov = { &r->user, sizeof(r->user) };
	int nr;

	if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &iov))
		return -errno;
	iov = (struct iovec){ &nr, sizeof(nr) };
	if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_SYSTEM_CALL, &iov))
		return -errno;
	r->nr = nr;
	return 0;
}

/** regs_write - write the registers, and the number of the call */
int regs_write(pid_t tid, const struct regs *r)
{
	struct iovec iov = { (void *)(uintptr_t)&r->user, sizeof(r->user) };
	int nr = (int)r->nr;

	if (ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &iov))
		return -errno;
	iov = (struct iovec){ &nr, sizeof(nr) };
	return ptrace(PTRACE_SETREGSET, tid, NT_ARM_SYSTEM_CALL, &iov) ?
	       -errno : 0;
}

/** regs_arg - get argument @i of a call */
uint64_t regs_arg(const struct regs *r, int i)
{
	return r->user.regs[i];
}

/** regs_pc - get the program counter, which is after the instruction of a call */
uint64_t regs_pc(const struct regs *r)
{
	return r->user.pc;
}

/** regs_result - get the result of a call */
int64_t regs_result(const struct regs *r)
{
	return (int64_t)r->user.regs[0];
}

/** regs_set_result - set the result of a call */
void regs_set_result(struct regs *r, int64_t value)
{
	r->user.regs[0] = (uint64_t)value;
}

/** regs_set_call - set a call and its arguments */
void regs_set_call(struct regs *r, long nr, const uint64_t args[6])
{
	int i;

	r->nr = nr;
	r->user.regs[8] = (uint64_t)nr;
	for (i = 0; i < 6; i++)
		r->user.regs[i] = args[i];
}

/** regs_repeat - go back to the instruction that makes the call */
void regs_repeat(struct regs *r)
{
	r->user.pc -= CALL_SIZE;
	r->user.regs[8] = (uint64_t)r->nr;
	r->nr = -1;		/* the kernel must not restart the last call */
}

/** regs_restart - nothing: the kernel has read the result before the stop */
void regs_restart(pid_t tid)
{
	(void)tid;
}

#else

/** regs_read - not supported */
int regs_read(pid_t tid, struct regs *r)
{
	(void)tid;
	(void)r;
	return -ENOSYS;
}

/** regs_write - not supported */
int regs_write(pid_t tid, const struct regs *r)
{
	(void)tid;
	(void)r;
	return -ENOSYS;
}

/** regs_arg - not supported */
uint64_t regs_arg(const struct regs *r, int i)
{
	(void)r;
	(void)i;
	return 0;
}

/** regs_pc - not supported */
uint64_t regs_pc(const struct regs *r)
{
	(void)r;
	return 0;
}

/** regs_result - not supported */
int64_t regs_result(const struct regs *r)
{
	(void)r;
	return -ENOSYS;
}

/** regs_set_result - not supported */
void regs_set_result(struct regs *r, int64_t value)
{
	(void)r;
	(void)value;
}

/** regs_set_call - not supported */
void regs_set_call(struct regs *r, long nr, const uint64_t args[6])
{
	(void)r;
	(void)nr;
	(void)args;
}

/** regs_repeat - not supported */
void regs_repeat(struct regs *r)
{
	(void)r;
}

/** regs_restart - not supported */
void regs_restart(pid_t tid)
{
	(void)tid;
}

#endif

/**
 * regs_same - whether a thread is in the call that lklhost expects
 * @done: the call has been executed
 *
 * After a call, arm64 has its result in the place of its first argument.
 */
bool regs_same(const struct regs *r, const struct regs *want, bool done)
{
	bool same = r->nr == want->nr && regs_pc(r) == regs_pc(want);
	int i;

#ifdef __aarch64__
	i = done;
#else
	(void)done;
	i = 0;
#endif
	for (; i < 6; i++)
		same = same && regs_arg(r, i) == regs_arg(want, i);
	return same;
}
