// SPDX-License-Identifier: GPL-2.0-only
/*
 * A second thread that writes frames.
 *
 * Theory of operation
 *
 * To write a frame to a tap is to run the host's whole receive path for it, up to
 * waking who waits for it: often half of what a frame costs. Where the one thread
 * that drives the kernel (loop mode) has no time to spare, and the host has a
 * processor that has, another thread does the writing.
 *
 * Frames go through a ring, in order. Small ones are copied into it and are done
 * with; of large ones the memory is lent, and the kernel gets them back by
 * lklh_net_written(). The other way begins when the ring is empty, so none overtakes
 * another.
 *
 * The user of the loop says when it is saturated (lkl_loop_load()). Whether the
 * thread helps then depends on who else wants the processors. It does where frames
 * are large, for most of such a write is the copy, and where the user knows
 * (LKL_LOAD_RUSH). Otherwise nobody tells, and it is tried: from time to time frames go the other way for a TRIAL, of which
 * the first half is not counted, and stay there if more goes in and out so. The
 * times between are longer each time that a trial was in vain.
 *
 * The thread is kept off the processor that the loop is on (place()): the host's
 * scheduler likes to wake it there, where it helps nobody.
 *
 * The thread rings when the kernel waits: for room, or, before it sleeps, for its
 * frames. It calls nothing but the host, so the process can fork() at any time;
 * the child has no writer, and no kernel either.
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
#define GAIN		8	/* the thread has to gain a part of so many, */
#define REGAIN		16	/* to be kept one of so many */
#define PLACE_NS	1000000	/* between two changes of place */
#define FRAME_COST	2048	/* a frame weighs as much as so many bytes more */

#define LARGE		16384	/* bytes; mean of the last MEAN_OF frames or so */
#define LARGE_NO_MORE	4096
#define MEAN_OF		64

#define RING_ID		0xffff	/* in the loop's events, where others have a device */

/**
 * struct slot - a frame on its way
 * @id: device
 * @fd: its descriptor
 * @ret: what became of it, once written
 * @cnt: of @iov; 0: its @len bytes are here
 * @hdr: bytes of the first of @iov, which is the caller's, when it is so short
 * @frame: the kernel's name for it while its memory is lent, NULL when copied
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

/* Counts of frames: put in, taken back and lent by the kernel's side; written */
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
static int hurry;	/* somebody waits for all: no waiting for room */
static int tid;		/* the thread's, once it has one */

/*
 * The ways that frames go; only the loop's thread looks at it.
 * @load: what the loop's user said last, LKL_LOAD_*
 * @sum: bytes of the last MEAN_OF frames that went out, about
 * @large: they are large
 * @on: by the thread
 * @trial: as a trial
 * @since: when this way was chosen, later when its counting began
 * @counts: it has
 * @count: what went in and out since
 * @rate: what did on the other way, per TRIAL_NS
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
 * Who puts a frame in while @asleep is set clears it and wakes, maybe late: so it is
 * set anew each time.
 */
static void wait_for_frames(void)
{
	for (;;) {
		__atomic_store_n(&asleep, 1, __ATOMIC_SEQ_CST);
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
			__atomic_store_n(&tail, tail + 1, __ATOMIC_SEQ_CST);
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

/* A trial that was broken off says nothing. */
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

/* A frame of @len bytes is to go out. */
static void way_size(unsigned int len)
{
	way.sum += len - way.sum / MEAN_OF;
	if (way.large ? way.sum / MEAN_OF >= LARGE_NO_MORE : way.sum / MEAN_OF < LARGE)
		return;
	way.large = !way.large;
	way_again();
}

/* This way's time may be over. */
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
 * writer_count - a frame has come in or is to go out
 * @len: its bytes
 */
void writer_count(unsigned int len)
{
	way.count += len + FRAME_COST;
}

/* Whether the next frame, of @len bytes, is for the thread. */
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

/* Where the loop is the thread is not. */
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

/* Rings once @at frames are written; 0: they are. */
static int arm(unsigned int at)
{
	if ((int)(__atomic_load_n(&tail, __ATOMIC_ACQUIRE) - at) >= 0)
		return 0;
	if (!ring_armed || (int)(at - ring_at) < 0) {
		__atomic_store_n(&ring_armed, 0, __ATOMIC_SEQ_CST);
		ring_at = at;
		__atomic_store_n(&ring_armed, 1, __ATOMIC_SEQ_CST);
	}
	if ((int)(__atomic_load_n(&tail, __ATOMIC_SEQ_CST) - at) < 0)
		return 1;
	__atomic_store_n(&ring_armed, 0, __ATOMIC_SEQ_CST);
	return 0;
}

/**
 * writer_put - give the thread a frame, if it is to have it
 * @len: bytes of all of @iov
 * @frame: what lklh_net_written() shall return when the memory is free again
 *
 * LKL_NETQ_COPIED; LKL_NETQ_KEPT; LKL_NETQ_NO: it goes the other way; LKL_NETQ_FULL:
 * not now, LKL_IRQ_NET will come.
 */
int writer_put(int id, int fd, const struct lkl_iov *iov, int cnt,
	       unsigned int len, void *frame)
{
	struct slot *s = &slots[head % SLOTS];
	unsigned int n = 0;
	int i;

	if (!wanted(len)) {
		/* Not before those that went this way. */
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
	__atomic_store_n(&head, head + 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&asleep, 0, __ATOMIC_SEQ_CST);
		futex(FUTEX_WAKE_PRIVATE, 1);
	}
	return len <= SMALL ? LKL_NETQ_COPIED : LKL_NETQ_KEPT;
}

/**
 * writer_take - for lklh_net_written()
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
 * What is lent is wanted back: there are sockets that send no more before. 1: it
 * is there.
 */
int writer_rest(void)
{
	if (!lent || arm(head))
		return 0;
	lklh_irq_raise(LKL_IRQ_NET);
	return 1;
}

/**
 * writer_waited_for - whether the thread has something that the kernel waits for
 */
int writer_waited_for(void)
{
	return head != reaped;
}

/**
 * writer_drain - wait until all is written
 *
 * It ends: there are SLOTS frames at most, and none waits for room meanwhile.
 */
void writer_drain(void)
{
	__atomic_store_n(&hurry, 1, __ATOMIC_RELAXED);
	while (head != __atomic_load_n(&tail, __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&hurry, 0, __ATOMIC_RELAXED);
}

/**
 * writer_settle - wait until all is written and taken back, and what waited behind it too
 * @take: has the kernel handle LKL_IRQ_NET
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
 * writer_stop - write what there is, and end the thread
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
