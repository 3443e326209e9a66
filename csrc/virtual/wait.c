// SPDX-License-Identifier: GPL-2.0-only
/* Calls that wait: sleeps, polls, and futexes, which exist only here. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "virtual/virtual.h"

#define NS		1000000000ull
#define MAX_POLL	MAX_FDS
#define MAX_EVENTS	512
#define SETS		3	/* of select(): readable, writable, urgent */

/** wait_until - wait, for at most @timeout from the first try; ANSWER: it is over */
enum verdict wait_until(struct thread *t, uint64_t timeout)
{
	if (!t->retry)
		t->wake = timeout < NEVER - now ? now + timeout : NEVER;
	return now < t->wake ? WAIT : ANSWER;
}

/* A timespec in the program's memory; a null pointer is NEVER */
static int read_timespec(struct thread *t, uint64_t at, uint64_t *ns)
{
	struct timespec ts;

	*ns = NEVER;
	if (!at)
		return 0;
	if (mem_read(t, &ts, at, sizeof(ts)))
		return -EFAULT;
	if (ts.tv_sec < 0 || ts.tv_nsec < 0 || ts.tv_nsec >= 1000000000)
		return -EINVAL;
	if (ts.tv_sec < 1000000000)
		*ns = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
	return 0;
}

/* An absolute time as one from now */
static uint64_t from_now(uint64_t at, bool real)
{
	uint64_t t = now + (real ? REAL_OFFSET : 0);

	return at == NEVER ? NEVER : at > t ? at - t : 0;
}

static uint64_t ms(int timeout)
{
	return timeout < 0 ? NEVER : (uint64_t)timeout * 1000000;
}

/** wait_interrupted - a signal ends a call: some calls return the time that is left */
void wait_interrupted(struct thread *t)
{
	const uint64_t *a = (const uint64_t *)t->req.data.args;
	uint64_t left = t->wake == NEVER ? 1000000000 * NS : t->wake - now, at = 0;
	struct timespec ts = { (time_t)(left / NS), (long)(left % NS) };

	switch (t->req.data.nr) {
	case SYS_nanosleep:
		at = a[1];
		break;
	case SYS_clock_nanosleep:
		at = a[1] & TIMER_ABSTIME ? 0 : a[3];
		break;
	case SYS_select:
		at = a[4];
		ts.tv_nsec /= 1000;	/* struct timeval */
		break;
	}
	if (at)
		mem_write(t, at, &ts, sizeof(ts));	/* the kernel ignores an error, too */
}

static enum verdict sleep_for(struct thread *t, uint64_t at, bool absolute, bool real, long *ret)
{
	uint64_t ns;

	*ret = at ? read_timespec(t, at, &ns) : -EFAULT;
	if (*ret)
		return ANSWER;
	return wait_until(t, absolute ? from_now(ns, real) : ns);
}

enum verdict on_nanosleep(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return sleep_for(t, a[0], false, false, ret);
}

enum verdict on_clock_nanosleep(struct thread *t, uint64_t *a, int f, long *ret)
{
	bool real = a[0] == CLOCK_REALTIME || a[0] == CLOCK_TAI;

	(void)f;
	if (!real && a[0] != CLOCK_MONOTONIC && a[0] != CLOCK_BOOTTIME)
		return UNSUPPORTED;
	return sleep_for(t, a[2], a[1] & TIMER_ABSTIME, real, ret);
}

enum verdict on_pause(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)a, (void)f, (void)ret;
	return wait_until(t, NEVER);
}

enum verdict on_sigsuspend(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t mask;

	(void)f;
	*ret = mem_read(t, &mask, a[0], sizeof(mask));
	return *ret ? ANSWER : wait_until(t, NEVER);
}

/* The host's kernel takes a signal that is there. */
enum verdict on_sigtimedwait(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t set, ns;

	(void)f;
	*ret = mem_read(t, &set, a[0], sizeof(set));
	if (!*ret)
		*ret = read_timespec(t, a[2], &ns);
	if (*ret)
		return ANSWER;
	if ((!t->retry || t->p->signalled) && signals_in(t, set))
		return NATIVE;
	*ret = -EAGAIN;
	return wait_until(t, ns);
}

/*
 * Waits for a child: @pid, or any if it is not positive. The host's kernel
 * answers if that takes no time, because a child has ended or there is none.
 */
static enum verdict wait_child(struct thread *t, pid_t pid)
{
	bool any = false;
	int i;

	for (i = 0; i < process_count; i++) {
		struct process *c = &processes[i];

		if (c->parent != t->p || (pid > 0 && c->ns_pid != pid))
			continue;
		if (c->live)
			any = true;
		else if (!process_reaped(c))
			return NATIVE;
	}
	return any ? wait_until(t, NEVER) : NATIVE;
}

