// SPDX-License-Identifier: GPL-2.0-only
/*
 * A helper thread pre-creates the carriers of accepted connections and closes
 * finished ones.
 *
 * Theory of operation
 *
 * It costs about 11 us to create a named socket pair, get its inode number and
 * add it to the loop's epoll; closing the remaining descriptor costs 4 us.
 * Together, this is a tenth of the cost of a connection that carries one
 * request. If at least RUSH connections are accepted in a PERIOD (a rush), a
 * thread creates and closes the carriers, on another CPU if there is one.
 *
 * The thread makes host calls on the contents of one batch, and accesses
 * nothing else. The loop fills the batch and passes it to the thread. The loop
 * checks whether the thread has returned the batch, but never waits for it: if
 * no carrier is ready, the loop creates and closes carriers itself. A
 * pre-created connection has a number and a carrier, but belongs to no process:
 * conn_of_carrier() does not find it.
 *
 * The thread closes our end only after the target has closed its own, so no
 * process notices the delay. The epoll may report the descriptor until it is
 * closed, so the thread's batch keeps the struct conn until then.
 *
 * loop_set_burst() tells the loop about the rush: the stack then uses a thread
 * to write its frames.
 *
 * Two periods after the rush, all pre-created carriers are closed, and the
 * thread sleeps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/thread.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"

#define BATCH		32			/* carriers created at a time */
#define READY		(2 * BATCH)
#define LEFT		(4 * BATCH)		/* descriptors to close */
#define CLOSES		(LEFT + 2 * READY)
#define RUSH		16			/* connections in a period */
#define PERIOD_NS	50000000ull

/**
 * struct ready - a connection that belongs to no process yet
 * @conn: its csrc is our end of the carrier, which the loop watches
 * @fd: the target's end of the carrier
 * @flags: SOCK_NONBLOCK if @fd is non-blocking
 */
struct ready {
	struct conn *conn;
	int fd, flags;
};

/**
 * struct left - a descriptor to close
 * @conn: connection to free after @fd is closed; NULL if there is none
 */
struct left {
	struct conn *conn;
	int fd;
};

/* The thread owns it between give() and the end of its work, see @given. */
static struct {
	struct ready make[BATCH];
	struct left close[CLOSES];
	unsigned int n_make, n_close;
	bool stop;
} batch;

static bool given;		/* the thread has the batch, and clears this */
static sem_t work;
static pthread_t thread;
static enum { THREAD_NONE, THREAD_RUNS, THREAD_FAILED } state;

static struct ready ready[READY];
static struct left left[CLOSES];
static unsigned int n_ready, n_left, taken;
static int last_flags;
static bool rush;

static void period_over(struct timer *t);
static struct timer period = TIMER_INIT(period, period_over);

/** set_rush - record whether there is a rush, and tell the loop */
static void set_rush(bool on)
{
	if (on != rush)
		loop_set_burst(on);
	rush = on;
}

/** make_one - create the carrier of @r->conn; on error, @r->fd is -1 */
static void make_one(struct ready *r)
{
	int sv[2];

	r->fd = -1;
	if (carrier_pair(SOCK_STREAM | r->flags, r->conn->id, sv))
		return;
	if (carrier_watch(r->conn, sv[0])) {
		close(sv[0]);
		close(sv[1]);
		return;
	}
	carrier_note(r->conn, sv[1]);
	r->fd = sv[1];
}

/** worker - main function of the thread */
static void *worker(void *arg)
{
	unsigned int i;

	for (;;) {
		while (sem_wait(&work))
			;
		if (batch.stop)
			return arg;
		for (i = 0; i < batch.n_make; i++)
			make_one(&batch.make[i]);
		for (i = 0; i < batch.n_close; i++)
			close(batch.close[i].fd);
		__atomic_store_n(&given, false, __ATOMIC_RELEASE);
	}
}

/** start - start the thread, once */
static bool start(void)
{
	if (state != THREAD_NONE)
		return state == THREAD_RUNS;
	state = THREAD_FAILED;
	if (sem_init(&work, 0, 0))
		return false;
	if (!thread_start(&thread, "carriers", worker, NULL))
		state = THREAD_RUNS;
	return state == THREAD_RUNS;
}

