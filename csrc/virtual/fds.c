// SPDX-License-Identifier: GPL-2.0-only
/*
 * Descriptors of programs.
 *
 * For each object of the stack, a program has an epoll of the host as a
 * placeholder. It keeps the number taken. An empty epoll is never ready, so the
 * host's kernel can end ppoll() and the like by a signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "virtual/virtual.h"

/*
 * The signal of a file of the stack with O_ASYNC. It also tells whether its calls
 * wait: unlike the flag O_NONBLOCK, which all have, it is the program's.
 */
#define SIG_WAITS	40
#define SIG_NONBLOCK	41

struct fd_info fd_info[MAX_FDS];

/** fd_stack - the stack's descriptor for that of a program, or -1 */
int fd_stack(struct thread *t, uint64_t fd)
{
	return fd < MAX_FDS ? t->p->fds[fd] - 1 : -1;
}

static int placeholder(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = epoll_create1(EPOLL_CLOEXEC);
	return fd;
}

/* Adds a descriptor of this process to the program, as @at or as the lowest free one. */
static int add(struct thread *t, int fd, int at, bool cloexec)
{
	struct seccomp_notif_addfd a = {
		.id = t->req.id, .srcfd = (uint32_t)fd, .newfd = at < 0 ? 0 : (uint32_t)at,
		.flags = at < 0 ? 0 : SECCOMP_ADDFD_FLAG_SETFD, .newfd_flags = cloexec ? O_CLOEXEC : 0,
	};
	int n = ioctl(t->p->program->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &a);

	return n < 0 ? -errno : n;
}

static int add_stack(struct thread *t, int sfd, int at, bool cloexec)
{
	int n = add(t, placeholder(), at, cloexec);

	if (n >= 0) {
		t->p->fds[n] = sfd + 1;
		fd_info[sfd].refs++;
	}
	return n;
}

/** fd_nonblock - whether calls fail instead of waiting; for all descriptors of a file */
bool fd_nonblock(int f)
{
	return ST(fcntl, f, F_GETSIG, 0, 0, 0, 0) == SIG_NONBLOCK;
}

void fd_set_nonblock(int f, bool on)
{
	ST(fcntl, f, F_SETSIG, on ? SIG_NONBLOCK : SIG_WAITS, 0, 0, 0);
}

static long async;	/* the stack's signalfd for files with O_ASYNC, or 0 */

/** fd_set_async - whether the owner gets SIGIO when a file is ready */
long fd_set_async(int f, bool on)
{
	uint64_t set = 1ull << (SIG_WAITS - 1) | 1ull << (SIG_NONBLOCK - 1);

	if (!async) {
		ST(rt_sigprocmask, SIG_BLOCK, &set, NULL, sizeof(set), 0, 0);
		async = ST(signalfd4, -1, &set, sizeof(set), SFD_NONBLOCK, 0, 0);
		if (async < 0)
			fail("signals of the stack: %s", strerror((int)-async));
	}
	fd_set_nonblock(f, fd_nonblock(f));
	ST(fcntl, f, F_SETOWN, ST(getpid, 0, 0, 0, 0, 0, 0), 0, 0, 0);
	return ST(fcntl, f, F_SETFL, O_NONBLOCK | (on ? O_ASYNC : 0), 0, 0, 0);
}

/** fds_async - send SIGIO to the owners of files that are ready */
void fds_async(void)
{
	struct signalfd_siginfo info;
	int i;

	while (async > 0 && ST(read, async, &info, sizeof(info), 0, 0, 0) == sizeof(info))
		for (i = 0; i < process_count; i++)
			if (processes[i].live && info.ssi_fd >= 0 && info.ssi_fd < MAX_FDS &&
			    processes[i].ns_pid == fd_info[info.ssi_fd].owner) {
				syscall(SYS_kill, processes[i].pid, SIGIO);
				processes[i].signalled = true;
			}
}

/** fd_add - give a program a new object of the stack, or close it */
int fd_add(struct thread *t, int sfd, enum fd_kind kind, bool nonblock, bool cloexec)
{
	int n;

	if (sfd < 0)
		return sfd;
	if (sfd >= MAX_FDS)
		fail("%s: more than %d objects", t->p->program->name, MAX_FDS);
	fd_info[sfd] = (struct fd_info){ .kind = kind };
	if (nonblock)
		fd_set_nonblock(sfd, true);
	n = add_stack(t, sfd, -1, cloexec);
	if (n < 0)
		ST(close, sfd, 0, 0, 0, 0, 0);
	return n;
}

/** fd_add_host - give a program a file of this process */
int fd_add_host(struct thread *t, int fd, bool cloexec)
{
	int n = fd < 0 ? -errno : add(t, fd, -1, cloexec);

	if (fd >= 0)
		close(fd);
	return n;
}

