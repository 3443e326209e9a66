// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes: a child has no kernel; the end of the one that has.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "internal.h"

#define EXIT_LIMIT_S	80	/* more than preload_drain() takes */
#define END_LIMIT_S	6	/* for each step of it */

int owner_pid;
/* On a page that fork() leaves empty in the child */
volatile int *alive;

/* Shared by all children: a server may fork for each connection. */
static int *child_said;

static void (*exit_fn)(int status);
static int exiting;

bool preload_alive(void)
{
	return alive && *alive;
}

void preload_at_exit(void (*fn)(int status))
{
	exit_fn = fn;
}

/* glibc and bionic have the one, musl the other; glibc's pthread_atfork() is no
 * function of the shared library's. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
			     void (*child)(void), void *dso) __attribute__((weak));
#ifndef __GLIBC__
#pragma weak pthread_atfork
#endif

/** after_fork - in a child: the same as the kernel's wiping of the page */
static void after_fork(void)
{
	*alive = 0;
}

/** at_fork - have the C library call that */
static int at_fork(void)
{
	if (__register_atfork)
		return -__register_atfork(NULL, NULL, after_fork, NULL);
#ifndef __GLIBC__
	if (pthread_atfork)
		return -pthread_atfork(NULL, NULL, after_fork);
#endif
	return 0;
}

/**
 * proc_init - this process has the kernel
 *
 * Linux wipes the page in a child, however it is made, since 4.14 (madvise(2)); what
 * has no such thing, or says 0 and does nothing (qemu-user), has the C library's
 * fork() alone.
 */
int proc_init(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED ||
	    (madvise(p, 4096, MADV_WIPEONFORK) && errno != EINVAL))
		return -errno;
	alive = p;
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	child_said = p;
	if (at_fork())
		return -ENOMEM;
	*alive = 1;
	owner_pid = (int)RAW0(getpid);
	return 0;
}

/** refuse_child - no stack in a child after fork(): said once */
static long refuse_child(void)
{
	if (!__atomic_exchange_n(child_said, 1, __ATOMIC_RELAXED))
		warn_line("process %ld: a child after fork() has no network stack with --engine preload; use --engine supervise",
			  RAW0(getpid));
	return -ENETDOWN;
}

/** child_call - a call in a child after fork() */
long child_call(long nr, const long *a)
{
	long ret;

	switch (nr) {
	case SYS_socket:
		if (a[0] == AF_INET || a[0] == AF_INET6 || a[0] == AF_PACKET)
			return refuse_child();
		return native(nr, a);
	case SYS_rt_sigaction:
		return call_sigaction(nr, a);
	case SYS_close:
		if ((unsigned int)a[0] < ENTRY_FDS)
			preload_kind[a[0]] = 0;
		return native(nr, a);
#ifdef SYS_dup2
	case SYS_dup2:
#endif
	case SYS_dup3:
		ret = native(nr, a);
		if (ret >= 0 && ret < ENTRY_FDS)
			preload_kind[ret] = kind_of(a[0]);
		return ret;
	case SYS_dup:
	case SYS_fcntl:
		ret = native(nr, a);
		if ((nr == SYS_dup || a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC) &&
		    ret >= 0 && ret < ENTRY_FDS)
			preload_kind[ret] = kind_of(a[0]);
		return ret;
	case SYS_io_uring_setup:
		return -ENOSYS;
	case SYS_close_range:
		if (!a[2] && a[0] <= max_fd && a[0] >= 0)
			memset(preload_kind + a[0], 0, (size_t)((a[1] < max_fd && a[1] >= a[0] ? a[1] : max_fd) - a[0] + 1));
		return native(nr, a);
#ifdef SYS_poll
	case SYS_poll:
	case SYS_select:
	case SYS_epoll_wait:
#endif
	case SYS_ppoll:
	case SYS_pselect6:
	case SYS_epoll_ctl:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_exit_group:
		return native(nr, a);
	}
	return is_sock(a[0]) ? refuse_child() : native(nr, a);
}

static int end_sig, end_status;

/** give_up - the end takes too long: the stack must be hung */
static void give_up(int sig)
{
	(void)sig;
	if (end_sig)
		signal_kill(end_sig);
	RAW1(exit_group, end_status);
}

static volatile int wanted;

/**
 * want_end - who is asked to end while he does leaves the rest
 *
 * And no more when asked again: those who were to have it are still to hear so, and
 * what comes now takes END_LIMIT_S at most.
 */
static void want_end(int sig)
{
	(void)sig;
	wanted = 1;
}

/** end_is_wanted - whether the wait for what was sent shall end */
bool end_is_wanted(void)
{
	return wanted;
}

/** end_goes_on - the stack answers: the limit is for what comes next */
void end_goes_on(void)
{
	const struct itimerval it = { .it_value.tv_sec = END_LIMIT_S };

	RAW3(setitimer, ITIMER_REAL, &it, 0);
}

/**
 * limit_end - whatever becomes of the stack, the process ends
 *
 * The library's wait has no limit of its own, should its kernel be stuck.
 */
static void limit_end(void)
{
	uint64_t mask = 1UL << (SIGALRM - 1);

	signal_own(SIGALRM, give_up);
	RAW4(rt_sigprocmask, SIG_UNBLOCK, &mask, 0, sizeof(mask));
	signal_own_ending(want_end);
	end_goes_on();
}

/**
 * proc_ends - the process is about to end: what was sent gets out first
 * @status: exit status, or with @sig what kills it
 */
void proc_ends(int status, int sig)
{
	static const struct timespec wait = { .tv_nsec = 10000000 };
	int i;

	if (!*alive || borrowed())
		return;
	if (__atomic_exchange_n(&exiting, 1, __ATOMIC_SEQ_CST)) {
		/* Another thread is at it, and will end us too. */
		for (i = 0; i < EXIT_LIMIT_S * 100; i++)
			RAW2(nanosleep, &wait, 0);
		return;
	}
	end_sig = sig;
	end_status = status;
	limit_end();
	if (exit_fn)
		exit_fn(sig ? sig : status);
	else if (!preload_drain())
		preload_halt();
}

/** call_exit - exit_group(2) */
long call_exit(long nr, const long *a)
{
	proc_ends((int)a[0], 0);
	return native(nr, a);
}
