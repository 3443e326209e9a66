// SPDX-License-Identifier: GPL-2.0-only
/*
 * Letting frames gather before they wake the process.
 *
 * Theory of operation
 *
 * On a slow link each frame wakes the process, and waking up costs more than
 * the frame. While data flows in one direction only, nobody waits for a single
 * frame: the other direction carries just acknowledgements. The devices then do
 * not wake the process for a while (a hold). Timers and programs still do.
 *
 * The traffic is measured in windows. A hold begins after STREAK windows with
 * data in one direction, and lasts for the time in which HOLD_READ bytes or
 * HOLD_FRAMES arrive, or HOLD_WRITTEN bytes leave, at the measured rate, at most
 * for the time that lkl_set_coalesce() sets. On a fast link this is so short that
 * there is none.
 * The first data in the other direction, such as a request of the program, ends
 * the hold, and the windows begin anew.
 *
 * Acknowledgements are late by a hold. The queue of a tap or a packet socket has
 * room for more than HOLD_FRAMES, so it loses none.
 *
 * A device is held by removing EPOLLIN from its events. Restoring it reports
 * the frames that have arrived meanwhile, also if the descriptor is
 * edge-triggered.
 */
#include "netdev.h"

#include <netinet/in.h>
#include <string.h>

#define WINDOW_NS	20000000ULL
#define STREAK		4
#define DATA_MIN	16384		/* in a window; less is not a transfer: 6.5 Mbit/s */
#define HOLD_READ	(256 << 10)	/* more does not fit in the processor's cache */
#define HOLD_WRITTEN	(512 << 10)	/* acknowledged in one hold, so sent at once after it */
#define HOLD_FRAMES	64
#define HOLD_MIN_NS	500000		/* a shorter hold saves nothing */
#define SMALL		160		/* a larger frame has data for certain */

static unsigned int limit_ns;		/* the longest hold; 0: none */
static unsigned long long held_until;	/* 0: not held */
static unsigned long hold_count;

/* Of this window: frames with data, by direction. Written inside the kernel */
static struct {
	unsigned long bytes, frames;
} seen[2];

/* Of the thread that is about to sleep; two at once only disturb the measurement */
static unsigned long long window_start;
static unsigned long rate_bytes, rate_frames;	/* in WINDOW_NS */

static int bulk;			/* direction of the data */
static int fresh;			/* data have been seen since the last hold */
static unsigned int streak;		/* windows with data in this direction only */

API void lkl_set_coalesce(unsigned int usec)
{
	limit_ns = usec < 1000000 ? usec * 1000 : 1000000000;
}

/**
 * coalesce_wanted - whether the program prefers few wake-ups
 */
int coalesce_wanted(void)
{
	return limit_ns != 0;
}

API int lkl_holding(void)
{
	return coalesce_until() != 0;
}

API unsigned long lkl_holds(void)
{
	return __atomic_load_n(&hold_count, __ATOMIC_RELAXED);
}

/* Whether a frame of TCP has data. @p: its IP header */
static int tcp_has_data(const unsigned char *p, unsigned long len)
{
	unsigned long total, head;

	if (len >= 40 && p[0] >> 4 == 4 && p[9] == IPPROTO_TCP) {
		head = (p[0] & 15) * 4;
		total = p[2] << 8 | p[3];
	} else if (len >= 60 && p[0] >> 4 == 6 && p[6] == IPPROTO_TCP) {
		head = 40;
		total = 40 + (p[4] << 8 | p[5]);
	} else {
		return 0;
	}
	if (head + 13 > len)
		return 0;
	return total > head + (p[head + 12] >> 4) * 4;
}

/*
 * Small datagrams do not count as data: those of QUIC may be acknowledgements.
 * @head: bytes before the IP header
 */
static int has_data(const struct lkl_iov *iov, int cnt, unsigned long len,
		    unsigned int head)
{
	unsigned char frame[SMALL];
	unsigned long n = 0, part;
	int i;

	if (len > SMALL)
		return 1;
	for (i = 0; i < cnt && n < len; i++) {
		part = iov[i].len < len - n ? iov[i].len : len - n;
		memcpy(frame + n, iov[i].base, part);
		n += part;
	}
	return n > head && tcp_has_data(frame + head, n - head);
}

