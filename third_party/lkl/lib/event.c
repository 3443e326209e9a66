// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiting for devices and timers.
 *
 * Theory of operation
 *
 * In threaded mode at most one thread at a time is the leader. It sleeps in an
 * epoll with the devices, the timer (clock.c) and an eventfd. The thread that
 * waits for an event is the best one to handle it. So a thread that blocks in
 * the kernel leads if there is no leader, or if the background thread leads.
 * Where that pays, it polls for a while before it sleeps (spin.c).
 *
 * When it leaves, there is no leader for a while. The background thread checks
 * every LEAD_NS whether another thread has led since, and if not, leads itself.
 * While it finds the leader asleep each time, the program mostly waits: then the
 * intervals double, up to LEAD_NS << CALM_MAX, or eight times as long if frames
 * may gather. While frames do gather, each interval has this length.
 * A thread that sends many frames without ever blocking checks for events in
 * passing.
 *
 * All descriptors are edge-triggered, so they need not be read until empty. The
 * epoll reports each event once, so only the leader may ask it. The background
 * thread can lose the lead while it still sleeps. Therefore it sleeps outside,
 * in poll() on the epoll and on an eventfd of its own.
 *
 * In loop mode there is no leader: lib/loop.c, and a call that has to wait,
 * check the deadline and the devices themselves.
 */
#include "internal.h"
#include "host_call.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define LEAD_NS		1000000
#define BG_STACK	(256 << 10)
#define CALM_MAX	3
#define CALM_MORE	3	/* added to CALM_MAX if frames may gather (coalesce.c) */
#define BRISK_NS	500000	/* after a shorter sleep, the tick is not stopped */

static struct thread *sleeper;		/* the leader, if it sleeps or is about to */
static struct thread *leader;
static unsigned int lead_count;
static int brisk;			/* the last sleep was short */

static int epfd = -1;
static int evfd = -1;			/* wakes a leader other than the background thread */
static int bg_evfd = -1;		/* wakes the background thread if it leads */
static pthread_t bg_thread;
static int bg_started, bg_stop;
static struct thread *bg;
static unsigned int bg_asleep;		/* futex: waits until woken, without a timeout */

#define EVENTS		16	/* fetched at once */
#define WATCHES		4096
/*
 * In the epoll's data; the rest of a watch is an index, and of a device its id
 */
#define WATCH_BIT	(1ULL << 63)
#define TIMER_BIT	(1ULL << 62)
#define KICK_BIT	(1ULL << 61)

static struct {
	void *(*fn)(void *arg);
	void *arg;
} watches[WATCHES];
static unsigned int watch_count;

static void ring(int fd)
{
	uint64_t one = 1;

	/* The counter may be full: it wakes the reader anyway. */
	host_call(SYS_write, fd, (long)&one, sizeof(one), 0, 0, 0);
}

/* epoll_wait() for @ms; negative: -EINTR */
static int ask(struct epoll_event *ev, int ms)
{
	return (int)host_call(SYS_epoll_pwait, epfd, (long)ev, EVENTS, ms, 0, 0);
}

static void futex(int op, unsigned int val, const struct timespec *ts)
{
	host_call(SYS_futex, (long)&bg_asleep, op, val, (long)ts, 0, 0);
}

/**
 * events_kick - wake the leader
 *
 * A thread that becomes leader only now finds evfd signalled. A successor of
 * the background thread does not: the background thread handles pending work
 * when it notices that it has lost the lead.
 */
void events_kick(void)
{
	struct thread *t = __atomic_load_n(&leader, __ATOMIC_SEQ_CST);

	if (!t || t != bg)
		ring(evfd);
	if (!t || t == bg)
		ring(bg_evfd);
}

/**
 * events_sleeps - whether the leader sleeps or is about to
 */
int events_sleeps(void)
{
	return __atomic_load_n(&sleeper, __ATOMIC_SEQ_CST) != NULL;
}

/**
 * events_more - a device has frames left that cause no further event
 */
void events_more(void)
{
	if (events_sleeps())
		events_kick();
}

int events_is_leader(struct thread *t)
{
	return __atomic_load_n(&leader, __ATOMIC_SEQ_CST) == t;
}

/* Handles events of the epoll. */
static void take(const struct epoll_event *ev, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		uint64_t what = ev[i].data.u64;

		if (what & WATCH_BIT) {
			unsigned int w = (uint32_t)what;
			struct thread *t = watches[w].fn(watches[w].arg);

			if (t)
				cpu_interrupt(t);
		} else if (what & TIMER_BIT) {
			clock_fired();
		} else if (!(what & KICK_BIT)) {
			netdev_event((uint32_t)what, ev[i].events);
		}
	}
}