enum verdict on_wait4(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	if (a[2] & WNOHANG)
		return NATIVE;
	return (pid_t)a[0] <= 0 && (pid_t)a[0] != -1 ? UNSUPPORTED : wait_child(t, (pid_t)a[0]);
}

enum verdict on_waitid(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	if (a[3] & WNOHANG)
		return NATIVE;
	return a[0] != P_ALL && a[0] != P_PID ? UNSUPPORTED : wait_child(t, a[0] == P_PID ? (pid_t)a[1] : -1);
}

/* Other threads run first. */
enum verdict on_yield(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)a, (void)f, (void)ret;
	return wait_until(t, 1000);
}

/* Polls objects of the stack, and files, which are always ready. */
static long poll_now(struct thread *t, const struct pollfd *fds, struct pollfd *out, unsigned int n)
{
	unsigned int i;
	long ret;

	for (i = 0; i < n; i++) {
		out[i] = fds[i];
		out[i].fd = fds[i].fd < 0 ? -1 : fd_stack(t, (unsigned int)fds[i].fd);
		out[i].revents = 0;
	}
	ret = ST(poll, out, n, 0, 0, 0, 0);
	for (i = 0; ret >= 0 && i < n; i++)
		if (fds[i].fd >= 0 && out[i].fd < 0) {
			out[i].revents = fds[i].events & (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
			ret += !!out[i].revents;
		}
	return ret;
}

static enum verdict poll_for(struct thread *t, uint64_t *a, uint64_t timeout, long *ret)
{
	static struct pollfd fds[MAX_POLL], out[MAX_POLL];
	unsigned int n = (unsigned int)a[1], i;

	*ret = a[1] > MAX_POLL ? -EINVAL : mem_read(t, fds, a[0], n * sizeof(*fds));
	if (*ret)
		return ANSWER;
	*ret = poll_now(t, fds, out, n);
	if (!*ret && wait_until(t, timeout) == WAIT)
		return WAIT;
	for (i = 0; i < n; i++)
		fds[i].revents = out[i].revents;
	if (*ret >= 0 && mem_write(t, a[0], fds, n * sizeof(*fds)))
		*ret = -EFAULT;
	return ANSWER;
}

enum verdict on_poll(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return poll_for(t, a, ms((int)a[2]), ret);
}

enum verdict on_ppoll(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t ns;

	(void)f;
	*ret = read_timespec(t, a[2], &ns);
	return *ret ? ANSWER : poll_for(t, a, ns, ret);
}

static enum verdict select_for(struct thread *t, uint64_t *a, uint64_t timeout, long *ret)
{
	static const short events[SETS] = { POLLIN, POLLOUT, POLLPRI };
	static const short means[SETS] = { POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI };
	static struct pollfd fds[FD_SETSIZE], out[FD_SETSIZE];
	int n = (int)a[0], fd, s;
	size_t size = (size_t)(n + 63) / 64 * 8;
	fd_set sets[SETS];
	unsigned int count = 0, i;

	*ret = -EINVAL;
	if (n < 0 || n > FD_SETSIZE)
		return ANSWER;
	*ret = -EFAULT;
	memset(sets, 0, sizeof(sets));
	for (s = 0; s < SETS; s++)
		if (a[1 + s] && mem_read(t, &sets[s], a[1 + s], size))
			return ANSWER;
	for (fd = 0; fd < n; fd++) {
		struct pollfd p = { .fd = fd };

		for (s = 0; s < SETS; s++)
			if (FD_ISSET(fd, &sets[s]))
				p.events |= events[s];
		if (p.events)
			fds[count++] = p;
	}
	*ret = poll_now(t, fds, out, count);
	if (!*ret && wait_until(t, timeout) == WAIT)
		return WAIT;
	if (*ret < 0)
		return ANSWER;
	memset(sets, 0, sizeof(sets));
	*ret = 0;
	for (i = 0; i < count; i++)
		for (s = 0; s < SETS; s++)
			if (fds[i].events & events[s] && out[i].revents & means[s]) {
				FD_SET(fds[i].fd, &sets[s]);
				++*ret;
			}
	for (s = 0; s < SETS; s++)
		if (a[1 + s] && mem_write(t, a[1 + s], &sets[s], size))
			*ret = -EFAULT;
	return ANSWER;
}

enum verdict on_select(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timeval tv;
	uint64_t ns = NEVER;

	(void)f;
	*ret = -EFAULT;
	if (a[4] && mem_read(t, &tv, a[4], sizeof(tv)))
		return ANSWER;
	if (a[4])
		ns = (uint64_t)tv.tv_sec * 1000000000 + (uint64_t)tv.tv_usec * 1000;
	if (select_for(t, a, ns, ret) == WAIT)
		return WAIT;
	if (*ret >= 0 && t->retry)
		wait_interrupted(t);	/* Linux returns the time that is left */
	return ANSWER;
}

enum verdict on_pselect(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t ns;

	(void)f;
	*ret = read_timespec(t, a[4], &ns);
	return *ret ? ANSWER : select_for(t, a, ns, ret);
}

enum verdict on_epoll_create(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t none[1] = { 0 };

	(void)a;
	return on_epoll_create1(t, none, f, ret);
}

enum verdict on_epoll_create1(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	*ret = fd_add(t, (int)ST(epoll_create1, a[0], 0, 0, 0, 0, 0), FD_OTHER, false,
		      a[0] & EPOLL_CLOEXEC);
	return ANSWER;
}

enum verdict on_epoll_ctl(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct epoll_event ev = { 0 };
	int fd = fd_stack(t, a[2]);

	*ret = -EPERM;	/* as for files */
	if (f < 0 || fd < 0)
		return f < 0 ? NATIVE : ANSWER;
	*ret = a[3] ? mem_read(t, &ev, a[3], sizeof(ev)) : 0;
	if (!*ret)
		*ret = ST(epoll_ctl, f, a[1], fd, a[3] ? &ev : NULL, 0, 0);
	return ANSWER;
}

static enum verdict epoll_for(struct thread *t, uint64_t *a, int f, uint64_t timeout, long *ret)
{
	static struct epoll_event ev[MAX_EVENTS];
	int max = (int)a[2] < MAX_EVENTS ? (int)a[2] : MAX_EVENTS;

	if (f < 0)
		return NATIVE;	/* fails */
	*ret = ST(epoll_pwait, f, ev, max, 0, 0, 8);
	if (!*ret && wait_until(t, timeout) == WAIT)
		return WAIT;
	if (*ret > 0 && mem_write(t, a[1], ev, (size_t)*ret * sizeof(*ev)))
		*ret = -EFAULT;
	return ANSWER;
}

enum verdict on_epoll_wait(struct thread *t, uint64_t *a, int f, long *ret)
{
	return epoll_for(t, a, f, ms((int)a[3]), ret);
}

enum verdict on_epoll_pwait2(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t ns;

	*ret = read_timespec(t, a[3], &ns);
	return *ret ? ANSWER : epoll_for(t, a, f, ns, ret);
}

static long futex_wake(struct thread *t, uint64_t at, int max, uint32_t bits)
{
	int i, woken = 0;

	for (i = 0; i < thread_count && woken < max; i++) {
		struct thread *o = &threads[i];

		if (o->live && o->held && o->p == t->p && o->futex == at && !o->woken &&
		    o->futex_bits & bits)
			o->woken = ++woken;
	}
	return woken;
}

/*
 * A wait also ends if the value changes, because the kernel changes it when a
 * thread ends. Callers expect spurious wake-ups.
 */
static enum verdict futex_wait(struct thread *t, uint64_t *a, uint64_t timeout, uint32_t bits, long *ret)
{
	uint32_t value;

	*ret = mem_read(t, &value, a[0], sizeof(value));
	if (*ret)
		return ANSWER;
	if (!t->retry) {
		*ret = value == (uint32_t)a[2] ? 0 : -EAGAIN;
		if (*ret)
			return ANSWER;
		t->futex = a[0];
		t->futex_bits = bits;
		t->woken = false;
	}
	if (!t->woken && value == (uint32_t)a[2]) {
		if (wait_until(t, timeout) == WAIT)
			return WAIT;
		*ret = -ETIMEDOUT;
	}
	t->futex = 0;
	return ANSWER;
}

enum verdict on_futex(struct thread *t, uint64_t *a, int f, long *ret)
{
	int op = (int)a[1] & FUTEX_CMD_MASK;
	uint64_t ns = NEVER;

	(void)f;
	*ret = 0;
	switch (op) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
		*ret = read_timespec(t, a[3], &ns);
		if (*ret)
			return ANSWER;
		if (op == FUTEX_WAIT)
			return futex_wait(t, a, ns, ~0u, ret);
		return futex_wait(t, a, from_now(ns, a[1] & FUTEX_CLOCK_REALTIME), (uint32_t)a[5], ret);
	case FUTEX_WAKE:
		*ret = futex_wake(t, a[0], (int)a[2], ~0u);
		return ANSWER;
	case FUTEX_WAKE_BITSET:
		*ret = futex_wake(t, a[0], (int)a[2], (uint32_t)a[5]);
		return ANSWER;
	}
	return UNSUPPORTED;
}
