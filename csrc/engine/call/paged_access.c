// SPDX-License-Identifier: GPL-2.0-only
/*
 * Threads for operations that may take any time: access to pages that are not
 * in memory, closing files, and work on the target's epolls.
 *
 * Theory of operation
 *
 * Access to a page of the target that is not in memory may depend on a file
 * system or the owner of a userfaultfd, and either may never answer. So may a
 * write to a page of a file. The loop itself therefore accesses only pages that
 * are present, and writes only to anonymous ones, according to
 * /proc/TID/pagemap. It leaves other pages to a thread and waits for it, but all
 * these waits take at most a tenth of its time. After that the call is parked,
 * and the loop serves other processes:
 *
 * - If a read has failed, the call starts again when the page is available. A
 *   call that has sent a part goes on behind it. A connection that accept(2)
 *   cannot return is stashed (listen.c).
 * - A write continues in the thread, with its own buffer. The answer waits for
 *   it.
 *
 * If the page is still not available after LIMIT_MS, the process is killed and a
 * warning tells the user. A page can disappear between the check and the access.
 * The watchdog (watchdog.c) then kills the process, and from then on, threads
 * make all accesses (watchdog_has_killed()): no program can stop the loop twice.
 *
 * Threads also work on the target's epolls, whose lock epoll_wait(2) holds while
 * it writes to such a page (paged_run()).
 *
 * Closing a file may wait for a file system, too. A thread therefore closes
 * duplicates of files that are not sockets, and the loop does not wait for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "base/thread.h"
#include "engine/call/call.h"
#include "engine/call/catch.h"
#include "engine/call/paged_access.h"
#include "engine/call/watchdog.h"

#define MS		1000000ull
#define SOON_MS		20	/* longest wait of the loop */
#define SOON_SHARE	10	/* all waits together: this part of the time */
#define AGAIN_MS	5	/* in a call that is made again */
#define LIMIT_MS	1000
#define THREADS_MAX	64	/* all of them may be stuck at a time */
#define MAPS		64	/* open files "pagemap" */
#define MAPS_MS		500	/* between two looks for unused ones */
#define ENTRIES		64	/* pagemap entries per read */
#define PRESENT		(1ull << 63)	/* Documentation/admin-guide/mm/pagemap.rst */
#define OF_FILE		(1ull << 61)	/* or shared */
#define WRITE_WATCHED	(1ull << 57)

enum what { READ, WRITE, WRITE_BY_NUMBER, RUN_AGAIN, RUN, CLOSE };

/**
 * struct job - a job for a thread
 * @fd: descriptor to write to, or to close
 * @pid: process whose memory is accessed
 * @iov: @n pieces of that memory
 * @buf: buffer of the job, @len bytes
 * @fn: function to call with @buf
 * @started: a thread has the job
 * @left: true if the loop no longer waits: the thread then frees the job
 * @parked: the call that waits for the job, or NULL
 */
struct job {
	struct job *next;
	enum what what;
	int fd;
	pid_t pid;
	struct iovec *iov;
	size_t n, len;
	char *buf;
	int64_t (*fn)(void *arg);
	int64_t ret;
	bool started, done, left;
	struct parked *parked;
};

/**
 * struct parked - a call that waits for pages
 * @link: entry in the list of parked calls
 * @call: the call
 * @jobs: number of jobs that it waits for, and @queued: of those that no thread
 *	has yet; protected by the lock
 * @failed: one of them has failed
 * @again: the call must be made again, unless has_ended()
 * @blocked: it also waits until its thread runs, see paged_unpark()
 * @ended: its handler has ended, with the result @ret
 * @deadline: the process is killed then; 0: it has been killed
 */
struct parked {
	struct list link;
	struct call call;
	unsigned int jobs, queued;
	bool failed, again, blocked, ended;
	int64_t ret;
	uint64_t deadline;
};

