// SPDX-License-Identifier: GPL-2.0-only
/*
 * Boot, system calls, halt.
 */
#include "internal.h"
#include "writer.h"
#include "host_call.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEFAULT_MEM	(64UL << 20)
#define MIN_MEM		(16UL << 20)

/* The only interfaces are lo and those that the caller adds. */
#define BUILTIN_CMDLINE	"dummy.numdummies=0 ifb.numifbs=0 fb_tunnels=none "

enum state { FRESH, INITED, BOOTING, RUNNING, OVER };

static enum state state;
static int forked;
static char cmdline[4096];
static char *arena;
static unsigned long arena_size;

static void default_print(const char *str, int len)
{
	while (len > 0) {
		ssize_t n = write(2, str, len);

		if (n <= 0)
			return;
		str += n;
		len -= n;
	}
}

API struct lkl_host_operations lkl_host_ops = {
	.print = default_print,
};

struct lkl_host_operations *host_ops;

/**
 * lkl_usable - whether calls can be made
 */
int lkl_usable(void)
{
	return state == RUNNING && !lkl_dead && !forked;
}

static int unusable_error(void)
{
	return lkl_dead == LKL_DEAD_PANIC && !forked ? -EIO : -ENODEV;
}

API int lkl_is_running(void)
{
	return lkl_usable();
}

static void print(const char *str, int len)
{
	if (host_ops && host_ops->print)
		host_ops->print(str, len);
}

void lklh_panic(void)
{
	cpu_wake_all();
	if (host_ops && host_ops->panic)
		host_ops->panic();
}

/* The child has the memory of a kernel, but not its threads. */
static void after_fork(void)
{
	forked = 1;
	loop_mode = 0;
}

/*
 * glibc has pthread_atfork() only in its static part, which makes this call;
 * other C libraries do not have this function.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void),
			     void (*child)(void), void *dso)
	__attribute__((weak));
extern void *__dso_handle __attribute__((weak, visibility("hidden")));

static void watch_fork(void)
{
	if (__register_atfork)
		__register_atfork(NULL, NULL, after_fork,
				  &__dso_handle ? __dso_handle : NULL);
	else
		pthread_atfork(NULL, NULL, after_fork);
}

API int lkl_init(struct lkl_host_operations *ops)
{
	static int atfork;

	if (state == OVER)
		return -EBUSY;
	if (state > INITED)
		return -EALREADY;
	host_ops = ops ? ops : &lkl_host_ops;
	if (!atfork) {
		watch_fork();
		atfork = 1;
	}
	state = INITED;
	return 0;
}

/* "mem=64M" on the command line; the kernel itself ignores it. */
static unsigned long long mem_size(const char *cmd)
{
	const char *p = cmd;
	unsigned long long n;
	char *end;

	while ((p = strstr(p, "mem="))) {
		if (p == cmd || p[-1] == ' ')
			break;
		p += 4;
	}
	if (!p)
		return DEFAULT_MEM;
	n = strtoull(p + 4, &end, 0);
	switch (*end) {
	case 'g': case 'G':
		n <<= 10;
		/* fall through */
	case 'm': case 'M':
		n <<= 10;
		/* fall through */
	case 'k': case 'K':
		n <<= 10;
	}
	if (n < MIN_MEM)
		n = MIN_MEM;
	return (n + 0x3fffff) & ~0x3fffffULL;
}

static int arena_alloc(void)
{
	const unsigned long align = 4UL << 20;
	unsigned long long size = mem_size(cmdline);
	char *p, *q;

	/* larger than the address space */
	if (size > SIZE_MAX - align)
		return -ENOMEM;
	arena_size = size;
	if (virtual_now) {
		arena = virtual_pages(arena_size);
		return arena ? 0 : -ENOMEM;
	}
	p = host_pages(arena_size + align);
	if (!p)
		return -ENOMEM;
	/* the buddy allocator needs its largest blocks aligned */
	q = (char *)(((unsigned long)p + align - 1) & ~(align - 1));
	if (q > p)
		munmap(p, q - p);
	munmap(q + arena_size, p + align - q);
	/*
	 * The kernel walks objects all over the arena, and with small pages
	 * each step misses the TLB. A failure has no other effect.
	 */
	madvise(q, arena_size, MADV_HUGEPAGE);
	arena = q;
	return 0;
}

static void arena_free(void)
{
	if (arena)
		munmap(arena, arena_size);
	arena = NULL;
}

static void give_back(void)
{
	events_stop();
	fault_exit();
	netdevs_halt();
	threads_free();
	arena_free();
}

