// SPDX-License-Identifier: GPL-2.0-only
/* Answer caught calls, and duplicate the descriptors that they name. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/catch.h"
#include "engine/call/native.h"

#define RESERVE		4

struct notify_stats notify_stats;

/** call_name - the name of a caught call, for messages */
const char *call_name(int nr)
{
#define NAME(call) { SYS_##call, #call "()" }
	static const struct {
		int nr;
		const char *name;
	} names[] = {
		NAME(socket), NAME(connect), NAME(bind), NAME(listen), NAME(accept4),
		NAME(getsockname), NAME(getpeername), NAME(getsockopt), NAME(setsockopt),
		NAME(sendto), NAME(recvfrom), NAME(sendmsg), NAME(recvmsg),
		NAME(sendmmsg), NAME(recvmmsg), NAME(ioctl), NAME(syslog), NAME(setns),
		NAME(accept), NAME(pidfd_getfd), NAME(unshare),
		NAME(mount), NAME(umount2),
	};
#undef NAME
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].nr == nr)
			return names[i].name;
	return "a call";
}

/**
 * call_native - let the host's kernel execute a call: the handler returns this
 * @reason: why this is safe, see native.h
 */
int64_t call_native(enum native_reason reason)
{
	(void)reason;
	return CALL_NATIVE;
}

/**
 * call_out_of_reach - warn, once per process, that its sockets are inaccessible
 *
 * Returns the negative errno that answers the call. According to ptrace(2), a
 * program that may be executed but not read is dumpable only for root.
 */
int call_out_of_reach(const struct call *c, int err)
{
	static pid_t told;

	if (told == task_tgid(c->task))
		return -EPERM;
	told = task_tgid(c->task);
	warn_user("%s (pid %d): lklhost cannot access its sockets (%s); for a program that is not readable, this requires root",
		  task_comm(c->task), told, strerror(err));
	return -EPERM;
}

/**
 * call_no_room - warn, once a minute, that lklhost itself has no descriptor left
 *
 * Returns the negative errno that answers the call.
 */
int call_no_room(const struct call *c)
{
	static uint64_t next;
	uint64_t now = now_ns();

	if (now < next)
		return -ENOBUFS;
	next = now + 60000000000ull;
	warn_user("%s (pid %d): a call failed (ENOBUFS), because lklhost has no free descriptor; raise the hard limit of open files (ulimit -Hn) before lklrun starts",
		  task_comm(c->task), task_tgid(c->task));
	return -ENOBUFS;
}

/*
 * A call needs three descriptors, a duplicate of the caller's and two files of
 * the caller's memory, and a held call keeps one more. If lklhost has none left,
 * they take the places of these, so that calls on existing sockets succeed, and
 * no received data are lost.
 */
static int reserve[RESERVE] = { -1, -1, -1, -1 };

/** reserve_use - free a reserved descriptor for a call; false if there is none */
bool reserve_use(void)
{
	size_t i;

	for (i = 0; i < RESERVE; i++)
		if (reserve[i] >= 0) {
			close(reserve[i]);
			reserve[i] = -1;
			return true;
		}
	return false;
}

/** reserve_fill - reserve descriptors, at the start and again after a call */
void reserve_fill(void)
{
	size_t i;

	for (i = 0; i < RESERVE; i++)
		if (reserve[i] < 0)
			reserve[i] = fcntl(loop_epfd(), F_DUPFD_CLOEXEC, 0);
}

/**
 * is_full - whether lklhost has too few descriptors for a new socket, except for
 * reserved ones
 */
static bool is_full(void)
{
	int fds[2], i;

	for (i = 0; i < 2; i++)
		fds[i] = fcntl(loop_epfd(), F_DUPFD_CLOEXEC, 0);
	for (i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return fds[1] < 0;
}

/** makes_descriptor - whether a call can fail by the caller's limit of descriptors */
static bool makes_descriptor(int nr)
{
	switch (nr) {
	case SYS_accept:
	case SYS_accept4:
	case SYS_socket:
	case SYS_pidfd_getfd:
		return true;
	}
	return false;
}

/**
 * call_answer - answer the call with a result
 * @ret: a result >= 0, a negative errno, or that of call_native()
 *
 * Returns false if the caller no longer waits for it.
 */
bool call_answer(const struct call *c, int64_t ret)
{
	/* The caller's own limit has the same error. */
	if (ret == -EMFILE && c->task && (!makes_descriptor(c->nr) || is_full()))
		ret = call_no_room(c);
	notify_stats.native += ret == CALL_NATIVE;
	if (catch_answer(c, ret))
		return true;
	notify_stats.gone++;
	return false;
}

/**
 * call_dup - duplicate the caller's descriptor @fd into @c->dup
 *
 * Returns 0, or the negative errno that answers the call.
 *
 * The duplicate is closed when the handler returns. While it is open, no event
 * reports that the target has closed its own descriptor. The duplicate shares
 * the target's O_NONBLOCK, so operations on it that could block are not
 * allowed.
 */
int call_dup(struct call *c, int fd)
{
	c->dup = call_getfd(c, fd);
	if (c->dup == -EMFILE && reserve_use())
		c->dup = call_getfd(c, fd);
	switch (c->dup) {
	case -EBADF:
	case -ESRCH:		/* killed: no answer needed */
	case -EFAULT:		/* parked */
		return c->dup;
	case -EMFILE:
	case -ENFILE:
		return call_no_room(c);
	}
	if (c->dup >= 0)
		return 0;
	return call_out_of_reach(c, -c->dup);
}

/** call_nonblocking - whether the caller's descriptor is O_NONBLOCK */
bool call_nonblocking(const struct call *c)
{
	int flags = fcntl(c->dup, F_GETFL);

	return flags >= 0 && (flags & O_NONBLOCK);
}