static struct list parked = LIST_INIT(parked);
static void parked_late(struct timer *t);
static struct timer parked_timer = TIMER_INIT(parked_timer, parked_late);
static void parked_ready(struct source *src, uint32_t events);
static struct source ready = { parked_ready, -1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t finished;
static struct job *first, **last = &first;
static unsigned int threads, idle;
static uint64_t again_ns;	/* what is left of AGAIN_MS */

/* Files of threads that have made no call for some time are closed. */
static struct {
	const struct task *t;
	int fd;
	bool used;
} maps[MAPS];
static void maps_tick(struct timer *t);
static struct timer maps_timer = TIMER_INIT(maps_timer, maps_tick);

/** job_free - free a job and its resources */
static void job_free(struct job *j)
{
	if (j->fd >= 0)
		close(j->fd);
	free(j->iov);
	free(j->buf);
	free(j);
}

/** page_size - get the page size of the host */
static uintptr_t page_size(void)
{
	static uintptr_t size;

	if (!size)
		size = (uintptr_t)sysconf(_SC_PAGESIZE);
	return size;
}

/**
 * touch - wait for the pages that a job writes to
 *
 * Unlike process_vm_readv(2), a write to /proc/PID/mem fails if the page depends
 * on a userfaultfd.
 */
static void touch(const struct job *j)
{
	uintptr_t at = (uintptr_t)j->iov->iov_base, end = at + j->iov->iov_len;
	char byte;

	while (at < end) {
		struct iovec own = { &byte, 1 }, there = { (void *)at, 1 };
		uintptr_t next = (at / page_size() + 1) * page_size();

		/* At the end of the address space, @next is 0. */
		if (process_vm_readv(j->pid, &own, 1, &there, 1, 0) != 1 ||
		    next < at)
			return;
		at = next;
	}
}

/** run_job - run a job in a thread */
static int64_t run_job(const struct job *j)
{
	struct iovec own = { j->buf, j->len };
	ssize_t n = 0;

	switch (j->what) {
	case READ:
		n = process_vm_readv(j->pid, &own, 1, j->iov, j->n, 0);
		break;
	case WRITE_BY_NUMBER:
		n = process_vm_writev(j->pid, &own, 1, j->iov, j->n, 0);
		break;
	case WRITE:
		touch(j);
		n = pwrite(j->fd, j->buf, j->len,
			   (off_t)(uintptr_t)j->iov->iov_base);
		break;
	case RUN_AGAIN:
	case RUN:
		return j->fn(j->buf);
	case CLOSE:		/* job_free() closes the file */
		break;
	}
	return n < 0 ? -EFAULT : n;
}

/** has_failed - whether the call of a job that has ended must fail */
static bool has_failed(const struct job *j)
{
	switch (j->what) {
	case READ:
		return j->ret <= 0;
	case WRITE:
	case WRITE_BY_NUMBER:
		return j->ret != (int64_t)j->len;
	default:
		return false;
	}
}

/** work - main function of a thread: run one job after the other */
static void *work(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct job *j;
		int64_t ret;

		idle++;
		while (!first)
			pthread_cond_wait(&more, &lock);
		idle--;
		j = first;
		first = j->next;
		if (!first)
			last = &first;
		if (j->left && j->what != CLOSE && !j->parked) {	/* await() has timed out */
			job_free(j);
			continue;
		}
		j->started = true;
		if (j->what == WRITE_BY_NUMBER)
			pthread_cond_signal(&finished);
		if (j->parked)
			j->parked->queued--;
		pthread_mutex_unlock(&lock);
		ret = run_job(j);
		pthread_mutex_lock(&lock);
		j->ret = ret;
		j->done = true;
		if (!j->left) {
			pthread_cond_signal(&finished);
			continue;
		}
		if (j->parked) {
			j->parked->failed |= has_failed(j);
			if (!--j->parked->jobs)
				eventfd_write(ready.fd, 1);
		}
		pthread_mutex_unlock(&lock);
		job_free(j);
		pthread_mutex_lock(&lock);
	}
	return NULL;
}

/** start - start another thread */
static void start(void)
{
	pthread_condattr_t attr;

	if (!threads) {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&finished, &attr);
		pthread_condattr_destroy(&attr);
	}
	if (!thread_start(NULL, "paged access", work, NULL))
		threads++;
}

/** submit - queue a job for a thread; the caller must hold the lock */
static void submit(struct job *j)
{
	j->next = NULL;
	*last = j;
	last = &j->next;
	if (!idle && threads < THREADS_MAX)
		start();
	pthread_cond_signal(&more);
}

