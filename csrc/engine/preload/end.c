// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of the process that has the kernel: it delivers the data that the
 * program has sent before it ends.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "engine/common/proc_text.h"
#include "engine/preload/internal.h"
#include "engine/preload/signal.h"

#define DRAIN_NS	3000000000LL	/* without progress; lklhost uses the same value */
#define DRAIN_MAX_NS	60000000000LL
#define EXIT_LIMIT_S	80	/* more than preload_drain() takes */
#define END_LIMIT_S	6	/* for each step of the end */

static void (*exit_fn)(int status);
static int exiting;
static int end_sig, end_status;

/** give_up - end the process although the stack hangs */
static void give_up(int sig)
{
	(void)sig;
	if (end_sig)
		signal_kill(end_sig);
	RAW1(exit_group, end_status);
}

static volatile int end_wanted;

/**
 * want_end - a second request to end cancels the wait for undelivered data
 *
 * Further requests change nothing: the peers must still receive a RST, and the
 * remaining steps take END_LIMIT_S at most.
 */
static void want_end(int sig)
{
	(void)sig;
	end_wanted = 1;
}

/** end_goes_on - the stack still answers: restart the limit for the next step */
static void end_goes_on(void)
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

/** orphans - count the sockets of the stack that still have data to deliver */
static unsigned int orphans(const char *path, uint64_t *queued)
{
	char *text = stack_file_text(path);
	unsigned int n;

	if (!text)
		return 0;
	n = text_orphans(text, queued);
	stack_file_free(text);
	return n;
}

/** close_sockets - close the program's sockets without lingering, as process exit does */
static void close_sockets(void)
{
	int fd;

	for (fd = 0; fd <= max_fd; fd++) {
		struct linger l;
		int len = sizeof(l), sfd;

		if (!is_sock(fd))
			continue;
		sfd = entries[fd].sfd;
		lock();
		tally_close(sock_of(fd), sfd);
		unlock();
		if (!in_stack(SYS_getsockopt, sfd, SOL_SOCKET, SO_LINGER, (long)&l, (long)&len) &&
		    l.l_onoff && l.l_linger) {
			l.l_onoff = 0;
			in_stack(SYS_setsockopt, sfd, SOL_SOCKET, SO_LINGER, (long)&l, sizeof(l));
		}
		in_stack(SYS_close, sfd, 0, 0, 0, 0);
	}
}

bool preload_drain(void)
{
	struct timespec wait = { .tv_nsec = 1000000 };
	int64_t begin = mono_ns(), moved = begin, now;
	uint64_t mark, last = 0;
	unsigned int n;

	if (!preload_alive() || !owner_pid)
		return true;
	threads_park();
	me.own++;
	enter();
	close_sockets();
	for (;;) {
		mark = 0;
		n = orphans("/proc/net/tcp", &mark) + orphans("/proc/net/tcp6", &mark) +
		    orphans("/proc/net/mptcp", &mark);
		now = mono_ns();
		mark += n;
		if (mark != last) {
			last = mark;
			moved = now;
		}
		if (!n || end_wanted || now >= moved + DRAIN_NS || now >= begin + DRAIN_MAX_NS)
			break;
		end_goes_on();
		RAW2(nanosleep, &wait, 0);
		if (wait.tv_nsec < 16000000)
			wait.tv_nsec *= 2;
	}
	leave();
	me.own--;
	if (n && !end_wanted)
		warn_line("the last data of the command was not fully delivered within %lld s after its end",
			  (long long)((now - begin) / 1000000000));
	return !n;
}

void preload_halt(void)
{
	if (preload_alive() && owner_pid)
		lkl.halt();
}

void preload_at_exit(void (*fn)(int status))
{
	exit_fn = fn;
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
