// SPDX-License-Identifier: GPL-2.0-only
/*
 * fork() and exit: a child has no kernel, and the process that has it must
 * deliver its data before it ends.
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

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"

#define EXIT_LIMIT_S	80	/* more than preload_drain() takes */
#define END_LIMIT_S	6	/* for each step of the end */

/* Whether a child has warned; shared by all, as a server may fork for each connection. */
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

/*
 * glibc and bionic have the first, musl the second: glibc's shared library does
 * not export pthread_atfork().
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
			     void (*child)(void), void *dso) __attribute__((weak));
#ifndef __GLIBC__
#pragma weak pthread_atfork
#endif

/** after_fork - in a child, do what the kernel does when it wipes the page */
static void after_fork(void)
{
	*alive = 0;
}

/** at_fork - register after_fork() with the C library */
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
 * proc_init - mark this process as the one that has the kernel
 *
 * Linux 4.14 or later wipes the page in any child (madvise(2)). A system
 * without this feature, or one that reports success and does nothing
 * (qemu-user), relies on the C library's fork().
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

/** refuse_child - fail without a stack in a child after fork(); warn once */
static long refuse_child(void)
{
	if (!__atomic_exchange_n(child_said, 1, __ATOMIC_RELAXED))
		warn_line("process %ld: a child after fork() has no network stack with --engine preload; use --engine supervise",
			  RAW0(getpid));
	return -ENETDOWN;
}

/** child_call - handle a call in a child after fork() */
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

/** give_up - end the process although the stack hangs */
static void give_up(int sig)
{
	(void)sig;
	if (end_sig)
		signal_kill(end_sig);
	RAW1(exit_group, end_status);
}

static volatile int wanted;

/**
 * want_end - a second request to end cancels the wait for undelivered data
 *
 * Further requests change nothing: the peers must still receive a RST, and the
 * remaining steps take END_LIMIT_S at most.
 */
static void want_end(int sig)
{
	(void)sig;
	wanted = 1;
}

/** end_is_wanted - whether the wait for delivery is cancelled */
bool end_is_wanted(void)
{
	return wanted;
}

/** end_goes_on - the stack still answers: restart the limit for the next step */
void end_goes_on(void)
{
	const struct itimerval it = { .it_value.tv_sec = END_LIMIT_S };

	RAW3(setitimer, ITIMER_REAL, &it, 0);
}

/**
 * limit_end - ensure that the process ends, whatever the stack does
 *
 * The library's wait has no limit of its own in case the kernel hangs.
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
 * proc_ends - deliver sent data before the process ends
 * @status: exit status, or with @sig the signal that kills it
 */
void proc_ends(int status, int sig)
{
	static const struct timespec wait = { .tv_nsec = 10000000 };
	int i;

	if (!*alive || borrowed())
		return;
	if (__atomic_exchange_n(&exiting, 1, __ATOMIC_SEQ_CST)) {
		/*
		 * Another thread does this already, and will end the process.
		 */
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