API int lkl_start_kernel(const char *fmt, ...)
{
	struct lkl_boot boot = {
		.cmdline = cmdline,
		.memcpy = copy_routine(),
		.memmove = memmove,
		.memset = memset,
		.memcmp = memcmp,
		.strlen = strlen,
		.print = print,
	};
	struct thread *t;
	va_list ap;
	int ret;

	if (state != INITED)
		return state == FRESH ? -EINVAL : -EBUSY;
	strcpy(cmdline, BUILTIN_CMDLINE);
	va_start(ap, fmt);
	ret = vsnprintf(cmdline + sizeof(BUILTIN_CMDLINE) - 1,
			sizeof(cmdline) - sizeof(BUILTIN_CMDLINE) + 1, fmt, ap);
	va_end(ap);
	if (ret < 0 || ret > (int)(sizeof(cmdline) - sizeof(BUILTIN_CMDLINE)))
		return -E2BIG;
	ret = arena_alloc();
	if (ret)
		return ret;
	boot.mem_start = (unsigned long)arena;
	boot.mem_end = boot.mem_start + arena_size;

	state = BOOTING;
	ret = -ENOMEM;
	if (threads_init() || events_init() || fault_init())
		goto fail;
	t = thread_get();
	if (!t)
		goto fail;

	cpu_trylock();
	t->busy = IN_KERNEL;
	lklk_boot(&t->k, &boot);
	if (!lkl_dead)
		cpu_put(t, NULL);
	while (!lkl_dead && !lklk_booted()) {
		t->busy = IN_USER;
		if (loop_mode) {
			events_wait_loop(~0ULL);
		} else {
			events_try_lead(t);
			events_lead(t);
			events_unlead(t);
		}
		cpu_run(t);
	}
	t->busy = IN_USER;
	if (lkl_dead) {
		ret = -EIO;
		goto fail;
	}
	ret = events_start();
	if (ret)
		goto fail;
	state = RUNNING;
	return netdevs_boot();
fail:
	if (!lkl_dead)
		lkl_dead = LKL_DEAD_HALT;
	give_back();
	state = OVER;
	return ret;
}

/*
 * The caller's struct, if it may enter. A signal handler that has interrupted
 * the library may not, even if its thread only waits: the CPU may be granted to
 * that thread at any moment, and then no other thread has it.
 */
static struct thread *may_enter(long *err)
{
	struct thread *t = thread_get();

	if (likely(t && t->busy == IN_USER))
		return t;
	*err = t ? -EDEADLK : -ENOMEM;
	return NULL;
}

static long __attribute__((noinline)) slow_syscall(long no, long *params)
{
	struct thread *t;
	long ret;

	if (!lkl_usable())
		return unusable_error();
	t = may_enter(&ret);
	if (!t)
		return ret;
	if (no == SYS_exit) {
		/* end the caller's task; its next call gets a new one */
		ret = 0;
		if (t->k.task) {
			ret = cpu_enter(t);
			if (!ret) {
				t->in_call = 0;
				cpu_put(t, lklk_exit(&t->k));
				to_user(t);
			}
		}
	} else {
		ret = cpu_enter(t);
		if (!ret) {
			ret = lklk_syscall(&t->k, no, params);
			cpu_leave(t);
		}
	}
	if (unlikely(lkl_dead))
		ret = unusable_error();
	return ret;
}

API long lkl_syscall(long no, long *params)
{
	struct thread *t = self;
	long ret;

	if (unlikely(!t || t->busy != IN_USER || !lkl_usable() || no == SYS_exit))
		return slow_syscall(no, params);
	if (unlikely(cpu_enter(t)))
		return slow_syscall(no, params);
	ret = lklk_syscall(&t->k, no, params);
	cpu_leave(t);
	if (unlikely(lkl_dead))
		ret = unusable_error();
	return ret;
}

/**
 * kernel_call - call a function of the kernel in the caller's task
 */
long kernel_call(long (*fn)(void *), void *arg)
{
	struct thread *t;
	long ret;

	if (!lkl_usable())
		return unusable_error();
	t = may_enter(&ret);
	if (!t)
		return ret;
	ret = cpu_enter(t);
	if (!ret) {
		ret = lklk_call(&t->k, fn, arg);
		cpu_leave(t);
	}
	return unlikely(lkl_dead) ? unusable_error() : ret;
}

/* Lets threads that wait in the kernel leave, for at most a second. */
static void wait_for_others(void)
{
	unsigned long long end = lklh_mono() + 1000000000ULL;
	struct thread *t;

	for (t = all_threads; t; t = t->next)
		while (t != self &&
		       __atomic_load_n(&t->busy, __ATOMIC_ACQUIRE) != IN_USER &&
		       lklh_mono() < end)
			sched_yield();
}

static void settle(void *t)
{
	cpu_run(t);
}

API long lkl_sys_halt(void)
{
	struct thread *t;
	long ret = 0;

	if (forked)
		return -ENODEV;
	if (state != RUNNING)
		return state == OVER ? -ENODEV : -EINVAL;
	if (!lkl_dead) {
		t = thread_get();
		if (!t)
			return -ENOMEM;
		if (t->busy != IN_USER)
			return -EDEADLK;
		/* datagrams that waited behind a full ring */
		writer_settle(settle, t);
		ret = cpu_enter(t);
		if (!ret) {
			ret = lklk_halt(&t->k);
			cpu_leave(t);
		}
		if (!lkl_dead)
			return ret;
	}
	cpu_wake_all();
	wait_for_others();
	state = OVER;
	give_back();
	return 0;
}

API void lkl_cleanup(void)
{
	host_ops = NULL;
	if (state == INITED)
		state = FRESH;
}

API const char *lkl_strerror(int err)
{
	return strerror(err < 0 ? -err : err);
}
