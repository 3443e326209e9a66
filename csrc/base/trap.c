// SPDX-License-Identifier: GPL-2.0-only
/*
 * System calls that a seccomp filter of this process traps.
 *
 * Theory of operation
 *
 * Android runs each app under a seccomp filter that allows the calls of its C
 * library, bionic. The filter traps all others (SECCOMP_RET_TRAP), so the
 * process receives SIGSYS, which ends it by default. A call therefore cannot
 * be tried out, as on a kernel without it.
 *
 * Our handler turns such a call into one that fails with ENOSYS. The code for
 * older kernels then handles the rest: our own, and that of the C library. Some
 * calls are as old as Linux itself, so no code expects ENOSYS from them. bionic
 * does without them, because newer calls do the same with more arguments. The
 * handler makes those.
 *
 * The handler cannot help while SIGSYS is blocked: the kernel then kills the
 * process. Threads that block all signals therefore leave out SIGSYS.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#include "base/trap.h"

#ifndef SYS_SECCOMP
#define SYS_SECCOMP	1	/* si_code, missing in some C libraries */
#endif

#if defined(__x86_64__)
#define RESULT(uc)	((uc)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define RESULT(uc)	((uc)->uc_mcontext.regs[0])
#elif defined(__arm__)
#define RESULT(uc)	((uc)->uc_mcontext.arm_r0)
#endif

static long (*host_call)(long nr, const long *args);

#ifdef __x86_64__
/** arguments - read the arguments of the trapped call */
static void arguments(const ucontext_t *uc, long a[6])
{
	static const int regs[6] = { REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8,
				     REG_R9 };
	int i;

	for (i = 0; i < 6; i++)
		a[i] = uc->uc_mcontext.gregs[regs[i]];
}

/* The newer call for an old one, with AT_FDCWD in front of the arguments. */
static const struct {
	short nr, at;
	long last;	/* the argument behind those of the old call */
	int n;		/* number of arguments of the old call */
} paths[] = {
	{ SYS_access, SYS_faccessat, 0, 2 },
	{ SYS_chmod, SYS_fchmodat, 0, 2 },
	{ SYS_chown, SYS_fchownat, 0, 3 },
	{ SYS_lchown, SYS_fchownat, AT_SYMLINK_NOFOLLOW, 3 },
	{ SYS_lstat, SYS_newfstatat, AT_SYMLINK_NOFOLLOW, 2 },
	{ SYS_mkdir, SYS_mkdirat, 0, 2 },
	{ SYS_readlink, SYS_readlinkat, 0, 3 },
	{ SYS_rmdir, SYS_unlinkat, AT_REMOVEDIR, 1 },
	{ SYS_stat, SYS_newfstatat, 0, 2 },
	{ SYS_unlink, SYS_unlinkat, 0, 1 },
};

/** by_path - make a call that takes a path; -ENOSYS if @nr is not one */
static long by_path(long nr, const long *a)
{
	long b[6] = { AT_FDCWD, a[0], a[1], a[2] };
	size_t i;

	for (i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (paths[i].nr == nr) {
			b[paths[i].n + 1] = paths[i].last;
			return host_call(paths[i].at, b);
		}
	return -ENOSYS;
}

/** waits - poll(2) and select(2) */
static long waits(long nr, const long *a)
{
	long b[6] = { a[0], a[1], a[2], a[3] };
	struct timespec ts;
	const struct timeval *tv = (const struct timeval *)a[4];

	if (nr == SYS_poll) {
		ts.tv_sec = a[2] / 1000;
		ts.tv_nsec = a[2] % 1000 * 1000000;
		b[2] = (int)a[2] < 0 ? 0 : (long)&ts;
		b[3] = 0;
		return host_call(SYS_ppoll, b);
	}
	if (tv) {
		ts.tv_sec = tv->tv_sec;
		ts.tv_nsec = tv->tv_usec * 1000;
		b[4] = (long)&ts;
	}
	return host_call(SYS_pselect6, b);
}

/** newer - make the newer call for one that bionic does without, or -ENOSYS */
static long newer(long nr, const long *a)
{
	long b[6] = { a[0], a[1], a[2], a[3], 0, 0 };

	switch (nr) {
	case SYS_poll:
	case SYS_select:
		return waits(nr, a);
	case SYS_epoll_wait:
		return host_call(SYS_epoll_pwait, b);
	case SYS_dup2:
		b[2] = 0;
		if (a[0] != a[1])
			return host_call(SYS_dup3, b);
		b[1] = F_GETFD;		/* is it open? */
		b[0] = host_call(SYS_fcntl, b);
		return b[0] < 0 ? b[0] : a[1];
	case SYS_pipe:
		b[1] = 0;
		return host_call(SYS_pipe2, b);
	case SYS_rename:
	case SYS_link:
		b[0] = b[2] = AT_FDCWD;
		b[1] = a[0];
		b[3] = a[1];
		return host_call(nr == SYS_link ? SYS_linkat : SYS_renameat2, b);
	case SYS_symlink:
		b[1] = AT_FDCWD;
		b[2] = a[1];
		return host_call(SYS_symlinkat, b);
	case SYS_getpgrp:
		b[0] = 0;
		return host_call(SYS_getpgid, b);
	}
	return by_path(nr, a);
}
#else
static void arguments(const ucontext_t *uc, long a[6])
{
#ifdef __aarch64__
	int i;

	for (i = 0; i < 6; i++)
		a[i] = (long)uc->uc_mcontext.regs[i];
#else
	memcpy(a, &uc->uc_mcontext.arm_r0, 6 * sizeof(a[0]));
#endif
}

static long newer(long nr, const long *a)
{
	(void)nr;
	(void)a;
	return -ENOSYS;
}
#endif

/** accepts - accept(2), which is missing on all architectures */
static long accepts(const long *a)
{
	long b[6] = { a[0], a[1], a[2], 0 };

	return host_call(SYS_accept4, b);
}

bool trap_answer(const siginfo_t *si, void *ctx)
{
	ucontext_t *uc = ctx;
	long a[6], ret;

	if (si->si_code != SYS_SECCOMP)
		return false;
	arguments(uc, a);
	ret = si->si_syscall == SYS_accept ? accepts(a) :
					     newer(si->si_syscall, a);
	memcpy(&RESULT(uc), &ret, sizeof(ret));
	return true;
}

/** trapped - handler of SIGSYS */
static void trapped(int sig, siginfo_t *si, void *ctx)
{
	int saved = errno;

	if (!trap_answer(si, ctx)) {	/* sent by a process */
		signal(sig, SIG_DFL);
		raise(sig);
	}
	errno = saved;
}

/** placeholder - handler of SIGSYS until trap_init() has the restorer */
static void placeholder(int sig)
{
	(void)sig;
}

/* The struct kernel_sigaction of rt_sigaction(2) */
struct action {
	void (*info)(int sig, siginfo_t *si, void *ctx);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

/*
 * C libraries differ in their struct sigaction, and the preload library works
 * with all of them. signal(3) has no such struct, and adds the restorer.
 */
void trap_init(long (*call)(long nr, const long *args))
{
	struct action act = { 0 };
	long get[6] = { SIGSYS, 0, (long)&act, sizeof(act.mask) };
	long set[6] = { SIGSYS, (long)&act, 0, sizeof(act.mask) };

	host_call = call;
	if (signal(SIGSYS, placeholder) == SIG_ERR ||
	    host_call(SYS_rt_sigaction, get) < 0)
		return;
	act.info = trapped;
	act.flags |= SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	host_call(SYS_rt_sigaction, set);
}
