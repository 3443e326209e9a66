// SPDX-License-Identifier: GPL-2.0-only
/*
 * A second thread that writes frames.
 *
 * Theory of operation
 *
 * A write to a tap runs the host's whole receive path for the frame, including
 * the wake-up of the receiver: often half of the cost of a frame. In loop mode
 * one thread drives the kernel. If it is saturated and the host has another
 * processor free, a second thread does the writing.
 *
 * Frames go through a ring, in order. Small ones are copied into the ring. The
 * memory of large ones is lent, and lklh_net_written() returns it to the
 * kernel. The loop writes directly again only when the ring is empty, so no
 * frame overtakes another.
 *
 * The user of the loop reports when it is saturated (lkl_loop_load()). Whether
 * the thread then helps depends on what else needs the processors:
 *
 * - It helps if frames are large, because most of such a write is the copy.
 * - It helps if the user knows so (LKL_LOAD_RUSH).
 * - Otherwise it is measured. From time to time frames go the other way for a
 *   TRIAL, of which only the second half counts, and they stay there if the
 *   throughput is higher. Each failed trial lengthens the time until the next.
 *
 * The thread is kept off the processor of the loop (place()): the host's
 * scheduler tends to wake it there, where it is of no help.
 *
 * The thread signals an eventfd if the kernel waits for room or, before it
 * sleeps, for its frames. It makes only host calls, so the process can fork()
 * at any time; the child has neither writer nor kernel.
 */
#include "writer.h"
#include "host_call.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SLOTS		256	/* a power of two */
#define SMALL		(LKL_NETQ_IOVS * sizeof(struct lkl_iov))
#define STACK_SIZE	(64 << 10)
#define ROOM_MS		100	/* longest wait for room in a descriptor */
#define SETTLE_MAX	100

#define TRIAL_NS	60000000ULL
#define KEEP_MIN	(2 * TRIAL_NS)
#define KEEP_MAX	(64 * TRIAL_NS)
#define GAIN		8	/* the thread must raise the throughput by 1/GAIN */
#define REGAIN		16	/* and by 1/REGAIN to keep its frames */
#define PLACE_NS	1000000	/* minimum time between two changes of place */
#define FRAME_COST	2048	/* a frame counts as this many extra bytes */

#define LARGE		16384	/* bytes; mean of about the last MEAN_OF frames */
#define LARGE_NO_MORE	4096
#define MEAN_OF		64

#define RING_ID		0xffff	/* in the loop's events, in place of a device */

/**
 * struct slot - a frame in the ring
 * @id: device
 * @fd: its descriptor
 * @ret: the result, once written
 * @cnt: of @iov; 0 if its @len bytes are stored here
 * @hdr: copy of the first of @iov, if that is short enough
 * @frame: the kernel's name for it while its memory is lent, NULL if copied
 */
struct slot {
	int id;
	int fd;
	int ret;
	int cnt;
	unsigned int len;
	void *frame;
	unsigned char hdr[16];
	union {
		struct lkl_iov iov[LKL_NETQ_IOVS];
		unsigned char bytes[SMALL];
	};
};

static struct slot slots[SLOTS];

/*
 * Counters of frames: added, taken back and lent by the kernel's side; written
 */
static unsigned int head __attribute__((aligned(64)));
static unsigned int reaped, lent;
static unsigned int tail __attribute__((aligned(64)));

static unsigned int asleep __attribute__((aligned(64)));	/* futex */

static unsigned int ring_armed __attribute__((aligned(64)));
static unsigned int ring_at;		/* value of tail */

static int evfd = -1;
static pthread_t thread;
static enum { STOPPED, RUNS, FAILED } state;
static int stop;
static int hurry;	/* a thread waits for all frames: do not wait for room */
static int tid;		/* the thread's ID, once it runs */

/*
 * The way that frames take; only the loop's thread uses it.
 * @load: last report of the loop's user, LKL_LOAD_*
 * @sum: approximate size of the last MEAN_OF frames sent, in bytes
 * @large: frames are large
 * @on: frames go to the thread
 * @trial: this way is a trial
 * @since: start of this way, later start of its measurement
 * @counts: the measurement has started
 * @count: bytes in and out since
 * @rate: throughput of the other way, per TRIAL_NS
 * @keep: how long this way is kept
 */
static struct {
	int load, large, on, trial, counts;
	unsigned int sum;
	unsigned long long since, count, rate, keep;
} way = { .keep = KEEP_MIN };

static void futex(int op, unsigned int val)
{
	host_call(SYS_futex, (long)&asleep, op, val, 0, 0, 0);
}

static int write_out(const struct slot *s)
{
	struct lkl_iov one = { (void *)s->bytes, s->len };
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };
	int tries = 2;
	long n;

	do {
		n = host_call(SYS_writev, s->fd,
			      (long)(s->cnt ? s->iov : &one), s->cnt ? s->cnt : 1,
			      0, 0, 0);
	} while (n == -EINTR ||
		 (n == -EAGAIN && --tries &&
		  !__atomic_load_n(&hurry, __ATOMIC_RELAXED) &&
		  poll(&p, 1, ROOM_MS) > 0));
	return (int)n;
}

