/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations shared by the files of the host library. */
#ifndef LKL_INTERNAL_H
#define LKL_INTERNAL_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>
#include <lkl.h>
#include <lkl_host.h>
#include "../arch/lkl/include/asm/host.h"

#define API	__attribute__((visibility("default")))

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

/*
 * A store that other threads see before this one loads what they store. An
 * exchange, because QEMU on x86 (7.2) swaps a store-release of arm64 with a
 * later load-acquire. On x86 both are the same instruction.
 */
#define publish(p, v)	((void)__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST))

/*
 * Where a thread is; a signal handler may call the library only if it is
 * IN_USER
 */
enum busy {
	IN_USER,	/* not in the library */
	IN_KERNEL,	/* owns the CPU, or is about to take or release it */
	IN_WAIT,	/* waits for the CPU; owns nothing, on its own stack */
};

/**
 * struct thread - a host thread that has called the library
 * @k: the kernel's view of it
 * @busy: where it is
 * @in_call: inside a system call, so a wait can be interrupted
 * @unused: its thread has ended
 * @next: list of all threads
 */
struct thread {
	struct lkl_hthread k;
	volatile enum busy busy;
	int in_call;
	int unused;
	struct thread *next;
};

/**
 * to_user - the thread leaves the library
 *
 * wait_for_others() relies on this: all its accesses to the kernel's memory are
 * complete.
 */
static inline void to_user(struct thread *t)
{
	__atomic_store_n(&t->busy, IN_USER, __ATOMIC_RELEASE);
}

/* thread.c */
extern __thread struct thread *self
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern struct thread *all_threads;
struct thread *thread_new(void);
struct thread *thread_get(void);
int threads_init(void);
void threads_free(void);

/* cpu.c */
extern int loop_mode;
extern unsigned int loop_limit_ms;
extern unsigned long loop_blocked;
extern unsigned long loop_irqs;
int cpu_trylock(void);
int cpu_put(struct thread *t, struct lkl_hthread *next);
int cpu_enter(struct thread *t);
void cpu_leave(struct thread *t);
void cpu_run(struct thread *t);
void cpu_rest(struct thread *t);
void cpu_interrupt(struct thread *t);
void cpu_wake_all(void);
void cpu_reset(void);

/* copy.c */
void *(*copy_routine(void))(void *to, const void *from, size_t n);

/* event.c: waiting for devices and timers */
int events_init(void);
int events_start(void);
void events_stop(void);
int event_device(int fd, int id);
void event_forget(int fd);
void event_hold(int fd, int id, int on);
int events_look(void);
int events_lead(struct thread *t);
int events_try_lead(struct thread *t);
void events_unlead(struct thread *t);
void events_kick(void);
void events_glance(struct thread *t);
void events_more(void);
int events_is_leader(struct thread *t);
int events_sleeps(void);

/* spin.c */
int spin(struct thread *t);

/* coalesce.c: letting frames gather before they wake the process */
void coalesce_seen(int way, const struct lkl_iov *iov, int cnt,
		   unsigned long len, unsigned int head);
void coalesce_stop(void);
int coalesce_wanted(void);
int coalesce_sleep(void);
int coalesce_sends(void);
unsigned long long coalesce_until(void);
int coalesce_due(void);

/* clock.c: the kernel's deadline */
int clock_init(void);
void clock_exit(void);
void clock_arm(void);
void clock_fired(void);
void events_timer_due(void);
unsigned long long events_deadline(void);

/* virtual.c: virtual time, which libraries for devices do not have */
#if defined(__x86_64__) && defined(__GLIBC__)
#define HAVE_VIRTUAL
extern unsigned long long *virtual_now;
#else
#define virtual_now	((unsigned long long *)NULL)
#endif
unsigned long long virtual_real(void);
void virtual_random(void *buf, unsigned long len);
void *virtual_pages(unsigned long size);
int virtual_wait(unsigned long long until);
int virtual_rdtsc(ucontext_t *uc, int kernel);

/* netdev.c */
struct pollfd;
int netdevs_boot(void);
void netdevs_halt(void);
void netdev_event(int id, unsigned int epoll_events);
int netdevs_pollfds(struct pollfd *fds, int *ids, int max);
int netdevs_more(void);
void netdevs_hold(int on);
extern int loop_epfd;
extern uint64_t loop_tag;

/* loop.c; the kernel declares the second function itself */
int events_wait_loop(unsigned long long until);
void lklh_flag_set(int *flag);

/* api.c */
extern struct lkl_host_operations *host_ops;
int lkl_usable(void);
long kernel_call(long (*fn)(void *), void *arg);

/* fault.c */
int fault_init(void);
void fault_exit(void);

/* unaligned.c */
int fault_unaligned(ucontext_t *uc);

#endif
