// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of system calls. A call that it does not have ends the lab: it might
 * wait, or read a clock, of the host.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

#include "virtual/virtual.h"

#define TICK_NS	10000000	/* of times() */
#define POLLS	4
#define THREAD	(CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)

static const char *const names[] = {
#include "virtual/names.inc"
};

const char *call_name(int nr)
{
	return nr >= 0 && (size_t)nr < sizeof(names) / sizeof(*names) && names[nr] ? names[nr] : "(unknown)";
}

static enum verdict native(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)f, (void)ret;
	return NATIVE;
}

/* Calls whose first argument is a descriptor: of a file, not of the stack */
static enum verdict native_file(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)ret;
	return f < 0 ? NATIVE : UNSUPPORTED;
}

/* Those without pointers: the stack knows with which error they fail */
static enum verdict native_plain(struct thread *t, uint64_t *a, int f, long *ret)
{
	if (f >= 0)
		*ret = st_call(t->req.data.nr, f, (long)a[1], (long)a[2], (long)a[3], 0, 0);
	return f < 0 ? NATIVE : ANSWER;
}

/* Calls that fail with ESPIPE on sockets and pipes */
static enum verdict native_seek(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a;
	*ret = -ESPIPE;
	return f < 0 ? NATIVE : ANSWER;
}

static enum verdict on_copy(struct thread *t, uint64_t *a, int f, long *ret)
{
	*ret = -EINVAL;
	return f < 0 && fd_stack(t, a[2]) < 0 ? NATIVE : ANSWER;
}

static enum verdict on_mmap(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	return fd_stack(t, a[4]) < 0 ? NATIVE : UNSUPPORTED;
}

static enum verdict no_such_call(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)f;
	*ret = -ENOSYS;
	return ANSWER;
}

/* Locked memory only makes programs faster, and ordinary users may lock little. */
static enum verdict no_effect(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)f;
	*ret = 0;
	return ANSWER;
}

/* A thread, or a process with memory of its own, at least after execve() */
static enum verdict on_clone(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t vfork = CLONE_VM | CLONE_VFORK, known = THREAD | vfork | CLONE_FS | CLONE_SYSVSEM |
			 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID |
			 CLONE_CHILD_SETTID | CLONE_DETACHED | CSIGNAL;

	(void)f, (void)ret;
	if (a[0] & ~known)
		return UNSUPPORTED;
	t->vforks = a[0] & CLONE_VFORK;
	if ((a[0] & THREAD) == THREAD)
		return t->vforks ? UNSUPPORTED : CLONE;
	/* without shared descriptors, and with shared memory only for vfork() */
	return a[0] & (THREAD & ~(uint64_t)CLONE_VM) || ((a[0] & vfork) != vfork && a[0] & vfork) ?
	       UNSUPPORTED : CLONE;
}

static enum verdict on_fork(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t flags[1] = { t->req.data.nr == SYS_vfork ? CLONE_VM | CLONE_VFORK : 0 };

	(void)a;
	return on_clone(t, flags, f, ret);
}

static enum verdict on_execve(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)f, (void)ret;
	return EXEC;
}

static enum verdict on_exit_thread(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)f, (void)ret;
	return THREAD_EXIT;
}

static enum verdict on_exit_group(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)a, (void)f, (void)ret;
	return EXIT;
}

static enum verdict on_prctl(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)t, (void)f, (void)ret;
	return a[0] == PR_SET_SECCOMP || a[0] == PR_SET_TSC || a[0] == PR_SET_SYSCALL_USER_DISPATCH ?
	       UNSUPPORTED : NATIVE;
}

static uint64_t clock_ns(uint64_t id)
{
	switch ((int)id) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE:
	case CLOCK_TAI:
		return now + REAL_OFFSET;
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_BOOTTIME:
		return now;
	}
	return 0;	/* CPU time */
}

static enum verdict on_clock_gettime(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t ns = clock_ns(a[0]);
	struct timespec ts = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	(void)f;
	*ret = mem_write(t, a[1], &ts, sizeof(ts));
	return ANSWER;
}

static enum verdict on_gettimeofday(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t ns = clock_ns(CLOCK_REALTIME);
	struct timeval tv = { (time_t)(ns / 1000000000), (long)(ns % 1000000000 / 1000) };

	(void)f;
	*ret = a[0] ? mem_write(t, a[0], &tv, sizeof(tv)) : 0;
	return ANSWER;
}

static enum verdict on_time(struct thread *t, uint64_t *a, int f, long *ret)
{
	time_t s = (time_t)(clock_ns(CLOCK_REALTIME) / 1000000000);

	(void)f;
	*ret = a[0] ? mem_write(t, a[0], &s, sizeof(s)) : 0;
	*ret = *ret ? *ret : s;
	return ANSWER;
}

/* A thread that only polls this clock waits for its next tick, instead of making so many calls. */
static enum verdict on_times(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct tms tms = { 0 };

	(void)f;
	if (t->ticks > POLLS && wait_until(t, TICK_NS - now % TICK_NS) == WAIT)
		return WAIT;
	*ret = a[0] ? mem_write(t, a[0], &tms, sizeof(tms)) : 0;
	*ret = *ret ? *ret : (long)(now / TICK_NS);
	return ANSWER;
}

