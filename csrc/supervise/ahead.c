// SPDX-License-Identifier: GPL-2.0-only
/*
 * Carriers of accepted connections, made ahead and closed behind by a thread.
 *
 * Theory of operation
 *
 * A pair of sockets with a name, its inode number and its place in the loop's
 * epoll cost about 11 us, closing what is left of it 4 us: a tenth of what a
 * connection costs that lives for one request. While at least RUSH connections
 * are accepted in a PERIOD a thread does both, on another CPU where there is one.
 *
 * It makes host calls on what is in the one batch, and touches nothing else. The
 * loop fills the batch and gives it away; it sees that it has it back, and never
 * waits for that: what is not there it makes and closes itself. A connection made
 * ahead has a number and a carrier, and is nobody's: conn_find() does not know it.
 *
 * A descriptor is closed behind only when the target has closed its end: nobody
 * sees when. Until it is closed the epoll may report it, so its struct conn stays.
 *
 * The loop is told of a rush too: the stack has its frames written by a thread then.
 *
 * Two periods after the rush nothing of this is left but the thread, asleep.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "conn.h"
#include "host.h"

#define BATCH		32			/* carriers made at a time */
#define READY		(2 * BATCH)
#define LEFT		(4 * BATCH)		/* closed behind, as long as there is room */
#define CLOSES		(LEFT + 2 * READY)
#define RUSH		16			/* connections in a period */
#define PERIOD_NS	50000000ull

/**
 * struct ready - a connection that is nobody's yet
 * @conn: with its end of the carrier, watched
 * @fd: the target's end
 * @flags: SOCK_NONBLOCK: as that is
 */
struct ready {
	struct conn *conn;
	int fd, flags;
};

/**
 * struct left - what is to be closed
 * @conn: freed when @fd is closed, NULL: none
 */
struct left {
	struct conn *conn;
	int fd;
};

/* The thread's between the time it is given and the time it is back. */
static struct {
	struct ready make[BATCH];
	struct left close[CLOSES];
	unsigned int n_make, n_close;
	bool stop;
} batch;

static bool given;		/* the thread clears it, atomically */
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

/** set_rush - as @on says, for the loop as well */
static void set_rush(bool on)
{
	if (on != rush)
		loop_set_rush(on);
	rush = on;
}

/** make_one - the carrier of @r->conn; @r->fd is -1 when it cannot be made */
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
	r->conn->carrier_ino = fd_ino(sv[1]);
	r->fd = sv[1];
}

/** worker - the thread */
static void *worker(void *arg)
{
	unsigned int i;

	prctl(PR_SET_NAME, "carriers");
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

/** start - the thread, once; signals are the loop's */
static bool start(void)
{
	sigset_t all, old;

	if (state != THREAD_NONE)
		return state == THREAD_RUNS;
	state = THREAD_FAILED;
	if (sem_init(&work, 0, 0))
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!pthread_create(&thread, NULL, worker, NULL))
		state = THREAD_RUNS;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return state == THREAD_RUNS;
}

/** take_back - what the thread has done, when it has; false: it is still at it */
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

/** give - what is to be closed, and while there is a rush what is to be made */
static void give(void)
{
	unsigned int i;

	if (rush && n_ready <= READY - BATCH)
		while (batch.n_make < BATCH) {
			struct conn *conn = conn_make();

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

/** leave - to be closed by the thread */
static void leave(struct conn *conn, int fd)
{
	left[n_left++] = (struct left){ conn, fd };
}

/** unmake_ready - nobody will take them */
static void unmake_ready(void)
{
	while (n_ready) {
		struct ready *r = &ready[--n_ready];
		int fd = r->conn->csrc.fd;

		loop_forget(&r->conn->csrc);
		/* In this order nothing is reported of it any more. */
		leave(NULL, fd);
		leave(NULL, r->fd);
		conn_unmake(r->conn);
	}
}

/** period_over - is there still a rush? */
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
 * ahead_take - a connection with a carrier, for conn_begin()
 * @flags: SOCK_NONBLOCK for the target's end
 * @fd: that end
 *
 * NULL when there is none.
 */
struct conn *ahead_take(int flags, int *fd)
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
 * ahead_bury - close @conn's end of a carrier that the target has closed, and
 * free @conn, some time
 *
 * Returns false when that is the caller's to do.
 */
bool ahead_bury(struct conn *conn)
{
	int fd = conn->csrc.fd;

	if (!rush || state != THREAD_RUNS || fd < 0 || n_left >= LEFT)
		return false;
	loop_forget(&conn->csrc);
	leave(conn, fd);
	return true;
}

/** ahead_stop - no more connections: end the thread, close and free all */
void ahead_stop(void)
{
	unsigned int i;

	timer_cancel(&period);
	set_rush(false);
	if (state != THREAD_RUNS)
		return;
	while (!take_back())
		sched_yield();	/* a few dozen host calls, none of which waits */
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
