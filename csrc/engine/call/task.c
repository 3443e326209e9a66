// SPDX-License-Identifier: GPL-2.0-only
/*
 * Processes and threads of the target that have made a notified call.
 *
 * Theory of operation
 *
 * A thread (struct task) is identified by its tid and has a pidfd. The engine
 * uses the pidfd to duplicate the thread's descriptors (pidfd_getfd(2)). The
 * loop watches the pidfd, which becomes readable when the thread ends. With the
 * engine trace, the tracer reports the end, and a kernel without pidfds will
 * do. A
 * process (struct proc) exists as long as one of its tasks. It contains the
 * account: how many sockets the stack provided and refused. When the process
 * ends, its account moves to the list of the dead, so that it is still
 * available at the end of the run.
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

#include "base/features.h"
#include "base/lklhost.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/call/call.h"
#include "engine/common/account.h"
#include "process/process.h"
#include "shared/ctl_proto.h"

#ifndef PIDFD_THREAD			/* Linux 6.9, include/uapi/linux/pidfd.h */
#define PIDFD_THREAD	O_EXCL
#endif

#define TASK_HASH	1024
#define DEAD_MAX	256		/* kept accounts of ended processes */

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
	bool by_thread;		/* pidfd of the thread, not the process */
	struct proc *proc;
};

static struct task *task_hash[TASK_HASH];
static struct list procs = LIST_INIT(procs);
static struct list dead = LIST_INIT(dead);
static unsigned int n_dead;
static struct account forgotten;

/** status_read - read /proc/TID/status into @buf, as a terminated string */
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

/**
 * field - find the text after "NAME:" in a status file; NULL if there is none
 */
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

/** sigset_of - parse a signal set of a status file */
static uint64_t sigset_of(const char *buf, const char *name)
{
	const char *p = field(buf, name);

	return p ? strtoull(p, NULL, 16) : 0;
}

/**
 * waiting - get the pending signals that end a call
 * @set: SigPnd for the thread's own signals, ShdPnd for those of the process
 *
 * Such a signal has a handler or stops the process, and is not blocked. The
 * kernel itself ends the call if the signal ends the process, except in a stop
 * of ptrace: there, signals wait that have no handler, even those that a process
 * ignores by default.
 */
static uint64_t waiting(const char *buf, const char *set)
{
	const uint64_t stops = 1ull << (SIGSTOP - 1) | 1ull << (SIGTSTP - 1) |
			       1ull << (SIGTTIN - 1) | 1ull << (SIGTTOU - 1);
	const uint64_t nothing = 1ull << (SIGCHLD - 1) | 1ull << (SIGCONT - 1) |
				 1ull << (SIGURG - 1) | 1ull << (SIGWINCH - 1);

	return sigset_of(buf, set) & ~sigset_of(buf, "SigBlk") & ~sigset_of(buf, "SigIgn") &
	       (sigset_of(buf, "SigCgt") | (host.trace ? ~nothing : stops));
}

/**
 * task_signal_waits - whether a pending signal should end a thread's call
 *
 * A signal for the whole process goes to the main thread, unless that thread
 * blocks it (complete_signal(), kernel/signal.c). The kernel may then have
 * chosen any other thread, and does not show which one.
 *
 * Returns SIGNAL_NONE, SIGNAL_OWN if the signal is certainly for this thread,
 * SIGNAL_MAYBE, or a negative errno if the thread does not exist.
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
	return shared & sigset_of(buf, "SigBlk") ? SIGNAL_MAYBE : SIGNAL_NONE;
}

/**
 * forget_oldest - limit the length of the list of the dead
 *
 * An account is kept while connections of other processes still use it.
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

/** proc_put - remove a task from its process */
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

/** proc_get - find the process @tgid, or create it if it is unknown */
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

/** task_drop - free the entry of a thread */
static void task_drop(struct task *t)
{
	struct task **pp = &task_hash[(uint32_t)t->tid % TASK_HASH];
	int fd = t->src.fd;

	call_ops->task_gone(t);
	call_ops->pages_gone(t);
	while (*pp != t)
		pp = &(*pp)->next;
	*pp = t->next;
	loop_del(&t->src);
	close(fd);
	proc_put(t->proc);
	loop_free_later(t);
}

/** task_ended - handle the end of a thread: its pidfd is readable */
static void task_ended(struct source *src, uint32_t events)
{
	(void)events;
	task_drop(container_of(src, struct task, src));
	call_ops->task_ended();
}

/** task_find - find the entry of thread @tid, which may be outdated, or NULL */
static struct task *task_find(pid_t tid)
{
	struct task *t = task_hash[(uint32_t)tid % TASK_HASH];

	while (t && t->tid != tid)
		t = t->next;
	return t;
}

/** task_gone - handle the end of a traced thread */
void task_gone(pid_t tid)
{
	struct task *t = task_find(tid);

	if (!t)
		return;
	task_drop(t);
	call_ops->task_ended();
}

/**
 * comm_copy - copy the process name from a status file, as a terminated string
 */
static void comm_copy(char comm[16], const char *status)
{
	const char *p = field(status, "Name");
	size_t n = p ? strcspn(p, "\n") : 0;

	memset(comm, 0, 16);
	if (n > 15)
		n = 15;
	memcpy(comm, p ? p : "", n);
}

/** task_new - create the entry of a thread */
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
	if (fd < 0 && errno == EINVAL)	/* no PIDFD_THREAD: use the process */
		fd = (int)syscall(SYS_pidfd_open, tgid, 0);
	if (fd < 0 && !host.trace)
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
	if (!host.trace)
		loop_add(&t->src, EPOLLIN);
	t->next = task_hash[(uint32_t)tid % TASK_HASH];
	task_hash[(uint32_t)tid % TASK_HASH] = t;
	return t;

