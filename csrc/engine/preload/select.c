// SPDX-License-Identifier: GPL-2.0-only
/*
 * select() and pselect() on descriptors of both kernels, implemented with
 * polling.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"
#include "engine/preload/poller.h"

/* The poll events of each set, as in fs/select.c */
#define IN_BITS		(POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define OUT_BITS	(POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define EX_BITS		POLLPRI

#define FEW_WORDS	16	/* FD_SETSIZE */
#define MAX_WORDS	(ENTRY_FDS / 64)

/**
 * struct picked - the three sets of select()
 * @in, @out: input and result, @words each
 * @user: addresses in the program
 * @few: memory for small sets
 */
struct picked {
	unsigned long *in[3], *out[3];
	void *user[3];
	int nfds, words;
	unsigned long few[6 * FEW_WORDS];
};

/** bit - whether descriptor @fd is in a set */
static bool bit(const unsigned long *set, int fd)
{
	return set[fd / 64] >> (fd % 64) & 1;
}

/** pick_read - copy the program's sets */
static int pick_read(struct picked *k, const long *a)
{
	int i;

	for (i = 0; i < 3; i++) {
		memset(k->in[i], 0, (size_t)k->words * 8);
		k->user[i] = (void *)a[i + 1];
		if (k->user[i] && preload_copy(k->in[i], k->user[i],
					       (size_t)k->words * 8))
			return -EFAULT;
	}
	return 0;
}

/** pick_count - count the descriptors, and check whether one involves the stack */
static int pick_count(const struct picked *k, bool *ours)
{
	int i, n = 0;

	*ours = false;
	for (i = 0; i < k->nfds; i++) {
		if (!bit(k->in[0], i) && !bit(k->in[1], i) && !bit(k->in[2], i))
			continue;
		n++;
		if (kind_of(i) & KIND_MASK)
			*ours = true;
	}
	return n;
}

/** pick_polled - convert the sets for poll() */
static void pick_polled(const struct picked *k, struct sets *s)
{
	int i, n = 0;

	for (i = 0; i < k->nfds; i++) {
		short ev = 0;

		if (bit(k->in[0], i))
			ev |= POLLIN | POLLRDNORM | POLLRDBAND;
		if (bit(k->in[1], i))
			ev |= POLLOUT | POLLWRNORM | POLLWRBAND;
		if (bit(k->in[2], i))
			ev |= POLLPRI;
		if (ev)
			s->user[n++] = (struct pollfd){ .fd = i, .events = ev };
	}
}

/** pick_clear - clear the result */
static void pick_clear(struct picked *k)
{
	int i;

	for (i = 0; i < 3; i++)
		memset(k->out[i], 0, (size_t)k->words * 8);
}

/**
 * pick_ready - convert the result of poll() to sets
 *
 * A descriptor that is only in the third set and has reached its end would be
 * reported by every poll, so it is not polled any more.
 */
static long pick_ready(struct picked *k, struct sets *s)
{
	static const short bits[3] = { IN_BITS, OUT_BITS, EX_BITS };
	long n = 0;
	int i, j;

	pick_clear(k);
	for (i = 0; i < s->n; i++) {
		struct pollfd *p = &s->user[i];
		bool any = false;

		if (p->fd < 0 || !p->revents)
			continue;
		if (p->revents & POLLNVAL)
			return -EBADF;
		for (j = 0; j < 3; j++) {
			if (!(p->revents & bits[j]) || !bit(k->in[j], p->fd))
				continue;
			k->out[j][p->fd / 64] |= 1UL << (p->fd % 64);
			n++;
			any = true;
		}
		if (!any)
			p->fd = -1;
	}
	return n;
}

/** pick_wait - poll until select() has a result */
static long pick_wait(struct picked *k, struct sets *s, int64_t deadline)
{
	long ret;

	pick_clear(k);
	do {
		sets_sort(s);
		ret = sets_wait(s, deadline);
		if (ret <= 0)
			return ret;
		ret = pick_ready(k, s);
	} while (!ret);
	return ret;
}