static void ring_bell(void)
{
	uint64_t one = 1;

	lklh_irq_raise(LKL_IRQ_NET);
	host_call(SYS_write, evfd, (long)&one, sizeof(one), 0, 0, 0);
}

/*
 * A thread that adds a frame while @asleep is set clears it and wakes us,
 * possibly late: so it is set again each time.
 */
static void wait_for_frames(void)
{
	for (;;) {
		publish(&asleep, 1);
		if (__atomic_load_n(&head, __ATOMIC_SEQ_CST) != tail ||
		    __atomic_load_n(&stop, __ATOMIC_SEQ_CST))
			break;
		futex(FUTEX_WAIT_PRIVATE, 1);
	}
	__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
}

static void *writer(void *unused)
{
	int ret;

	(void)unused;
	host_call(SYS_prctl, PR_SET_NAME, (long)"lkl-writer", 0, 0, 0, 0);
	__atomic_store_n(&tid, (int)host_call(SYS_gettid, 0, 0, 0, 0, 0, 0),
			 __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
		while (tail != __atomic_load_n(&head, __ATOMIC_ACQUIRE)) {
			struct slot *s = &slots[tail % SLOTS];

			ret = s->ret = write_out(s);
			publish(&tail, tail + 1);
			if (ret <= 0 ||
			    (__atomic_load_n(&ring_armed, __ATOMIC_SEQ_CST) &&
			     (int)(tail - ring_at) >= 0 &&
			     __atomic_exchange_n(&ring_armed, 0, __ATOMIC_SEQ_CST)))
				ring_bell();
		}
		wait_for_frames();
	}
	return NULL;
}

static int start(void)
{
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLET, .data.u64 = loop_tag | RING_ID,
	};
	pthread_attr_t attr;
	sigset_t all, old;
	int ret;

	evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (evfd < 0 || epoll_ctl(loop_epfd, EPOLL_CTL_ADD, evfd, &ev))
		return -1;
	sigfillset(&all);
	sigdelset(&all, SIGSYS);	/* the program may handle trapped calls */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	ret = pthread_create(&thread, &attr, writer, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret ? -1 : 0;
}

static void way_begin(unsigned long long now)
{
	way.since = now;
	way.count = 0;
	way.counts = 0;
}

/* Discards the result of an interrupted trial. */
static void way_again(void)
{
	if (way.trial) {
		way.trial = 0;
		way.on = !way.on;
	}
	way_begin(lklh_mono());
}

API void lkl_loop_load(int load)
{
	if (load == way.load)
		return;
	way.load = load;
	way_again();
}

/* Records the size of a frame to be sent. */
static void way_size(unsigned int len)
{
	way.sum += len - way.sum / MEAN_OF;
	if (way.large ? way.sum / MEAN_OF >= LARGE_NO_MORE : way.sum / MEAN_OF < LARGE)
		return;
	way.large = !way.large;
	way_again();
}

/* Changes the way if its time is over. */
static void way_look(unsigned long long now)
{
	unsigned long long took = now - way.since, rate;

	if (!way.counts) {
		if (took > TRIAL_NS / 2) {
			way_begin(now);
			way.counts = 1;
		}
		return;
	}
	if (took < (way.trial ? TRIAL_NS / 2 : way.keep))
		return;
	rate = way.count * TRIAL_NS / took;
	if (!way.trial) {
		way.trial = 1;
		way.on = !way.on;
		way.rate = rate;
	} else {
		way.trial = 0;
		if (way.on ? rate > way.rate + way.rate / GAIN :
			     rate + rate / REGAIN > way.rate) {
			way.keep = KEEP_MIN;
		} else {
			way.on = !way.on;
			if (way.keep < KEEP_MAX)
				way.keep *= 2;
		}
	}
	way_begin(now);
}

/**
 * writer_count - count a frame received or to be sent
 * @len: its bytes
 */
void writer_count(unsigned int len)
{
	way.count += len + FRAME_COST;
}

/* Whether the thread should write the next frame, of @len bytes. */
static int wanted(unsigned int len)
{
	if (way.load == LKL_LOAD_EASY || state == FAILED)
		return 0;
	way_size(len);
	if (way.load != LKL_LOAD_RUSH && !way.large) {
		way_look(lklh_mono());
		if (!way.on)
			return 0;
	}
	if (state == STOPPED)
		state = start() ? FAILED : RUNS;
	return state == RUNS;
}

/* Keeps the thread off the processor of the loop. */
static void place(void)
{
	static int loop_cpu = -1, placed;
	static unsigned long long placed_at;
	int cpu = sched_getcpu(), t = __atomic_load_n(&tid, __ATOMIC_ACQUIRE);
	unsigned long long now;
	cpu_set_t set;

	if ((cpu == loop_cpu && t == placed) || cpu < 0 || !t)
		return;
	now = lklh_mono();
	if (now - placed_at < PLACE_NS)
		return;
	placed_at = now;
	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	CPU_CLR(cpu, &set);
	if (CPU_COUNT(&set) && !sched_setaffinity(t, sizeof(set), &set)) {
		loop_cpu = cpu;
		placed = t;
	}
}

