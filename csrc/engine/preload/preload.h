/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The preload engine: directs the system calls of the surrounding program to a
 * kernel library in the same process.
 *
 * Theory of operation
 *
 * preload_prepare() patches the system-call instructions of the C library
 * (patch.c). So the engine sees the calls of the program and those that the
 * library makes for itself, such as the resolver's or stdio's. Until
 * preload_install() all of them go to the host. A constructor runs these steps
 * before any thread is made:
 *
 *	preload_prepare()	patch, while there is only one thread
 *	preload_own(true)	descriptors made from here on belong to the library
 *	dlopen, lkl_init, lkl_start_kernel, ...
 *	preload_own(false)
 *	preload_install()	from here on the program's sockets belong to the stack
 *
 * Descriptors of the library (for the kernel library and the control server)
 * have high numbers. The program can neither close nor replace them: it gets
 * EBADF. After preload_own(true), every descriptor that the thread makes is
 * such a descriptor, and none of the thread's calls go to the stack.
 */
#ifndef LKLRUN_PRELOAD_H
#define LKLRUN_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct preload_stack - functions of the kernel library, as in lkl.h
 * @syscall: lkl_syscall
 * @self: lkl_self
 * @interrupt: lkl_interrupt
 * @host_watch: lkl_host_watch
 * @watch: lkl_epoll_watch
 * @spin: lkl_set_spin
 * @coalesce: lkl_set_coalesce
 * @halt: lkl_sys_halt
 */
struct preload_stack {
	long (*syscall)(long no, long *params);
	void *(*self)(void);
	void (*interrupt)(void *thread);
	int (*host_watch)(int fd, void *(*fn)(void *arg), void *arg);
	int (*watch)(int epfd, void (*fn)(void *arg), void *arg);
	void (*spin)(unsigned int usec);
	void (*coalesce)(unsigned int usec);
	long (*halt)(void);
};

/*
 * preload_bind - look up the functions of a library loaded with dlopen(), and
 * copy them to @st; returns 0 or -ENOEXEC
 */
int preload_bind(void *lib, struct preload_stack *st, char *err, size_t errlen);

/*
 * preload_prepare - patch the C library; 0, or a negative errno with the reason
 * in @err
 */
int preload_prepare(char *err, size_t errlen);

/* preload_install - the kernel runs: start to handle the program's calls */
int preload_install(void);

/*
 * preload_own - whether descriptors this thread opens from now on are the
 * library's
 */
void preload_own(bool on);

/*
 * preload_own_fd - move an inherited descriptor to a high number, as one of the
 * library's own; returns the new number or a negative errno
 */
int preload_own_fd(int fd);

/* preload_mptcp - whether TCP stream sockets become MPTCP from now on */
void preload_mptcp(bool on);

/*
 * preload_spin - microseconds that a thread polls before it sleeps; 0 for none
 */
void preload_spin(unsigned int usec);

/**
 * preload_coalesce - microseconds for which frames may gather; 0 for none
 */
void preload_coalesce(unsigned int usec);

/* preload_warn - pass lines for the user to @fn instead of stderr */
void preload_warn(void (*fn)(const char *line));

/*
 * preload_refused - pass addresses for CTL_EV_REFUSED to @fn
 */
void preload_refused(void (*fn)(const char *text));

/*
 * preload_at_exit - register a function for the end of the process
 *
 * @fn is called once, when the process that has the kernel ends: by exit or
 *	_exit in any thread, or by a signal without a handler (@status is then its
 *	number). It may call preload_drain(). It may run in a signal handler, while
 *	locks of the C library are held.
 */
void preload_at_exit(void (*fn)(int status));

/*
 * preload_drain - close every socket and wait until the peers have the sent
 * data
 *
 * The wait lasts as long as the peers accept data. Returns whether everything
 * was delivered; if not, the user is told.
 */
bool preload_drain(void);

/*
 * preload_halt - halt the kernel, which resets undelivered connections; the
 * last call
 */
void preload_halt(void);

/*
 * preload_alive - whether this process has the kernel; false in a child after
 * fork
 */
bool preload_alive(void);

/*
 * preload_private_files - give this thread a descriptor table of its own in the
 * stack
 *
 * For a thread that makes calls there on behalf of others (the control
 * server's), so that its descriptors do not mix with the program's sockets.
 */
int preload_private_files(void);

/*
 * For the control server; engine/supervise/supervise.h declares the same for
 * lklhost.
 */
size_t engine_stats(char *buf, size_t len);
size_t engine_account(char *buf, size_t len);
size_t engine_owners(void *buf, size_t len);
bool engine_has_stack_fd(int fd);

#endif