/**
 * stuck - kill a process after a page of its memory did not become available, or
 * the work on its epoll did not end
 */
static void stuck(const struct call *c, unsigned int ms)
{
	warn_user("%s (pid %d): killed, because a page of its memory was not available within %u ms for %s; its file system or userfaultfd does not answer",
		  task_comm(c->task), task_tgid(c->task), ms, call_name(c->nr));
	task_signal(c, SIGKILL);
}

/** parked_find - find a parked call; NULL if it is not parked */
static struct parked *parked_find(const struct call *c)
{
	struct list *pos;

	list_for_each(pos, &parked) {
		struct parked *p = container_of(pos, struct parked, link);

		if (p->call.id == c->id && p->call.listener == c->listener)
			return p;
	}
	return NULL;
}

/** keep_answer - keep the answer to a parked call, see catch_set_keep_answer() */
static bool keep_answer(const struct call *c, const int64_t *ret)
{
	struct parked *p = list_empty(&parked) ? NULL : parked_find(c);

	if (!p || !ret)
		return p;
	p->ret = *ret;
	p->call = *c;		/* it was parked as one message of it: element() */
	p->ended = true;
	eventfd_write(ready.fd, 1);
	return true;
}

/** paged_start - prepare to park calls; if this fails, the loop waits instead */
void paged_start(void)
{
	ready.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ready.fd >= 0 && loop_add(&ready, EPOLLIN)) {
		close(ready.fd);
		ready.fd = -1;
	}
	catch_set_keep_answer(keep_answer);
}

/** parked_get - find a parked call, or park it; NULL if that is impossible */
static struct parked *parked_get(const struct call *c)
{
	struct parked *p = parked_find(c);

	if (p)
		return p;
	if (ready.fd < 0)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->call = *c;
	p->deadline = now_ns() + LIMIT_MS * MS;
	list_add_tail(&p->link, &parked);
	if (list_empty(&parked_timer.link))
		timer_arm(&parked_timer, p->deadline);
	return p;
}

/**
 * paged_park - park a call whose thread does not run, until paged_unpark()
 *
 * No thread has this job, so the process is not killed. Returns -EFAULT: the call
 * is made again; or another negative errno.
 */
int paged_park(const struct call *c)
{
	struct parked *p = parked_get(c);

	if (!p)
		return -ENOMEM;
	pthread_mutex_lock(&lock);
	p->jobs += !p->blocked;
	p->queued += !p->blocked;
	pthread_mutex_unlock(&lock);
	p->again = p->blocked = true;
	return -EFAULT;
}

/** paged_unpark - handle that the thread of a parked call runs again, or has ended */
void paged_unpark(const struct call *c)
{
	struct parked *p = parked_find(c);

	if (!p || !p->blocked)
		return;
	p->blocked = false;
	pthread_mutex_lock(&lock);
	p->jobs--;
	p->queued--;
	pthread_mutex_unlock(&lock);
	eventfd_write(ready.fd, 1);
}

/** make_again - handle a call again, whose page is available now */
static void make_again(struct call *c)
{
	again_ns = AGAIN_MS * MS;
	call_ops->handle(c, false);
	again_ns = 0;
}

/** has_ended - whether a parked call has had its whole effect */
static bool has_ended(const struct parked *p)
{
	if (p->ret <= 0)
		return false;
	switch (p->call.nr) {
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_recvmmsg:
#ifdef __arm__
	case SYS_recvmmsg_time64:
#endif
		return false;	/* they know call.done */
	}
	return true;
}

/** parked_end - answer a call whose jobs have ended, or make it again */
static void parked_end(struct parked *p)
{
	struct call c = { .id = p->call.id, .listener = p->call.listener,
			  .pid = p->call.pid, .nr = p->call.nr,
			  .served = p->call.served, .begun = p->call.begun,
			  .done = p->ret > 0 ? (uint64_t)p->ret : 0 };
	bool failed = p->failed && !(p->again && p->ret > 0);

	memcpy(c.args, p->call.args, sizeof(c.args));
	list_del(&p->link);
	c.task = call_valid(&c) ? task_of(&c) : NULL;
	if (c.task && p->again && !has_ended(p) && !failed)
		make_again(&c);
	else if (c.task)
		catch_answer(&c, failed ? -EFAULT : p->ret);
	free(p);
}