static enum verdict on_getrusage(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct rusage r = { 0 };

	(void)f;
	*ret = mem_write(t, a[1], &r, sizeof(r));
	return ANSWER;
}

static enum verdict on_sysinfo(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct sysinfo s = {
		.uptime = (long)(now / 1000000000), .totalram = 1ul << 30, .freeram = 1ul << 29,
		.procs = 1, .mem_unit = 1,
	};

	(void)f;
	*ret = mem_write(t, a[0], &s, sizeof(s));
	return ANSWER;
}

static enum verdict on_getrandom(struct thread *t, uint64_t *a, int f, long *ret)
{
	size_t n = a[1] < BUF_SIZE ? a[1] : BUF_SIZE, i;

	(void)f;
	for (i = 0; i < n; i++)
		buf[i] = (char)random_next();
	*ret = mem_write(t, a[0], buf, n);
	*ret = *ret ? *ret : (long)n;
	return ANSWER;
}

static enum verdict on_getcpu(struct thread *t, uint64_t *a, int f, long *ret)
{
	unsigned int zero = 0;

	(void)f;
	*ret = (a[0] && mem_write(t, a[0], &zero, sizeof(zero))) ||
	       (a[1] && mem_write(t, a[1], &zero, sizeof(zero))) ? -EFAULT : 0;
	return ANSWER;
}

/* A program has one processor. */
static enum verdict on_getaffinity(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t one = 1;

	(void)f;
	*ret = a[1] < sizeof(one) ? -EINVAL : mem_write(t, a[2], &one, sizeof(one));
	*ret = *ret ? *ret : (long)sizeof(one);
	return ANSWER;
}

#define C(name, fn)	[SYS_##name] = fn
#define N(name)		[SYS_##name] = native
#define F(name)		[SYS_##name] = native_file
#define P(name)		[SYS_##name] = native_plain

