// SPDX-License-Identifier: GPL-2.0-only
/*
 * epoll on descriptors of both kernels.
 *
 * Theory of operation
 *
 * The program's epoll belongs to the host. When the program adds a socket of
 * the stack, the engine makes an epoll in the stack, its shadow, for such
 * members. Edge triggering, one-shot and the user's data are left to each
 * kernel. epoll_wait() asks both and sleeps as poll() does (poller.c). Without
 * members of the host it is a single call in the stack.
 *
 * An epoll inside another epoll is a member on both sides. For this purpose the
 * engine tracks all epolls made with epoll_create() (KIND_EPFD).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "engine/preload/internal.h"
#include "engine/preload/signal.h"
#include "engine/preload/poller.h"

#define SHADOWS_MAX	4096

/**
 * struct shadow - an epoll of the stack beside one of the host
 * @refs: number of descriptors; 0 if the entry is free
 * @sfd: descriptor in the stack
 * @gen: generation of its descriptor's number, for poller_keep()
 * @host: it has, or had, members of the host
 * @turn: which side is asked first
 */
static struct shadow {
	int refs;
	int sfd;
	unsigned int gen;
	bool host, turn;
} shadows[SHADOWS_MAX];

static unsigned int last_gen;

/** shadow_get - add a reference. Locked. */
void shadow_get(int i)
{
	shadows[i].refs++;
}

/**
 * shadow_put - drop a reference. Locked.
 *
 * Returns the stack's descriptor, which the caller closes, or -1 if others
 * remain.
 */
int shadow_put(int i)
{
	return --shadows[i].refs ? -1 : shadows[i].sfd;
}

