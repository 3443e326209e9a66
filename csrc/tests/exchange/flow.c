// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lead a thread elsewhere between the stops of its call, by exec, signals and a
 * filter of its own, while vforked children exchange descriptors. See main.c.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "exchange.h"

#define STACK	(64 * 1024)

static pid_t worker;
static char *stack;
static int silent;	/* a socket on which nothing arrives */

/** set_up - open the files that take turns, and allocate a stack */
static void set_up(void)
{
	descriptors.set_up();
	worker = getpid();
	silent = socket(AF_INET, SOCK_DGRAM, 0);
	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		_exit(1);
}

/** call - make a call on a descriptor, or one that gets a descriptor */
static void call(void)
{
	if (below(2))
		descriptors.call();
	else
		channel.call();
}

/** call_or_wait - make a call, or one that waits until B ends it */
static void call_or_wait(void)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char byte;

	if (below(16))
		call();
	else
		recvfrom(silent, &byte, 1, 0, (struct sockaddr *)&ss, &len);
}

/** exchange_program - execute the program while the first thread is in a call */
static void exchange_program(void)
{
	usleep((useconds_t)below(3000));
	if (!below(8))
		execute();
	descriptors.exchange();
}

const struct kind execs = { "exec", set_up, call_or_wait, exchange_program,
			     OWN_FILES };
const struct kind shared_execs = { "shared-exec", set_up, call_or_wait,
				    exchange_program, THREAD | CLONE_FILES };

/** vforked - main function of a child that has the memory, and maybe the files */
static int vforked(void *arg)
{
	unsigned int n = (unsigned int)below(20);

	(void)arg;
	if (!below(8))
		unshare(CLONE_FILES);
	while (n--)
		descriptors.exchange();
	if (!below(8))
		execute();
	_exit(0);
}

/** exchange_by_child - exchange files while B itself sleeps in vfork(2) */
static void exchange_by_child(void)
{
	pid_t pid = clone(vforked, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD |
			  (below(4) ? CLONE_FILES : 0) |
			  (below(4) ? 0 : CLONE_PARENT), NULL);

	if (pid > 0)
		waitpid(pid, NULL, 0);
}

const struct kind vforks = { "vfork", set_up, call, exchange_by_child, 0 };

static sigjmp_buf before;
static volatile bool armed;

/** forged - where a changed signal frame leads to */
static void forged(void)
{
	channel.call();
	siglongjmp(before, 1);
}

/** arrived - handle a signal: return to the call, leave it, or lead elsewhere */
static void arrived(int sig, siginfo_t *info, void *context)
{
	mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;

	(void)sig;
	(void)info;
	if (!armed || below(2))
		return;
	if (below(2))
		siglongjmp(before, 1);
#if defined(__x86_64__)
	m->gregs[REG_RIP] = (greg_t)(uintptr_t)forged;
	m->gregs[REG_RSP] = ((m->gregs[REG_RSP] - 256) & ~15LL) - 8;
	m->gregs[REG_RAX] = -512;	/* ERESTARTSYS: no call may restart */
#elif defined(__aarch64__)
	m->pc = (uintptr_t)forged;
	m->regs[0] = (uint64_t)-512;
#else
	(void)m;
#endif
}

/** set_up_signals - handle a signal on a stack of its own */
static void set_up_signals(void)
{
	struct sigaction sa = { .sa_sigaction = arrived,
				.sa_flags = SA_SIGINFO | SA_ONSTACK };
	stack_t ss = { .ss_size = STACK };

	set_up();
	ss.ss_sp = stack;
	sa.sa_flags |= below(2) ? SA_RESTART : SA_NODEFER;
	if (sigaltstack(&ss, NULL) || sigaction(SIGUSR1, &sa, NULL))
		_exit(1);
}

/** call_armed - make a call that signals interrupt, or one that restarts */
static void call_armed(void)
{
	const struct timespec ts = { 0, 100000 };

	if (sigsetjmp(before, 1))
		return;
	armed = true;
	if (below(4))
		call_or_wait();
	else
		nanosleep(&ts, NULL);
	armed = false;
}

/** exchange_signals - interrupt the call; stop, continue or kill the process */
static void exchange_signals(void)
{
	usleep((useconds_t)below(100));
	syscall(SYS_tgkill, worker, worker, SIGUSR1);
	if (!below(32) && getpid() != worker) {
		kill(worker, SIGSTOP);
		usleep((useconds_t)below(100));
		kill(worker, SIGCONT);
	}
	if (!below(1024)) {
		mprotect(stack, STACK, PROT_NONE);
		mprotect(stack, STACK, PROT_READ | PROT_WRITE);
	}
	if (!below(2048))
		kill(worker, SIGKILL);
}

const struct kind signals = { "signals", set_up_signals, call_armed,
			      exchange_signals, 0 };

/**
 * set_up_filter - answer calls that lklhost makes in the thread: with 0
 *
 * lklhost takes 0 for the number of its descriptor, and B makes 0 another socket.
 */
static void set_up_filter(void)
{
	const uint32_t answer = SECCOMP_RET_ERRNO, pass = SECCOMP_RET_ALLOW;
	struct sock_filter insns[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvmsg, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, below(2) ? answer : pass),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, below(2) ? answer : pass),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, below(4) ? answer : pass),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(insns) / sizeof(insns[0]), insns };

	channel.set_up();
	set_up();
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		_exit(1);
}

/** exchange_answer - let descriptor 0 be another socket */
static void exchange_answer(void)
{
	int fd, pair[2];

	if (below(2))
		channel.exchange();
	if (below(2) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) {
		descriptors.exchange();
		return;
	}
	fd = dup2(pair[0], 0);
	tell(fd);
	close(pair[0]);
	close(pair[1]);
}

const struct kind filters = { "filter", set_up_filter, call, exchange_answer, 0 };
