// SPDX-License-Identifier: GPL-2.0-only
/*
 * The zygote: a process in the state that the target has before its exec. It
 * starts further programs in this state.
 *
 * Theory of operation
 *
 * A process cannot get a seccomp filter from outside, but only by inheritance.
 * Without privileges, the same is true of namespaces. The target therefore
 * forks the zygote after the filter is installed and its namespaces and mounts
 * are set up:
 *
 *	lklhost ── target		(fork)
 *	   ├────── zygote		(clone with CLONE_PARENT, by the target)
 *	   └────── program		(clone with CLONE_PARENT, by the zygote)
 *
 * With CLONE_PARENT, the target gets no children that it does not know, and
 * lklhost gets the wait status of each program. The zygote keeps none of the
 * target's descriptors open, so that pipes end when the target closes them.
 *
 * While there are no requests, the zygote only calls poll(2), which is not
 * notified. recvmsg(2) is notified, so the zygote calls it only when there is a
 * request.
 *
 * Each program runs in its own session. It thus does not get the input of the
 * target's terminal, and a signal reaches the program and its children as one
 * process group.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "process/process.h"
#include "process/zygote_link.h"
#include "shared/ctl_proto.h"
#include "stack/stack.h"
#include "target/child.h"

#define SOCK			3	/* the zygote's socket */
#define EXIT_OWN		125	/* as in env(1) */
#define EXIT_NOT_EXECUTABLE	126

static sigset_t target_mask;
static pid_t host_pid;

/** say - report to lklhost; exit if the report cannot be sent as a whole */
static void say(uint32_t id, enum zygote_what what, int32_t value)
{
	struct zygote_report r = { .id = id, .what = (int32_t)what,
				   .value = value };

	if (write(SOCK, &r, sizeof(r)) != (ssize_t)sizeof(r))
		_exit(EXIT_OWN);
}

/** fork_sibling - fork a process that becomes a child of lklhost */
static pid_t fork_sibling(void)
{
	return (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
}

/** die_with_host - end when lklhost ends, as the target does */
static void die_with_host(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != host_pid)
		_exit(EXIT_OWN);
}

/**
 * vector - create a NULL-terminated array of @n consecutive strings
 * @p: first string; advanced past the strings
 */
static char **vector(char **p, uint32_t n)
{
	char **v = calloc((size_t)n + 1, sizeof(*v));
	uint32_t i;

	for (i = 0; v && i < n; i++) {
		v[i] = *p;
		*p += strlen(*p) + 1;
	}
	return v;
}

/**
 * program - main function of the new process; never returns
 * @fds: the program's standard descriptors, and a memfd with the request: a
 *	struct ctl_exec with its strings, which lklhost has checked
 */
__attribute__((noreturn))
static void program(uint32_t id, const int *fds)
{
	char **argv, **envp, *cwd, *p;
	struct ctl_exec *req;
	struct stat st;
	int i, ret;

	die_with_host();
	setsid();
	say(id, ZYGOTE_STARTED, getpid());
	sigprocmask(SIG_SETMASK, &target_mask, NULL);
	if (fstat(fds[3], &st))
		_exit(EXIT_OWN);
	req = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE, fds[3], 0);
	if (req == MAP_FAILED)
		_exit(EXIT_OWN);
	p = (char *)(req + 1);
	cwd = p;
	p += strlen(p) + 1;
	argv = vector(&p, req->argc);
	envp = vector(&p, req->envc);
	if (!argv || !envp)
		_exit(EXIT_OWN);
	umask(req->umask & 0777);
	if (chdir(cwd)) {
		say(id, ZYGOTE_CWD, -errno);
		_exit(EXIT_OWN);
	}
	for (i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			_exit(EXIT_OWN);
	environ = envp;		/* execvp(3) reads PATH from it */
	execvp(argv[0], argv);
	ret = errno;
	say(id, ZYGOTE_COMMAND, -ret);
	_exit(ret == ENOENT || ret == ENOTDIR ? EXIT_NOT_FOUND :
	      EXIT_NOT_EXECUTABLE);
}

/**
 * receive - receive one request
 * @fds: room for FD_PASS_MAX descriptors; set to those of the request, which
 *	are close-on-exec
 *
 * Returns false if lklhost or its supervisor is gone; no program may be started
 * then.
 */
static bool receive(struct zygote_request *req, int *fds)
{
	unsigned int n;

	return fd_pass_recv(SOCK, req, sizeof(*req), fds, &n) ==
	       (ssize_t)sizeof(*req) && n == ZYGOTE_FDS;
}

/** serve - handle one request; returns false if the zygote must end */
static bool serve(void)
{
	struct zygote_request req;
	int fds[FD_PASS_MAX], i;
	pid_t pid;

	if (!receive(&req, fds))
		return false;
	pid = fork_sibling();
	if (!pid)
		program(req.id, fds);
	if (pid < 0)
		say(req.id, ZYGOTE_FORK, -errno);
	for (i = 0; i < ZYGOTE_FDS; i++)
		close(fds[i]);
	return true;
}

/** settle - close the target's descriptors; returns false on error */
static bool settle(int sock)
{
	int null, i;

	sock = fcntl(sock, F_DUPFD_CLOEXEC, SOCK);
	null = open("/dev/null", O_RDWR);
	if (sock < 0 || null < 0)
		return false;
	for (i = 0; i < SOCK; i++)
		if (dup2(null, i) < 0)
			return false;
	if (sock != SOCK && dup3(sock, SOCK, O_CLOEXEC) < 0)
		return false;
	return helper_close_from(SOCK + 1) && !chdir("/");
}

/**
 * zygote_fork - fork the zygote; called by the target before its exec
 * @sock: the zygote's end of the SOCK_SEQPACKET pair
 *
 * Without a zygote, the target still runs, and CTL_EXEC reports the error. The
 * target reports the zygote's pid, so that lklhost knows it before the target
 * has ended.
 */
void zygote_fork(int sock)
{
	struct zygote_report ready = { .what = ZYGOTE_READY };
	struct pollfd p = { .fd = SOCK, .events = POLLIN };
	sigset_t all;

	host_pid = getppid();
	ready.value = fork_sibling();
	if (ready.value) {
		if (ready.value < 0 ||
		    write(sock, &ready, sizeof(ready)) != (ssize_t)sizeof(ready))
			close(sock);
		return;
	}
	/* Signals are only for the target; a program gets the target's mask. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &target_mask);
	die_with_host();
	if (!settle(sock))
		_exit(EXIT_OWN);
	for (;;)
		if (poll(&p, 1, -1) > 0 && !serve())
			_exit(0);
}
