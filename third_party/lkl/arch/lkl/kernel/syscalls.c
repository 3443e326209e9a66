// SPDX-License-Identifier: GPL-2.0-only
/*
 * System calls, with the numbers and structure layouts of the host's
 * architecture.
 */
#include <linux/errno.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/resume_user_mode.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <linux/uaccess.h>
#include <asm/context.h>
#include <asm/lkl.h>
#include <asm/syscall.h>
#include <asm/unistd.h>

static long lkl_ni_syscall(long a, long b, long c, long d, long e, long f)
{
	return -ENOSYS;
}

/*
 * These calls exist on one CPU only and are implemented in its directory, or
 * they create or replace a process, or deliver signals.
 */
#define sys_arch_prctl		lkl_ni_syscall
#define sys_arm_fadvise64_64	lkl_ni_syscall
#define sys_clone		lkl_ni_syscall
#define sys_clone3		lkl_ni_syscall
#define sys_execve		lkl_ni_syscall
#define sys_execveat		lkl_ni_syscall
#define sys_exit_group		lkl_ni_syscall
#define sys_exit		lkl_ni_syscall
#define sys_fork		lkl_ni_syscall
#define sys_ioperm		lkl_ni_syscall
#define sys_iopl		lkl_ni_syscall
#define sys_modify_ldt		lkl_ni_syscall
#define sys_rt_sigreturn	lkl_ni_syscall
#define sys_rt_sigreturn_wrapper	lkl_ni_syscall
#define sys_sigaction		lkl_ni_syscall
#define sys_sigreturn_wrapper	lkl_ni_syscall
#define sys_sigsuspend		lkl_ni_syscall
#define sys_uretprobe		lkl_ni_syscall
#define sys_vfork		lkl_ni_syscall
#define sys_fstatfs64_wrapper	lkl_sys_fstatfs64
#define sys_mmap		lkl_sys_mmap
#define sys_mmap2		sys_mmap_pgoff
#define sys_ni_syscall		lkl_ni_syscall
#define sys_statfs64_wrapper	lkl_sys_statfs64

#ifdef __arm__
long sys_statfs64(long path, long sz, long buf);
long sys_fstatfs64(long fd, long sz, long buf);

/* Programs pad the structure to a multiple of 8 bytes; the kernel does not. */
static long statfs64_size(long sz)
{
	return sz == 88 ? 84 : sz;
}

static long lkl_sys_statfs64(long path, long sz, long buf, long d, long e, long f)
{
	return sys_statfs64(path, statfs64_size(sz), buf);
}

static long lkl_sys_fstatfs64(long fd, long sz, long buf, long d, long e, long f)
{
	return sys_fstatfs64(fd, statfs64_size(sz), buf);
}
#else
unsigned long ksys_mmap_pgoff(unsigned long addr, unsigned long len,
			      unsigned long prot, unsigned long flags,
			      unsigned long fd, unsigned long pgoff);

static long lkl_sys_mmap(long addr, long len, long prot, long flags, long fd,
			 long off)
{
	if (off & ~PAGE_MASK)
		return -EINVAL;
	return ksys_mmap_pgoff(addr, len, prot, flags, fd, off >> PAGE_SHIFT);
}
#endif

#define __SYSCALL_NORETURN(nr, sym) __SYSCALL(nr, sym)
#define __SYSCALL_WITH_COMPAT(nr, sym, compat) __SYSCALL(nr, sym)

#define __SYSCALL(nr, sym) extern long sym(long, long, long, long, long, long);
#include <asm/syscall_table.h>
#undef __SYSCALL

#define __SYSCALL(nr, sym) [nr] = sym,

#define NR_CALLS 512

static const lkl_syscall_fn lkl_syscall_table_[NR_CALLS] = {
	[0 ... NR_CALLS - 1] = lkl_ni_syscall,
#include <asm/syscall_table.h>
};

/* Does the pending work at the exit to user mode. */
static void exit_work(void)
{
	/* Files are really closed here. */
	if (test_thread_flag(TIF_NOTIFY_RESUME)) {
		clear_thread_flag(TIF_NOTIFY_RESUME);
		resume_user_mode_work(NULL);
	}
	/* The host delivers signals; here they only interrupt a wait. */
	if (test_thread_flag(TIF_NOTIFY_SIGNAL)) {
		clear_thread_flag(TIF_NOTIFY_SIGNAL);
		restore_saved_sigmask();
		if (task_work_pending(current))
			task_work_run();
	}
	if (test_thread_flag(TIF_SIGPENDING)) {
		restore_saved_sigmask();
		flush_signals(current);
	}
}

long lklk_syscall(struct lkl_hthread *me, long no, const long *params)
{
	long ret;

	me->calls++;
	if (unlikely((unsigned long)no >= NR_CALLS))
		return -ENOSYS;
	ret = lkl_syscall_anchored(&me->unwind, lkl_syscall_table_[no], params);
	if (unlikely(lkl_dead))
		return ret;
	if (unlikely(read_thread_flags() & (_TIF_NOTIFY_RESUME |
					    _TIF_NOTIFY_SIGNAL |
					    _TIF_SIGPENDING)))
		exit_work();
	if (unlikely(ret <= -512 && ret >= -516))	/* -ERESTART... */
		ret = -EINTR;
	return ret;
}

long lklk_call(struct lkl_hthread *me, long (*fn)(void *), void *arg)
{
	long ret = lkl_anchor_call(&me->unwind, fn, arg);

	if (likely(!lkl_dead))
		exit_work();
	return ret;
}

struct watch {
	poll_table pt;
	wait_queue_entry_t wait;
	int *flag;
};

/* Host side, lib/loop.c: *@flag was set. */
void lklh_flag_set(int *flag);

static int watch_wake(wait_queue_entry_t *wait, unsigned int mode, int sync,
		      void *key)
{
	struct watch *w = container_of(wait, struct watch, wait);

	WRITE_ONCE(*w->flag, 1);
	lklh_flag_set(w->flag);
	return 0;
}

static void watch_queue(struct file *file, wait_queue_head_t *head,
			poll_table *pt)
{
	struct watch *w = container_of(pt, struct watch, pt);

	add_wait_queue(head, &w->wait);
}

/**
 * lklk_watch - set *@flag whenever @epfd becomes ready
 *
 * Keeps a reference to the file, so that its wait queue lives as long as the
 * kernel.
 */
int lklk_watch(int epfd, int *flag)
{
	struct watch *w;
	struct file *f = fget(epfd);

	if (!f)
		return -EBADF;
	w = kzalloc(sizeof(*w), GFP_KERNEL);
	if (!w) {
		fput(f);
		return -ENOMEM;
	}
	w->flag = flag;
	init_waitqueue_func_entry(&w->wait, watch_wake);
	init_poll_funcptr(&w->pt, watch_queue);
	if (vfs_poll(f, &w->pt)) {
		WRITE_ONCE(*flag, 1);
		lklh_flag_set(flag);
	}
	return 0;
}
