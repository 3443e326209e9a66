// SPDX-License-Identifier: GPL-2.0-only
/*
 * The interface of the stack to the rest of lklhost: the back end, calls, and
 * the epoll in the stack. See stack.h for the theory of operation.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>

#ifndef SYS_newfstatat
#include <linux/stat.h>
#endif

#include "base/log.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"

#define TURN_MAX	64	/* runs of the stack in one turn of the loop */
#define EVENTS		64	/* fetched from the stack's epoll per call */

const struct stack_ops *stack;
void (*stack_panicked)(void);
struct loop_stats loop_stats;

static bool alive;
static int sepfd = -1;
/*
 * The last fetch was full. The remaining events cause no new wake-up on the
 * stack's epoll, so they must be fetched without one.
 */
static bool events_left;
static struct utsname uts;

/** stack_alive - whether the stack is booted, and neither halted nor dead */
bool stack_alive(void)
{
	return alive;
}

/** stack_dead - never enter the library again */
void stack_dead(void)
{
	alive = false;
}

/** stack_release - the kernel's release, "" before boot */
const char *stack_release(void)
{
	return uts.release;
}

/** stack_set_release - set the release of a kernel in another process */
void stack_set_release(const char *release)
{
	snprintf(uts.release, sizeof(uts.release), "%s", release);
}

/** mount_fs - mount a file system of the kernel in its usual place */
static void mount_fs(const char *type, const char *path)
{
	long ret = ST(SYS_mkdirat, -100, path, 0555, 0, 0, 0);

	if (ret && ret != -EEXIST)
		return;
	ret = ST(SYS_mount, type, path, type, 0, 0, 0);
	if (ret && ret != -EBUSY)
		log_line("mounting %s in the stack: %s", path,
			 strerror((int)-ret));
}

/**
 * stack_boot - start the kernel, mount its file systems, create its epoll
 * @mem: bytes, 0: default
 * @cmdline: added to the kernel's command line
 */
int stack_boot(uint64_t mem, const char *cmdline)
{
	/*
	 * The default of fs.nr_open (fs/file.c). The host's own limit is not
	 * changed.
	 */
	struct rlimit64 files = { 1 << 20, 1 << 20 };
	int ret;

	ret = stack->boot(mem, cmdline);
	if (ret)
		return ret;
	alive = true;
	/* One process of the stack holds the descriptors of all processes of the target. */
	if (stack->abi != CTL_ABI_HOST)
		ST(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, 0, 0, 0);
	ret = (int)ST(SYS_uname, &uts, 0, 0, 0, 0, 0);
	if (ret)
		return ret;
	ret = (int)ST(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);
	if (ret < 0)
		return ret;
	sepfd = ret;
	if (stack->abi != CTL_ABI_HOST) {
		mount_fs("proc", "/proc");
		mount_fs("sysfs", "/sys");
	}
	return stack->watch(sepfd);
}

/**
 * st_call - a system call in the stack
 *
 * Returns its result: >= 0 or a negative errno; -EIO if the stack is dead.
 */
long st_call(long nr, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = { a, b, c, d, e, f };

	if (!alive)
		return -EIO;
	return stack->call(nr, args);
}

long (*st_host_socks)(long nr, const long args[6]);

/** st_is_host - whether a descriptor is a socket of the host, see host_socks.c */
bool st_is_host(long fd)
{
	return fd >= ST_HOST && fd - ST_HOST < ST_HOST;
}

/** st_fd_call - st_call() on a descriptor of the stack or of the host */
long st_fd_call(long nr, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = { a - ST_HOST, b, c, d, e, f };

	return st_is_host(a) ? st_host_socks(nr, args) : st_call(nr, a, b, c, d, e, f);
}

/** epoll_change - epoll_ctl(2) on the epoll responsible for @fd */
static int epoll_change(int op, int fd, struct epoll_event *ev)
{
	const long args[6] = { 0, op, fd - ST_HOST, (long)ev };

	if (st_is_host(fd))
		return (int)st_host_socks(SYS_epoll_ctl, args);
	return (int)ST(SYS_epoll_ctl, sepfd, op, fd, ev, 0, 0);
}