/** has_members - whether the host's epoll already has members */
static bool has_members(int epfd)
{
	char path[40], text[256];
	long fd, n;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	fd = RAW4(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return true;
	n = RAW3(read, fd, text, sizeof(text) - 1);
	RAW1(close, fd);
	if (n < 0)
		return true;
	text[n] = '\0';
	return strstr(text, "tfd:");
}

/** shadow_of - the shadow of an epoll, made if there is none; or a negative errno */
static int shadow_of(int epfd)
{
	bool host;
	long sfd;
	int i;

	if (kind_of(epfd) & KIND_EPOLL)
		return entries[epfd].sock;
	if (epfd < 0 || epfd >= ENTRY_FDS)
		return -EBADF;
	host = has_members(epfd);
	sfd = STACK(epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);
	if (sfd < 0)
		return (int)sfd;
	lock();
	for (i = 0; i < SHADOWS_MAX && shadows[i].refs; i++)
		;
	if (i < SHADOWS_MAX) {
		shadows[i] = (struct shadow){ .refs = 1, .sfd = (int)sfd,
					      .gen = ++last_gen, .host = host };
		table_set(epfd, (int)sfd, i, KIND_EPOLL);
	}
	unlock();
	if (i < SHADOWS_MAX)
		return i;
	STACK(close, sfd, 0, 0, 0, 0, 0);
	return -ENOMEM;
}

/** call_epoll_create - epoll_create(2) and epoll_create1(2) */
long call_epoll_create(long nr, const long *a)
{
	long fd = native(nr, a);

	if (fd >= 0 && fd < ENTRY_FDS && !borrowed()) {
		lock();
		table_set((int)fd, -1, -1, KIND_EPFD);
		unlock();
	}
	return fd;
}

/** ctl_shadow - epoll_ctl() in the stack */
static long ctl_shadow(const long *a)
{
	int sh = shadow_of((int)a[0]);

	return sh < 0 ? sh :
	       stack_now(SYS_epoll_ctl, (long[6]){ shadows[sh].sfd, a[1],
						   entries[a[2]].sfd, a[3] });
}

/** ctl_stack - epoll_ctl() for a socket of the stack */
static long ctl_stack(const long *a)
{
	int epfd = (int)a[0];
	long ret;

	if (!(kind_of(epfd) & KIND_EPOLL)) {
		/*
		 * Check that it is an epoll. It never has the placeholder as a
		 * member.
		 */
		ret = RAW4(epoll_ctl, epfd, EPOLL_CTL_DEL, a[2], 0);
		if (ret != -ENOENT)
			return ret ? ret : -EINVAL;
		if (a[1] != EPOLL_CTL_ADD)
			return a[1] == EPOLL_CTL_DEL || a[1] == EPOLL_CTL_MOD ?
			       -ENOENT : -EINVAL;
	}
	sock_of(a[2])->watched = true;
	return ctl_shadow(a);
}

/** call_epoll_ctl - epoll_ctl(2) */
long call_epoll_ctl(long nr, const long *a)
{
	unsigned char kind = kind_of(a[2]);
	long ret;

	if (kind & KIND_SOCK) {
		COUNT(calls, 1);
		return ctl_stack(a);
	}
	if ((kind & (KIND_EPOLL | KIND_EPFD)) && a[0] != a[2]) {
		ret = native(nr, a);
		if (ret || shadow_of((int)a[2]) < 0)
			return ret;
		if (kind_of(a[0]) & KIND_EPOLL)
			shadows[entries[a[0]].sock].host = true;
		ctl_shadow(a);
		return 0;
	}
	if ((kind_of(a[0]) & KIND_EPOLL) && a[1] == EPOLL_CTL_ADD)
		shadows[entries[a[0]].sock].host = true;
	return native(nr, a);
}

/** ask - poll one side without waiting. Inside. */
static long ask(const struct shadow *sh, long epfd, bool stacks, struct epoll_event *ev, long max)
{
	if (max <= 0)
		return 0;
	return stacks ?
	       stack_raw(SYS_epoll_pwait, (long[6]){ sh->sfd, (long)ev, max, 0, 0, 8 }) :
	       raw6(SYS_epoll_pwait, epfd, (long)ev, max, 0, 0, 8);
}

/** ask_both - poll both sides without waiting. Inside. */
static long ask_both(struct shadow *sh, long epfd, struct epoll_event *ev, long max)
{
	bool first = sh->turn;
	long n = ask(sh, epfd, first, ev, max), m;

	if (n < 0)
		return n;
	m = ask(sh, epfd, !first, ev + n, max - n);
	if (n == max)
		sh->turn = !first;	/* the other side has waited too long */
	return m < 0 ? (n ? n : m) : n + m;
}

/** sleep_in - epoll_wait() in the stack until the deadline. Inside. */
static long sleep_in(const struct shadow *sh, struct epoll_event *ev, long max, int64_t deadline)
{
	struct timespec ts;

	if (deadline == DEADLINE_NEVER || deadline == DEADLINE_NOW)
		return stack_raw(SYS_epoll_pwait,
				 (long[6]){ sh->sfd, (long)ev, max,
					    deadline == DEADLINE_NOW ? 0 : -1, 0, 8 });
	return stack_raw(SYS_epoll_pwait2,
			 (long[6]){ sh->sfd, (long)ev, max,
				    (long)time_left(deadline, &ts), 0, 8 });
}

static bool over(int64_t deadline)
{
	return deadline == DEADLINE_NOW ||
	       (deadline != DEADLINE_NEVER && mono_ns() >= deadline);
}

/** wait_both - epoll_wait() on an epoll with a shadow */
static long wait_both(struct shadow *sh, long epfd, struct epoll_event *ev, long max, int64_t deadline)
{
	struct poller *p = NULL;
	bool mixed;
	long n = thread_ready();
	int had;

	if (n)
		return n;
	for (;;) {
		mixed = sh->host;
		if (mixed && !p && deadline != DEADLINE_NOW) {
			p = poller_take();
			if (!p)
				return -ENOMEM;
			n = poller_keep(p, (int)epfd, sh->gen);
			if (n)
				break;
		}
		enter();
		if (!mixed) {
			n = sleep_in(sh, ev, max, deadline);
		} else {
			if (p)
				poller_arm(p);
			n = ask_both(sh, epfd, ev, max);
			if (!n && !me.pending && !(p && poller_fired(p)) &&
			    !over(deadline)) {
				n = sleep_in(sh, ev, max, deadline);
				if (n > 0 && n < max) {
					long m = ask(sh, epfd, false, ev + n, max - n);

					n += m > 0 ? m : 0;
				}
			}
			if (p)
				poller_disarm(p);
		}
		had = me.pending;
		leave();
		if (n > 0 || (n < 0 && n != -EINTR))
			break;
		n = had ? -EINTR : 0;
		if (had || over(deadline))
			break;
	}
	if (p)
		poller_release(p);
	return n;
}

/** call_epoll_wait - epoll_wait(2), epoll_pwait(2), epoll_pwait2(2) */
long call_epoll_wait(long nr, const long *a)
{
	bool masked = (nr == SYS_epoll_pwait || nr == SYS_epoll_pwait2) && a[4];
	int64_t ns = (int)a[3] < 0 ? -1 : (int)a[3] * 1000000LL;
	struct shadow *sh;
	uint64_t old;
	long ret = 0;

	if (!(kind_of(a[0]) & KIND_EPOLL))
		return native(nr, a);
	COUNT(calls, 1);
	sh = &shadows[entries[a[0]].sock];
	if ((int)a[2] <= 0)
		return -EINVAL;
	if (nr == SYS_epoll_pwait2)
		ret = time_read((void *)a[3], &ns);
	if (!ret && masked) {
		enter();
		ret = mask_push((void *)a[4], &old);
		if (ret)
			leave();
	}
	if (ret)
		return ret;
	ret = wait_both(sh, a[0], (struct epoll_event *)a[1], (int)a[2],
			deadline_in(ns));
	if (masked) {
		leave();
		mask_pop(&old);
	}
	return ret;
}
