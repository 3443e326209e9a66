// SPDX-License-Identifier: GPL-2.0-only
/*
 * The target: the user's program, from fork to its wait status.
 *
 * Theory of operation
 *
 * It is forked first of all, while this process is still small and has changed
 * neither signals nor limits, and then stands still:
 *
 *	child						lklhost
 *	die with the parent, empty network namespace
 *	install the filter, say its descriptor  --->	pidfd_getfd() it
 *						<---	"taken"
 *	close it, wait				<---	GO, path of resolv.conf
 *	mounts, fork the zygote, exec	   errno --->	CTL_EV_WARN
 *
 * Both directions use read and write, which the filter leaves alone; the
 * listener cannot be passed in a message because sendmsg is notified already.
 *
 * The child counts on its end of the socket closing when lklhost dies: it then
 * ends too, as it does by PR_SET_PDEATHSIG.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl_proto.h"
#include "host.h"
#include "loop.h"
#include "zygote.h"

#define EXIT_NOT_EXECUTABLE	126
#define EXIT_NOT_FOUND		127
#define RESOLV_MAX		4096

/* What the child reports, in this order. */
enum child_step {
	STEP_NETNS,
	STEP_FILTER,	/* value: the listener's descriptor */
	STEP_RESOLV,
	STEP_HIDE,
	STEP_EXEC,
};

struct child_report {
	int32_t step;
	int32_t value;	/* >= 0, or a negative errno */
};

static struct {
	pid_t pid;
	int sync;
	int notify_fd;
	bool ended;
	char *const *argv;
	struct source sync_src;
	struct source sig_src;
} target = { .sync = -1, .notify_fd = -1 };

/* Where name lookups would leave by, past the stack: they are covered. */
static const char *const daemons[] = {
	"/run/nscd/socket", "/var/run/nscd/socket",
	"/run/systemd/resolve/io.systemd.Resolve",
};

/** report - tell lklhost */
static void report(int fd, enum child_step step, int value)
{
	struct child_report r = { .step = (int32_t)step, .value = value };

	if (write(fd, &r, sizeof(r)) != (ssize_t)sizeof(r))
		_exit(EXIT_NOT_FOUND);
}

/** read_all - exactly @len bytes, or false */
static bool read_all(int fd, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/**
 * mounts - the target's own /etc/resolv.conf, and no resolver daemon
 * @path: file to show there
 */
static void mounts(int sync, const char *path)
{
	size_t i;

	if (unshare(CLONE_NEWNS) ||
	    mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) ||
	    mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL)) {
		report(sync, STEP_RESOLV, -errno);
		return;
	}
	for (i = 0; i < sizeof(daemons) / sizeof(daemons[0]); i++)
		if (!access(daemons[i], F_OK) &&
		    mount("/dev/null", daemons[i], NULL, MS_BIND, NULL))
			report(sync, STEP_HIDE, -errno);
}

/**
 * child_main - what happens in the child; never returns
 * @sync: our end of the socket
 * @zygote: the zygote's end of its own
 * @parent: pid of lklhost
 * @argv: the command
 */
__attribute__((noreturn))
static void child_main(int sync, int zygote, pid_t parent, char **argv)
{
	char resolv[RESOLV_MAX + 1];
	bool userns = false;
	uint32_t len;
	char go;
	int ret;

	ret = netns_enter(false);
	if (ret == -EPERM && !host.no_userns) {
		ret = netns_enter(true);
		userns = true;
	}
	if (ret) {
		report(sync, STEP_NETNS, ret);
		_exit(EXIT_NOT_FOUND);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NOT_FOUND);
	if (userns || host.in_userns)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	ret = filter_install();
	report(sync, STEP_FILTER, ret);
	if (ret < 0 || !read_all(sync, &go, 1))
		_exit(EXIT_NOT_FOUND);
	close(ret);

	if (!read_all(sync, &len, sizeof(len)) || len > RESOLV_MAX ||
	    !read_all(sync, resolv, len))
		_exit(EXIT_NOT_FOUND);
	resolv[len] = '\0';
	if (len)
		mounts(sync, resolv);
	zygote_fork(zygote);
	execvp(argv[0], argv);
	ret = errno;
	report(sync, STEP_EXEC, -ret);
	_exit(ret == ENOENT || ret == ENOTDIR ? EXIT_NOT_FOUND :
	      EXIT_NOT_EXECUTABLE);
}