/** parked_ready - handle the end of jobs */
static void parked_ready(struct source *src, uint32_t events)
{
	struct list *pos, *tmp;
	eventfd_t n;

	(void)events;
	(void)eventfd_read(src->fd, &n);
	list_for_each_safe(pos, tmp, &parked) {
		struct parked *p = container_of(pos, struct parked, link);
		bool done;

		pthread_mutex_lock(&lock);
		done = !p->jobs;
		pthread_mutex_unlock(&lock);
		if (done && (p->ended || !call_valid(&p->call)))
			parked_end(p);
	}
}

/**
 * parked_check - kill a process whose pages have not become available
 *
 * If other processes use all threads, it is not to blame.
 */
static void parked_check(struct parked *p, uint64_t now)
{
	unsigned int jobs, queued;

	pthread_mutex_lock(&lock);
	jobs = p->jobs;
	queued = p->queued;
	pthread_mutex_unlock(&lock);
	p->call.task = jobs && call_valid(&p->call) ? task_of(&p->call) : NULL;
	p->deadline = p->call.task && queued == jobs ? now + LIMIT_MS * MS : 0;
	if (p->call.task && !p->deadline)
		stuck(&p->call, LIMIT_MS);
}

/** parked_late - kill the processes whose pages have not become available */
static void parked_late(struct timer *t)
{
	uint64_t now = now_ns(), next = 0;
	struct list *pos;

	list_for_each(pos, &parked) {
		struct parked *p = container_of(pos, struct parked, link);

		if (p->deadline && p->deadline <= now)
			parked_check(p, now);
		if (p->deadline && (!next || p->deadline < next))
			next = p->deadline;
	}
	if (next)
		timer_arm(t, next);
}

/** paged_waits - whether a call waits for pages */
bool paged_waits(const struct call *c)
{
	return !list_empty(&parked) && parked_find(c);
}

/**
 * wait_for - wait until a job has ended; the caller must hold the lock
 * @start: or until a thread has it
 */
static void wait_for(const struct job *j, uint64_t ns, bool start)
{
	uint64_t until = now_ns() + ns;
	struct timespec end = { (time_t)(until / 1000000000), (long)(until % 1000000000) };

	while (!j->done && !(start && j->started) &&
	       !pthread_cond_timedwait(&finished, &lock, &end))
		;
}

/**
 * wait_soon - wait for a job, if the loop has not waited too long recently
 *
 * Otherwise a program could stop the loop with many short waits. A call that is
 * made again may wait longer, so that it makes progress.
 */
static void wait_soon(const struct job *j)
{
	static uint64_t paid;	/* until then, the waits so far use up their share */
	uint64_t now = now_ns(), max = SOON_MS * MS * SOON_SHARE, ns;

	if (paid < now)
		paid = now;
	ns = paid < now + max ? (now + max - paid) / SOON_SHARE : 0;
	wait_for(j, ns < again_ns ? again_ns : ns, false);
	ns = now_ns() - now;
	paid += ns * SOON_SHARE;
	again_ns = again_ns > ns ? again_ns - ns : 0;
}

/**
 * await - wait for the result of a job
 * @job: set to NULL if it is left to the thread
 *
 * Returns -EFAULT after a timeout. If the call is parked, it returns the length
 * of a write, 0 for RUN, and otherwise -EFAULT.
 *
 * A write by number is parked only if it has begun: the number may belong to
 * another process later.
 */