/** pick_write - copy the result to the program's sets */
static long pick_write(const struct picked *k)
{
	int i;

	for (i = 0; i < 3; i++)
		if (k->user[i] && preload_copy(k->user[i], k->out[i],
					       (size_t)k->words * 8))
			return -EFAULT;
	return 0;
}

/** select_time - read the program's timeout in nanoseconds; -1 means none */
static long select_time(long nr, const long *a, int64_t *ns)
{
	struct timeval tv;

	if (nr == SYS_pselect6)
		return time_read((void *)a[4], ns);
	*ns = -1;
	if (!a[4])
		return 0;
	if (preload_copy(&tv, (void *)a[4], sizeof(tv)))
		return -EFAULT;
	if (tv.tv_sec < 0 || tv.tv_usec < 0)
		return -EINVAL;
	if (tv.tv_sec < INT64_MAX / 2000000000)
		*ns = tv.tv_sec * 1000000000LL + tv.tv_usec * 1000LL;
	return 0;
}

/** select_left - like Linux, return the remaining time */
static void select_left(long nr, const long *a, int64_t deadline)
{
	struct timespec ts, *left = time_left(deadline, &ts);
	struct timeval tv;

	if (!a[4] || !left)
		return;
	tv.tv_sec = ts.tv_sec;
	tv.tv_usec = ts.tv_nsec / 1000;
	if (nr == SYS_pselect6)
		preload_copy((void *)a[4], &ts, sizeof(ts));
	else
		preload_copy((void *)a[4], &tv, sizeof(tv));
}

/** select_both - select() on sets already read that involve the stack */
static long select_both(long nr, const long *a, struct picked *k, int n)
{
	struct { const void *mask; size_t len; } sig = { NULL, 0 };
	int64_t ns, deadline;
	struct sets s;
	uint64_t old;
	long ret = select_time(nr, a, &ns);

	if (ret)
		return ret;
	if (nr == SYS_pselect6 && a[5] &&
	    preload_copy(&sig, (void *)a[5], sizeof(sig)))
		return -EFAULT;
	ret = sets_init(&s, n);
	if (ret)
		return ret;
	pick_polled(k, &s);
	deadline = deadline_in(ns);
	if (sig.mask) {
		enter();
		ret = mask_push(sig.mask, &old);
		if (ret)
			leave();
	}
	if (!ret) {
		ret = pick_wait(k, &s, deadline);
		if (sig.mask) {
			leave();
			mask_pop(&old);
		}
		select_left(nr, a, deadline);
		if (ret >= 0) {
			long bad = pick_write(k);

			ret = bad ? bad : ret;
		}
	}
	sets_free(&s);
	return ret;
}

/** call_select - select(2) and pselect6(2) */
long call_select(long nr, const long *a)
{
	struct picked k;
	unsigned long *room = k.few;
	bool ours;
	size_t len;
	long ret;
	int i, n;

	if (a[0] <= 0 || a[0] > MAX_WORDS * 64)
		return native(nr, a);
	k.nfds = (int)a[0];
	k.words = (k.nfds + 63) / 64;
	len = 6 * (size_t)k.words * 8;
	if (k.words > FEW_WORDS) {
		room = pages(len);
		if (!room)
			return -ENOMEM;
	}
	for (i = 0; i < 3; i++) {
		k.in[i] = room + i * k.words;
		k.out[i] = room + (i + 3) * k.words;
	}
	n = pick_read(&k, a) ? 0 : pick_count(&k, &ours);
	if (!n || !ours) {
		ret = native(nr, a);
	} else {
		COUNT(calls, 1);
		ret = select_both(nr, a, &k, n);
	}
	if (room != k.few)
		RAW2(munmap, room, len);
	return ret;
}