static handler *const table[] = {
	/* memory */
	N(brk), N(munmap), N(mprotect), N(mremap), N(madvise), N(mincore), C(mlock, no_effect),
	C(mlock2, no_effect), C(munlock, no_effect), C(mlockall, no_effect), C(munlockall, no_effect), N(msync), N(membarrier), N(arch_prctl),
	N(get_mempolicy), N(pkey_alloc), N(pkey_free), N(pkey_mprotect), N(memfd_create),
	C(mmap, on_mmap),
	/* threads, programs, signals */
	N(set_tid_address), N(set_robust_list), N(get_robust_list), N(rseq), N(gettid), N(getpid),
	N(getppid), N(getpgrp), N(getpgid), N(getsid), N(setsid), N(setpgid), N(sigaltstack),
	N(rt_sigaction), N(rt_sigprocmask), N(rt_sigreturn), N(rt_sigpending), N(sched_getparam),
	N(sched_getscheduler), N(sched_setscheduler), N(sched_get_priority_max),
	N(sched_get_priority_min), N(sched_setaffinity), N(setpriority), N(getpriority),
	C(clone, on_clone), C(clone3, no_such_call), C(fork, on_fork), C(vfork, on_fork),
	C(execve, on_execve), C(exit, on_exit_thread), C(exit_group, on_exit_group),
	C(wait4, on_wait4), C(waitid, on_waitid), C(rt_sigsuspend, on_sigsuspend),
	C(rt_sigtimedwait, on_sigtimedwait), C(kill, on_kill), C(tkill, on_kill),
	C(tgkill, on_tgkill), C(rt_sigqueueinfo, on_kill), C(rt_tgsigqueueinfo, on_tgkill),
	C(pidfd_open, no_such_call), C(pidfd_send_signal, no_such_call),
	C(prctl, on_prctl), C(sched_yield, on_yield), C(futex, on_futex), C(getcpu, on_getcpu), C(sched_getaffinity, on_getaffinity),
	/* users and limits */
	N(getuid), N(geteuid), N(getgid), N(getegid), N(getgroups), N(getresuid), N(getresgid),
	N(setuid), N(setgid), N(setreuid), N(setregid), N(setresuid), N(setresgid), N(setgroups),
	N(capget), N(capset), N(getrlimit), N(setrlimit), N(prlimit64), N(umask), N(uname),
	/* files */
	C(access, on_access), C(faccessat, on_faccessat), C(faccessat2, on_faccessat),
	C(stat, on_stat), C(lstat, on_stat), C(statx, on_statx), N(statfs), N(readlink),
	N(readlinkat), N(getcwd), N(chdir), N(mkdir), N(mkdirat), N(rmdir), N(unlink), N(unlinkat),
	N(rename), N(renameat), N(renameat2), N(link), N(linkat), N(symlink), N(symlinkat),
	N(chmod), N(fchmodat), N(chown), N(lchown), N(fchownat), N(truncate), N(utimensat), N(getxattr),
	N(lgetxattr),
	F(fstatfs), F(flock), F(getdents), F(getdents64), F(fgetxattr), P(fchdir), P(fchmod), P(fchown),
	P(ftruncate), P(fallocate), P(fsync), P(fdatasync), P(fadvise64), P(readahead),
	C(lseek, native_seek), C(pread64, native_seek), C(pwrite64, native_seek),
	C(preadv, native_seek), C(pwritev, native_seek), C(sendfile, on_sendfile),
	C(splice, on_splice), C(copy_file_range, on_copy),
	C(open, on_open), C(openat, on_openat), C(openat2, no_such_call), C(close, on_close),
	C(close_range, on_close_range), C(dup, on_dup), C(dup2, on_dup2), C(dup3, on_dup3),
	C(fcntl, on_fcntl), C(fstat, on_fstat), C(newfstatat, on_newfstatat), C(ioctl, on_ioctl),
	/* time and chance */
	N(clock_getres), C(clock_gettime, on_clock_gettime), C(gettimeofday, on_gettimeofday),
	C(time, on_time), C(times, on_times), C(getrusage, on_getrusage), C(sysinfo, on_sysinfo),
	C(getrandom, on_getrandom), C(nanosleep, on_nanosleep),
	C(clock_nanosleep, on_clock_nanosleep), C(pause, on_pause), C(alarm, on_alarm),
	C(setitimer, on_setitimer), C(getitimer, on_getitimer), C(timer_create, on_timer_create),
	C(timer_settime, on_timer_settime), C(timer_gettime, on_timer_gettime),
	C(timer_getoverrun, on_timer_getoverrun), C(timer_delete, on_timer_delete),
	/* objects of the stack */
	C(socket, on_socket), C(socketpair, on_socketpair), C(pipe, on_pipe), C(pipe2, on_pipe2),
	C(eventfd, on_eventfd), C(eventfd2, on_eventfd2), C(timerfd_create, on_timerfd_create),
	C(timerfd_settime, on_timerfd_settime), C(timerfd_gettime, on_timerfd_gettime),
	C(epoll_create, on_epoll_create), C(epoll_create1, on_epoll_create1),
	C(epoll_ctl, on_epoll_ctl), C(epoll_wait, on_epoll_wait), C(epoll_pwait, on_epoll_wait),
	C(epoll_pwait2, on_epoll_pwait2), C(poll, on_poll), C(ppoll, on_ppoll),
	C(select, on_select), C(pselect6, on_pselect), C(bind, on_bind), C(connect, on_connect),
	C(listen, on_listen), C(accept, on_accept), C(accept4, on_accept4),
	C(getsockname, on_name), C(getpeername, on_name), C(setsockopt, on_setsockopt),
	C(getsockopt, on_getsockopt), C(shutdown, on_shutdown), C(read, on_read),
	C(readv, on_readv), C(write, on_write), C(writev, on_writev), C(sendto, on_sendto),
	C(recvfrom, on_recvfrom), C(sendmsg, on_sendmsg), C(recvmsg, on_recvmsg),
	C(sendmmsg, on_sendmmsg), C(recvmmsg, on_recvmmsg),
};

/** call_mask - the mask of blocked signals that a call has while it waits; false: it has none */
bool call_mask(struct thread *t, uint64_t *mask)
{
	uint64_t *a = (uint64_t *)t->req.data.args, at = 0;

	switch (t->req.data.nr) {
	case SYS_rt_sigsuspend:
		at = a[0];
		break;
	case SYS_ppoll:
		at = a[3];
		break;
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
		at = a[4];
		break;
	case SYS_pselect6:	/* a pointer to pointer and length */
		if (a[5] && mem_read(t, &at, a[5], sizeof(at)))
			at = 0;
		break;
	}
	return at && !mem_read(t, mask, at, sizeof(*mask));
}

/**
 * call_restarts - whether a call that a signal ends is made again if the handler wants so
 *
 * The kernel makes none again that has a limit of time.
 */
bool call_restarts(const struct thread *t)
{
	if (t->wake != NEVER)
		return false;
	switch (t->req.data.nr) {
	case SYS_read: case SYS_readv: case SYS_write: case SYS_writev: case SYS_sendto:
	case SYS_sendmsg: case SYS_sendmmsg: case SYS_recvfrom: case SYS_recvmsg: case SYS_recvmmsg: case SYS_accept:
	case SYS_accept4: case SYS_connect: case SYS_wait4: case SYS_waitid: case SYS_futex:
		return true;
	}
	return false;
}

/** call_handle - decide about a call */
enum verdict call_handle(struct thread *t, long *ret)
{
	unsigned int nr = (unsigned int)t->req.data.nr;
	uint64_t *a = (uint64_t *)t->req.data.args;

	if (nr >= sizeof(table) / sizeof(*table) || !table[nr])
		return UNSUPPORTED;
	if (!t->retry)
		t->ticks = nr == SYS_times ? t->ticks + 1 : 0;
	return table[nr](t, a, fd_stack(t, a[0]), ret);
}
