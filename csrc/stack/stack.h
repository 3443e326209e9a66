/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stack: a kernel that answers system calls, behind one small interface.
 *
 * Theory of operation
 *
 * Three back ends fill struct stack_ops: stack_native.c (our library, driven by
 * the loop), stack_foreign.c (a library with upstream LKL's interface) and
 * stack_host.c (the host kernel itself). The rest of lklhost does not depend on
 * the back end in use. Call numbers and layouts are those of the host
 * architecture.
 *
 * Every descriptor that the engine creates in the stack is non-blocking. No
 * call made here may block, since the loop has only one thread.
 *
 * Readiness comes from one epoll inside the stack. st_watch() adds descriptors
 * to it, edge-triggered. The loop fetches its events with a timeout of 0, and
 * only if the back end reports that there may be some.
 */
#ifndef LKLHOST_STACK_H
#define LKLHOST_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/**
 * struct stack_src - the handler of a descriptor of the stack
 * @fn: called with epoll events; NULL after removal
 * @first: called before the others that have events at the same time
 */
struct stack_src {
	void (*fn)(struct stack_src *src, uint32_t events);
	bool first;
};

/**
 * enum st_load - load of the loop
 * @ST_LOAD_EASY: the loop has idle time
 * @ST_LOAD_FULL: the loop has no idle time
 * @ST_LOAD_RUSH: the same, and it serves many short connections
 */
enum st_load { ST_LOAD_EASY, ST_LOAD_FULL, ST_LOAD_RUSH };

/**
 * struct stack_ops - a back end
 * @abi: CTL_ABI_*
 * @boot: start the kernel with @mem bytes (0: default) and an additional
 *	command line
 * @call: make a system call; returns >= 0 or a negative errno
 * @step: run the kernel until idle; returns ns to its next timer, 0: more to do
 *	at once, -1: nothing to wait for, below -1: a negative errno, the kernel
 *	is dead
 * @rest: stop the kernel's tick before a sleep; returns the same as @step. May
 *	be NULL
 * @event: handle an event of one of the library's own descriptors in the loop's
 *	epoll
 * @watch: set the stack's epoll whose readiness the back end reports
 * @asked: whether the stack's epoll may have events (clears the flag)
 * @refs: find the bytes that a receive on the stream @fd would return next,
 *	@len at most, in @max pieces. They stay there until the next call in the
 *	stack. Returns the number of pieces, or a negative errno if it cannot
 *	tell. May be NULL
 * @load: set the load of the loop; may be NULL
 * @coalesce: let frames gather for @us; may be NULL
 * @holding: whether frames gather now; may be NULL
 * @link_add: add a device on @fd, which the stack then owns; returns its id or
 *	-errno
 * @link_join: join a device of kind WIRE to another one, by the socket @bell,
 *	which the stack then owns; may be NULL
 * @link_del: remove a device
 * @ifindex: ifindex of a device, 0 before boot
 * @halt: shut the kernel down
 * @stats: counters of the back end itself, "name value\n"; may be NULL
 */
struct stack_ops {
	uint32_t abi;
	int (*boot)(uint64_t mem, const char *cmdline);
	long (*call)(long nr, const long args[6]);
	int64_t (*step)(void);
	int64_t (*rest)(void);
	void (*event)(uint64_t data, uint32_t events);
	int (*watch)(int epfd);
	bool (*asked)(void);
	int (*refs)(int fd, struct iovec *iov, int max, size_t len);
	void (*load)(enum st_load load);
	void (*coalesce)(uint32_t us);
	bool (*holding)(void);
	int (*link_add)(int fd, uint32_t kind, uint32_t flags,
			const uint8_t mac[6], uint16_t mtu);
	int (*link_join)(int id, int bell);
	int (*link_del)(int id);
	int (*ifindex)(int id);
	void (*halt)(void);
	size_t (*stats)(char *buf, size_t len);
};

extern const struct stack_ops *stack;

/*
 * Declared for the preload library, which runs our stack library itself and has
 * no other back end (engine/preload/link_base.c).
 */
extern const struct stack_ops stack_native_ops;
extern const struct stack_ops stack_host_ops;
int stack_foreign_bind(void *lib, bool old, char *err, size_t errlen);

/*
 * Called when the kernel has died; set by main. It calls stack_dead() first.
 */
extern void (*stack_panicked)(void);

int stack_open(const char *path, const char *abi, char *err, size_t errlen);
int stack_boot(uint64_t mem, const char *cmdline);
int64_t stack_turn(void);
void stack_deliver(void);
int64_t stack_rest(int64_t ns);
void stack_catch_up(void);
void stack_event(uint64_t data, uint32_t events);
bool stack_alive(void);
void stack_dead(void);
const char *stack_release(void);
void stack_set_release(const char *release);

void st_load(enum st_load load);
void stack_coalesce(uint32_t us);
bool stack_holding(void);
int st_refs(int fd, struct iovec *iov, int max, size_t len);
int st_watch(int fd, struct stack_src *src, uint32_t events);
int st_rewatch(int fd, struct stack_src *src, uint32_t events);
void st_unwatch(int fd, struct stack_src *src);
bool st_readable(int fd);
bool st_failed(int fd);
int st_read_file(const char *path, char *buf, size_t len);
int st_stat(int dirfd, const char *path, int flags, struct stat *st);
long st_pread(int fd, void *buf, size_t len, uint64_t at);
long st_pwrite(int fd, const void *buf, size_t len, uint64_t at);

long st_call(long nr, long a, long b, long c, long d, long e, long f);
long st_fd_call(long nr, long a, long b, long c, long d, long e, long f);

/*
 * Marks sockets of the host's network (host_socks.c): it is added to the number of
 * lklhost's own descriptor. Descriptors given by clients never reach
 * st_fd_call().
 */
#define ST_HOST		0x40000000L
extern long (*st_host_socks)(long nr, const long args[6]);
bool st_is_host(long fd);
int host_socks_start(void);

/* run.c: the turns of the loop. */
void loop_set_spin(uint32_t us);
void loop_set_burst(bool on);
int loop_processors(void);
void loop_quit(void);
void loop_run(void);
void loop_panic(void) __attribute__((noreturn));

/**
 * struct loop_stats - counters of the loop
 * @turns: turns of the loop
 * @sleeps: turns that slept
 * @spins: non-blocking polls while spinning
 * @steps: runs of the stack
 */
struct loop_stats {
	uint64_t turns, sleeps, spins, steps;
};

extern struct loop_stats loop_stats;

#define ST(nr, a, b, c, d, e, f) \
	st_call((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), \
		(long)(f))

#define ST_FD(nr, fd, b, c, d, e, f) \
	st_fd_call((nr), (long)(fd), (long)(b), (long)(c), (long)(d), \
		   (long)(e), (long)(f))

/* Calls that the engine makes, by name. */
#define st_socket(d, t, p)	ST(SYS_socket, d, t, p, 0, 0, 0)
#define st_close(fd)		ST_FD(SYS_close, fd, 0, 0, 0, 0, 0)
#define st_bind(fd, a, l)	ST_FD(SYS_bind, fd, a, l, 0, 0, 0)
#define st_connect(fd, a, l)	ST_FD(SYS_connect, fd, a, l, 0, 0, 0)
#define st_listen(fd, n)	ST_FD(SYS_listen, fd, n, 0, 0, 0, 0)
#define st_accept4(fd, a, l, f)	ST_FD(SYS_accept4, fd, a, l, f, 0, 0)
#define st_shutdown(fd, how)	ST_FD(SYS_shutdown, fd, how, 0, 0, 0, 0)
#define st_getsockname(fd, a, l) ST_FD(SYS_getsockname, fd, a, l, 0, 0, 0)
#define st_getpeername(fd, a, l) ST_FD(SYS_getpeername, fd, a, l, 0, 0, 0)
#define st_getsockopt(fd, l, o, v, n) ST_FD(SYS_getsockopt, fd, l, o, v, n, 0)
#define st_setsockopt(fd, l, o, v, n) ST_FD(SYS_setsockopt, fd, l, o, v, n, 0)
#define st_sendto(fd, b, n, f, a, l) ST_FD(SYS_sendto, fd, b, n, f, a, l)
#define st_recvfrom(fd, b, n, f, a, l) ST_FD(SYS_recvfrom, fd, b, n, f, a, l)
#define st_sendmsg(fd, m, f)	ST_FD(SYS_sendmsg, fd, m, f, 0, 0, 0)
#define st_recvmsg(fd, m, f)	ST_FD(SYS_recvmsg, fd, m, f, 0, 0, 0)
#define st_ioctl(fd, c, a)	ST_FD(SYS_ioctl, fd, c, a, 0, 0, 0)

#endif