static unsigned long load(const unsigned long *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void count(int way, unsigned long bytes, unsigned long frames)
{
	__atomic_store_n(&seen[way].bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&seen[way].frames, frames, __ATOMIC_RELAXED);
}

static void set_streak(unsigned int n)
{
	__atomic_store_n(&streak, n, __ATOMIC_RELAXED);
}

static void release(void)
{
	if (!coalesce_until() || !__atomic_exchange_n(&held_until, 0, __ATOMIC_SEQ_CST))
		return;
	/* A frame may have been on its way when the hold began. */
	__atomic_store_n(&fresh, 0, __ATOMIC_RELAXED);
	netdevs_hold(0);
}

/**
 * coalesce_seen - a frame has been read or written; called inside the kernel
 * @way: 0: read, 1: written
 * @len: its bytes; @iov may have room for more
 * @head: bytes before the IP header
 */
void coalesce_seen(int way, const struct lkl_iov *iov, int cnt,
		   unsigned long len, unsigned int head)
{
	if (!limit_ns || !has_data(iov, cnt, len, head))
		return;
	count(way, seen[way].bytes + len, seen[way].frames + 1);
	__atomic_store_n(&fresh, 1, __ATOMIC_RELAXED);
	if (way != __atomic_load_n(&bulk, __ATOMIC_RELAXED))
		coalesce_stop();
}

/**
 * coalesce_stop - end a hold, and begin none soon
 *
 * Also for a device that is full: while it is held, it does not report room.
 */
void coalesce_stop(void)
{
	set_streak(0);
	release();
}

/* Ends the window, if its time is over. */
static void measure(unsigned long long now)
{
	unsigned long long took = now - window_start;
	unsigned long bytes[2] = { load(&seen[0].bytes), load(&seen[1].bytes) };
	int way = !bytes[0];

	if (took < WINDOW_NS)
		return;
	rate_bytes = bytes[way] * WINDOW_NS / took;
	rate_frames = load(&seen[way].frames) * WINDOW_NS / took;
	window_start = now;
	count(0, 0, 0);
	count(1, 0, 0);
	if (bytes[!way] || rate_bytes < DATA_MIN || way != bulk)
		set_streak(0);
	else if (streak < STREAK)
		set_streak(streak + 1);
	__atomic_store_n(&bulk, way, __ATOMIC_RELAXED);
}

/**
 * coalesce_sleep - begin a hold before a sleep, if it pays; returns whether it has
 */
int coalesce_sleep(void)
{
	unsigned long long ns = limit_ns, now, until, most;

	/* After a hold, its frames are read first. */
	if (!ns || coalesce_until() || !__atomic_load_n(&fresh, __ATOMIC_RELAXED))
		return 0;
	now = lklh_mono();
	measure(now);
	if (__atomic_load_n(&streak, __ATOMIC_RELAXED) < STREAK)
		return 0;
	most = bulk ? HOLD_WRITTEN : HOLD_READ;
	if (ns > WINDOW_NS * most / rate_bytes)
		ns = WINDOW_NS * most / rate_bytes;
	if (ns > WINDOW_NS * HOLD_FRAMES / (rate_frames + 1))
		ns = WINDOW_NS * HOLD_FRAMES / (rate_frames + 1);
	if (ns < HOLD_MIN_NS)
		return 0;
	__atomic_store_n(&fresh, 0, __ATOMIC_RELAXED);
	until = now + ns;
	__atomic_store_n(&held_until, until, __ATOMIC_SEQ_CST);
	netdevs_hold(1);
	/* Another thread may have ended the hold before it was complete. */
	if (coalesce_until() != until) {
		netdevs_hold(0);
		return 0;
	}
	__atomic_fetch_add(&hold_count, 1, __ATOMIC_RELAXED);
	return 1;
}

/**
 * coalesce_sends - whether the frames that gather are acknowledgements of data
 */
int coalesce_sends(void)
{
	return __atomic_load_n(&streak, __ATOMIC_RELAXED) == STREAK &&
	       __atomic_load_n(&bulk, __ATOMIC_RELAXED);
}

/**
 * coalesce_until - the end of the hold; 0: there is none
 */
unsigned long long coalesce_until(void)
{
	return __atomic_load_n(&held_until, __ATOMIC_SEQ_CST);
}

/**
 * coalesce_due - end a hold whose time is over; returns whether it has ended one
 */
int coalesce_due(void)
{
	unsigned long long until = coalesce_until();

	if (!until || lklh_mono() < until)
		return 0;
	release();
	return 1;
}