static int64_t await(const struct call *c, struct job **job)
{
	bool again = (*job)->what == READ || (*job)->what == RUN_AGAIN;
	struct parked *p = paged_waits(c) ? parked_find(c) : NULL;
	struct job *j = *job;
	int64_t ret = -EFAULT;
	bool done;

	pthread_mutex_lock(&lock);
	submit(j);
	if (!p)
		wait_soon(j);
	if (j->what == WRITE_BY_NUMBER)
		wait_for(j, SOON_MS * MS, true);
	if (j->done || (j->what == WRITE_BY_NUMBER && !j->started))
		p = NULL;
	else if (!p)
		p = parked_get(c);
	if (!j->done && !p && j->started)
		wait_for(j, LIMIT_MS * MS, false);
	done = j->done;
	j->left = !done;
	if (!done)
		*job = NULL;
	if (done) {
		ret = j->ret;
	} else if (p) {
		j->parked = p;
		p->jobs++;
		p->queued += !j->started;
		p->again |= again;
		ret = again ? -EFAULT : j->what == RUN ? 0 : (int64_t)j->len;
	}
	pthread_mutex_unlock(&lock);
	if (!done && !p)
		stuck(c, LIMIT_MS);
	return ret;
}

/** make - create a job with a buffer and a copy of @iov */
static struct job *make(const struct call *c, enum what what,
			const struct iovec *iov, size_t n, size_t len)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->what = what;
	j->fd = -1;
	j->pid = c->pid;
	j->n = n;
	j->len = len;
	j->iov = calloc(n + 1, sizeof(*iov));
	j->buf = malloc(len);
	if (!j->iov || !j->buf) {
		job_free(j);
		return NULL;
	}
	if (n)
		memcpy(j->iov, iov, n * sizeof(*iov));
	return j;
}

/** map_slot - get the index of a thread's open file "pagemap" */
static size_t map_slot(const struct task *t)
{
	return ((uintptr_t)t >> 6) % MAPS;
}

/** map_close - close the file "pagemap" in a slot */
static void map_close(size_t i)
{
	if (maps[i].t)
		close(maps[i].fd);
	maps[i].t = NULL;
	maps[i].used = false;
}

/** maps_tick - close the files that no access has used since the last tick */
static void maps_tick(struct timer *t)
{
	bool more_used = false;
	size_t i;

	for (i = 0; i < MAPS; i++) {
		if (!maps[i].used)
			map_close(i);
		more_used |= maps[i].used;
		maps[i].used = false;
	}
	if (more_used)
		timer_arm(t, now_ns() + MAPS_MS * MS);
}

/** paged_forget - handle that a thread has ended or executed a program */
void paged_forget(const struct task *t)
{
	if (maps[map_slot(t)].t == t)
		map_close(map_slot(t));
}

/** paged_read - execute process_vm_readv(2) in a thread */
int64_t paged_read(const struct call *c, const struct iovec *from, size_t n,
		   void *buf, size_t len)
{
	struct job *j = make(c, READ, from, n, len);
	int64_t ret = j ? await(c, &j) : -ENOMEM;

	if (ret > 0)
		memcpy(buf, j->buf, (size_t)ret);
	if (j)
		job_free(j);
	return ret;
}

/**
 * paged_write - write to the caller's memory in a thread
 * @fd: file of that memory; if negative, the write uses the pid
 */
int64_t paged_write(const struct call *c, int fd, const struct iovec *to,
		    const void *buf)
{
	struct job *j = make(c, fd < 0 ? WRITE_BY_NUMBER : WRITE, to, 1,
			     to->iov_len);
	int64_t ret;

	if (!j)
		return -ENOMEM;
	memcpy(j->buf, buf, j->len);
	if (fd >= 0) {
		j->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (j->fd < 0) {
			job_free(j);
			return call_no_room(c);
		}
	}
	ret = await(c, &j);
	if (j)
		job_free(j);
	return ret;
}

/**
 * paged_run - call a function in a thread
 * @arg: @len bytes, a copy of which @fn gets and may change
 * @again: the result is needed: if @fn takes long, the call is made again after
 *	it. Otherwise the answer waits for @fn.
 *
 * Returns the result of @fn. If @fn still runs, it is -EFAULT with @again, and
 * otherwise 0.
 */
int64_t paged_run(const struct call *c, int64_t (*fn)(void *arg), void *arg,
		  size_t len, bool again)
{
	struct job *j = make(c, again ? RUN_AGAIN : RUN, NULL, 0, len);
	int64_t ret = -ENOMEM;

	if (!j)
		return ret;
	j->fn = fn;
	memcpy(j->buf, arg, len);
	ret = await(c, &j);
	if (!j)
		return ret;
	memcpy(arg, j->buf, len);
	job_free(j);
	return ret;
}

