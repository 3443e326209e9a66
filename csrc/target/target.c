// SPDX-License-Identifier: GPL-2.0-only
/*
 * The target: the user's program, from its fork to its wait status.
 *
 * Theory of operation
 *
 * lklhost forks the target early, while lklhost is still small and has changed
 * neither signals nor limits. The target then waits:
 *
 *	child						lklhost
 *	PDEATHSIG, empty network namespace
 *	install the filter, report its descriptor --->	pidfd_getfd() it
 *						<---	"taken"
 *	close it, wait				<---	GO, path of resolv.conf
 *	mounts, user, fork the zygote, exec; errno -->	CTL_EV_WARN
 *
 * Both directions use read and write, which the filter does not notify. The
 * listener cannot be passed in a message, because sendmsg is already notified.
 *
 * With the engine trace, there is no listener. The child first sends a socket
 * (trace/fd_channel.c), and lklhost traces the child before it writes "taken".
 *
 * With a preloaded library, no calls are notified, and the program itself boots
 * the kernel before GO. Mounts and exec therefore come first, and the library
 * waits for GO (engine/link). child.c contains the child's side.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "control/control.h"
#include "engine/link/link.h"
#include "engine/sock/sock.h"
#include "process/process.h"
#include "process/zygote_link.h"
#include "shared/ctl_proto.h"
#include "target/child.h"
#include "target/target.h"
#include "trace/trace.h"
#include "view/view.h"

static struct {
	pid_t pid;
	pid_t covers;	/* 0: it has ended */
	int sync;
	const struct target_ops *ops;
	int listener;
	bool ended, lingers, not_executed;
	int status;
	char *const *argv;
	struct source sync_src;
	struct source sig_src;
} target = { .sync = -1, .listener = -1 };

/** not_hidden - whether the command is not executed because of @r (--hide) */
static bool not_hidden(const struct child_report *r)
{
	return host.hide && r->value < 0 &&
	       (r->step == STEP_MOUNTS || r->step == STEP_HIDE ||
		(r->step == STEP_COVERS && r->value != -EINVAL));
}

/**
 * prepare_failed - write the error text of a step that failed before the exec
 */
static void prepare_failed(const struct child_report *r, char *err,
			   size_t errlen)
{
	const char *step = "executing the command: %s";

	if (not_hidden(r))
		step = "hiding the host's name services from the command: %s; it could reach destinations that --allow does not permit; remove --allow";
	else if (r->step == STEP_NETNS)
		step = "putting the target into an empty network namespace: %s: run as root, or allow user namespaces (sysctl user.max_user_namespaces)";
	else if (r->step == STEP_USER)
		step = "changing the command's user: %s";
	else if (r->step == STEP_LIBRARY)
		step = "the command's user cannot read the stack and the library that loads it: %s: install lklrun where everybody can read it, or use --engine supervise";
	else if (r->step == STEP_MEETING)
		step = "creating a socket in the target: %s";
	else if (r->step == STEP_FILTER)
		step = host.preload || host.trace ? "installing the seccomp filter: %s" :
		       r->value == -EBUSY ? "installing the seccomp filter: %s: lklrun does not run inside lklrun or under another supervisor of system calls; `lklctl exec` runs another program on the same stack" :
		       "installing the seccomp filter: %s: needs a kernel with seccomp user notification (see lklrun doctor), and no other supervisor above this one";
	snprintf(err, errlen, step, strerror(-r->value));
}

/** wait_preload - wait until the library in the target is ready */
static int wait_preload(char *err, size_t errlen)
{
	struct child_report r;
	int status, ret;

	ret = link_ready(err, errlen);
	if (ret != -ESRCH)
		return ret;
	while (child_read(target.sync, &r, sizeof(r)))
		if (r.step == STEP_NETNS || r.step == STEP_FILTER ||
		    r.step == STEP_USER || r.step == STEP_LIBRARY ||
		    r.step == STEP_EXEC || not_hidden(&r)) {
			prepare_failed(&r, err, errlen);
			return r.value;
		}
	/* The target has closed its end: it ends, or did not load LIB. */
	kill(target.pid, SIGKILL);
	if (waitpid(target.pid, &status, 0) != target.pid)
		return ret;
	target.ended = true;
	host.target_pid = 0;
	snprintf(err, errlen, WIFEXITED(status) ?
		 "%s: ended with status %d before the stack was loaded into it: use --engine supervise" :
		 "%s: killed by signal %d before the stack was loaded into it: use --engine supervise",
		 target.argv[0], WIFEXITED(status) ? WEXITSTATUS(status) :
		 WTERMSIG(status));
	return ret;
}

/* The likely reason if a call that every kernel has fails. */
#define CALL_FORBIDDEN(name) \
	(errno != EPERM && errno != ENOSYS ? "" : \
	 ": the container's seccomp profile, or a security module, forbids " name \
	 "(2); allow it there, or run with CAP_SYS_PTRACE")