/** ask - poll(2) one descriptor without waiting; returns its events */
static short ask(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };
	struct timespec zero = { 0 };

	const long args[6] = { fd - ST_HOST, events };

	if (st_is_host(fd))
		return (short)st_host_socks(SYS_ppoll, args);
	return ST(SYS_ppoll, &p, 1, &zero, 0, 8, 0) > 0 ? p.revents : 0;
}

/** events_dispatch - call the handlers that are @first, or the others */
static void events_dispatch(const struct epoll_event *ev, long n, bool first)
{
	long i;

	for (i = 0; i < n; i++) {
		struct stack_src *src = ev[i].data.ptr;

		if (src->fn && src->first == first)
			src->fn(src, ev[i].events);
	}
}

/** events_fetch - dispatch the events of the stack's epoll; returns how many */
static int events_fetch(void)
{
	struct epoll_event ev[EVENTS];
	long n;

	n = ST(SYS_epoll_pwait, sepfd, ev, EVENTS, 0, 0, 8);
	events_left = n == EVENTS;
	events_dispatch(ev, n, true);
	events_dispatch(ev, n, false);
	return n > 0 ? (int)n : 0;
}

/**
 * stack_turn - run the stack until it is idle and dispatch its events
 *
 * If a device has more frames than one burst, the others have their turn first.
 *
 * Returns the nanoseconds until its next timer, -1 if there is none, or 0 if
 * there is more to do than fits into one turn of the loop.
 */
int64_t stack_turn(void)
{
	int64_t ns = -1;
	int i;

	if (!alive)
		return -1;
	for (i = 0; i < TURN_MAX; i++) {
		bool more = false;

		loop_stats.steps++;
		ns = stack->step();
		if (ns < -1) {
			stack_panicked();
			return -1;
		}
		if (stack->asked() || events_left)
			more = events_fetch() > 0;
		if (!alive)
			return -1;
		if (ns == 0 || !more)
			return ns;
	}
	return 0;
}

/**
 * stack_deliver - dispatch the events that the last call has caused in the stack
 *
 * The kernel delivers what a call sends over loopback during the call.
 */
void stack_deliver(void)
{
	if (alive && stack->asked())
		events_fetch();
}

/**
 * stack_rest - let the stack stop its tick before the loop sleeps
 * @ns: as from stack_turn(); returned if the stack does not support this
 *
 * Returns the same as stack_turn().
 */
int64_t stack_rest(int64_t ns)
{
	if (!alive || !stack->rest)
		return ns;
	ns = stack->rest();
	if (ns >= -1)
		return ns;
	stack_panicked();
	return -1;
}

/**
 * stack_catch_up - update the kernel's time before the first call of a turn
 *
 * Otherwise its jiffies are as old as the loop's sleep, and timers set by that
 * call expire early.
 */
void stack_catch_up(void)
{
	if (alive && stack->step() < -1)
		stack_panicked();
}

/** stack_event - an event on a descriptor of the library itself */
void stack_event(uint64_t data, uint32_t events)
{
	if (alive)
		stack->event(data, events);
}

/** st_load - see struct stack_ops */
void st_load(enum st_load load)
{
	if (alive && stack->load)
		stack->load(load);
}

/** stack_coalesce - see struct stack_ops */
void stack_coalesce(uint32_t us)
{
	if (alive && stack->coalesce)
		stack->coalesce(us);
}

/** stack_holding - see struct stack_ops */
bool stack_holding(void)
{
	return alive && stack->holding && stack->holding();
}

/** st_refs - find received bytes, see struct stack_ops */
int st_refs(int fd, struct iovec *iov, int max, size_t len)
{
	return alive && stack->refs && !st_is_host(fd) ?
	       stack->refs(fd, iov, max, len) : -EOPNOTSUPP;
}

