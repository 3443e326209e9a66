/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * lklvirtual: a node of a lab in virtual time, see main.c.
 */
#ifndef VIRTUAL_H
#define VIRTUAL_H

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/types.h>

#define NEVER		UINT64_MAX
#define BOOT_NS		99500000000ull		/* CLOCK_MONOTONIC at the boot of the stack */
#define BEGIN_NS	100000000000ull		/* and at the start of the first program */
#define REAL_OFFSET	(1767225600000000000ull - BEGIN_NS)	/* 2026-01-01 00:00 UTC */

#define MAX_FDS		4096
#define MAX_IFS		16
#define MAX_THREADS	4096
#define MAX_PROCESSES	1024
#define MAX_PROGRAMS	256
#define BUF_SIZE	(256 * 1024)
#define CLOCK_FUNCTIONS	2

/*
 * Messages between the coordinator and a node: this header, then @len bytes.
 * The twin of struct header in internal/run/virtual/node.go.
 */
enum msg_type {
	MSG_FRAME = 'f',	/* both ways: a frame that is sent or arrives at @time */
	MSG_START = 's',	/* start program @id at @time: output file and words, each with a NUL */
	MSG_LOST = 'w',		/* the frames in flight to interface @id are lost */
	MSG_SERVE = 'c',	/* make the calls of the control connection at @time, see serve.c */
	MSG_GRANT = 'g',	/* run until @time, exclusively */
	MSG_DONE = 'd',		/* has run until then; the next event is at @time; @id 1: there is an event for the control connection */
	MSG_LISTEN = 'l',	/* program @id listens */
	MSG_EXEC = 'p',		/* program @id has executed a file: its path */
	MSG_END = 'e',		/* program @id has ended at @time, with the wait status */
	MSG_FAIL = 'x',		/* the lab cannot go on: a line for the user */
};

struct msg {
	uint8_t type, pad;
	uint16_t id;		/* interface or program */
	uint32_t len;
	uint64_t time;
};

enum fd_kind { FD_STREAM, FD_MESSAGES, FD_PIPE, FD_OTHER };

struct thread;

/**
 * struct program - a program of the coordinator, with all its descendants
 * @id: number that the coordinator gave it
 * @births: number of threads and processes that clone() has made or will make, and
 *	that have made no call
 * @creator: the thread that has called clone() last
 */
struct program {
	int id, listener, births;
	struct thread *creator;
	char name[64];
};

/**
 * struct clock - the clocks that a process reads without calls, see clock.c
 * @vdso: address of the vDSO
 * @state: address of the state in each replaced function, or 0
 * @at: time in the page
 * @tried: the process has tried to map the page; @mapped: it has succeeded
 * @armed: the page has reads
 */
struct clock {
	uint64_t vdso, state[CLOCK_FUNCTIONS], at;
	bool tried, mapped, armed;
};

/**
 * struct process - a process of a program
 * @pid: in the namespace of this process, and @ns_pid in its own one
 * @mem: its memory, /proc/PID/mem
 * @parent: NULL: started for the coordinator
 * @vforked_by: the thread that waits until this process has its own memory
 * @running: number of its threads that are not stopped at a call
 * @exec: it has been allowed to execute a program; its next call shows whether it did
 * @reaped: its parent has fetched its status
 * @signalled: it may have a signal that ends calls
 * @random: the random bytes that its program has been given
 * @fds: for each of its descriptors, 1 + that of the stack, or 0
 */
struct process {
	struct program *program;
	pid_t pid, ns_pid;
	int pidfd, mem, running;
	struct process *parent;
	struct thread *vforked_by;
	bool live, exec, reaped, signalled;
	uint64_t random[2];
	struct clock clock;
	int fds[MAX_FDS];
};

/**
 * struct thread - a thread of a program
 * @ns_tid: its id in its own namespace
 * @held: stopped at @req
 * @retry: the call has been tried and has to wait
 * @charged: it waits because its calls have taken time, see program.c
 * @calls: number of its calls since it last waited
 * @ticks: number of its last calls that were times()
 * @vforks: it waits in the kernel for the child of its vfork()
 * @wake: end of its wait
 * @connecting: the call waits for a connection; @connected: it has waited for it
 * @done: bytes that the call has transferred before it had to wait
 * @futex: address at which it waits, or 0
 */
struct thread {
	struct process *p;
	pid_t tid, ns_tid;
	bool live, held, retry, charged, woken, vforks, connecting, connected;
	unsigned int calls, ticks;
	uint64_t wake, done, futex;
	uint32_t futex_bits;
	struct seccomp_notif req;
};

/* How a call is handled */
enum verdict {
	ANSWER,		/* return a result */
	WAIT,		/* try again after the next event, at the latest at @wake */
	NATIVE,		/* the host's kernel executes it */
	CLONE, EXEC, THREAD_EXIT, EXIT,	/* native; threads begin or end */
	KILL,		/* native; sends a signal */
	UNSUPPORTED,
};

/* coordinator.c: messages, time, chance */
extern unsigned long long now;
extern char buf[BUF_SIZE];	/* for the call that is handled */
extern bool alone;		/* there is no coordinator */
bool coordinator_open(void);
bool coordinator_read(void *to, size_t len);
void coordinator_done(uint64_t next, bool event);
void message(int type, int id, uint64_t time, const void *data, uint32_t len);
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void random_seed(uint64_t seed);
uint64_t random_next(void);