/** fds_drop - the program closes its descriptors from @first to @last */
void fds_drop(struct process *p, uint64_t first, uint64_t last)
{
	uint64_t fd;
	int sfd;

	for (fd = first; fd <= last && fd < MAX_FDS; fd++) {
		sfd = p->fds[fd] - 1;
		p->fds[fd] = 0;
		if (sfd >= 0 && !--fd_info[sfd].refs)
			ST(close, sfd, 0, 0, 0, 0, 0);
	}
}

/** fds_fork - a child has the descriptors of its parent */
void fds_fork(struct process *to, const struct process *from)
{
	int fd;

	memcpy(to->fds, from->fds, sizeof(to->fds));
	for (fd = 0; fd < MAX_FDS; fd++)
		if (to->fds[fd])
			fd_info[to->fds[fd] - 1].refs++;
}

static bool is_open(struct process *p, uint64_t fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%u", p->pid, (unsigned int)fd);
	return !faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

/** fds_after_exec - execve() has closed some */
void fds_after_exec(struct process *p)
{
	uint64_t fd;

	for (fd = 0; fd < MAX_FDS; fd++)
		if (p->fds[fd] && !is_open(p, fd))
			fds_drop(p, fd, fd);
}

enum verdict on_close(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	fds_drop(t->p, a[0], a[0]);
	return NATIVE;
}

enum verdict on_close_range(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f, (void)ret;
	if (a[2] & ~(uint64_t)CLOSE_RANGE_CLOEXEC)
		return UNSUPPORTED;
	if (!a[2])
		fds_drop(t->p, (uint32_t)a[0], (uint32_t)a[1]);
	return NATIVE;
}

enum verdict on_dup(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)a;
	if (f < 0)
		return NATIVE;
	*ret = add_stack(t, f, -1, false);
	return ANSWER;
}

static enum verdict dup_to(struct thread *t, uint64_t from, int f, uint64_t to, bool cloexec, long *ret)
{
	if (!is_open(t->p, from) || to >= MAX_FDS)
		return NATIVE;	/* EBADF */
	if (f >= 0)
		fd_info[f].refs++;	/* both may be the same object */
	fds_drop(t->p, to, to);
	if (f < 0)
		return NATIVE;
	fd_info[f].refs--;
	*ret = add_stack(t, f, (int)to, cloexec);
	return ANSWER;
}

enum verdict on_dup2(struct thread *t, uint64_t *a, int f, long *ret)
{
	return a[0] == a[1] ? NATIVE : dup_to(t, a[0], f, a[1], false, ret);
}

enum verdict on_dup3(struct thread *t, uint64_t *a, int f, long *ret)
{
	return a[0] == a[1] ? NATIVE : dup_to(t, a[0], f, a[1], a[2] & O_CLOEXEC, ret);
}

enum verdict on_fcntl(struct thread *t, uint64_t *a, int f, long *ret)
{
	uint64_t n;

	if (f < 0 && (a[1] == F_SETLKW || a[1] == F_OFD_SETLKW))
		return UNSUPPORTED;	/* waits */
	if (f < 0 || a[1] == F_GETFD || a[1] == F_SETFD)
		return NATIVE;
	switch (a[1]) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		for (n = a[2]; n < MAX_FDS && is_open(t->p, n); n++)
			;
		*ret = n < MAX_FDS ? add_stack(t, f, (int)n, a[1] == F_DUPFD_CLOEXEC) : -EMFILE;
		return ANSWER;
	case F_GETFL:
		*ret = ST(fcntl, f, F_GETFL, 0, 0, 0, 0);
		if (*ret >= 0 && !fd_nonblock(f))
			*ret &= ~O_NONBLOCK;
		return ANSWER;
	case F_SETFL:
		fd_set_nonblock(f, a[2] & O_NONBLOCK);
		*ret = a[2] & O_ASYNC || async ? fd_set_async(f, a[2] & O_ASYNC) : 0;
		return ANSWER;
	case F_SETOWN:
		if ((pid_t)a[2] < 0)
			return UNSUPPORTED;	/* a process group */
		fd_info[f].owner = (pid_t)a[2];
		*ret = 0;
		return ANSWER;
	case F_GETOWN:
		*ret = fd_info[f].owner;
		return ANSWER;
	case F_GETPIPE_SZ:
	case F_SETPIPE_SZ:
		*ret = ST(fcntl, f, a[1], a[2], 0, 0, 0);
		return ANSWER;
	}
	return UNSUPPORTED;
}

/** stat_stack - fstat() of an object of the stack */
enum verdict stat_stack(struct thread *t, int f, uint64_t to, long *ret)
{
	struct stat st;

	*ret = ST(fstat, f, &st, 0, 0, 0, 0);
	if (!*ret)
		*ret = mem_write(t, to, &st, sizeof(st));
	return ANSWER;
}

enum verdict on_fstat(struct thread *t, uint64_t *a, int f, long *ret)
{
	return f < 0 ? NATIVE : stat_stack(t, f, a[1], ret);
}
