// SPDX-License-Identifier: GPL-2.0-only
/*
 * Signals and the timers that send them.
 *
 * The host's kernel keeps dispositions, masks and pending signals, and runs the
 * handlers. It also carries out kill() and the like, while all other threads are
 * stopped at a call. The timers exist only here, because they run in virtual time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "virtual/virtual.h"

#define MAX_TIMERS	4096
#define ITIMER		(-1)	/* id of the timer of setitimer() and alarm() */
#define NS		1000000000ull
#define SIGRTMIN_KERNEL	32
#define BIT(sig)	(1ull << ((sig) - 1))

/**
 * struct timer - an interval timer
 * @p: its process, or NULL: free
 * @id: number that timer_create() has returned, or ITIMER
 * @real: it is set by the time of day
 * @tid: thread that gets the signal, or 0: the process
 * @expires: NEVER: not set
 * @overrun: expirations since the last signal, which is still pending
 */
static struct timer {
	struct process *p;
	int id, signo, notify, overrun;
	bool real;
	pid_t tid;
	uint64_t value, expires, interval;
} timers[MAX_TIMERS];
static int timer_count;

/*
 * Pending signals of a thread, including those for its process that the first thread blocks:
 * all others are the first thread's.
 */
static uint64_t pending(struct thread *t)
{
	uint64_t shared = status_field(t->tid, "\nShdPnd:", 16);

	if (shared && t->tid != t->p->pid)
		shared &= status_field(t->p->pid, "\nSigBlk:", 16);
	return shared | status_field(t->tid, "\nSigPnd:", 16);
}

/** signals_pending - whether a signal waits that @mask does not block, or the thread's own mask */
bool signals_pending(struct thread *t, const uint64_t *mask)
{
	uint64_t set = pending(t) & ~BIT(SIGSTOP);	/* SIGSTOP is from outside of the lab */

	return set & ~(mask ? *mask : set ? status_field(t->tid, "\nSigBlk:", 16) : 0);
}

/** signals_own - whether the kernel has certainly chosen this thread for a pending signal */
bool signals_own(struct thread *t)
{
	return t->tid == t->p->pid ||
	       status_field(t->tid, "\nSigPnd:", 16) & ~status_field(t->tid, "\nSigBlk:", 16);
}

/** signals_in - whether a signal of @set waits, blocked or not */
bool signals_in(struct thread *t, uint64_t set)
{
	return (status_field(t->tid, "\nShdPnd:", 16) | status_field(t->tid, "\nSigPnd:", 16)) & set;
}

/**
 * process_killed - whether a signal has ended a process all of whose threads are stopped
 *
 * A thread removes SIGKILL from its pending signals only after its call has ended.
 */
bool process_killed(struct process *p)
{
	int i;

	if (status_field(p->pid, "\nSigPnd:", 16) & BIT(SIGKILL))
		return true;
	for (i = 0; i < thread_count; i++)
		if (threads[i].live && threads[i].held && threads[i].p == p)
			return ioctl(p->program->listener, SECCOMP_IOCTL_NOTIF_ID_VALID,
				     &threads[i].req.id);
	return false;
}

static enum verdict send(struct thread *t, uint64_t sig)
{
	if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU)
		fail("%s: stops processes by the signal %s, which is not supported in virtual time",
		     t->p->program->name, sigabbrev_np((int)sig));
	return sig ? KILL : NATIVE;
}

enum verdict on_kill(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	return send(t, a[1]);	/* tkill() and rt_sigqueueinfo(), too */
}

enum verdict on_tgkill(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	return send(t, a[2]);	/* rt_tgsigqueueinfo(), too */
}

static struct timer *find_timer(struct process *p, int id)
{
	int i;

	for (i = 0; i < timer_count; i++)
		if (timers[i].p == p && timers[i].id == id)
			return &timers[i];
	return NULL;
}

static struct timer *add_timer(struct process *p, int id)
{
	int i = 0;

	while (i < timer_count && timers[i].p)
		i++;
	if (i == MAX_TIMERS)
		fail("%s: more than %d timers", p->program->name, MAX_TIMERS);
	if (i == timer_count)
		timer_count++;
	timers[i] = (struct timer){
		.p = p, .id = id, .signo = SIGALRM, .notify = SIGEV_SIGNAL, .expires = NEVER,
	};
	return &timers[i];
}

/** timers_drop - at the end of a process, or at its execve(), which only ITIMER survives */
void timers_drop(struct process *p, bool exec)
{
	int i;

	for (i = 0; i < timer_count; i++)
		if (timers[i].p == p && !(exec && timers[i].id == ITIMER))
			timers[i].p = NULL;
}

