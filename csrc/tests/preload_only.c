// SPDX-License-Identifier: GPL-2.0-only
/*
 * Behavior that exists only with the preloaded stack: children without a stack,
 * the library's own descriptors, refused calls.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "conform.h"
#ifdef __aarch64__
#include "regs_arm64.h"
#endif
#include "tap.h"

extern char **environ;

static int sv[2];

/** works - whether the parent's sockets work */
static bool works(void)
{
	char c = 0;

	return write(sv[0], "w", 1) == 1 && read(sv[1], &c, 1) == 1 && c == 'w';
}

/** status - wait for a child; returns its exit status */
static int status(pid_t pid)
{
	int st;

	return waitpid(pid, &st, 0) == pid && WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

/** in_child - run @fn in a child after fork(); 0 means success */
static int in_child(int (*fn)(void))
{
	pid_t pid = fork();

	if (!pid) {
		close(2);	/* suppresses the line for the user */
		alarm(20);
		_exit(fn());
	}
	return status(pid);
}

static int child_calls(void)
{
	struct pollfd p = { .fd = sv[0], .events = POLLIN };
	char c;

	if (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != ENETDOWN)
		return 1;
	if (write(sv[0], "c", 1) != -1 || errno != ENETDOWN)
		return 2;
	if (recv(sv[1], &c, 1, 0) != -1 || errno != ENETDOWN)
		return 3;
	if (poll(&p, 1, 1000) < 0)
		return 4;
	if (socket(AF_UNIX, SOCK_STREAM, 0) < 0 || dup2(sv[0], 50) != 50)
		return 5;
	if (send(50, "c", 1, 0) != -1 || errno != ENETDOWN)
		return 6;
	if (close(50) || close(sv[0]) ||
	    dup2(open("/dev/null", O_RDWR), sv[0]) != sv[0] ||
	    write(sv[0], "n", 1) != 1)
		return 7;
	return 0;
}

static int child_exits(void)
{
	exit(0);
}

/** children - fork, vfork, posix_spawn */
static void children(void)
{
	posix_spawn_file_actions_t fa;
	char *argv[] = { "true", NULL }, *echo[] = { "echo", "x", NULL };
	char c;
	pid_t pid;
	int st;

	ok(in_child(child_calls) == 0, "a child after fork: ENETDOWN, and descriptors that can be closed and used again");
	ok(works(), "the parent goes on");
	ok(in_child(child_exits) == 0 && works(), "exit() in a child does not end the parent's sockets");
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addclose(&fa, sv[0]);
	posix_spawn_file_actions_adddup2(&fa, sv[1], 60);
	st = posix_spawnp(&pid, "true", &fa, NULL, argv, environ);
	ok(!st && status(pid) == 0 && works(), "posix_spawn that closes and duplicates sockets leaves the parent's alone");
	posix_spawn_file_actions_adddup2(&fa, sv[1], 1);
	posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
	st = posix_spawnp(&pid, "echo", &fa, NULL, echo, environ);
	ok(!st && status(pid) == 1, "a program on a socket of the stack's is told");
	ok(recv(sv[0], &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "and nothing of it arrives");
	posix_spawn_file_actions_destroy(&fa);
	pid = vfork();
	if (!pid) {
		close(sv[0]);
		dup2(sv[1], sv[0]);
		_exit(3);
	}
	ok(status(pid) == 3 && works(), "a vfork child's close and _exit are its own");
	st = system("exit 7");
	ok(WIFEXITED(st) && WEXITSTATUS(st) == 7, "system()");
	ok(!getenv("LD_PRELOAD"), "children do not load it");
}

/** own - calls on descriptors of the library */
static void own(void)
{
	struct rlimit lim;
	int fd, n = 0, closed = 0;
	struct dirent *de;
	DIR *d = opendir("/proc/self/fd");

	getrlimit(RLIMIT_NOFILE, &lim);
	while ((de = readdir(d))) {
		fd = atoi(de->d_name);
		n += fd > 255;
		closed += fd > 255 && !close(fd);
	}
	closedir(d);
	ok(n >= 3 && !closed, "%d descriptors of the library's, none of which can be closed", n);
	ok(open("/dev/null", O_RDONLY) < 32, "the program's are low");
	ok(dup2(0, 16128) == -1 && errno == EBADF, "nor replaced");
	tcp_pair(AF_INET, sv);
	closefrom(70);
	ok(works(), "closefrom() leaves them alone");
	fd = fcntl(sv[0], F_DUPFD, 100);
	ok(!close_range(70, 200, 0) && write(fd, "x", 1) == -1 && errno == EBADF && works(),
	   "close_range() closes duplicates");
}

/** refused - calls that must fail with an errno */
static void refused(void)
{
	union {
		struct cmsghdr cm;
		char buf[CMSG_SPACE(sizeof(int))];
	} u = { .cm = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { "x", 1 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof(u) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_storage ss;
	int l, c, fd, st[2];
	socklen_t len = sizeof(sa_family_t);
	pid_t pid;

	ok(syscall(SYS_io_uring_setup, 1, NULL) == -1 && errno == ENOSYS, "io_uring is not there");
	fd = (int)syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0);
	ok(fd >= 0 && !bind(fd, (struct sockaddr *)&ss, lo(&ss, AF_INET, 0)) && port_of(fd) > 0,
	   "syscall() makes sockets of the stack too");
	close(fd);
	/* The other end of the unix socket belongs to a child. */
	l = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(l, (struct sockaddr *)&un, len);
	len = sizeof(un);
	getsockname(l, (struct sockaddr *)&un, &len);
	listen(l, 1);
	if (pipe(st))
		ok(false, "pipe");
	pid = fork();
	if (!pid) {
		alarm(20);
		close(st[1]);
		c = socket(AF_UNIX, SOCK_STREAM, 0);
		connect(c, (struct sockaddr *)&un, len);
		_exit(read(st[0], &c, 1) != 0);
	}
	c = accept(l, NULL, NULL);
	memcpy(CMSG_DATA(&u.cm), &sv[0], sizeof(int));
	ok(sendmsg(c, &mh, 0) == -1 && errno == EOPNOTSUPP, "a socket of the stack cannot be passed to another process");
	memcpy(CMSG_DATA(&u.cm), &l, sizeof(int));
	ok(sendmsg(c, &mh, 0) == 1, "one of the host's can");
	close(st[1]);
	ok(status(pid) == 0, "the child ends");
	close(c);
	close(l);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ok(fcntl(sv[0], F_SETOWN, getpid()) == -1 && errno == ESRCH, "F_SETOWN says ESRCH");
	close(fd);
}

/** shut - close a stream, which may be NULL */
static void shut(FILE *f)
{
	if (f)
		fclose(f);
}

/** files - open files of the stack's network by name */
static void files(void)
{
	const char *ttl = "/proc/sys/net/ipv4/ip_default_ttl";
	char line[256] = "", want[16];
	int l, port, n = 0;
	FILE *f;

	l = listener(AF_INET, 0, &port);
	snprintf(want, sizeof(want), ":%04X ", port);
	f = fopen("/proc/net/tcp", "r");
	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, want) != NULL;
	ok(f && n == 1, "/proc/net/tcp is the stack's");
	shut(f);
	f = fopen(ttl, "w");
	ok(f && fputs("77", f) >= 0 && !fclose(f), "a sysctl of the stack's is written");
	f = fopen(ttl, "r");
	ok(f && fgets(line, sizeof(line), f) && atoi(line) == 77 && !fseek(f, 0, SEEK_SET) &&
	   fgets(line, sizeof(line), f) && atoi(line) == 77, "and read, twice");
	shut(f);
	f = fopen("/proc/self/comm", "r");
	ok(f && fgets(line, sizeof(line), f) && !strcmp(line, "preload_only\n"), "others are the host's");
	shut(f);
	ok(open("/proc/net/nosuch", O_RDONLY) == -1 && errno == ENOENT, "what is not there is not");
	close(l);
}

/** registers - registers that a system call must preserve */
static void registers(void)
{
#ifdef __aarch64__
	ok(regs_kept(SYS_getppid, 0, 0), "registers across a call of the host");
	ok(regs_kept(SYS_fcntl, sv[0], F_GETFL), "and across one of the stack");
	ok(regs_kept(SYS_fcntl, 1, F_GETFD), "and one that was looked at");
#endif
}

/** main - run all tests in order */
int main(void)
{
	int proto = 0;
	socklen_t len = sizeof(proto);
	struct stat st;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	tcp_pair(AF_INET, sv);
	ok(works(), "a pair works");
	ok(!fstat(sv[0], &st) && S_ISSOCK(st.st_mode), "fstat says socket");
	getsockopt(sv[0], SOL_SOCKET, SO_PROTOCOL, &proto, &len);
	ok(proto == IPPROTO_TCP, "SO_PROTOCOL is what was asked for");
	children();
	own();
	refused();
	files();
	registers();
	return tap_end();
}
