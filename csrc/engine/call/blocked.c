// SPDX-License-Identifier: GPL-2.0-only
/*
 * Held calls: calls that wait, as they would in the host's kernel.
 *
 * Theory of operation
 *
 * A call that would block is stored as a struct held in its connection's list,
 * and retried at each event of the connection.
 *
 * Like a blocked call of the kernel, a held call keeps its file: it holds a
 * duplicate of the caller's descriptor. The call therefore continues if another
 * thread closes or replaces the descriptor. The loop watches the duplicate and
 * retries the call, because shutdown(2) and errors of the carrier cause no event
 * at our end. An event that poll does not report (SHUT_WR) is found by the
 * periodic check.
 *
 * Signals: with WAIT_KILLABLE_RECV, only fatal signals interrupt a received
 * call, so that no answer is lost. The engine therefore checks periodically
 * whether a signal is pending for the callers of held calls. If the signal has
 * a handler or stops the process, the answer is -ERESTARTSYS. The kernel turns
 * it into EINTR or a transparent restart, as for its own calls, but only if the
 * calling thread itself receives the signal. If this is uncertain, the answer
 * is EINTR, and is sent only after the signal has been pending for two checks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/call/rights.h"

#define MS		1000000ull
#define SIGNAL_POLL_NS	(10 * MS)	/* for calls held less than a second */
#define SIGNAL_SLOW_NS	(50 * MS)
#define SIGNAL_SLICE_NS	MS
#define SIGNAL_PAUSES	8		/* as long as the checks */

static struct list all_held = LIST_INIT(all_held);
static void held_event(struct source *src, uint32_t events);
static void blocked_tick(struct timer *t);
static struct timer held_timer = TIMER_INIT(held_timer, blocked_tick);
static uint64_t signals_due;
static unsigned int retrying;	/* nested retries, see held_prune() */

/** held_init - make an empty list */
void held_init(struct held_list *on)
{
	list_init(&on->calls);
	on->waking = on->wake_again = false;
}

/**
 * hold_deadline - the deadline of a blocking call on @c->dup
 * @optname: SO_RCVTIMEO or SO_SNDTIMEO, which are also set on the carrier
 *
 * Returns 0 if there is no deadline.
 */
uint64_t hold_deadline(const struct call *c, int optname)
{
	struct timeval tv = { 0 };
	socklen_t len = sizeof(tv);

	if (getsockopt(c->dup, SOL_SOCKET, optname, &tv, &len) ||
	    (!tv.tv_sec && !tv.tv_usec))
		return 0;
	return now_ns() + (uint64_t)tv.tv_sec * 1000 * MS +
	       (uint64_t)tv.tv_usec * 1000;
}

/**
 * call_hold - hold a call
 * @on: list of calls that wait for the same event
 * @events: poll bits of @c->dup that cause a retry, as well as EPOLLERR and
 *	EPOLLHUP
 * @retry: function that held_wake(@on) calls
 * @deadline: time at which the wait ends; 0 if there is none
 * @timeout_ret: the answer at the deadline
 *
 * Takes ownership of @c->dup. Returns NULL if memory is exhausted; the caller
 * must then answer -ENOMEM.
 */
struct held *call_hold(struct call *c, struct held_list *on, uint32_t events,
		       int64_t (*retry)(struct call *, struct held *),
		       uint64_t deadline, int64_t timeout_ret)
{
	struct held *h = calloc(1, sizeof(*h));
	uint64_t look;

	if (!h)
		return NULL;
	h->src.fn = held_event;
	h->src.fd = c->dup;
	if (loop_add(&h->src, events | EPOLLET)) {
		free(h);
		return NULL;
	}
	h->call = *c;
	c->dup = -1;
	h->retry = retry;
	h->deadline = deadline;
	h->timeout_ret = timeout_ret;
	h->since = now_ns();
	list_add_tail(&h->link, &on->calls);
	list_add_tail(&h->all, &all_held);
	notify_stats.held++;
	look = h->since + SIGNAL_POLL_NS;
	if (signals_due < h->since || list_empty(&held_timer.link))
		signals_due = look;
	else
		look = signals_due;
	if (deadline && deadline < look)
		look = deadline;
	if (list_empty(&held_timer.link) || held_timer.at > look)
		timer_arm(&held_timer, look);
	return h;
}

/** held_release - close the duplicate of the caller's descriptor */
static void held_release(struct held *h)
{
	loop_del(&h->src);
	if (h->call.dup >= 0 && now_ns() - h->since < MS)
		paged_close(&h->call, h->call.dup);
	else if (h->call.dup >= 0)
		paged_close_held(&h->call, h->call.dup);
	h->call.dup = -1;
}

/** held_end - answer a held call and free it */
static void held_end(struct held *h, int64_t ret)
{
	list_del(&h->link);
	list_del(&h->all);
	held_release(h);
	if (ret != CALL_ANSWERED)
		call_answer(&h->call, ret);
	loop_free_later(h);
}

/** held_retry - retry a held call; returns false if it waits no longer */
static bool held_retry(struct held *h)
{
	uint64_t had;
	int64_t ret = rights_set(h->call.rights, &had);

	retrying++;
	if (!ret)
		ret = h->retry(&h->call, h);
	retrying--;
	rights_set(had, NULL);
	mem_close();
	reserve_fill();
	if (ret == CALL_HELD)
		return true;
	held_end(h, ret);
	return false;
}

