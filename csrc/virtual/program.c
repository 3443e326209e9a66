// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs: start, end, processes, threads, memory, and the order in which threads run.
 *
 * Theory of operation
 *
 * A program is a process that the coordinator has started, with its descendants.
 * A seccomp filter, which they inherit, sends all their system calls to this
 * process. A thread is stopped from its call until the answer. After an answer,
 * this process waits until all threads of the program are stopped again: usually
 * one thread has run, and after clone() two. A call that has to wait stays
 * unanswered, and is tried again after each event.
 *
 * A signal does not interrupt a stopped call (WAIT_KILLABLE_RECV), unless it ends
 * the process. Signals come from other processes and from timers of signals.c,
 * while all other threads are stopped. Then this process looks for processes that
 * have ended, and for pending signals, which end calls that wait.
 *
 * The vDSO reads clocks without system calls. At the first call after each
 * execve(), its functions are overwritten in the program's memory with those of
 * clock.c, or with system calls. The random bytes that the kernel has passed to
 * the program (AT_RANDOM) are overwritten, too.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "virtual/virtual.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1ul << 5)
#endif
#define SYNC_WAKE_UP	SECCOMP_IOW(4, __u64)	/* SECCOMP_IOCTL_NOTIF_SET_FLAGS, Linux 6.6 */

#define LISTENER	3	/* descriptor of the filter in a new program */
#define ERESTARTSYS	512	/* from include/linux/errno.h of the kernel */
#define STUCK_MS	30000	/* a thread that runs for so long without a call ends the lab */
#define CALLS_CHARGED	64	/* so many calls without a wait take ... */
#define CHARGE_NS	64000	/* ... this time */

int last_status = -1;

static struct program *programs[MAX_PROGRAMS];
static int program_count;
static pid_t init;

/** programs_begin - start process 1 of the programs' namespace, which only sleeps */
void programs_begin(void)
{
	int alive[2];
	char end;

	if (pipe2(alive, O_CLOEXEC))
		fail("pipe: %s", strerror(errno));
	init = fork();
	if (init < 0)
		fail("fork: %s", strerror(errno));
	if (!init) {
		signal(SIGCHLD, SIG_IGN);	/* no zombies */
		close(alive[1]);
		/* Ends with us, even if that is before PR_SET_PDEATHSIG could be set. */
		while (read(alive[0], &end, 1) < 0)
			;
		_exit(0);
	}
	close(alive[0]);
}

/** programs_kill - at the end of the lab; the kernel ends all processes with the first one */
void programs_kill(void)
{
	if (init > 0) {
		kill(init, SIGKILL);
		waitpid(init, NULL, 0);
	}
}

/* In the new process: stop all calls but those that end a signal handler. */
static void install_filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		    SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
		    &prog) != LISTENER)
		_exit(126);
}

