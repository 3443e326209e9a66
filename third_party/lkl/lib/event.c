// SPDX-License-Identifier: GPL-2.0-only
/*
 * Timers and devices, and who waits for them.
 *
 * Theory of operation
 *
 * In threaded mode exactly one thread at a time is the leader: it sleeps in
 * ppoll() on {eventfd, epoll of the devices} until the kernel's deadline. The
 * thread that waits for an event is the best one to take it, so a thread that
 * blocks in the kernel leads if nobody does, or if only the background thread
 * does. When it leaves, nobody leads for a while; the background thread looks
 * every LEAD_NS whether somebody has led since, and if not, leads. A thread that
 * sends many frames without ever blocking has a look in passing.
 *
 * In loop mode there is no leader; lib/loop.c and a call that has to wait look
 * at the deadline and the devices themselves.
 */
#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEAD_NS		1000000
#define BG_STACK	(256 << 10)
#define LEAD_ROUNDS	64	/* of LEAD_NS, then the background waits for a wake */

static unsigned long long deadline;	/* of the kernel's clock event; 0: none */
static unsigned long long sleeps_until;	/* the leader does */
static int polling;			/* the leader sleeps, or is about to */
static struct thread *leader;
static unsigned int lead_count;

static int epfd = -1;
static int evfd = -1;			/* wakes a leader */
static int bg_evfd = -1;		/* wakes the background thread as leader */
static pthread_t bg_thread;
static int bg_started, bg_stop;
static struct thread *bg;
static unsigned int bg_asleep;		/* futex: waits for a wake, not a time */

#define WATCHES		4096
#define WATCH_BIT	(1ULL << 63)	/* in epoll's data; the rest is an index */

static struct {
	void *(*fn)(void *arg);
	void *arg;
} watches[WATCHES];
static unsigned int watch_count;
static unsigned int spin_ns;