no_memory:
	free(t);
	close(fd);
	return NULL;
}

/**
 * task_get - get the entry of thread @tid; NULL if it cannot be watched
 *
 * The number may now belong to another thread, so no decision may depend on the
 * thread's identity. See task_of().
 */
struct task *task_get(pid_t tid)
{
	struct task *t = task_find(tid);

	return t ? t : task_new(tid);
}

/**
 * task_same - whether the thread of @t still exists
 *
 * Without PIDFD_THREAD, the pidfd identifies only the process.
 */
static bool task_same(const struct task *t)
{
	if (host.trace)		/* task_gone() comes before another thread */
		return true;
	if (syscall(SYS_pidfd_send_signal, t->src.fd, 0, NULL, 0) &&
	    errno == ESRCH)
		return false;
	return t->by_thread || t->tid == t->proc->tgid ||
	       !syscall(SYS_tgkill, t->proc->tgid, t->tid, 0) || errno != ESRCH;
}

/**
 * task_of - get the thread that made a call; NULL if it is gone
 *
 * The number may have belonged to another thread whose end is not handled yet.
 * The entry is then replaced. If the call still waits after the new pidfd is
 * opened, the pidfd is that of the caller.
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
 * Without PIDFD_THREAD, the signal is sent to the thread's number, right after
 * a check that the thread still waits. The number of a traced thread stays its
 * own, and only the loop's thread can make that check.
 */
void task_signal(const struct call *c, int sig)
{
	const struct task *t = c->task;

	if (t->by_thread)
		syscall(SYS_pidfd_send_signal, t->src.fd, sig, NULL, 0);
	else if (host.trace || call_valid(c))
		syscall(SYS_tgkill, t->proc->tgid, t->tid, sig);
}

/** task_can_getfd - whether the kernel has pidfd_getfd(2): since Linux 5.6 */
bool task_can_getfd(void)
{
	static int can = -1;

	if (can < 0)
		can = !feature_hidden("pidfd-getfd") &&
		      (syscall(SYS_pidfd_getfd, -1, -1, 0) >= 0 ||
		       errno != ENOSYS);
	return can;
}

/**
 * task_getfd - duplicate a descriptor of the thread
 *
 * Returns -ESRCH if the thread has ended, and -ENOSYS without pidfd_getfd(2).
 */
int task_getfd(const struct task *t, int fd)
{
	int ret;

	if (!task_can_getfd())
		return -ENOSYS;
	ret = (int)syscall(SYS_pidfd_getfd, t->src.fd, fd, 0);
	return ret < 0 ? -errno : ret;
}

/** task_count_socket - count a socket that the stack provided or refused */
void task_count_socket(struct task *t, bool given)
{
	if (given)
		t->proc->acct.given++;
	else
		t->proc->acct.refused++;
}

/**
 * task_count_hosted - count that a socket of the host replaced one of the stack
 */
void task_count_hosted(struct task *t)
{
	if (t->proc->acct.given)
		t->proc->acct.given--;
	t->proc->acct.hosted++;
}

/**
 * task_count_back - count that a socket of the stack replaced one of the host
 */
void task_count_back(struct task *t)
{
	if (t->proc->acct.hosted)
		t->proc->acct.hosted--;
	t->proc->acct.given++;
}

/** task_account - get the account of the thread's process */
struct account *task_account(const struct task *t)
{
	return &t->proc->acct;
}

/** task_comm - get the name of the thread's process, see task_refresh() */
const char *task_comm(const struct task *t)
{
	return t->proc->comm;
}

/** task_tgid - get the pid of the thread's process */
pid_t task_tgid(const struct task *t)
{
	return t->proc->tgid;
}

/**
 * task_refresh - update the name of the process, which an exec changes
 *
 * This is called only when the process creates a socket, because the name is
 * not needed before.
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
	comm[n - 1] = '\0';	/* replaces the newline at the end */
	for (p = comm; *p; p++)
		/* A newline in the name would end a line of the account. */
		if ((unsigned char)*p < ' ')
			*p = '?';
	if (memcmp(t->proc->comm, comm, sizeof(comm)))
		call_ops->pages_gone(t);
	memcpy(t->proc->comm, comm, sizeof(comm));
}

/** list_stats - write the accounts of a list of processes */
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
 * tasks_stats - write the accounts of all processes
 *
 * These are the accounts of running processes ("proc") and of ended ones
 * ("ended"). The processes that ended earliest share one account.
 */
size_t tasks_stats(char *buf, size_t len)
{
	size_t n;

	n = list_stats(&procs, "proc", buf, len);
	n += account_print(&forgotten, "ended.0.earlier processes", buf + n,
			   len - n);
	return n + list_stats(&dead, "ended", buf + n, len - n);
}

/**
 * tasks_tree - list the processes that have made a call, and their descendants
 * @pids: room for @max
 */
size_t tasks_tree(pid_t *pids, size_t max)
{
	struct list *pos;
	size_t n = 0;

	list_for_each(pos, &procs) {
		if (n == max)
			break;
		pids[n++] = container_of(pos, struct proc, link)->tgid;
	}
	return tree_below(pids, n, max);
}

/** tasks_stop - free the entries of all threads */
void tasks_stop(void)
{
	size_t i;

	for (i = 0; i < TASK_HASH; i++)
		while (task_hash[i])
			task_drop(task_hash[i]);
}
