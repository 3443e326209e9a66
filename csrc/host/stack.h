/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stack: a kernel that answers system calls, behind one small interface.
 *
 * Theory of operation
 *
 * Three back ends fill struct stack_ops: stack_native.c (our library, driven by
 * the loop), stack_foreign.c (a library with upstream LKL's interface) and
 * stack_host.c (the host kernel itself). Above this line nobody knows which
 * one it is. Call numbers and layouts are the host architecture's own.
 *
 * Every descriptor the engine makes in the stack is non-blocking, and no call
 * made here may block: the loop has one thread.
 *
 * Readiness comes from one epoll inside the stack. st_watch() adds descriptors
 * to it, edge-triggered; the loop fetches its events with a timeout of 0 and
 * only when the back end says that there may be some.
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
 * struct stack_src - somebody who waits for a descriptor of the stack
 * @fn: called with epoll events; NULL once removed
 */
struct stack_src {
	void (*fn)(struct stack_src *src, uint32_t events);
};

/**
 * enum st_load - what the loop says of itself
 * @ST_LOAD_EASY: it has time to spare
 * @ST_LOAD_FULL: it has not
 * @ST_LOAD_RUSH: nor has it, and what it does is for many short connections
 */
enum st_load { ST_LOAD_EASY, ST_LOAD_FULL, ST_LOAD_RUSH };

/**
 * struct stack_ops - a back end
 * @abi: CTL_ABI_*
 * @boot: start the kernel, @mem bytes (0: default), extra command line
 * @call: a system call; >= 0 or a negative errno
 * @step: run the kernel until idle; ns to its next timer, 0: more to do at
 *	once, -1: nothing to wait for, below -1: a negative errno, it is dead
 * @event: an event on one of the library's own descriptors in the loop's epoll
 * @watch: tell the back end the stack epoll it shall report on
 * @asked: whether the stack epoll may have events (clears the flag)
 * @refs: where the bytes lie that a receive on the stream @fd would return next,
 *	@len at most, in @max pieces; they stay there until the next call of the
 *	stack. How many pieces, or a negative errno when it cannot tell. May be NULL
 * @load: tells whether the loop has time to spare; may be NULL
 * @link_add: a device on @fd, which the stack owns from then on; id or -errno
 * @link_del: remove a device
 * @ifindex: of a device, 0 before boot
 * @halt: shut the kernel down
 * @stats: counters of the back end's own, "name value\n"; may be NULL
 */
struct stack_ops {
	uint32_t abi;
	int (*boot)(uint64_t mem, const char *cmdline);
	long (*call)(long nr, const long args[6]);
	int64_t (*step)(void);
	void (*event)(uint64_t data, uint32_t events);
	int (*watch)(int epfd);
	bool (*asked)(void);
	int (*refs)(int fd, struct iovec *iov, int max, size_t len);
	void (*load)(enum st_load load);
	int (*link_add)(int fd, uint32_t kind, uint32_t flags,
			const uint8_t mac[6], uint16_t mtu);
	int (*link_del)(int id);
	int (*ifindex)(int id);
	void (*halt)(void);
	size_t (*stats)(char *buf, size_t len);
};

extern const struct stack_ops *stack;

extern const struct stack_ops stack_host_ops;
extern const struct stack_ops stack_native_ops;
extern const struct stack_ops stack_old_ops;
extern const struct stack_ops stack_new_ops;

int stack_native_bind(void *lib, char *err, size_t errlen);
int stack_foreign_bind(void *lib, bool old, char *err, size_t errlen);
void *stack_symbol(void *lib, const char *name, char *err, size_t errlen);

/*
 * Where the library comes from: stack_dl.c loads it; in builds for other machines
 * stack_linked.c has it. One of them is linked.
 *
 * stack_lib_open() gives a handle of the library at @path, NULL with one line for the
 * user in @err; stack_lib_find() one of its functions, NULL where it has none.
 */
void *stack_lib_open(const char *path, char *err, size_t errlen);
void *stack_lib_find(void *lib, const char *name);

int stack_open(const char *path, const char *abi, char *err, size_t errlen);
int stack_load(const char *path, const char *abi, char *err, size_t errlen);
int stack_boot(uint64_t mem, const char *cmdline);
int64_t stack_turn(void);
void stack_catch_up(void);
void stack_event(uint64_t data, uint32_t events);
bool stack_alive(void);
void stack_dead(void);
const char *stack_release(void);
void stack_set_release(const char *release);

void st_load(enum st_load load);
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
 * Added to the number of a descriptor that is lklhost's own, a socket of the host's
 * network (beside.c). What clients ask for by number never comes to st_fd_call().
 */
#define ST_HOST		0x40000000L
extern long (*st_beside)(long nr, const long args[6]);
bool st_is_host(long fd);
int beside_start(void);

#define ST(nr, a, b, c, d, e, f) \
	st_call((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), \
		(long)(f))

#define ST_FD(nr, fd, b, c, d, e, f) \
	st_fd_call((nr), (long)(fd), (long)(b), (long)(c), (long)(d), \
		   (long)(e), (long)(f))

/* The calls the engine makes, by name. */
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