/**
 * held_quit - end a wait because of a signal or timeout, and answer with @ret
 *
 * The last retry may find a partial result.
 */
static void held_quit(struct held *h, int64_t ret)
{
	h->quits = true;
	if (!held_retry(h))
		return;
	if (h->quit)
		h->quit(&h->call);
	held_end(h, ret);
}

/** held_event - retry a held call after an event of its descriptor */
static void held_event(struct source *src, uint32_t events)
{
	struct held *h = container_of(src, struct held, src);

	(void)events;
	h->event = true;
	if (held_retry(h))
		h->event = false;
}

/** wake_once - retry the calls that are in the list now */
static void wake_once(struct list *calls)
{
	struct list *last = calls->prev, *pos, *tmp;

	if (list_empty(calls))
		return;

	list_for_each_safe(pos, tmp, calls) {
		bool end = pos == last;

		held_retry(container_of(pos, struct held, link));
		if (end)
			break;
	}
}

/**
 * held_wake - retry the calls that wait for an event, in order
 * @on: their connection must not be freed meanwhile
 *
 * Calls that a retry appends to the list are not retried now. If a retry causes
 * an event that wakes the same list, all calls are retried once more.
 */
void held_wake(struct held_list *on)
{
	on->wake_again = on->waking;
	if (on->waking)
		return;
	on->waking = true;
	do {
		on->wake_again = false;
		wake_once(&on->calls);
	} while (on->wake_again);
	on->waking = false;
}

/** held_task_gone - free the held calls of a thread that has ended */
void held_task_gone(const struct task *t)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &all_held) {
		struct held *h = container_of(pos, struct held, all);

		if (h->call.task == t)
			held_end(h, -EINTR);
	}
}

/**
 * held_prune - free the calls of a list whose callers have been killed
 *
 * The event of their end may come later. During a retry, this does nothing,
 * because the caller of the retry goes through a list.
 */
void held_prune(struct held_list *on)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &on->calls) {
		struct held *h = container_of(pos, struct held, link);

		if (!retrying && !call_valid(&h->call))
			held_end(h, -EINTR);
	}
}

/** held_fail - answer all calls of a list with @ret */
void held_fail(struct held_list *on, int64_t ret)
{
	while (!list_empty(&on->calls))
		held_end(container_of(on->calls.next, struct held, link), ret);
}

/** held_listener_gone - free the held calls of a listener that has hung up */
void held_listener_gone(int listener)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &all_held) {
		struct held *h = container_of(pos, struct held, all);

		if (h->call.listener == listener)
			held_end(h, -EINTR);
	}
}

/** held_signal - end @h if a signal is pending for its caller */
static void held_signal(struct held *h)
{
	int sig = task_signal_waits(h->call.pid);

	if (sig < 0 || !call_valid(&h->call)) {
		held_end(h, -EINTR);	/* the caller is gone */
		return;
	}
	if (sig == SIGNAL_OWN || (sig == SIGNAL_MAYBE && h->seen)) {
		notify_stats.interrupted++;
		held_quit(h, h->partial ? h->partial :
			  sig == SIGNAL_OWN ? -ERESTARTSYS : -EINTR);
		return;
	}
	h->seen = sig == SIGNAL_MAYBE;
}

/**
 * held_signals - check the held calls that were not checked for longest, and set
 * the time of the next check
 * @now: current time
 *
 * The interval is short while there are recent calls. One check asks the host's
 * kernel, whose answer takes the longer the more calls are held. So that a
 * process with thousands of waiting threads does not stop the others, the checks
 * end after a millisecond, and use at most a ninth of the CPU.
 */
static void held_signals(uint64_t now)
{
	uint64_t pause = SIGNAL_SLOW_NS, spent = 0;

	while (!list_empty(&all_held) && spent < SIGNAL_SLICE_NS) {
		struct held *h = container_of(all_held.next, struct held, all);

		if (h->checked == now)
			break;
		h->checked = now;
		list_del(&h->all);
		list_add_tail(&h->all, &all_held);
		if (now - h->since < 1000 * MS)
			pause = SIGNAL_POLL_NS;
		if (!h->again || held_retry(h))
			held_signal(h);
		spent = now_ns() - now;
	}
	if (pause < spent * SIGNAL_PAUSES)
		pause = spent * SIGNAL_PAUSES;
	signals_due = now + pause;
}

/** blocked_tick - check the deadlines and signals of held calls */
static void blocked_tick(struct timer *t)
{
	uint64_t now = now_ns(), next;
	struct list *pos, *tmp;

	if (signals_due <= now)
		held_signals(now);
	next = signals_due;
	list_for_each_safe(pos, tmp, &all_held) {
		struct held *h = container_of(pos, struct held, all);

		if (h->deadline && h->deadline <= now)
			held_quit(h, h->timeout_ret);
		else if (h->deadline && h->deadline < next)
			next = h->deadline;
	}
	if (!list_empty(&all_held))
		timer_arm(t, next);
}

/** held_stop - answer all held calls, because notifications end */
void held_stop(void)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &all_held)
		held_end(container_of(pos, struct held, all), -ENETDOWN);
	timer_cancel(&held_timer);
}