/* node_stack.c: the kernel and its devices */
void stack_begin(const char *lib, const char *mem, uint64_t seed);
void stack_interface(const char *text);
void stack_sysctl(const char *text);
void stack_settle(void);
uint64_t stack_next(void);
void stack_frame(int iface, const void *frame, uint32_t len);
long st_call(long nr, long a, long b, long c, long d, long e, long f);

#define ST(nr, a, b, c, d, e, f) \
	st_call(SYS_##nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* serve.c: calls of lklrun */
void serve_calls(void);
bool served_event(void);

/* process.c: processes and threads */
extern struct thread threads[MAX_THREADS];
extern int thread_count;
extern struct process processes[MAX_PROCESSES];
extern int process_count;
bool process_reaped(struct process *p);
uint64_t status_field(pid_t pid, const char *name, int base);
int mem_read(struct thread *t, void *to, uint64_t from, size_t len);
int mem_write(struct thread *t, uint64_t to, const void *from, size_t len);
int mem_string(struct thread *t, char *to, uint64_t from, size_t size);

/* clock.c: clocks without calls */
bool clock_patch(struct thread *t, const char *name, uint64_t at, uint64_t size);
bool clock_spent(struct thread *t);
void clock_attach(struct thread *t);
void clock_update(struct thread *t);

/* signals.c: signals and their timers */
bool signals_pending(struct thread *t, const uint64_t *mask);
bool signals_own(struct thread *t);
bool signals_in(struct thread *t, uint64_t set);
bool process_killed(struct process *p);
void timers_drop(struct process *p, bool exec);
uint64_t timers_first(void);
void timers_expire(void);

/* program.c: start and end of programs, and the order in which their threads run */
void programs_begin(void);
void program_start(int id, char *words, uint32_t len);
void program_execute(int id, const char *output, char **argv);
bool programs_settle(void);
void programs_kill(void);
extern int last_status;		/* wait status of the program that has ended last, or -1 */

/* fds.c: descriptors */
int fd_stack(struct thread *t, uint64_t fd);
int fd_add(struct thread *t, int sfd, enum fd_kind kind, bool nonblock, bool cloexec);
int fd_add_host(struct thread *t, int fd, bool cloexec);
bool fd_nonblock(int f);
void fd_set_nonblock(int f, bool on);
long fd_set_async(int f, bool on);
void fds_async(void);
void fds_drop(struct process *p, uint64_t first, uint64_t last);
void fds_after_exec(struct process *p);
void fds_fork(struct process *to, const struct process *from);
enum verdict stat_stack(struct thread *t, int f, uint64_t to, long *ret);
extern struct fd_info {
	int refs;
	enum fd_kind kind;
	bool fastopen;	/* a send may connect first (TCP_FASTOPEN_CONNECT) */
	pid_t owner;	/* with O_ASYNC, the process that gets SIGIO */
} fd_info[MAX_FDS];

/* files.c: files */
extern const char *hosts_file;	/* what programs see as /etc/hosts */

/* calls.c: what happens at each call */
enum verdict call_handle(struct thread *t, long *ret);
const char *call_name(int nr);
bool call_restarts(const struct thread *t);
bool call_mask(struct thread *t, uint64_t *mask);

/* sock.c */
extern bool mptcp;	/* TCP stream sockets become MPTCP */

/* The handlers, by file. @a: the arguments, @f: the stack's descriptor of the first one */
typedef enum verdict handler(struct thread *t, uint64_t *a, int f, long *ret);
handler on_close, on_close_range, on_dup, on_dup2, on_dup3, on_fcntl, on_fstat;
handler on_open, on_openat, on_stat, on_newfstatat, on_statx, on_access, on_faccessat;
handler on_socket, on_socketpair, on_pipe, on_pipe2, on_eventfd, on_eventfd2, on_timerfd_create,
	on_timerfd_settime, on_timerfd_gettime, on_bind, on_connect, on_listen, on_accept, on_accept4,
	on_name, on_setsockopt, on_getsockopt, on_shutdown, on_ioctl, on_read, on_readv, on_write,
	on_writev, on_splice, on_sendfile, on_sendto, on_recvfrom, on_sendmsg, on_recvmsg, on_sendmmsg, on_recvmmsg;
handler on_nanosleep, on_clock_nanosleep, on_pause, on_yield, on_poll, on_ppoll, on_select,
	on_pselect, on_sigsuspend, on_sigtimedwait, on_wait4, on_waitid, on_epoll_create, on_epoll_create1, on_epoll_ctl, on_epoll_wait, on_epoll_pwait2,
	on_futex;
handler on_kill, on_tgkill, on_setitimer, on_getitimer, on_alarm, on_timer_create, on_timer_settime,
	on_timer_gettime, on_timer_getoverrun, on_timer_delete;

/* Finishes a call that may have to wait until @timeout (NEVER: without limit) from its start. */
enum verdict wait_until(struct thread *t, uint64_t timeout);
void wait_interrupted(struct thread *t);

#endif