/** timers_first - the time at which the next timer expires */
uint64_t timers_first(void)
{
	uint64_t next = NEVER;
	int i;

	for (i = 0; i < timer_count; i++)
		if (timers[i].p && timers[i].expires < next)
			next = timers[i].expires;
	return next;
}

static void send_timer(struct timer *m)
{
	siginfo_t info = { .si_signo = m->signo, .si_code = SI_TIMER };
	pid_t pid = m->p->pid, tid = 0;
	int i;

	m->p->signalled = true;
	info.si_timerid = m->id;
	info.si_overrun = m->overrun;
	info.si_ptr = (void *)m->value;
	if (m->id == ITIMER)
		syscall(SYS_kill, pid, SIGALRM);
	else if (!m->tid)
		syscall(SYS_rt_sigqueueinfo, pid, m->signo, &info);
	for (i = 0; m->tid && i < thread_count; i++)
		if (threads[i].live && threads[i].p == m->p && threads[i].ns_tid == m->tid)
			tid = threads[i].tid;
	if (tid)
		syscall(SYS_rt_tgsigqueueinfo, pid, tid, m->signo, &info);
}

/** timers_expire - send the signals of all timers that have expired */
void timers_expire(void)
{
	int i;

	for (i = 0; i < timer_count; i++) {
		struct timer *m = &timers[i];
		uint64_t late;

		if (!m->p || m->expires > now)
			continue;
		late = now - m->expires;
		/* The kernel sends a standard signal once, a real-time signal each time. */
		if (m->signo < SIGRTMIN_KERNEL &&
		    status_field(m->p->pid, m->tid ? "\nSigPnd:" : "\nShdPnd:", 16) & BIT(m->signo))
			m->overrun++;
		else
			m->overrun = 0;
		m->overrun += m->interval ? (int)(late / m->interval) : 0;
		m->expires = m->interval ? now + m->interval - late % m->interval : NEVER;
		if (m->notify != SIGEV_NONE)
			send_timer(m);
	}
}

static void set_timer(struct timer *m, uint64_t value, uint64_t interval)
{
	m->expires = !value ? NEVER : value < NEVER - now ? now + value : NEVER - 1;
	m->interval = interval;
	m->overrun = 0;
}

static uint64_t time_left(const struct timer *m)
{
	return !m || m->expires == NEVER ? 0 : m->expires > now ? m->expires - now : 1;
}

static struct itimerval itimer_value(const struct timer *m)
{
	uint64_t left = time_left(m) + 999, interval = m ? m->interval : 0;

	return (struct itimerval){
		.it_value = { (time_t)(left / NS), (suseconds_t)(left % NS / 1000) },
		.it_interval = { (time_t)(interval / NS), (suseconds_t)(interval % NS / 1000) },
	};
}

static bool timeval_ns(const struct timeval *tv, uint64_t *ns)
{
	*ns = (uint64_t)tv->tv_sec * NS + (uint64_t)tv->tv_usec * 1000;
	return tv->tv_sec >= 0 && tv->tv_sec < 1000000000 && tv->tv_usec >= 0 && tv->tv_usec < 1000000;
}

static bool timespec_ns(const struct timespec *ts, uint64_t *ns)
{
	*ns = (uint64_t)ts->tv_sec * NS + (uint64_t)ts->tv_nsec;
	return ts->tv_sec >= 0 && ts->tv_sec < 10000000000 && ts->tv_nsec >= 0 && ts->tv_nsec < (long)NS;
}

enum verdict on_setitimer(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timer *m = find_timer(t->p, ITIMER);
	struct itimerval new = { 0 }, old = itimer_value(m);
	uint64_t value, interval;

	(void)f;
	if (a[1] && mem_read(t, &new, a[1], sizeof(new)))
		*ret = -EFAULT;
	else if (a[0] > ITIMER_PROF || !timeval_ns(&new.it_value, &value) ||
		 !timeval_ns(&new.it_interval, &interval))
		*ret = -EINVAL;
	if (*ret)
		return ANSWER;
	if (a[0] != ITIMER_REAL) {	/* of CPU time */
		old = (struct itimerval){ 0 };
		if (value)
			return UNSUPPORTED;
	} else if (m || value) {
		set_timer(m ? m : add_timer(t->p, ITIMER), value, interval);
	}
	*ret = a[2] ? mem_write(t, a[2], &old, sizeof(old)) : 0;
	return ANSWER;
}