/** take_listener - wait for the filter, and fetch its descriptor */
static int take_listener(char *err, size_t errlen)
{
	struct child_report r;
	int pidfd, fd = -1;

	if (!read_all(target.sync, &r, sizeof(r))) {
		snprintf(err, errlen, "preparing the target: it ended early");
		return -ESRCH;
	}
	if (r.value < 0) {
		snprintf(err, errlen, r.step == STEP_NETNS ?
			 "putting the target into an empty network namespace: %s: run as root, or allow user namespaces (sysctl user.max_user_namespaces)" :
			 "installing the seccomp filter: %s: needs Linux 5.9 with seccomp user notification, and no other supervisor above this one",
			 strerror(-r.value));
		return r.value;
	}
	pidfd = (int)syscall(SYS_pidfd_open, target.pid, 0);
	if (pidfd >= 0)
		fd = (int)syscall(SYS_pidfd_getfd, pidfd, r.value, 0);
	if (fd < 0) {
		int ret = -errno;

		snprintf(err, errlen, "taking the seccomp listener: %s",
			 strerror(-ret));
		if (pidfd >= 0)
			close(pidfd);
		return ret;
	}
	close(pidfd);
	target.notify_fd = fd;
	if (write(target.sync, "", 1) != 1)
		return -EPIPE;
	return 0;
}

/**
 * target_fork - fork the target, which then waits for target_release()
 * @argv: its command
 * @err: one line for the user on failure
 */
int target_fork(char **argv, char *err, size_t errlen)
{
	pid_t parent = getpid();
	int zygote, sv[2], ret;

	target.argv = argv;
	zygote = exec_init();
	if (zygote < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv)) {
		ret = zygote < 0 ? zygote : -errno;
		snprintf(err, errlen, "making a socket pair: %s", strerror(-ret));
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
	exec_forked();
	target.sync = sv[0];
	ret = take_listener(err, errlen);
	if (ret)
		kill(target.pid, SIGKILL);
	return ret;
}

/** target_notify_fd - the seccomp listener */
int target_notify_fd(void)
{
	return target.notify_fd;
}

/** target_pid - 0 once it has ended */
pid_t target_pid(void)
{
	return target.ended ? 0 : target.pid;
}

/** child_reported - something happened between GO and exec */
static void child_reported(struct source *src, uint32_t events)
{
	struct child_report r;

	(void)events;
	if (recv(src->fd, &r, sizeof(r), MSG_DONTWAIT) != (ssize_t)sizeof(r)) {
		loop_del(src);
		close(target.sync);
		target.sync = -1;
		return;
	}
	switch (r.step) {
	case STEP_RESOLV:
		warn_user("giving the target its own /etc/resolv.conf: %s",
			  strerror(-r.value));
		break;
	case STEP_HIDE:
		warn_user("hiding a resolver daemon from the target: %s",
			  strerror(-r.value));
		break;
	default:
		warn_user("%s: %s", target.argv[0], strerror(-r.value));
	}
}

/** children_ended - reap; the target's end is the run's */
static void children_ended(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != target.pid || target.ended) {
			exec_reaped(pid, status);
			continue;
		}
		target.ended = true;
		while (target.sync >= 0)	/* what it said last */
			child_reported(&target.sync_src, 0);
		host_target_ended(pid, status);
	}
}

/** signalled - a signal for lklhost itself */
static void signalled(struct source *src, uint32_t events)
{
	struct signalfd_siginfo si;

	(void)events;
	if (read(src->fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SIGCHLD)
		children_ended();
	else
		host_stop((int)si.ssi_signo, 5000);
}

/**
 * target_watch - have the loop watch the target
 *
 * Signals of the terminal are the target's business and are ignored here.
 */
int target_watch(void)
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
	sigprocmask(SIG_BLOCK, &set, NULL);
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
 * target_release - let it run
 * @resolv: path that shall stand for /etc/resolv.conf
 * @resolv_len: 0: leave it
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

/** target_finish - forget the listener: calls of whoever is left say ENOSYS */
void target_finish(void)
{
	if (target.notify_fd >= 0)
		close(target.notify_fd);
	target.notify_fd = -1;
}
