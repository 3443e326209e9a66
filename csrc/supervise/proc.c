// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes and threads of the target, as far as they made a notified call.
 *
 * Theory of operation
 *
 * A thread (struct task) is known by its tid and has a pidfd, through which its
 * descriptors are duplicated (pidfd_getfd(2)). The pidfd is watched: readable
 * means that the thread has ended. A process (struct proc) lives as long as one
 * of its tasks and carries the account: how many sockets were given to the
 * stack, how many were refused. When it ends the account goes into the list of
 * the dead, so that the end of the run can still tell.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "ctl_proto.h"
#include "host.h"
#include "loop.h"
#include "notify.h"

#ifndef PIDFD_THREAD			/* Linux 6.9, include/uapi/linux/pidfd.h */
#define PIDFD_THREAD	O_EXCL
#endif

#define TASK_HASH	1024
#define DEAD_MAX	256		/* accounts of ended processes kept */

struct proc {
	struct list link;
	pid_t tgid;
	unsigned int tasks;
	struct account acct;
	char comm[16];
};

struct task {
	struct source src;
	struct task *next;
	pid_t tid;
	bool by_thread;		/* the pidfd is the thread's, not the process's */
	struct proc *proc;
};

static struct task *task_hash[TASK_HASH];
static struct list procs = LIST_INIT(procs);
static struct list dead = LIST_INIT(dead);
static unsigned int n_dead;
static struct account forgotten;

/** status_read - /proc/TID/status into @buf, terminated */
static int status_read(pid_t tid, char *buf, size_t len)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, buf, len - 1);
	close(fd);
	if (n <= 0)
		return -ESRCH;
	buf[n] = '\0';
	return 0;
}

/** field - the text after "NAME:" in a status file, or NULL */
static const char *field(const char *buf, const char *name)
{
	size_t len = strlen(name);
	const char *p = buf;

	while (p && *p) {
		if (!strncmp(p, name, len) && p[len] == ':') {
			p += len + 1;
			return p + strspn(p, " \t");
		}
		p = strchr(p, '\n');
		if (p)
			p++;
	}
	return NULL;
}

/** mask - a signal set of a status file */
static uint64_t mask(const char *buf, const char *name)
{
	const char *p = field(buf, name);

	return p ? strtoull(p, NULL, 16) : 0;
}

/**
 * waiting - signals of a status file that end a call: they have a handler or
 * stop, and are not blocked
 * @set: SigPnd, the thread's own, or ShdPnd, the process's
 */
static uint64_t waiting(const char *buf, const char *set)
{
	const uint64_t stops = 1ull << (SIGSTOP - 1) | 1ull << (SIGTSTP - 1) |
			       1ull << (SIGTTIN - 1) | 1ull << (SIGTTOU - 1);

	return mask(buf, set) & ~mask(buf, "SigBlk") & ~mask(buf, "SigIgn") &
	       (mask(buf, "SigCgt") | stops);
}

/**
 * task_signal_waits - whether a thread should return to user space
 *
 * A signal for the process as a whole is given to its leader unless the leader
 * blocks it (complete_signal(), kernel/signal.c); another thread may then have
 * been chosen, which is not visible from outside.
 *
 * SIGNAL_NONE, SIGNAL_OWN: surely for this thread, SIGNAL_MAYBE, or a negative
 * errno: there is no such thread.
 */
int task_signal_waits(pid_t tid)
{
	char buf[4096];
	uint64_t shared;
	const char *p;
	pid_t tgid;
	int ret;

	ret = status_read(tid, buf, sizeof(buf));
	if (ret)
		return ret;
	if (waiting(buf, "SigPnd"))
		return SIGNAL_OWN;
	shared = waiting(buf, "ShdPnd");
	if (!shared)
		return SIGNAL_NONE;
	p = field(buf, "Tgid");
	tgid = p ? atoi(p) : tid;
	if (tgid == tid)
		return SIGNAL_OWN;
	ret = status_read(tgid, buf, sizeof(buf));
	if (ret)
		return ret;
	return shared & mask(buf, "SigBlk") ? SIGNAL_MAYBE : SIGNAL_NONE;
}

/**
 * forget_oldest - keep the list of the dead short
 *
 * An account to which connections point, which others have now, stays.
 */