enum verdict on_getitimer(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct itimerval now_set = itimer_value(a[0] == ITIMER_REAL ? find_timer(t->p, ITIMER) : NULL);

	(void)f;
	*ret = a[0] > ITIMER_PROF ? -EINVAL : mem_write(t, a[1], &now_set, sizeof(now_set));
	return ANSWER;
}

enum verdict on_alarm(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timer *m = find_timer(t->p, ITIMER);
	uint64_t left = time_left(m), seconds = (uint32_t)a[0];

	(void)f;
	*ret = (long)(left && left < NS ? 1 : (left + NS / 2) / NS);
	if (m || seconds)
		set_timer(m ? m : add_timer(t->p, ITIMER), seconds * NS, 0);
	return ANSWER;
}

enum verdict on_timer_create(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct sigevent e = { .sigev_signo = SIGALRM, .sigev_notify = SIGEV_SIGNAL };
	int clock = (int)a[0], id = 0;
	struct timer *m;

	(void)f;
	if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC && clock != CLOCK_BOOTTIME &&
	    clock != CLOCK_TAI)
		return UNSUPPORTED;	/* CPU time, or alarms of the hardware */
	while (find_timer(t->p, id))
		id++;
	e.sigev_value.sival_int = id;
	*ret = a[1] ? mem_read(t, &e, a[1], sizeof(e)) : 0;
	if (!*ret && (e.sigev_notify & ~SIGEV_THREAD_ID) > SIGEV_NONE)
		*ret = -EINVAL;
	if (!*ret && e.sigev_notify != SIGEV_NONE && (e.sigev_signo < 1 || e.sigev_signo > 64))
		*ret = -EINVAL;
	if (!*ret)
		*ret = mem_write(t, a[2], &id, sizeof(id));
	if (*ret)
		return ANSWER;
	m = add_timer(t->p, id);
	m->real = clock == CLOCK_REALTIME || clock == CLOCK_TAI;
	m->notify = e.sigev_notify;
	m->signo = e.sigev_notify == SIGEV_NONE ? SIGALRM : e.sigev_signo;
	m->value = (uint64_t)e.sigev_value.sival_ptr;
	if (e.sigev_notify == SIGEV_THREAD_ID)
		memcpy(&m->tid, (char *)&e + 16, sizeof(m->tid));	/* sigev_notify_thread_id */
	return ANSWER;
}

static struct itimerspec timer_value(const struct timer *m)
{
	uint64_t left = time_left(m);

	return (struct itimerspec){
		.it_value = { (time_t)(left / NS), (long)(left % NS) },
		.it_interval = { (time_t)(m->interval / NS), (long)(m->interval % NS) },
	};
}

enum verdict on_timer_settime(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timer *m = find_timer(t->p, (int)a[0]);
	struct itimerspec new, old;
	uint64_t value, interval, at;

	(void)f;
	*ret = !m || m->id == ITIMER ? -EINVAL : mem_read(t, &new, a[2], sizeof(new));
	if (!*ret && (!timespec_ns(&new.it_value, &value) || !timespec_ns(&new.it_interval, &interval)))
		*ret = -EINVAL;
	if (*ret)
		return ANSWER;
	old = timer_value(m);
	if (value && a[1] & TIMER_ABSTIME) {
		at = now + (m->real ? REAL_OFFSET : 0);
		value = value > at ? value - at : 1;
	}
	set_timer(m, value, interval);
	*ret = a[3] ? mem_write(t, a[3], &old, sizeof(old)) : 0;
	return ANSWER;
}

enum verdict on_timer_gettime(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timer *m = find_timer(t->p, (int)a[0]);
	struct itimerspec now_set;

	(void)f;
	*ret = -EINVAL;
	if (!m || m->id == ITIMER)
		return ANSWER;
	now_set = timer_value(m);
	*ret = mem_write(t, a[1], &now_set, sizeof(now_set));
	return ANSWER;
}

enum verdict on_timer_getoverrun(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timer *m = find_timer(t->p, (int)a[0]);

	(void)f;
	*ret = !m || m->id == ITIMER ? -EINVAL : m->overrun;
	return ANSWER;
}

enum verdict on_timer_delete(struct thread *t, uint64_t *a, int f, long *ret)
{
	struct timer *m = find_timer(t->p, (int)a[0]);

	(void)f;
	*ret = !m || m->id == ITIMER ? -EINVAL : 0;
	if (!*ret)
		m->p = NULL;
	return ANSWER;
}