/** paged_close_later - close a descriptor in a thread */
void paged_close_later(int fd)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j) {
		close(fd);
		return;
	}
	j->what = CLOSE;
	j->fd = fd;
	j->left = true;
	pthread_mutex_lock(&lock);
	submit(j);
	pthread_mutex_unlock(&lock);
}

/** close_one - close a descriptor; @arg: its number */
static int64_t close_one(void *arg)
{
	return close(*(int *)arg);
}

/** paged_close - close a duplicate that the caller of a call has, too */
void paged_close(const struct call *c, int fd)
{
	socklen_t len = sizeof(int);
	int type;

	if (!c->task ||
	    (!(c->conn && fd == c->dup) &&
	     getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len))) {
		paged_close_later(fd);
		return;
	}
	if (watchdog_has_killed()) {
		if (paged_run(c, close_one, &fd, sizeof(fd), false) == -ENOMEM)
			paged_close_later(fd);
		return;
	}
	watchdog_enter(c, "close()");
	close(fd);
	watchdog_leave();
}

/**
 * paged_close_held - close such a duplicate after a long time
 *
 * If the target has closed its descriptor meanwhile, closing the last one of a
 * socket waits for the locks of the target's epolls.
 */
void paged_close_held(const struct call *c, int fd)
{
	char path[48], text[48] = "", own[48] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, own, sizeof(own) - 1) > 0)
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", c->pid, (int)c->args[0]);
	if (readlink(path, text, sizeof(text) - 1) > 0 && !strcmp(text, own))
		paged_close(c, fd);
	else
		paged_close_later(fd);
}

/** map_open - open the file "pagemap" of the caller, or find it open */
static int map_open(const struct call *c)
{
	size_t i = map_slot(c->task);
	char path[40];
	int fd;

	if (maps[i].t == c->task) {
		maps[i].used = true;
		return maps[i].fd;
	}
	snprintf(path, sizeof(path), "/proc/%d/pagemap", c->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fd;
	map_close(i);
	maps[i].t = c->task;
	maps[i].fd = fd;
	maps[i].used = true;
	if (list_empty(&maps_timer.link))
		timer_arm(&maps_timer, now_ns() + MAPS_MS * MS);
	return fd;
}

/** are_present - whether @n pages from @page on are present, or writable at once */
static bool are_present(const struct call *c, uintptr_t page, size_t n, bool write)
{
	uint64_t e[ENTRIES];
	int fd = map_open(c);
	ssize_t got;
	size_t i;

	got = fd < 0 ? -1 : pread(fd, e, n * sizeof(e[0]),
				  (off_t)page * (off_t)sizeof(e[0]));
	if (fd >= 0 && !got)	/* the memory is gone: the process has executed a program */
		paged_forget(c->task);
	if (got != (ssize_t)(n * sizeof(e[0])))
		return false;
	for (i = 0; i < n; i++)
		if (!(e[i] & PRESENT) || (e[i] & WRITE_WATCHED) ||
		    (write && (e[i] & OF_FILE)))
			return false;
	return true;
}

/** range_present - whether a piece of memory is present */
static bool range_present(const struct call *c, uintptr_t at, size_t len, bool write)
{
	uintptr_t page, end, size = page_size();

	end = (at + len - 1) / size + 1;
	for (page = at / size; page < end; page += ENTRIES) {
		size_t n = end - page < ENTRIES ? end - page : ENTRIES;

		if (!are_present(c, page, n, write))
			return false;
	}
	return true;
}

/**
 * pages_present - whether the loop can access the first @len bytes of the pieces
 * @write: to write
 */
bool pages_present(const struct call *c, const struct iovec *iov, size_t n,
		   size_t len, bool write)
{
	size_t i;

	if (watchdog_has_killed())
		return false;
	for (i = 0; i < n && len; i++) {
		size_t part = iov[i].iov_len < len ? iov[i].iov_len : len;

		len -= part;
		if (part && !range_present(c, (uintptr_t)iov[i].iov_base, part, write))
			return false;
	}
	return true;
}
