/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The preload engine: between the calls of the program around us and a kernel
 * library in the same process.
 *
 * Theory of operation
 *
 * preload_prepare() patches the system-call instructions of the C library
 * (patch.c), so that calls the library makes for itself - the resolver's,
 * stdio's - are seen as well as the program's. Until preload_install() all of
 * them go to the host. The order of a start, in a constructor and before any
 * thread is made:
 *
 *	preload_prepare()	patch; once, while there is one thread
 *	preload_own(true)	descriptors made from here on are the library's
 *	dlopen, lkl_init, lkl_start_kernel, ...
 *	preload_own(false)
 *	preload_install()	from here on the program's sockets are the stack's
 *
 * Descriptors that belong to the library (the kernel library's, the control
 * server's) live at high numbers, and the program can neither close nor replace
 * them: it is told EBADF. A thread that has called preload_own(true) makes such
 * descriptors, by whatever call; its calls are never the stack's.
 */
#ifndef LKLRUN_PRELOAD_H
#define LKLRUN_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct preload_stack - the kernel library's functions, as in lkl.h
 * @syscall: lkl_syscall
 * @self: lkl_self
 * @interrupt: lkl_interrupt
 * @host_watch: lkl_host_watch
 * @watch: lkl_epoll_watch
 * @spin: lkl_set_spin
 * @halt: lkl_sys_halt
 */
struct preload_stack {
	long (*syscall)(long no, long *params);
	void *(*self)(void);
	void (*interrupt)(void *thread);
	int (*host_watch)(int fd, void *(*fn)(void *arg), void *arg);
	int (*watch)(int epfd, void (*fn)(void *arg), void *arg);
	void (*spin)(unsigned int usec);
	long (*halt)(void);
};

/* preload_bind - take the functions of a library loaded with dlopen(), and copy
 * them to @st; 0 or -ENOEXEC */
int preload_bind(void *lib, struct preload_stack *st, char *err, size_t errlen);

/* preload_prepare - patch the C library; 0 or a negative errno, @err says why */
int preload_prepare(char *err, size_t errlen);

/* preload_install - the kernel runs: take the program's calls */
int preload_install(void);

/* preload_own - what this thread opens from now on is the library's, or not */
void preload_own(bool on);

/* preload_own_fd - move an inherited descriptor to a high number, as the
 * library's own; its new number or a negative errno */
int preload_own_fd(int fd);

/* preload_mptcp - TCP stream sockets become MPTCP from now on */
void preload_mptcp(bool on);

/* preload_spin - microseconds a thread looks before it sleeps, 0: none */
void preload_spin(unsigned int usec);

/* preload_warn - have a line for the user told by @fn instead of by stderr */
void preload_warn(void (*fn)(const char *line));

/* preload_at_exit - @fn is called once, when the process that has the kernel
 * ends by exit or _exit, whatever thread calls it, or by a signal that nobody
 * handles (@status is its number then); it may call preload_drain(). It may run
 * in a signal handler, where locks of the C library's may be taken */
void preload_at_exit(void (*fn)(int status));

/* preload_drain - close every socket and wait until what was sent is with the
 * peers, as long as they take it; whether it is, else the user is told */
bool preload_drain(void);

/* preload_halt - the last call: the kernel ends, and resets what is not drained */
void preload_halt(void);

/* preload_alive - whether this process has the kernel: not a child after fork */
bool preload_alive(void);

/* preload_private_files - for a thread that makes calls in the stack on behalf
 * of others (the control server's): a descriptor table of its own there, so
 * that nothing it opens mixes with the program's sockets */
int preload_private_files(void);

/* For the control server, as host.h has them for lklhost. */
size_t engine_stats(char *buf, size_t len);
size_t engine_account(char *buf, size_t len);
size_t engine_owners(void *buf, size_t len);
bool engine_has_stack_fd(int fd);

#endif
