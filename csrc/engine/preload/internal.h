/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Declarations shared by the files of the preload engine.
 *
 * Theory of operation
 *
 * A patched call reaches preload_dispatch() (dispatch.c) unless entry.S has
 * recognized it as the host's. The program sees descriptors of the host: each
 * socket of the stack has one, an unconnected unix socket, its placeholder
 * (table.c). So descriptor numbers, limits and FD_CLOEXEC work as usual, and a
 * call that is not intercepted finds a socket that can do nothing. The engine
 * records the stack's descriptor for each placeholder. Most calls are repeated
 * in the stack with that descriptor and are otherwise unchanged.
 *
 * Between enter() and leave() a thread is "inside": in the kernel library, or
 * in the engine's tables. A signal handler of the program does not run during
 * that time: it is deferred until leave(), and the wait in the library is
 * interrupted (signal.c). So handlers may do anything, including longjmp() and
 * socket calls.
 *
 * The kernel library runs on a separate stack for each thread, because the
 * stack of the program's thread may be small.
 */
#ifndef PRELOAD_INTERNAL_H
#define PRELOAD_INTERNAL_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "engine/preload/arch.h"
#include "engine/preload/entry.h"
#include "engine/preload/preload.h"

#define HIDDEN		__attribute__((visibility("hidden")))
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)
#define barrier()	__asm__ __volatile__("" : : : "memory")

struct poller;

/**
 * struct inside - state of a thread of the program
 * @depth: nesting of enter(); the thread is inside if it is not 0
 * @own: nesting of preload_own(true): its calls never go to the stack
 * @pending: deferred signal, or 0; @si and @mask belong to it
 * @lkl: the library's handle of this thread
 * @top: top of its stack for calls; NULL if it has none yet
 * @own_poller: waits for host and stack at once; NULL if it has none yet;
 *	@give_back frees it
 * @next: list of all threads that have a stack for calls
 */
struct inside {
	volatile int depth;
	int own;
	volatile int pending;
	siginfo_t si;
	uint64_t mask;
	void *lkl;
	char *top;
	struct poller *own_poller;
	void (*give_back)(struct poller *p);
	struct inside *next;
};

extern HIDDEN __thread struct inside me __attribute__((tls_model("initial-exec")));

/**
 * struct entry - state of a descriptor of the host
 * @sfd: the stack's descriptor; with KIND_PARKED, one reserved for a later
 *	socket
 * @sock: index of its struct sock, or with KIND_EPOLL of its struct shadow
 */
struct entry {
	int sfd;
	int sock;
};

/**
 * struct sock - a socket of the stack, shared by its duplicates
 * @domain, @type, @proto: as requested; all 0 for a file of the stack (files.c)
 * @refs: number of descriptors; 0 if the entry is free and @next_free is valid
 * @mptcp: MPTCP was made where TCP was requested
 * @timeo: it has SO_RCVTIMEO or SO_SNDTIMEO, so its calls are not restarted
 * @fresh: neither connected nor listening, so it can still be replaced
 *	(fallback.c)
 * @listening: it listens; @accepted: it was accepted
 * @told, @seen: it is already in the statistics (sock_stats.c); @in, @out: bytes
 * @watched: it was added to an epoll
 * @ino: inode of the placeholder; @stack_ino: inode of the socket in the stack
 * @notes: recorded options, @n_notes of them (fallback.c)
 */
struct sock {
	int refs;
	int next_free;
	int domain, type, proto;
	bool mptcp, timeo, fresh, listening, accepted, watched, told;
	uint32_t seen;
	uint64_t in, out;
	uint32_t id;
	uint64_t ino, stack_ino;
	struct sockopt_note *notes;
	int n_notes;
};

/* Counters; see engine_stats(). */
struct counts {
	uint64_t calls, made, refused, open, accepted, fallback;
	uint64_t bytes_in, bytes_out, dgrams_in, dgrams_out;
};

extern HIDDEN struct counts counts;

#define COUNT(name, n)	__atomic_fetch_add(&counts.name, (uint64_t)(n), __ATOMIC_RELAXED)