/* Executes a program in the new process. */
static void exec_child(const char *output, char **argv)
{
	struct rlimit files = { MAX_FDS, MAX_FDS };
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TSC, PR_TSC_ENABLE);	/* traps for the stack, see lkl_set_virtual() */
	signal(SIGPIPE, SIG_DFL);
	setsid();	/* no terminal */
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 0);
	if (output) {
		fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
		if (fd < 0)
			_exit(126);
		dup2(fd, 1);
		dup2(fd, 2);
	}
	close_range(3, ~0u, 0);
	setrlimit(RLIMIT_NOFILE, &files);
	install_filter();
	execvp(argv[0], argv);
	dprintf(2, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static void open_memory(struct process *p)
{
	char path[64];

	if (p->mem >= 0)
		close(p->mem);
	snprintf(path, sizeof(path), "/proc/%d/mem", p->pid);
	p->mem = open(path, O_RDWR | O_CLOEXEC);
	if (p->mem < 0)
		fail("the memory of %s: %s", p->program->name, strerror(errno));
}

static struct process *add_process(struct program *program, pid_t pid, struct thread *creator)
{
	struct process *p = &processes[process_count];

	if (process_count == MAX_PROCESSES)
		fail("%s: more than %d processes", program->name, MAX_PROCESSES);
	process_count++;
	*p = (struct process){ .program = program, .pid = pid, .mem = -1, .live = true };
	p->ns_pid = (pid_t)status_field(pid, "\nNSpid:", 10);
	p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (p->pidfd < 0)
		fail("starting %s: %s", program->name, strerror(errno));
	memcpy(p->random, (void *)getauxval(AT_RANDOM), sizeof(p->random));
	if (creator) {
		p->parent = creator->p;
		memcpy(p->random, creator->p->random, sizeof(p->random));
		p->clock = creator->p->clock;
		fds_fork(p, creator->p);
		if (creator->vforks)
			p->vforked_by = creator;
		open_memory(p);
	}
	return p;
}

static struct thread *add_thread(struct process *p, pid_t tid)
{
	struct thread *t;
	int i = thread_count;

	/* Keep the order: reuse only the places behind the last live thread. */
	while (i && !threads[i - 1].live)
		i--;
	if (i == MAX_THREADS)
		fail("%s: more than %d threads", p->program->name, MAX_THREADS);
	t = &threads[i];
	thread_count = i + 1;
	*t = (struct thread){ .p = p, .tid = tid, .live = true, .wake = NEVER };
	t->ns_tid = (pid_t)status_field(tid, "\nNSpid:", 10);
	return t;
}

/** program_start - start a program; @words: output file, then the words of the command */
void program_start(int id, char *words, uint32_t len)
{
	char *argv[1024], *output = words, *end = words + len;
	int n = 0;

	for (words += strlen(words) + 1; words < end && n < 1023; words += strlen(words) + 1)
		argv[n++] = words;
	argv[n] = NULL;
	program_execute(id, output, argv);
}

/** program_execute - start a program; @output: its file, or NULL: that of this process */
void program_execute(int id, const char *output, char **argv)
{
	struct program *program = calloc(1, sizeof(*program));
	uint64_t flags = 1;	/* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP */
	struct process *p;
	int tries;
	pid_t pid;

	if (!program || !argv[0] || program_count == MAX_PROGRAMS)
		fail("too many programs, or a command that is too long");
	program->id = id;
	program->listener = -1;
	snprintf(program->name, sizeof(program->name), "%s", argv[0]);
	pid = fork();
	if (!pid)
		exec_child(output, argv);
	if (pid < 0)
		fail("starting %s: %s", program->name, strerror(errno));
	p = add_process(program, pid, NULL);
	/* The child's next call after the filter waits for us. */
	for (tries = 0; program->listener < 0 && tries < 100000; tries++) {
		struct pollfd ended = { .fd = p->pidfd, .events = POLLIN };

		if (poll(&ended, 1, 0))
			fail("starting %s: writing %s or the filter of system calls failed; virtual time requires Linux 5.19",
			     program->name, output ? output : "its output");
		program->listener = (int)syscall(SYS_pidfd_getfd, p->pidfd, LISTENER, 0);
		if (program->listener >= 0 &&
		    ioctl(program->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &flags) &&
		    errno != ENOENT) {	/* another descriptor of this number, before close_range() */
			close(program->listener);
			program->listener = -1;
		}
		if (program->listener < 0)
			usleep(100);
	}
	if (program->listener < 0)
		fail("starting %s: no filter of system calls", program->name);
	fcntl(program->listener, F_SETFD, FD_CLOEXEC);
	ioctl(program->listener, SYNC_WAKE_UP, flags);	/* only faster */
	open_memory(p);
	programs[program_count++] = program;
	add_thread(p, pid);
	p->running = 1;
}

/* A process that vfork() has made has its own memory, or has ended: its parent goes on. */
static void end_vfork(struct process *p)
{
	struct thread *by = p->vforked_by;

	p->vforked_by = NULL;
	if (by && by->live && by->vforks) {
		by->vforks = false;
		by->p->running++;
	}
}

static void process_end(struct process *p)
{
	int status = 0, i;

	for (i = 0; i < thread_count; i++)
		if (threads[i].p == p)
			threads[i].live = threads[i].held = false;
	for (i = 0; i < process_count; i++) {
		struct process *c = &processes[i];

		if (c->vforked_by && c->vforked_by->p == p)
			c->vforked_by = NULL;
		if (c->live && c->parent == p)
			c->signalled = true;	/* prctl(PR_SET_PDEATHSIG) */
	}
	timers_drop(p, false);
	fds_drop(p, 0, MAX_FDS - 1);
	close(p->mem);
	p->live = false;
	p->running = 0;
	end_vfork(p);
	if (p->parent) {
		p->parent->signalled = true;
	} else {
		waitpid(p->pid, &status, 0);
		process_reaped(p);
		last_status = status;
		message(MSG_END, p->program->id, now, &status, sizeof(status));
	}
}

/* The process or thread of a call that none of the known threads makes */
static struct thread *new_thread(struct program *program, pid_t tid)
{
	pid_t pid = (pid_t)status_field(tid, "\nTgid:", 10);
	struct process *p = NULL;
	int i;

	program->births--;
	for (i = 0; i < process_count; i++)
		if (processes[i].live && processes[i].pid == pid)
			p = &processes[i];
	if (!p) {
		p = add_process(program, pid, program->creator);
		p->running = 1;
	} else {
		p->running++;
	}
	return add_thread(p, tid);
}

/* A call has arrived. */
static void stop_thread(struct program *program, const struct seccomp_notif *n)
{
	struct thread *t = NULL;
	int i;

	for (i = 0; i < thread_count; i++)
		if (threads[i].live && threads[i].tid == (pid_t)n->pid)
			t = &threads[i];
	if (!t)
		t = new_thread(program, (pid_t)n->pid);
	if (t->p->exec)		/* a new program has one thread, the first one */
		t->p->running = 0;
	else if (t->vforks)	/* its child has executed a program */
		t->vforks = false;
	else
		t->p->running--;
	t->req = *n;
	t->held = true;
	t->retry = false;
	t->wake = NEVER;
	t->done = 0;
	t->futex = 0;
	t->connecting = t->connected = false;
}

/* Waits until all threads of a program are stopped. */
static void await_calls(struct program *program)
{
	static struct pollfd fds[MAX_PROCESSES + 1];
	static struct process *of[MAX_PROCESSES + 1];
	struct seccomp_notif n;
	int i, count, ready;

	for (;;) {
		bool running = program->births > 0;

		fds[0] = (struct pollfd){ .fd = program->listener, .events = POLLIN };
		for (i = 0, count = 1; i < process_count; i++)
			if (processes[i].live && processes[i].program == program && processes[i].running > 0) {
				running = true;
				of[count] = &processes[i];
				fds[count++] = (struct pollfd){ .fd = processes[i].pidfd, .events = POLLIN };
			}
		if (!running)
			return;
		ready = poll(fds, (nfds_t)count, STUCK_MS);
		if (ready == 0)
			fail("%s runs for %d s without a system call; virtual time cannot pass meanwhile",
			     program->name, STUCK_MS / 1000);
		for (i = 1; i < count; i++)
			if (fds[i].revents)
				process_end(of[i]);
		memset(&n, 0, sizeof(n));
		if (fds[0].revents & POLLIN && !ioctl(program->listener, SECCOMP_IOCTL_NOTIF_RECV, &n))
			stop_thread(program, &n);
	}
}

static void answer(struct thread *t, long ret, bool native)
{
	struct seccomp_notif_resp r = { .id = t->req.id };

	if (native)
		r.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else if (ret < 0)
		r.error = (int32_t)ret;
	else
		r.val = ret;
	t->held = false;
	t->p->running++;
	clock_update(t);
	ioctl(t->p->program->listener, SECCOMP_IOCTL_NOTIF_SEND, &r);	/* fails only if it was killed */
}

/* The functions of the vDSO, and the calls that replace them */
static const struct {
	const char *name;
	int nr;		/* -1: fails with ENOSYS, so that the C library makes the call */
} vdso_functions[] = {
	{ "__vdso_clock_gettime", SYS_clock_gettime },
	{ "__vdso_gettimeofday", SYS_gettimeofday },
	{ "__vdso_time", SYS_time },
	{ "__vdso_clock_getres", SYS_clock_getres },
	{ "__vdso_getcpu", SYS_getcpu },
	{ "__vdso_getrandom", -1 },
};

/* Overwrites the functions in the program's copy at @base; ours has the same layout. */
static void patch_vdso(struct thread *t, uint64_t base)
{
	const char *own = (const char *)getauxval(AT_SYSINFO_EHDR);
	const Elf64_Ehdr *eh = (const void *)own;
	const Elf64_Shdr *sh = (const void *)(own + eh->e_shoff);
	unsigned int i, k, f, patched = 0;

	for (i = 0; i < eh->e_shnum; i++) {
		const Elf64_Sym *sym = (const void *)(own + sh[i].sh_offset);
		const char *names = own + sh[sh[i].sh_link].sh_offset;

		if (sh[i].sh_type != SHT_DYNSYM)
			continue;
		for (k = 0; k < sh[i].sh_size / sizeof(*sym); k++)
			for (f = 0; f < sizeof(vdso_functions) / sizeof(vdso_functions[0]); f++) {
				/* mov $nr, %eax; syscall; ret */
				uint8_t code[] = { 0xb8, 0, 0, 0, 0, 0x0f, 0x05, 0xc3 };
				int nr = vdso_functions[f].nr;

				if (strcmp(names + sym[k].st_name, vdso_functions[f].name))
					continue;
				patched++;
				if (clock_patch(t, vdso_functions[f].name, base + sym[k].st_value, sym[k].st_size))
					continue;
				if (nr < 0)
					memcpy(code, "\xb8\xda\xff\xff\xff\xc3", 6);
				else
					memcpy(code + 1, &nr, 4);
				if (mem_write(t, base + sym[k].st_value, code, sizeof(code)))
					fail("%s: its vDSO cannot be changed", t->p->program->name);
			}
	}
	if (patched < 4)
		fail("the vDSO of this kernel is not known");
}

/* Reads the addresses of the vDSO and of the random bytes that a program got from the kernel */
static void read_auxv(struct process *p, uint64_t *vdso, uint64_t *at_random)
{
	uint64_t aux[128];
	char path[64];
	ssize_t n, i;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/auxv", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, aux, sizeof(aux));
	if (fd >= 0)
		close(fd);
	*vdso = *at_random = 0;
	for (i = 0; i + 1 < n / 8; i += 2) {
		if (aux[i] == AT_SYSINFO_EHDR)
			*vdso = aux[i + 1];
		if (aux[i] == AT_RANDOM)
			*at_random = aux[i + 1];
	}
}

/* Reports which file a process executes. */
static void report_exec(const struct process *p)
{
	char link[32], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%d/exe", p->pid);
	n = readlink(link, path, sizeof(path));
	if (n > 0)
		message(MSG_EXEC, p->program->id, now, path, (uint32_t)n);
}

/*
 * The first call after execve(). If there is a new program, its random bytes are
 * not those that we have given the old one. Nothing in it may depend on the host's
 * time or chance.
 */
static void after_exec(struct thread *t)
{
	struct process *p = t->p;
	uint64_t vdso, at_random, r[2];
	int i;

	p->exec = false;
	open_memory(p);
	read_auxv(p, &vdso, &at_random);
	if (!vdso || !at_random || mem_read(t, r, at_random, sizeof(r)))
		fail("%s is not a program for this processor", p->program->name);
	if (!memcmp(r, p->random, sizeof(r)))
		return;	/* execve() has failed */
	report_exec(p);
	for (i = 0; i < thread_count; i++)
		if (threads[i].p == p && &threads[i] != t)
			threads[i].live = threads[i].held = false;
	timers_drop(p, true);
	fds_after_exec(p);
	p->random[0] = random_next();
	p->random[1] = random_next();
	if (mem_write(t, at_random, p->random, sizeof(p->random)))
		fail("%s: its memory cannot be changed", p->program->name);
	p->clock = (struct clock){ .vdso = vdso };
	patch_vdso(t, vdso);
	end_vfork(p);
}

/* A thread ends. The kernel reports to other threads by memory that it has ended. */
static void thread_exit(struct thread *t)
{
	struct process *p = t->p;
	int tries, i;

	t->live = false;
	answer(t, 0, true);
	for (i = 0; i < thread_count; i++)
		if (threads[i].live && threads[i].p == p)
			break;
	if (i == thread_count)
		return;	/* the last one: the process ends */
	p->running--;
	if (t->tid == p->pid)
		return;	/* stays a zombie until the others have ended */
	for (tries = 0; !syscall(SYS_tgkill, p->pid, t->tid, 0); tries++) {
		if (tries > STUCK_MS * 10)
			fail("%s: a thread does not end", p->program->name);
		usleep(100);
	}
}

/* Waits for the end of the processes that a signal has ended. */
static void await_killed(void)
{
	int i;

	for (i = 0; i < process_count; i++) {
		struct process *p = &processes[i];

		if (p->live && p->signalled && !p->running && process_killed(p)) {
			p->running = 1;
			await_calls(p->program);
		}
	}
}

/*
 * A call has to wait: a signal may end it. @done: bytes that it has transferred.
 * The kernel makes a call again only in the thread that it has chosen for the
 * signal.
 */
static enum verdict interrupt(struct thread *t, uint64_t done, long *ret)
{
	uint64_t mask;
	bool masked = call_mask(t, &mask);

	if (!t->p->signalled && (!masked || t->retry))
		return WAIT;
	if (!signals_pending(t, masked ? &mask : NULL))
		return WAIT;
	if (masked)
		return NATIVE;	/* the host's kernel changes the mask and runs the handler */
	wait_interrupted(t);
	*ret = done ? (long)done : call_restarts(t) && signals_own(t) ? -ERESTARTSYS : -EINTR;
	return ANSWER;
}

static bool progress;	/* a call has changed something, so others may go on */

/* Handles the call of a thread. Returns whether the thread has run. */
static bool serve(struct thread *t)
{
	struct process *p = t->p;
	uint64_t done = t->done;
	bool first = !t->retry;
	enum verdict v;
	long ret = 0;
	int i;

	if (p->exec)
		after_exec(t);
	if (t->charged) {
		if (now < t->wake)
			return false;
		t->charged = false;
		t->wake = NEVER;
		p->signalled = true;	/* perhaps, meanwhile */
	} else if (!t->retry && (++t->calls >= CALLS_CHARGED || clock_spent(t))) {
		t->calls = 0;
		t->charged = true;
		t->wake = now + CHARGE_NS;
		return false;
	}
	clock_attach(t);
	v = call_handle(t, &ret);
	if (v == WAIT)
		v = interrupt(t, t->req.data.nr == SYS_connect ? 0 : t->done, &ret);
	switch (v) {
	case WAIT:
		t->calls = 0;
		t->retry = true;
		progress |= first || t->done != done;
		return false;
	case ANSWER:
		answer(t, ret, false);
		break;
	case NATIVE:
		answer(t, 0, true);
		break;
	case CLONE:
		p->program->births++;
		p->program->creator = t;
		answer(t, 0, true);
		if (t->vforks)	/* it waits in the kernel */
			p->running--;
		break;
	case EXEC:
		p->exec = true;
		answer(t, 0, true);
		break;
	case THREAD_EXIT:
		thread_exit(t);
		break;
	case EXIT:
		answer(t, 0, true);
		break;
	case KILL:
		answer(t, 0, true);
		for (i = 0; i < process_count; i++)
			processes[i].signalled |= processes[i].live;
		break;
	case UNSUPPORTED:
		fail("%s: the system call %s is not supported in virtual time", p->program->name,
		     call_name(t->req.data.nr));
	}
	await_calls(p->program);
	if (v == KILL)
		await_killed();
	return true;
}

/** programs_settle - let the threads run until all wait; returns whether anything has changed */
bool programs_settle(void)
{
	int i;

	progress = false;
	for (i = 0; i < program_count; i++)
		await_calls(programs[i]);
	await_killed();
	for (i = 0; i < thread_count; i++)
		while (threads[i].live && threads[i].held && serve(&threads[i]))
			progress = true;
	for (i = 0; !progress && i < process_count; i++)
		processes[i].signalled = false;
	return progress;
}