static void forget_oldest(void)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &dead) {
		struct proc *old = container_of(pos, struct proc, link);

		if (n_dead <= DEAD_MAX)
			return;
		if (old->acct.refs)
			continue;
		account_add(&forgotten, &old->acct);
		list_del(&old->link);
		free(old);
		n_dead--;
	}
}

/** proc_put - one task less */
static void proc_put(struct proc *p)
{
	if (--p->tasks)
		return;
	list_del(&p->link);
	ctl_event(CTL_EV_PROC, (uint32_t)p->tgid, 0, p->comm);
	list_add_tail(&p->link, &dead);
	n_dead++;
	forget_oldest();
}

/** proc_get - the process @tgid, made when unknown */
static struct proc *proc_get(pid_t tgid, const char *comm)
{
	struct list *pos;
	struct proc *p;

	list_for_each(pos, &procs) {
		p = container_of(pos, struct proc, link);
		if (p->tgid == tgid) {
			p->tasks++;
			return p;
		}
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->tgid = tgid;
	p->tasks = 1;
	memcpy(p->comm, comm, sizeof(p->comm));
	list_add_tail(&p->link, &procs);
	ctl_event(CTL_EV_PROC, (uint32_t)tgid, 1, p->comm);
	return p;
}

/** task_drop - forget a thread */
static void task_drop(struct task *t)
{
	struct task **pp = &task_hash[(uint32_t)t->tid % TASK_HASH];
	int fd = t->src.fd;

	held_task_gone(t);
	while (*pp != t)
		pp = &(*pp)->next;
	*pp = t->next;
	loop_del(&t->src);
	close(fd);
	proc_put(t->proc);
	loop_free_later(t);
}

/** task_ended - the pidfd became readable */
static void task_ended(struct source *src, uint32_t events)
{
	(void)events;
	task_drop(container_of(src, struct task, src));
	conn_sweep_soon();	/* what it held may be closed now */
}

/** comm_copy - the name field of a status file, terminated */
static void comm_copy(char comm[16], const char *status)
{
	const char *p = field(status, "Name");
	size_t n = p ? strcspn(p, "\n") : 0;

	memset(comm, 0, 16);
	if (n > 15)
		n = 15;
	memcpy(comm, p ? p : "", n);
}

/** task_new - get to know a thread */
static struct task *task_new(pid_t tid)
{
	char buf[4096], comm[16];
	struct task *t;
	const char *p;
	bool by_thread;
	pid_t tgid;
	int fd;

	if (status_read(tid, buf, sizeof(buf)))
		return NULL;
	p = field(buf, "Tgid");
	tgid = p ? atoi(p) : tid;
	fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	by_thread = fd >= 0;
	if (fd < 0 && errno == EINVAL)	/* the process has the same descriptors */
		fd = (int)syscall(SYS_pidfd_open, tgid, 0);
	if (fd < 0)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t)
		goto no_memory;
	comm_copy(comm, buf);
	t->proc = proc_get(tgid, comm);
	if (!t->proc)
		goto no_memory;
	t->tid = tid;
	t->by_thread = by_thread;
	t->src.fn = task_ended;
	t->src.fd = fd;
	loop_add(&t->src, EPOLLIN);
	t->next = task_hash[(uint32_t)tid % TASK_HASH];
	task_hash[(uint32_t)tid % TASK_HASH] = t;
	return t;

no_memory:
	free(t);
	close(fd);
	return NULL;
}

/** task_find - the thread @tid as it was known last, or NULL */
static struct task *task_find(pid_t tid)
{
	struct task *t = task_hash[(uint32_t)tid % TASK_HASH];

	while (t && t->tid != tid)
		t = t->next;
	return t;
}

/**
 * task_get - the thread @tid; NULL when it cannot be watched
 *
 * Whose the number is now, nobody knows: what is done with the thread must not
 * depend on it. See task_of().
 */
struct task *task_get(pid_t tid)
{
	struct task *t = task_find(tid);

	return t ? t : task_new(tid);
}

/**
 * task_same - whether @t is still the one that has its number
 *
 * Without PIDFD_THREAD the pidfd tells of the process only.
 */