/** can_read - check that lklhost can read the target's memory */
static int can_read(char *err, size_t errlen)
{
	uint64_t start;
	struct iovec here = { &start, sizeof(start) };
	struct iovec there = { &host.start_ns, sizeof(start) };
	int ret;

	if (process_vm_readv(target.pid, &here, 1, &there, 1, 0) >= 0)
		return 0;
	ret = -errno;
	snprintf(err, errlen, "reading the target's memory: %s%s",
		 strerror(-ret), CALL_FORBIDDEN("process_vm_readv"));
	return ret;
}

/** take_trace - wait for the filter and start to trace the target */
static int take_trace(char *err, size_t errlen)
{
	struct child_report r = { 0 };
	int fds[FD_PASS_MAX], ret;
	unsigned int n = 0;

	if (fd_pass_recv(target.sync, &r, sizeof(r), fds, &n) != sizeof(r) ||
	    (n && !child_read(target.sync, &r, sizeof(r)))) {
		snprintf(err, errlen, "preparing the target: it ended early");
		return -ESRCH;
	}
	if (r.value < 0) {
		prepare_failed(&r, err, errlen);
		return r.value;
	}
	trace_meeting_set(fds[0]);
	ret = trace_seize(target.pid);
	if (ret) {
		errno = -ret;
		snprintf(err, errlen, "tracing the target: %s%s", strerror(-ret),
			 CALL_FORBIDDEN("ptrace"));
		return ret;
	}
	ret = can_read(err, errlen);
	if (ret)
		return ret;
	return write(target.sync, "", 1) == 1 ? 0 : -EPIPE;
}

/** take_listener - wait for the filter and fetch its descriptor */
static int take_listener(char *err, size_t errlen)
{
	struct child_report r;
	int pidfd, fd = -1, ret;

	if (!child_read(target.sync, &r, sizeof(r))) {
		snprintf(err, errlen, "preparing the target: it ended early");
		return -ESRCH;
	}
	if (r.value < 0) {
		prepare_failed(&r, err, errlen);
		return r.value;
	}
	pidfd = (int)syscall(SYS_pidfd_open, target.pid, 0);
	if (pidfd >= 0)
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, r.value, 0);
	if (fd < 0) {
		ret = -errno;
		snprintf(err, errlen, "getting the seccomp listener: %s%s",
			 strerror(-ret), CALL_FORBIDDEN("pidfd_getfd"));
		if (pidfd >= 0)
			close(pidfd);
		return ret;
	}
	close(pidfd);
	target.listener = fd;
	ret = can_read(err, errlen);
	if (ret)
		return ret;
	if (write(target.sync, "", 1) != 1)
		return -EPIPE;
	return 0;
}

/**
 * target_fork - fork the target, which then waits for target_release()
 * @argv: its command
 * @err: set to an error message for the user on failure
 */
int target_fork(char **argv, char *err, size_t errlen)
{
	pid_t parent = getpid();
	int zygote = -1, sv[2], ret;

	target.argv = argv;
	if (!host.preload)
		zygote = zygote_open();
	if ((zygote < 0 && !host.preload) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv)) {
		ret = zygote < 0 && !host.preload ? zygote : -errno;
		snprintf(err, errlen, "creating a socket pair: %s", strerror(-ret));
		return ret;
	}
	target.pid = fork();
	if (target.pid < 0) {
		ret = -errno;
		snprintf(err, errlen, "forking the target: %s", strerror(-ret));
		close(sv[0]);
		close(sv[1]);
		return ret;
	}
	if (!target.pid) {
		close(sv[0]);
		child_main(sv[1], zygote, parent, argv);
	}
	close(sv[1]);
	host.target_pid = target.pid;
	if (!host.preload)
		zygote_forked();
	target.sync = sv[0];
	ret = host.preload ? wait_preload(err, errlen) :
	      host.trace ? take_trace(err, errlen) : take_listener(err, errlen);
	if (ret)
		kill(target.pid, SIGKILL);
	/* If done earlier, we could not access the target before its exec. */
	helper_out_of_reach();
	return ret;
}

/**
 * target_listener - get the seccomp listener for the engine; -1 if there is
 * none
 */
int target_listener(void)
{
	return target.listener;
}