/** take_back - take the batch back; false if the thread still works on it */
static bool take_back(void)
{
	unsigned int i;

	if (__atomic_load_n(&given, __ATOMIC_ACQUIRE))
		return false;
	for (i = 0; i < batch.n_make; i++) {
		if (batch.make[i].fd >= 0)
			ready[n_ready++] = batch.make[i];
		else
			conn_unmake(batch.make[i].conn);
	}
	for (i = 0; i < batch.n_close; i++)
		if (batch.close[i].conn)
			loop_free_later(batch.close[i].conn);
	batch.n_make = batch.n_close = 0;
	return true;
}

/**
 * give - pass a batch to the thread: descriptors to close and, in a rush,
 * carriers to create
 */
static void give(void)
{
	unsigned int i;

	if (rush && n_ready <= READY - BATCH)
		while (batch.n_make < BATCH) {
			struct conn *conn = conn_make(KIND_STREAM);

			if (!conn)
				break;
			batch.make[batch.n_make++] =
				(struct ready){ conn, -1, last_flags };
		}
	for (i = 0; i < n_left; i++)
		batch.close[i] = left[i];
	batch.n_close = n_left;
	n_left = 0;
	if (!batch.n_make && !batch.n_close)
		return;
	__atomic_store_n(&given, true, __ATOMIC_RELEASE);
	sem_post(&work);
}

/** leave - add a descriptor to those that the thread closes */
static void leave(struct conn *conn, int fd)
{
	left[n_left++] = (struct left){ conn, fd };
}

/** unmake_ready - discard the pre-created connections and their carriers */
static void unmake_ready(void)
{
	while (n_ready) {
		struct ready *r = &ready[--n_ready];
		int fd = r->conn->csrc.fd;

		loop_forget(&r->conn->csrc);
		/* After loop_forget(), the epoll reports no more events. */
		leave(NULL, fd);
		leave(NULL, r->fd);
		conn_unmake(r->conn);
	}
}

/** period_over - check whether the rush continues */
static void period_over(struct timer *t)
{
	bool back = take_back();

	set_rush(taken >= RUSH);
	taken = 0;
	if (back) {
		if (!rush)
			unmake_ready();
		if (state == THREAD_RUNS)
			give();
	}
	if (rush || !back || batch.n_close)
		timer_arm(t, now_ns() + PERIOD_NS);
}

/**
 * carrier_pool_get - take a pre-created connection, for conn_begin()
 * @flags: SOCK_NONBLOCK if the target's end must be non-blocking
 * @fd: set to the target's end of the carrier
 *
 * Returns NULL if no connection is ready.
 */
struct conn *carrier_pool_get(int flags, int *fd)
{
	struct ready *r;

	last_flags = flags & SOCK_NONBLOCK;
	if (!taken++ && list_empty(&period.link))
		timer_arm(&period, now_ns() + PERIOD_NS);
	if (taken >= RUSH)
		set_rush(true);
	if (!rush || !start())
		return NULL;
	if (n_ready <= READY - BATCH && take_back() && n_ready <= READY - BATCH)
		give();
	if (!n_ready)
		return NULL;
	r = &ready[--n_ready];
	*fd = r->fd;
	if (r->flags != last_flags)
		fcntl(r->fd, F_SETFL, last_flags ? O_NONBLOCK : 0);
	return r->conn;
}

/**
 * carrier_pool_close - let the thread close our end of a carrier and free
 * @conn
 *
 * The target must have closed its end. Returns false if the caller must close
 * our end and free @conn.
 */
bool carrier_pool_close(struct conn *conn)
{
	int fd = conn->csrc.fd;

	if (!rush || state != THREAD_RUNS || fd < 0 || n_left >= LEFT)
		return false;
	loop_forget(&conn->csrc);
	leave(conn, fd);
	return true;
}

/** carrier_pool_stop - end the thread, and close and free everything */
void carrier_pool_stop(void)
{
	unsigned int i;

	timer_cancel(&period);
	set_rush(false);
	if (state != THREAD_RUNS)
		return;
	while (!take_back())
		sched_yield();	/* brief: a few dozen non-blocking calls */
	batch.stop = true;
	sem_post(&work);
	pthread_join(thread, NULL);
	state = THREAD_FAILED;
	unmake_ready();
	for (i = 0; i < n_left; i++) {
		close(left[i].fd);
		if (left[i].conn)
			loop_free_later(left[i].conn);
	}
	n_left = 0;
}