static bool task_same(const struct task *t)
{
	if (syscall(SYS_pidfd_send_signal, t->src.fd, 0, NULL, 0) &&
	    errno == ESRCH)
		return false;
	return t->by_thread || t->tid == t->proc->tgid ||
	       !syscall(SYS_tgkill, t->proc->tgid, t->tid, 0) || errno != ESRCH;
}

/**
 * task_of - the thread that made a call; NULL when it is gone
 *
 * The number may have been another thread's, whose end is not handled yet. A new
 * pidfd is known to be the caller's when the call still waits after it was opened.
 */
struct task *task_of(const struct call *c)
{
	struct task *t = task_find(c->pid);

	if (t && task_same(t))
		return t;
	if (t)
		task_drop(t);
	t = task_new(c->pid);
	if (t && !call_valid(c)) {
		task_drop(t);
		t = NULL;
	}
	return t;
}

/**
 * task_signal - send a signal to the thread that made a call
 *
 * Without PIDFD_THREAD by its numbers, right after it was seen to wait.
 */
void task_signal(const struct call *c, int sig)
{
	const struct task *t = c->task;

	if (t->by_thread)
		syscall(SYS_pidfd_send_signal, t->src.fd, sig, NULL, 0);
	else if (call_valid(c))
		syscall(SYS_tgkill, t->proc->tgid, t->tid, sig);
}

/** task_getfd - duplicate a descriptor of the thread; -ESRCH: it has ended */
int task_getfd(const struct task *t, int fd)
{
	int ret = (int)syscall(SYS_pidfd_getfd, t->src.fd, fd, 0);

	return ret < 0 ? -errno : ret;
}

/** task_count_socket - for the account: a socket given to the stack, or refused */
void task_count_socket(struct task *t, bool given)
{
	if (given)
		t->proc->acct.given++;
	else
		t->proc->acct.refused++;
}

/** task_count_hosted - one that was given to the stack went to the host's */
void task_count_hosted(struct task *t)
{
	if (t->proc->acct.given)
		t->proc->acct.given--;
	t->proc->acct.hosted++;
	conn_stats.made--;
}

/** task_count_back - one that had gone to the host's is the stack's again */
void task_count_back(struct task *t)
{
	if (t->proc->acct.hosted)
		t->proc->acct.hosted--;
	t->proc->acct.given++;
	conn_stats.made++;
}

/** task_account - its process's */
struct account *task_account(const struct task *t)
{
	return &t->proc->acct;
}

/** task_comm - name of its process when it was first seen */
const char *task_comm(const struct task *t)
{
	return t->proc->comm;
}

/** task_tgid - its process */
pid_t task_tgid(const struct task *t)
{
	return t->proc->tgid;
}

/**
 * task_refresh - after exec the process has another name
 *
 * Called when it makes a socket, which is when the name matters.
 */
void task_refresh(struct task *t)
{
	char path[64], comm[16] = "", *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", t->proc->tgid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, comm, sizeof(comm));
	close(fd);
	if (n <= 0)
		return;
	comm[n - 1] = '\0';	/* the newline */
	for (p = comm; *p; p++)
		if ((unsigned char)*p < ' ')	/* one would end a line of the account */
			*p = '?';
	memcpy(t->proc->comm, comm, sizeof(comm));
}

/** list_stats - lines for the processes of a list */
static size_t list_stats(struct list *l, const char *prefix, char *buf,
			 size_t len)
{
	struct list *pos;
	size_t at = 0;

	list_for_each(pos, l) {
		struct proc *p = container_of(pos, struct proc, link);
		char whose[64];

		snprintf(whose, sizeof(whose), "%s.%d.%s", prefix, p->tgid,
			 p->comm);
		at += account_print(&p->acct, whose, buf + at, len - at);
	}
	return at;
}

/**
 * tasks_stats - the account of every process, living ("proc") and ended, and of
 * those that ended longer ago in one
 */
size_t tasks_stats(char *buf, size_t len)
{
	size_t n;

	account_fold_all();
	n = list_stats(&procs, "proc", buf, len);
	n += account_print(&forgotten, "ended.0.earlier processes", buf + n,
			   len - n);
	return n + list_stats(&dead, "ended", buf + n, len - n);
}

/** tasks_stop - forget all threads */
void tasks_stop(void)
{
	size_t i;

	for (i = 0; i < TASK_HASH; i++)
		while (task_hash[i])
			task_drop(task_hash[i]);
}