/* Count bytes, in total and for one socket; @way is in or out. */
#define COUNT_BYTES(s, way, n) do {					\
	COUNT(bytes_##way, n);						\
	__atomic_fetch_add(&(s)->way, (uint64_t)(n), __ATOMIC_RELAXED);	\
} while (0)

/* state.c */
extern HIDDEN struct preload_stack lkl;
extern HIDDEN bool use_mptcp;
extern HIDDEN bool preload_selftested;	/* the library booted the stack by itself */
#define PRELOAD_SELFTEST	"LKLRUN_PRELOAD_SELFTEST"
extern HIDDEN unsigned char *preload_kind;
extern HIDDEN unsigned char preload_class[ENTRY_CALLS];
extern HIDDEN struct entry *entries;
extern HIDDEN struct sock *socks;
extern HIDDEN int max_fd;	/* the highest descriptor with an entry */
extern HIDDEN int owner_pid;
extern HIDDEN volatile int *alive;

typedef long (*call_fn)(long nr, const long *a);

/* ARCH/calls.S */
long preload_on_stack(long nr, long *args, long (*fn)(long, long *), void *top) HIDDEN;
int preload_copy(void *to, const void *from, size_t len) HIDDEN;
extern HIDDEN const char preload_copy_begin[], preload_copy_end[], preload_copy_fault[];

/* ARCH/entry.S */
extern HIDDEN const char preload_native[];	/* the host's system call in preload_entry */

/* sock_stats.c */
void tally_close(struct sock *s, int sfd) HIDDEN;
size_t tally_print(const char *prefix, char *buf, size_t len) HIDDEN;

/* patch.c */
int patch_libc(char *err, size_t errlen) HIDDEN;

/* dispatch.c */
void dispatch_init(void) HIDDEN;
void dispatch_on(void) HIDDEN;
long preload_dispatch(long nr, const long *a) HIDDEN;

/* threads.c */
void lock(void) HIDDEN;
void unlock(void) HIDDEN;
long stack_raw(long nr, const long *a) HIDDEN;
long stack_wait(long nr, const long *a, bool restart) HIDDEN;
long stack_now(long nr, const long *a) HIDDEN;
int thread_ready(void) HIDDEN;
int threads_init(void) HIDDEN;
void threads_park(void) HIDDEN;
void park(void) HIDDEN;
extern HIDDEN struct inside *volatile parked_by;	/* set when all other threads are parked */

/* memory.c */
bool memory_full(void) HIDDEN;

/* warn.c */
void warn_line(const char *fmt, ...) HIDDEN __attribute__((format(printf, 1, 2)));
void warn_refused(const char *text) HIDDEN;

/* table.c */
int table_init(void) HIDDEN;
int table_give(int fd, int sfd, int domain, int type, int proto) HIDDEN;
int table_reserve(int type_flags) HIDDEN;
void table_set(int fd, int sfd, int sock, unsigned char kind) HIDDEN;
void sock_free(int i) HIDDEN;

/* close.c */
int table_forget(int fd) HIDDEN;
void sock_put(int i) HIDDEN;
long call_close(long nr, const long *a) HIDDEN;
long call_close_range(long nr, const long *a) HIDDEN;

/* dup.c */
long call_dup(long nr, const long *a) HIDDEN;
long call_dup2(long nr, const long *a) HIDDEN;
long dup_to(int fd, long newfd) HIDDEN;
bool exchanged(long ret, unsigned int was) HIDDEN;
extern HIDDEN unsigned int dups;

/* lib_fds.c */
long own_call(long nr, const long *a) HIDDEN;

/* sock.c, fallback.c */
long call_socket(long nr, const long *a) HIDDEN;
long call_accept(long nr, const long *a) HIDDEN;
long call_connect(long nr, const long *a) HIDDEN;
long call_listen(long nr, const long *a) HIDDEN;
long call_getsockopt(long nr, const long *a) HIDDEN;
long call_setsockopt(long nr, const long *a) HIDDEN;
void fallback_note(struct sock *s, int level, int name, const void *value, int len) HIDDEN;
void fallback_forget(struct sock *s) HIDDEN;
long fallback_to_tcp(int fd, int level, int name, const void *value, int len, long ret) HIDDEN;