/** st_watch - add @fd of the stack to its epoll */
int st_watch(int fd, struct stack_src *src, uint32_t events)
{
	struct epoll_event ev = { .events = events | EPOLLET, .data.ptr = src };

	return epoll_change(EPOLL_CTL_ADD, fd, &ev);
}

/** st_rewatch - change the events; also reports those that are ready now */
int st_rewatch(int fd, struct stack_src *src, uint32_t events)
{
	struct epoll_event ev = { .events = events | EPOLLET, .data.ptr = src };

	return epoll_change(EPOLL_CTL_MOD, fd, &ev);
}

/** st_unwatch - remove @fd from the stack's epoll */
void st_unwatch(int fd, struct stack_src *src)
{
	struct epoll_event ev = { 0 };

	src->fn = NULL;
	if (fd >= 0)
		epoll_change(EPOLL_CTL_DEL, fd, &ev);
}

/** st_readable - whether @fd of the stack has data or a connection to accept */
bool st_readable(int fd)
{
	return ask(fd, POLLIN);
}

/** st_failed - whether @fd of the stack has an error or an error queue */
bool st_failed(int fd)
{
	return ask(fd, 0) & POLLERR;
}

/**
 * st_read_file - read a file of the stack
 * @buf: NUL-terminated, truncated to @len - 1 bytes
 *
 * Returns the length or a negative errno.
 */
int st_read_file(const char *path, char *buf, size_t len)
{
	long fd, n, got = 0;

	fd = ST(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
	if (fd < 0)
		return (int)fd;
	while (got < (long)len - 1) {
		n = ST(SYS_read, fd, buf + got, (long)len - 1 - got, 0, 0, 0);
		if (n < 0)
			got = n;
		if (n <= 0)
			break;
		got += n;
	}
	st_close(fd);
	buf[got > 0 ? got : 0] = '\0';
	return (int)got;
}

/**
 * st_stat - fstatat(2); 0 or a negative errno
 *
 * On 32-bit machines, the kernel's struct stat differs from the C library's;
 * statx(2) is used there.
 */
int st_stat(int dirfd, const char *path, int flags, struct stat *st)
{
#ifdef SYS_newfstatat
	return (int)ST(SYS_newfstatat, dirfd, path, st, flags, 0, 0);
#else
	struct statx sx;
	int ret = (int)ST(SYS_statx, dirfd, path, flags, STATX_BASIC_STATS, &sx,
			  0);

	if (ret)
		return ret;
	st->st_ino = sx.stx_ino;
	st->st_mode = sx.stx_mode;
	st->st_nlink = sx.stx_nlink;
	st->st_size = (off_t)sx.stx_size;
	st->st_atim.tv_sec = sx.stx_atime.tv_sec;
	st->st_atim.tv_nsec = (long)sx.stx_atime.tv_nsec;
	st->st_mtim.tv_sec = sx.stx_mtime.tv_sec;
	st->st_mtim.tv_nsec = (long)sx.stx_mtime.tv_nsec;
	st->st_ctim.tv_sec = sx.stx_ctime.tv_sec;
	st->st_ctim.tv_nsec = (long)sx.stx_ctime.tv_nsec;
	return 0;
#endif
}

/*
 * A file offset has 64 bits: on arm it occupies two registers, the first with
 * an even number.
 */
#ifdef __arm__
#define POSITION(at)	0, (uint32_t)(at), (uint32_t)((at) >> 32)
#else
#define POSITION(at)	(at), 0, 0
#endif
#define ST_AT(nr, fd, buf, len, ...)	ST_AT_(nr, fd, buf, len, __VA_ARGS__)
#define ST_AT_(nr, fd, buf, len, x, y, z) ST(nr, fd, buf, len, x, y, z)

/** st_pread - pread(2) */
long st_pread(int fd, void *buf, size_t len, uint64_t at)
{
	return ST_AT(SYS_pread64, fd, buf, len, POSITION(at));
}

/** st_pwrite - pwrite(2) */
long st_pwrite(int fd, const void *buf, size_t len, uint64_t at)
{
	return ST_AT(SYS_pwrite64, fd, buf, len, POSITION(at));
}