static unsigned long long now(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

unsigned long long lklh_mono(void)
{
	return now(CLOCK_MONOTONIC);
}

unsigned long long lklh_real(void)
{
	return now(CLOCK_REALTIME);
}

void lklh_getrandom(void *buf, unsigned long len)
{
	if (getrandom(buf, len, 0) != (ssize_t)len)
		getentropy(buf, len);
}

void lklh_set_deadline(unsigned long long ns)
{
	__atomic_store_n(&deadline, ns, __ATOMIC_SEQ_CST);
	if (ns && __atomic_load_n(&polling, __ATOMIC_SEQ_CST) &&
	    ns < __atomic_load_n(&sleeps_until, __ATOMIC_RELAXED))
		events_kick();
}

unsigned long long events_deadline(void)
{
	return __atomic_load_n(&deadline, __ATOMIC_RELAXED);
}

/**
 * events_timer_due - post the timer interrupt if its time has come
 */
void events_timer_due(void)
{
	unsigned long long d = events_deadline();

	if (d && lklh_mono() >= d &&
	    __atomic_compare_exchange_n(&deadline, &d, 0, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_RELAXED))
		lklh_irq_raise(LKL_IRQ_TIMER);
}

static void ring(int fd)
{
	uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		return;	/* full: it will wake anyway */
}

/**
 * events_kick - wake the leader, whoever that is
 */
void events_kick(void)
{
	ring(evfd);
	ring(bg_evfd);
}

/**
 * events_more - a device has frames left for which no event will come
 */
void events_more(void)
{
	if (__atomic_load_n(&polling, __ATOMIC_SEQ_CST))
		events_kick();
}

int events_is_leader(struct thread *t)
{
	return __atomic_load_n(&leader, __ATOMIC_SEQ_CST) == t;
}

static int take_devices(void)
{
	struct epoll_event ev[16];
	int i, n;

	n = epoll_wait(epfd, ev, 16, 0);
	for (i = 0; i < n; i++) {
		if (ev[i].data.u64 & WATCH_BIT) {
			unsigned int w = ev[i].data.u32;
			struct thread *t = watches[w].fn(watches[w].arg);

			if (t)
				cpu_interrupt(t);
		} else {
			netdev_event(ev[i].data.u32, ev[i].events);
		}
	}
	return n;
}

API int lkl_host_watch(int fd, void *(*fn)(void *arg), void *arg)
{
	unsigned int w = __atomic_fetch_add(&watch_count, 1, __ATOMIC_SEQ_CST);
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLET,
		.data.u64 = WATCH_BIT | w,
	};

	if (!lkl_usable() || loop_mode)
		return -ENODEV;
	if (w >= WATCHES)
		return -ENOSPC;
	watches[w].fn = fn;
	watches[w].arg = arg;
	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

API void lkl_set_spin(unsigned int usec)
{
	spin_ns = usec < 1000000 ? usec * 1000 : 1000000000;
}

/* Looks for a while instead of sleeping; 1: something has come. */
static int spin(struct thread *t)
{
	unsigned long long end = lklh_mono() + spin_ns, d;

	do {
		if (take_devices() > 0)
			return 1;
		d = events_deadline();
		if (d && lklh_mono() >= d)
			return 1;
		if (__atomic_load_n(&t->k.granted, __ATOMIC_SEQ_CST) ||
		    __atomic_load_n(&lkl_irq_pending, __ATOMIC_SEQ_CST) ||
		    __atomic_load_n(&lkl_dead, __ATOMIC_SEQ_CST))
			return 1;
	} while (events_is_leader(t) && lklh_mono() < end);
	return 0;
}

/**
 * events_lead - sleep until something happens, and post it
 *
 * Returns early when @t was granted the CPU, when its leadership was taken
 * away, or, with a negative result, when a signal came.
 */
int events_lead(struct thread *t)
{
	struct pollfd fds[2] = {
		{ .fd = t == bg ? bg_evfd : evfd, .events = POLLIN },
		{ .fd = epfd, .events = POLLIN },
	};
	struct timespec ts, *tsp = NULL;
	unsigned long long d, n;
	uint64_t drain;
	int ret = 0, intr = 0;

	if (!(__atomic_load_n(&lkl_irq_pending, __ATOMIC_RELAXED) & LKL_IRQ_NET) &&
	    netdevs_more())
		return 0;
	if (spin_ns && t != bg && spin(t)) {
		events_timer_due();
		return 0;
	}
	__atomic_store_n(&sleeps_until, ~0ULL, __ATOMIC_SEQ_CST);
	__atomic_store_n(&polling, 1, __ATOMIC_SEQ_CST);
	d = events_deadline();
	if (d) {
		n = lklh_mono();
		__atomic_store_n(&sleeps_until, d, __ATOMIC_SEQ_CST);
		n = d > n ? d - n : 0;
		ts.tv_sec = n / 1000000000;
		ts.tv_nsec = n % 1000000000;
		tsp = &ts;
	}
	/*
	 * A pending interrupt is no reason to stay awake: who raised it found the
	 * CPU taken, and its owner will see it.
	 */
	if (!__atomic_load_n(&t->k.granted, __ATOMIC_SEQ_CST) &&
	    !__atomic_load_n(&lkl_dead, __ATOMIC_SEQ_CST) && events_is_leader(t))
		ret = ppoll(fds, 2, tsp, NULL);
	__atomic_store_n(&polling, 0, __ATOMIC_SEQ_CST);

	if (ret < 0 && errno == EINTR)
		intr = -1;
	if (ret > 0 && (fds[0].revents & POLLIN) &&
	    read(fds[0].fd, &drain, sizeof(drain)) < 0)
		drain = 0;
	if (!events_is_leader(t))
		return intr;
	if (ret > 0 && fds[1].revents)
		take_devices();
	events_timer_due();
	return intr;
}

/**
 * events_try_lead - become the leader, from nobody or from the background
 */
int events_try_lead(struct thread *t)
{
	struct thread *old = NULL;

	if (__atomic_compare_exchange_n(&leader, &old, t, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		goto lead;
	if (t != bg && old == bg &&
	    __atomic_compare_exchange_n(&leader, &old, t, 0, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST)) {
		/* Its own descriptor: ours we might empty before it has seen it. */
		ring(bg_evfd);
		goto lead;
	}
	return 0;
lead:
	__atomic_fetch_add(&lead_count, 1, __ATOMIC_RELAXED);
	return 1;
}

/**
 * events_unlead - stop leading; the background will find out
 */
void events_unlead(struct thread *t)
{
	struct thread *old = t;

	if (!__atomic_compare_exchange_n(&leader, &old, NULL, 0,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return;
	if (t != bg && __atomic_exchange_n(&bg_asleep, 0, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &bg_asleep, FUTEX_WAKE_PRIVATE, 1);
}

/**
 * events_glance - look for timers and devices without waiting
 *
 * For a thread that sends: it takes the acknowledgements that came meanwhile,
 * and the background thread can stay asleep.
 */
void events_glance(struct thread *t)
{
	struct thread *old = NULL;

	if (!__atomic_compare_exchange_n(&leader, &old, t, 0, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	__atomic_fetch_add(&lead_count, 1, __ATOMIC_RELAXED);
	take_devices();
	events_timer_due();
	events_unlead(t);
}

static void bg_sleep(unsigned int word, const struct timespec *ts)
{
	syscall(SYS_futex, &bg_asleep, FUTEX_WAIT_PRIVATE, word, ts);
}

/* The background thread */
static void *background(void *arg)
{
	static const struct timespec lead_time = { .tv_nsec = LEAD_NS };
	unsigned int seen, rounds = 0;
	struct thread *old;

	self = bg = arg;
	while (!__atomic_load_n(&bg_stop, __ATOMIC_SEQ_CST) && !lkl_dead) {
		old = NULL;
		if (__atomic_compare_exchange_n(&leader, &old, bg, 0,
						__ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST)) {
			while (events_is_leader(bg) && !bg_stop && !lkl_dead) {
				events_lead(bg);
				if (lkl_irq_pending)
					cpu_run(bg);
			}
			events_unlead(bg);
			rounds = 0;
		}
		/* Somebody leads. Wait until nobody has for LEAD_NS. */
		do {
			seen = __atomic_load_n(&lead_count, __ATOMIC_SEQ_CST);
			if (rounds++ < LEAD_ROUNDS) {
				bg_sleep(0, &lead_time);
			} else {
				__atomic_store_n(&bg_asleep, 1, __ATOMIC_SEQ_CST);
				if (__atomic_load_n(&leader, __ATOMIC_SEQ_CST) &&
				    !bg_stop && !lkl_dead)
					bg_sleep(1, NULL);
				__atomic_store_n(&bg_asleep, 0, __ATOMIC_SEQ_CST);
				rounds = 0;
			}
			if (seen != __atomic_load_n(&lead_count, __ATOMIC_SEQ_CST))
				rounds = 0;
		} while (!bg_stop && !lkl_dead &&
			 (__atomic_load_n(&leader, __ATOMIC_SEQ_CST) ||
			  seen != __atomic_load_n(&lead_count, __ATOMIC_SEQ_CST)));
	}
	self = NULL;
	return NULL;
}

int events_init(void)
{
	if (loop_mode)
		return 0;
	epfd = epoll_create1(EPOLL_CLOEXEC);
	evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	bg_evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return epfd < 0 || evfd < 0 || bg_evfd < 0 ? -errno : 0;
}

/**
 * events_start - start the background thread, without any signals
 */
int events_start(void)
{
	pthread_attr_t attr;
	sigset_t all, old;
	struct thread *t;
	int ret;

	if (loop_mode)
		return 0;
	t = thread_new();
	if (!t)
		return -ENOMEM;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, BG_STACK);
	ret = pthread_create(&bg_thread, &attr, background, t);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	bg_started = !ret;
	return -ret;
}

/**
 * events_stop - end the background thread and close the descriptors
 */
void events_stop(void)
{
	__atomic_store_n(&bg_stop, 1, __ATOMIC_SEQ_CST);
	if (bg_started) {
		events_kick();
		__atomic_store_n(&bg_asleep, 0, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &bg_asleep, FUTEX_WAKE_PRIVATE, 1);
		pthread_join(bg_thread, NULL);
		bg_started = 0;
	}
	if (epfd >= 0)
		close(epfd);
	if (evfd >= 0)
		close(evfd);
	if (bg_evfd >= 0)
		close(bg_evfd);
	epfd = evfd = bg_evfd = -1;
}

/**
 * event_device - watch a device's descriptor
 */
int event_device(int fd, int id)
{
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP,
		.data.u64 = id,
	};
	int ep = epfd;

	if (loop_mode) {
		ev.data.u64 = loop_tag | (unsigned int)id;
		ep = loop_epfd;
	}
	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/**
 * event_forget - stop watching; harmless when it is not
 */
void event_forget(int fd)
{
	epoll_ctl(loop_mode ? loop_epfd : epfd, EPOLL_CTL_DEL, fd, NULL);
}

/**
 * events_wait_loop - a call waits in loop mode
 * @until: monotonic time to give up, all ones for never
 *
 * Negative when a signal came.
 */
int events_wait_loop(unsigned long long until)
{
	struct pollfd fds[LKL_NET_MAX];
	int ids[LKL_NET_MAX], i, n, ret;
	unsigned long long d = events_deadline(), t = lklh_mono();
	struct timespec ts, *tsp = &ts;

	if (lkl_irq_pending)
		return 0;
	if (!d || d > until)
		d = until;
	if (d == ~0ULL) {
		tsp = NULL;
	} else {
		t = d > t ? d - t : 0;
		ts.tv_sec = t / 1000000000;
		ts.tv_nsec = t % 1000000000;
	}
	n = netdevs_pollfds(fds, ids, LKL_NET_MAX);
	ret = ppoll(fds, n, tsp, NULL);
	for (i = 0; ret > 0 && i < n; i++)
		if (fds[i].revents)
			netdev_event(ids[i], fds[i].revents);
	events_timer_due();
	return ret < 0 && errno == EINTR ? -1 : 0;
}