/* files.c */
long call_open(long nr, const long *a) HIDDEN;
long call_file(long nr, const long *a) HIDDEN;

/* io.c, rights.c, copy.c */
long call_pass(long nr, const long *a) HIDDEN;
long call_read(long nr, const long *a) HIDDEN;
long call_write(long nr, const long *a) HIDDEN;
long call_sendmsg(long nr, const long *a) HIDDEN;
long call_recvmsg(long nr, const long *a) HIDDEN;
long call_fcntl(long nr, const long *a) HIDDEN;
long call_ioctl(long nr, const long *a) HIDDEN;
long call_sendfile(long nr, const long *a) HIDDEN;
long call_splice(long nr, const long *a) HIDDEN;
long rights_send(long nr, const long *a) HIDDEN;
long rights_recv(long nr, const long *a) HIDDEN;
void broken_pipe(const struct sock *s, long ret, long flags) HIDDEN;

/* poll.c, epoll.c, poller.c */
long call_poll(long nr, const long *a) HIDDEN;
long call_select(long nr, const long *a) HIDDEN;
long call_epoll_create(long nr, const long *a) HIDDEN;
long call_epoll_ctl(long nr, const long *a) HIDDEN;
long call_epoll_wait(long nr, const long *a) HIDDEN;
int shadow_put(int i) HIDDEN;
void shadow_get(int i) HIDDEN;
int64_t mono_ns(void) HIDDEN;

/* proc.c */
int proc_init(void) HIDDEN;
long child_call(long nr, const long *a) HIDDEN;

/* account.c */
long in_stack(long nr, long a, long b, long c, long d, long e) HIDDEN;
char *stack_file_text(const char *path) HIDDEN;
void stack_file_free(char *text) HIDDEN;

/* end.c */
void proc_ends(int status, int sig) HIDDEN;
long call_exit(long nr, const long *a) HIDDEN;
long call_nosys(long nr, const long *a) HIDDEN;

#define RAW0(nr)		raw6(SYS_##nr, 0, 0, 0, 0, 0, 0)
#define RAW1(nr, a)		raw6(SYS_##nr, (long)(a), 0, 0, 0, 0, 0)
#define RAW2(nr, a, b)		raw6(SYS_##nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW3(nr, a, b, c)	raw6(SYS_##nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(nr, a, b, c, d)	raw6(SYS_##nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RAW5(nr, a, b, c, d, e)	raw6(SYS_##nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/* STACK - make a call in the stack that does not wait */
#define STACK(nr, a, b, c, d, e, f) \
	stack_now(SYS_##nr, (long[6]){ (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f) })

/** poll_host - poll descriptors of the host without waiting */
static inline long poll_host(struct pollfd *p, long n)
{
	struct timespec none = { 0, 0 };

	return RAW5(ppoll, p, n, &none, 0, 8);
}

/** poll_stack - poll a descriptor of the stack without waiting */
static inline long poll_stack(struct pollfd *p)
{
	struct timespec none = { 0, 0 };

	return STACK(ppoll, p, 1, &none, 0, 8, 0);
}

/** pages - allocate memory; not with malloc(), as a signal handler may need it */
static inline void *pages(size_t len)
{
	long p = raw6(SYS_mmap, 0, (long)len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

/** native - make the call unchanged on the host */
static inline long native(long nr, const long *a)
{
	return raw6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/** borrowed - whether another process runs in our memory (vfork, posix_spawn) */
static inline bool borrowed(void)
{
	return RAW0(getpid) != owner_pid;
}

/** kind_of - the KIND_* flags of a descriptor */
static inline unsigned char kind_of(long fd)
{
	unsigned int n = (unsigned int)fd;

	return n < ENTRY_FDS ? preload_kind[n] : 0;
}

static inline bool is_sock(long fd)
{
	return kind_of(fd) & KIND_SOCK;
}

static inline struct sock *sock_of(long fd)
{
	return &socks[entries[(unsigned int)fd].sock];
}

#endif