/** child_reported - handle a report of the child between GO and exec */
static void child_reported(struct source *src, uint32_t events)
{
	struct child_report r;
	char text[256];

	(void)events;
	if (recv(src->fd, &r, sizeof(r), MSG_DONTWAIT) != (ssize_t)sizeof(r)) {
		loop_del(src);
		close(target.sync);
		target.sync = -1;
		if (!host.preload && !target.not_executed)
			ctl_event(CTL_EV_START, (uint32_t)target.pid, 0, "");
		return;
	}
	if (not_hidden(&r)) {
		target.not_executed = true;
		prepare_failed(&r, text, sizeof(text));
		warn_user("%s", text);
		return;
	}
	switch (r.step) {
	case STEP_UNFILTERED:
		log_line("no seccomp filter (%s): children of the command, and system calls that the library does not intercept, use an empty network namespace",
			 strerror(-r.value));
		break;
	case STEP_MOUNTS:
		warn_user("the command sees the host's /etc/resolv.conf, /proc and /sys (%s): the stack must be able to reach these name servers, and /proc/net and /proc/sys/net are not the stack's",
			  strerror(-r.value));
		break;
	case STEP_TUN:
		tun_set_stand_in((unsigned int)r.value);
		break;
	case STEP_VIEW:
		view_mounted(r.value);
		break;
	case STEP_COVER:
		warn_user("covering the host's /proc/net, /proc/sys/net and /sys/class/net: %s: the target sees the host's files there",
			  strerror(-r.value));
		break;
	case STEP_RESOLV:
		warn_user("the command sees the host's /etc/resolv.conf (%s): the stack must be able to reach these name servers",
			  strerror(-r.value));
		break;
	case STEP_HOSTS:
		warn_user("the command sees the host's /etc/hosts (%s): the names of --add-host do not resolve",
			  strerror(-r.value));
		break;
	case STEP_HIDE:
		warn_user("hiding the host's name services or the run directory from the command: %s: name lookups may use the host's network",
			  strerror(-r.value));
		break;
	case STEP_COVERS:
		if (r.value > 0)
			helper_add(target.covers = r.value);
		else if (r.value == -EINVAL)	/* qemu-user has no CLONE_PARENT */
			log_line("the host's name services are not watched: emulated");
		else
			warn_user("watching the host's name services: %s: services that restart during the run are not hidden from the command",
				  strerror(-r.value));
		break;
	default:
		target.not_executed = true;
		warn_user("%s: %s", target.argv[0], strerror(-r.value));
	}
}

/**
 * target_lingers - whether the target has ended, but its tree has not
 *
 * This applies only if the run lasts as long as the tree. When a daemon starts,
 * for example, its first process ends first.
 */
bool target_lingers(void)
{
	return target.ended && target.lingers;
}

/**
 * target_uncover - end the covers process, after all processes of the target
 *
 * The kernel then removes their mounts while lklhost ends the stack.
 */
void target_uncover(void)
{
	if (target.covers > 0)
		kill(target.covers, SIGKILL);
}

/**
 * children_ended - reap children, and end the run with the target or its tree
 *
 * Orphans become children of lklhost, so this also sees the end of the last
 * process.
 */
static void children_ended(void)
{
	int status;
	pid_t pid;

	while ((pid = trace_wait(&status)) > 0) {
		if (pid == target.covers)
			target.covers = 0;
		if (pid != target.pid || target.ended) {
			exec_reaped(pid, status);
			continue;
		}
		target.ended = true;
		host.target_pid = 0;
		while (target.sync >= 0)	/* read its last reports */
			child_reported(&target.sync_src, 0);
		target.status = status;
		target.lingers = host.wait_tree;
		if (!target.lingers)
			target.ops->ended(pid, status);
	}
	if (target_lingers() && tree_empty()) {
		target.lingers = false;
		target.ops->ended(target.pid, target.status);
	}
}

/** signalled - handle a signal sent to lklhost itself */
static void signalled(struct source *src, uint32_t events)
{
	struct signalfd_siginfo si;

	(void)events;
	if (read(src->fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SIGCHLD)
		children_ended();
	else if (si.ssi_signo == SIGINT || si.ssi_signo == SIGQUIT)
		ctl_event(CTL_EV_SIGNAL, si.ssi_pid, (int64_t)si.ssi_signo, "");
	else
		target.ops->stop((int)si.ssi_signo, 5000);
}

/**
 * target_watch - make the loop watch the target
 *
 * Signals of the terminal are meant for the target, so lklhost only reports
 * them. lklrun cannot distinguish a signal of the terminal from a signal that
 * was sent only to lklrun. lklhost can, because it gets only the signals of the
 * terminal, as a member of the same process group.
 */
int target_watch(const struct target_ops *ops)
{
	static const int ignored[] = { SIGINT, SIGQUIT, SIGTSTP, SIGTTIN,
				       SIGTTOU, SIGHUP, SIGPIPE };
	struct rlimit lim;
	sigset_t set;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	if (!getrlimit(RLIMIT_NOFILE, &lim)) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGQUIT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	target.ops = ops;
	target.sig_src.fn = signalled;
	target.sig_src.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (target.sig_src.fd < 0)
		return -errno;
	ret = loop_add(&target.sig_src, EPOLLIN);
	if (ret)
		return ret;
	target.sync_src.fn = child_reported;
	target.sync_src.fd = target.sync;
	return loop_add(&target.sync_src, EPOLLIN);
}

/**
 * target_release - let the target run
 * @resolv: path of the file to show as /etc/resolv.conf
 * @resolv_len: length of @resolv; if 0, /etc/resolv.conf is not covered
 */
int target_release(const char *resolv, uint32_t resolv_len)
{
	char msg[sizeof(uint32_t) + RESOLV_MAX];

	if (target.ended || target.sync < 0)
		return -ESRCH;
	if (resolv_len > RESOLV_MAX)
		return -ENAMETOOLONG;
	memcpy(msg, &resolv_len, sizeof(resolv_len));
	if (resolv_len)
		memcpy(msg + sizeof(resolv_len), resolv, resolv_len);
	if (send(target.sync, msg, sizeof(resolv_len) + resolv_len,
		 MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}