/**
 * events_look - handle available events without waiting; returns their number
 */
int events_look(void)
{
	struct epoll_event ev[EVENTS];
	int n = ask(ev, 0);

	take(ev, n);
	return n;
}

static int add(int fd, unsigned int events, uint64_t what)
{
	struct epoll_event ev = { .events = events | EPOLLET, .data.u64 = what };

	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

API int lkl_host_watch(int fd, void *(*fn)(void *arg), void *arg)
{
	unsigned int w = __atomic_fetch_add(&watch_count, 1, __ATOMIC_SEQ_CST);

	if (!lkl_usable() || loop_mode)
		return -ENODEV;
	if (w >= WATCHES)
		return -ENOSPC;
	watches[w].fn = fn;
	watches[w].arg = arg;
	return add(fd, EPOLLIN, WATCH_BIT | w);
}

/* Handles frames that cause no further event. */
static int more_frames(void)
{
	return !(__atomic_load_n(&lkl_irq_pending, __ATOMIC_RELAXED) & LKL_IRQ_NET) &&
	       netdevs_more();
}

/*
 * The background thread may learn late that it has lost the lead: it never
 * replaces or clears another sleeper.
 */
static void sleep_begin(struct thread *t)
{
	struct thread *none = NULL;

	if (t != bg)
		publish(&sleeper, t);
	else
		__atomic_compare_exchange_n(&sleeper, &none, t, 0, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
}

static void sleep_end(struct thread *t)
{
	__atomic_compare_exchange_n(&sleeper, &t, NULL, 0, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
}

/* Sleeps; negative: interrupted by a signal */
static int leader_sleep(struct thread *t)
{
	struct pollfd fds[2] = {
		{ .fd = bg_evfd, .events = POLLIN },
		{ .fd = epfd, .events = POLLIN },
	};
	struct epoll_event ev[EVENTS];
	unsigned long long start;
	uint64_t drain;
	int n;

	if (t != bg) {
		start = lklh_mono();
		n = ask(ev, -1);
		sleep_end(t);
		brisk = lklh_mono() - start < BRISK_NS;
		if (n < 0)
			return n == -EINTR ? -1 : 0;
		take(ev, n);
		return 0;
	}
	n = poll(fds, 2, -1);
	sleep_end(t);
	if (n > 0 && (fds[0].revents & POLLIN) &&
	    read(bg_evfd, &drain, sizeof(drain)) < 0)
		drain = 0;
	if (n > 0 && fds[1].revents && events_is_leader(bg)) {
		events_look();
		/*
		 * Was the event for another thread that has become leader
		 * meanwhile?
		 */
		if (!events_is_leader(bg))
			ring(evfd);
	}
	return 0;
}

/**
 * events_lead - sleep until an event occurs, and post it
 *
 * Returns early if @t was granted the CPU or has lost the lead, and with a
 * negative result if a signal arrived.
 */
int events_lead(struct thread *t)
{
	int intr = 0, held;

	if (more_frames())
		goto out;
	coalesce_sleep();
	held = lkl_holding();	/* then no frame comes soon */
	if (t != bg && !held && spin(t))
		goto out;
	if (!brisk || held || t == bg)
		cpu_rest(t);
	sleep_begin(t);
	clock_arm();
	/*
	 * A pending interrupt is no reason to stay awake: the thread that
	 * raised it found the CPU taken, and the owner will see it.
	 */
	if (!__atomic_load_n(&t->k.granted, __ATOMIC_SEQ_CST) &&
	    !__atomic_load_n(&lkl_dead, __ATOMIC_SEQ_CST) &&
	    events_is_leader(t) && !more_frames())
		intr = leader_sleep(t);
	else
		sleep_end(t);
out:
	if (events_is_leader(t)) {
		events_timer_due();
		if (coalesce_due())
			events_look();
	}
	return intr;
}

/**
 * events_try_lead - become leader if there is none, or instead of the
 * background thread
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
		/*
		 * Signal its own descriptor: we might read ours before it has
		 * woken up.
		 */
		ring(bg_evfd);
		goto lead;
	}
	return 0;
lead:
	__atomic_fetch_add(&lead_count, 1, __ATOMIC_RELAXED);
	return 1;
}

/**
 * events_unlead - stop leading; the background thread will notice
 */
void events_unlead(struct thread *t)
{
	struct thread *old = t;

	if (!__atomic_compare_exchange_n(&leader, &old, NULL, 0,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return;
	if (t != bg && __atomic_exchange_n(&bg_asleep, 0, __ATOMIC_SEQ_CST))
		futex(FUTEX_WAKE_PRIVATE, 1, NULL);
}

/**
 * events_glance - check for timers and devices without waiting
 *
 * For a thread that sends: it handles acknowledgements that have arrived, so
 * the background thread can stay asleep.
 */
void events_glance(struct thread *t)
{
	struct thread *old = NULL;

	if (!__atomic_compare_exchange_n(&leader, &old, t, 0, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	__atomic_fetch_add(&lead_count, 1, __ATOMIC_RELAXED);
	coalesce_due();
	events_look();
	events_timer_due();
	events_unlead(t);
}

/* Waits until the leader leaves. */
static void wait_for_unlead(void)
{
	publish(&bg_asleep, 1);
	if (__atomic_load_n(&leader, __ATOMIC_SEQ_CST) && !bg_stop && !lkl_dead)
		futex(FUTEX_WAIT_PRIVATE, 1, NULL);
	__atomic_store_n(&bg_asleep, 0, __ATOMIC_SEQ_CST);
}

/* Another thread leads. Waits until there was no leader for one interval. */
static void wait_for_absence(void)
{
	struct timespec interval = { 0, 0 };
	unsigned int seen, calm = 0, most;
	unsigned long held = lkl_holds(), holds;

	while (!bg_stop && !lkl_dead) {
		most = CALM_MAX + (coalesce_wanted() ? CALM_MORE : 0);
		seen = __atomic_load_n(&lead_count, __ATOMIC_SEQ_CST);
		interval.tv_nsec = LEAD_NS << calm;
		futex(FUTEX_WAIT_PRIVATE, 0, &interval);
		holds = lkl_holds();
		if (holds != held)
			calm = most;
		else if (!events_sleeps())
			calm = 0;
		else if (calm < most)
			calm++;
		held = holds;
		if (seen != __atomic_load_n(&lead_count, __ATOMIC_SEQ_CST))
			continue;
		if (!__atomic_load_n(&leader, __ATOMIC_SEQ_CST))
			return;
		if (calm >= most) {
			wait_for_unlead();
			if (!coalesce_wanted())
				calm = 0;
		}
	}
}

/* The main function of the background thread */
static void *background(void *arg)
{
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
			/*
			 * Raised with a kick for this thread, see
			 * events_kick().
			 */
			if (lkl_irq_pending)
				cpu_run(bg);
		}
		wait_for_absence();
	}
	self = NULL;
	return NULL;
}

int events_init(void)
{
	int timer, ret;

	if (loop_mode)
		return 0;
	epfd = epoll_create1(EPOLL_CLOEXEC);
	evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	bg_evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	timer = clock_init();
	if (epfd < 0 || evfd < 0 || bg_evfd < 0 || timer < 0)
		return -errno;
	ret = add(evfd, EPOLLIN, KICK_BIT);
	return ret ? ret : add(timer, EPOLLIN, TIMER_BIT);
}

/**
 * events_start - start the background thread, with all signals blocked
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
	sigdelset(&all, SIGSYS);	/* the program may handle trapped calls */
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
		futex(FUTEX_WAKE_PRIVATE, 1, NULL);
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
	clock_exit();
}

static int device_events(int op, int fd, int id, unsigned int events)
{
	struct epoll_event ev = {
		.events = events | EPOLLET | EPOLLRDHUP,
		.data.u64 = loop_mode ? loop_tag | (unsigned int)id : (unsigned int)id,
	};

	return epoll_ctl(loop_mode ? loop_epfd : epfd, op, fd, &ev) ? -errno : 0;
}

/**
 * event_device - watch a device's descriptor
 */
int event_device(int fd, int id)
{
	return device_events(EPOLL_CTL_ADD, fd, id, EPOLLIN | EPOLLOUT);
}

/**
 * event_hold - watch a device's descriptor only for errors, or for all events again
 *
 * When it is watched again, the epoll reports what is ready.
 */
void event_hold(int fd, int id, int on)
{
	device_events(EPOLL_CTL_MOD, fd, id, on ? 0 : EPOLLIN | EPOLLOUT);
}

/**
 * event_forget - stop watching a descriptor; harmless if it is not watched
 */
void event_forget(int fd)
{
	epoll_ctl(loop_mode ? loop_epfd : epfd, EPOLL_CTL_DEL, fd, NULL);
}
