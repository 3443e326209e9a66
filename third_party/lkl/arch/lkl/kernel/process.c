// SPDX-License-Identifier: GPL-2.0-only
/* Creation of tasks, and pid 1. */
#include <linux/binfmts.h>
#include <linux/fs.h>
#include <linux/file.h>
#include <linux/init.h>
#include <linux/init_syscalls.h>
#include <linux/kdev_t.h>
#include <linux/major.h>
#include <linux/namei.h>
#include <linux/oom.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/debug.h>
#include <linux/sched/task.h>
#include <linux/sched/task_stack.h>
#include <linux/stacktrace.h>
#include <linux/task_work.h>
#include <asm/context.h>
#include <asm/lkl.h>

static struct task_struct *lkl_init_task;
static struct lkl_hthread *lkl_new_first, **lkl_new_last = &lkl_new_first;

/**
 * lkl_host_task - marks a clone as the task of a host thread; never runs
 */
int lkl_host_task(void *arg)
{
	BUG();
}

int copy_thread(struct task_struct *p, const struct kernel_clone_args *args)
{
	memset(&p->thread, 0, sizeof(p->thread));
	if (args->fn == lkl_host_task) {
		struct lkl_hthread *t = args->fn_arg;

		p->thread.host = t;
		t->task = p;
		t->parked = 1;
		return 0;
	}
	/* fork() and clone() are not in the system-call table */
	if (!args->fn)
		return -ENOSYS;
	p->thread.fn = args->fn;
	p->thread.arg = args->fn_arg;
	p->thread.sp = lkl_context_init(task_stack_page(p) + THREAD_SIZE,
					lkl_floating_entry);
	return 0;
}

/**
 * lkl_new_task - create a task for a thread; interrupt context
 */
void lkl_new_task(struct lkl_hthread *t)
{
	t->req_next = NULL;
	*lkl_new_last = t;
	lkl_new_last = &t->req_next;
	wake_up_process(lkl_init_task);
}

static struct lkl_hthread *next_new_task(void)
{
	struct lkl_hthread *t;
	unsigned long flags;

	local_irq_save(flags);
	t = lkl_new_first;
	if (t) {
		lkl_new_first = t->req_next;
		if (!lkl_new_first)
			lkl_new_last = &lkl_new_first;
	}
	local_irq_restore(flags);
	return t;
}

/*
 * Not user_mode_thread(), whose threads have a root directory of their own in
 * 7.3.
 */
static pid_t clone_for(struct lkl_hthread *t)
{
	struct kernel_clone_args args = {
		.flags	= CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			  CLONE_SYSVSEM | CLONE_VM | CLONE_UNTRACED,
		.fn	= lkl_host_task,
		.fn_arg	= t,
	};

	return kernel_clone(&args);
}

/**
 * lkl_init_loop - pid 1 in "user mode": clones itself for the host's threads
 *
 * The clones are threads of pid 1. So they share its files, directory and
 * credentials, and no signal without a handler ends them.
 */
void __noreturn lkl_init_loop(void)
{
	struct lkl_hthread *t;
	pid_t pid;

	if (task_work_pending(current))
		task_work_run();
	lkl_init_task = current;
	for (;;) {
		set_current_state(TASK_IDLE);
		t = next_new_task();
		if (!t) {
			schedule();
			continue;
		}
		__set_current_state(TASK_RUNNING);
		pid = clone_for(t);
		if (pid < 0) {
			t->task = NULL;
			t->error = pid;
			lklh_refuse(t);
		}
	}
}

int lklk_booted(void)
{
	return lkl_init_task != NULL;
}

static int load_init(struct linux_binprm *bprm)
{
	int ret;

	if (!is_global_init(current) || strcmp(bprm->filename, "/init"))
		return -ENOEXEC;
	ret = begin_new_exec(bprm);
	if (ret)
		return ret;
	setup_new_exec(bprm);
	finalize_exec(bprm);
	return 0;
}

static struct linux_binfmt init_format = {
	.load_binary = load_init,
};

static void __init make_node(const char *name, unsigned int minor)
{
	init_unlink(name);
	init_mknod(name, S_IFCHR | 0666, new_encode_dev(MKDEV(MEM_MAJOR, minor)));
}

/*
 * Makes the file that pid 1 executes, and a few devices. The console is
 * /dev/null, which pid 1 has open three times: no socket ever gets descriptor
 * 0, 1 or 2.
 */
static int __init make_init(void)
{
	struct file *f = filp_open("/init", O_WRONLY | O_CREAT, 0755);

	if (IS_ERR(f))
		return PTR_ERR(f);
	fput(f);
	/*
	 * otherwise the file is still open for writing, and exec returns
	 * ETXTBSY
	 */
	flush_delayed_fput();
	if (task_work_pending(current))
		task_work_run();
	register_binfmt(&init_format);

	make_node("/dev/console", 3);
	make_node("/dev/null", 3);
	make_node("/dev/zero", 5);
	make_node("/dev/random", 8);
	make_node("/dev/urandom", 9);
	return 0;
}
rootfs_initcall(make_init);

/*
 * There is no process to kill, so exhausted memory would cause a panic. Instead
 * the allocation fails, and the call returns ENOMEM or ENOBUFS.
 */
static int __init no_oom_killer(void)
{
	oom_killer_disable(HZ);
	return 0;
}
late_initcall(no_oom_killer);

long arch_ptrace(struct task_struct *child, long request, unsigned long addr,
		 unsigned long data)
{
	return -EIO;
}

void ptrace_disable(struct task_struct *child)
{
}

void show_regs(struct pt_regs *regs)
{
}

/*
 * Calls @fn with each address of code that is found on a stack, from @sp on, until it
 * returns false. There are no frame pointers, so stale addresses are among them.
 */
static void find_code(unsigned long *sp, bool (*fn)(void *cookie, unsigned long addr),
		      void *cookie)
{
	unsigned long *end = sp + 512;
	unsigned long word;

	for (; sp < end; sp++) {
		if (get_kernel_nofault(word, sp))
			return;
		if (kernel_text_address(word) && !fn(cookie, word))
			return;
	}
}

static unsigned long *stack_of(struct task_struct *task)
{
	return task && task != current ? task->thread.sp : __builtin_frame_address(0);
}

struct trace {
	const char *loglvl;
	unsigned int shown;
};

static bool show_code(void *cookie, unsigned long addr)
{
	struct trace *t = cookie;

	printk("%s %pS\n", t->loglvl, (void *)addr);
	return ++t->shown < 32;
}

void show_stack(struct task_struct *task, unsigned long *sp, const char *loglvl)
{
	struct trace t = { .loglvl = loglvl };

	if (!sp)
		sp = stack_of(task);
	if (!sp)
		return;
	printk("%sCall trace (return addresses found on the stack):\n", loglvl);
	find_code(sp, show_code, &t);
}

#ifdef CONFIG_STACKTRACE
void arch_stack_walk(stack_trace_consume_fn consume, void *cookie,
		     struct task_struct *task, struct pt_regs *regs)
{
	unsigned long *sp = stack_of(task);

	if (sp)
		find_code(sp, consume, cookie);
}
#endif