/* Requests a signal once @at frames are written; 0: they already are. */
static int arm(unsigned int at)
{
	if ((int)(__atomic_load_n(&tail, __ATOMIC_ACQUIRE) - at) >= 0)
		return 0;
	if (!ring_armed || (int)(at - ring_at) < 0) {
		__atomic_store_n(&ring_armed, 0, __ATOMIC_SEQ_CST);
		ring_at = at;
		publish(&ring_armed, 1);
	}
	if ((int)(__atomic_load_n(&tail, __ATOMIC_SEQ_CST) - at) < 0)
		return 1;
	__atomic_store_n(&ring_armed, 0, __ATOMIC_SEQ_CST);
	return 0;
}

/**
 * writer_put - give a frame to the thread, if it should write it
 * @len: bytes of all of @iov
 * @frame: what lklh_net_written() returns when the memory is free again
 *
 * Returns LKL_NETQ_COPIED; LKL_NETQ_KEPT; LKL_NETQ_NO: the loop writes it;
 * LKL_NETQ_FULL: not now, LKL_IRQ_NET follows.
 */
int writer_put(int id, int fd, const struct lkl_iov *iov, int cnt,
	       unsigned int len, void *frame)
{
	struct slot *s = &slots[head % SLOTS];
	unsigned int n = 0;
	int i;

	if (!wanted(len)) {
		/* Not before the frames in the ring. */
		return arm(head) ? LKL_NETQ_FULL : LKL_NETQ_NO;
	}
	if (head - reaped == SLOTS) {
		if (!arm(reaped + SLOTS / 2))
			lklh_irq_raise(LKL_IRQ_NET);
		return LKL_NETQ_FULL;
	}
	place();
	s->id = id;
	s->fd = fd;
	s->len = len;
	if (len <= SMALL) {
		for (i = 0; i < cnt; i++) {
			memcpy(s->bytes + n, iov[i].base, iov[i].len);
			n += iov[i].len;
		}
		s->cnt = 0;
		s->frame = NULL;
	} else {
		memcpy(s->iov, iov, cnt * sizeof(*iov));
		if (iov[0].len <= sizeof(s->hdr)) {
			memcpy(s->hdr, iov[0].base, iov[0].len);
			s->iov[0].base = s->hdr;
		}
		s->cnt = cnt;
		s->frame = frame;
		lent++;
	}
	publish(&head, head + 1);
	if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
		futex(FUTEX_WAKE_PRIVATE, 1);
	}
	return len <= SMALL ? LKL_NETQ_COPIED : LKL_NETQ_KEPT;
}

/**
 * writer_take - implements lklh_net_written()
 */
int writer_take(int *id, void **frame, int *ret)
{
	unsigned int t = __atomic_load_n(&tail, __ATOMIC_ACQUIRE);

	while (reaped != t) {
		struct slot *s = &slots[reaped++ % SLOTS];

		if (s->frame)
			lent--;
		else if (s->ret > 0)
			continue;
		*id = s->id;
		*frame = s->frame;
		*ret = s->ret;
		return 1;
	}
	return 0;
}

/**
 * writer_rest - the loop may be about to sleep
 *
 * Requests lent memory back, because some sockets send nothing before they get
 * it. Returns 1 if it is back.
 */
int writer_rest(void)
{
	if (!lent || arm(head))
		return 0;
	lklh_irq_raise(LKL_IRQ_NET);
	return 1;
}

/**
 * writer_waited_for - whether the kernel waits for frames that the thread has
 */
int writer_waited_for(void)
{
	return head != reaped;
}

/**
 * writer_drain - wait until all frames are written
 *
 * The wait is bounded: there are at most SLOTS frames, and none waits for room
 * meanwhile.
 */
void writer_drain(void)
{
	__atomic_store_n(&hurry, 1, __ATOMIC_RELAXED);
	while (head != __atomic_load_n(&tail, __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&hurry, 0, __ATOMIC_RELAXED);
}

/**
 * writer_settle - wait until all frames, and those that waited behind them, are
 * written and taken back
 * @take: lets the kernel handle LKL_IRQ_NET
 */
void writer_settle(void (*take)(void *arg), void *arg)
{
	int i, load = way.load;

	way.load = LKL_LOAD_EASY;
	for (i = 0; i < SETTLE_MAX && (head != reaped || ring_armed); i++) {
		writer_drain();
		lklh_irq_raise(LKL_IRQ_NET);
		take(arg);
	}
	way.load = load;
}

/**
 * writer_stop - write the remaining frames and end the thread
 */
void writer_stop(void)
{
	if (state == RUNS) {
		writer_drain();
		__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
		futex(FUTEX_WAKE_PRIVATE, 1);
		pthread_join(thread, NULL);
	}
	if (evfd >= 0)
		close(evfd);
	evfd = -1;
	state = STOPPED;
	stop = 0;
	tid = 0;
	head = tail = reaped = lent = 0;
	ring_armed = 0;
	memset(&way, 0, sizeof(way));
	way.keep = KEEP_MIN;
}
