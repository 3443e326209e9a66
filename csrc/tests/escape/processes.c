// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attempts on other processes: the accomplice outside (outside.c), which has
 * the same user and a connection on the host, and lklrun's own processes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

enum { OUTSIDE, LKLHOST, LKLRUN, ZYGOTE };

/** parent_of - return the parent of a process; 0 if there is no such process */
static pid_t parent_of(pid_t pid)
{
	char path[64], line[512], *p = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fgets(line, sizeof(line), f))
		p = strrchr(line, ')');
	fclose(f);
	return p ? (pid_t)strtol(p + 4, NULL, 10) : 0;
}

/** sibling - find the child of lklhost that is not our first process: the zygote */
static pid_t sibling(pid_t host, pid_t target)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while (d && !found && (e = readdir(d))) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

		if (pid && pid != target && parent_of(pid) == host)
			found = pid;
	}
	if (d)
		closedir(d);
	return found;
}

/** victim - return the pid of the process to attack; 0 if there is none */
static pid_t victim(long who)
{
	pid_t target, host;

	if (who == OUTSIDE)
		return (pid_t)number("PID");
	if (*setting("LKLHOST")) {	/* we are not in a run */
		target = (pid_t)number("TARGET");
		host = (pid_t)number("LKLHOST");
	} else {
		target = getppid();
		host = parent_of(target);
	}
	return who == LKLHOST ? host : who == LKLRUN ? parent_of(host) :
						       sibling(host, target);
}

#ifdef __x86_64__
/** inject - have the stopped accomplice send our bytes on its connection */
static void inject(pid_t pid)
{
	struct user_regs_struct saved, regs;
	int status;

	ptrace(PTRACE_GETREGS, pid, 0, &saved);
	regs = saved;
	regs.rip = (unsigned long)number("STUB");	/* syscall; int3 */
	regs.orig_rax = (unsigned long)-1;
	regs.rax = SYS_write;
	regs.rdi = (unsigned long)number("FD");
	regs.rsi = (unsigned long)number("TEXT");
	regs.rdx = 16;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
	ptrace(PTRACE_CONT, pid, 0, 0);
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETREGS, pid, 0, &saved);
}

/** remote - have a stopped process make a call; returns the result */
static long remote(pid_t pid, const struct user_regs_struct *saved, long nr,
		   unsigned long a, unsigned long b, unsigned long c)
{
	struct user_regs_struct regs = *saved;
	int i, status;

	regs.rip -= 2;		/* the call in which the process waits */
	regs.orig_rax = (unsigned long)-1;
	regs.rax = (unsigned long)nr;
	regs.rdi = a;
	regs.rsi = b;
	regs.rdx = c;
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
	for (i = 0; i < 2; i++) {
		ptrace(PTRACE_SYSCALL, pid, 0, 0);
		waitpid(pid, &status, 0);
	}
	ptrace(PTRACE_GETREGS, pid, 0, &regs);
	return (long)regs.rax;
}

/** zygote - find the child of lklhost that has its name */
static pid_t zygote(void)
{
	pid_t host = parent_of(getppid()), found = 0;
	char path[64], comm[32] = "";
	DIR *d = opendir("/proc");
	struct dirent *e;

	while (d && !found && (e = readdir(d))) {
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
		FILE *f;

		if (!pid || parent_of(pid) != host)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		f = fopen(path, "r");
		if (f && fgets(comm, sizeof(comm), f) && !strcmp(comm, "lklhost\n"))
			found = pid;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

/** by_zygote - have the zygote connect to the host */
static const char *by_zygote(const struct attempt *at)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)number("TCP")),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct user_regs_struct regs;
	long fd, ret, words[2];
	unsigned long to;
	pid_t pid = zygote();
	int status;

	(void)at;
	if (!pid)
		return "absent";
	if (ptrace(PTRACE_SEIZE, pid, 0, 0))
		return failure(errno);
	ptrace(PTRACE_INTERRUPT, pid, 0, 0);
	waitpid(pid, &status, 0);
	ptrace(PTRACE_GETREGS, pid, 0, &regs);
	to = (regs.rsp - 512) & ~15ul;
	memcpy(words, &in, sizeof(in));
	ptrace(PTRACE_POKEDATA, pid, to, words[0]);
	ptrace(PTRACE_POKEDATA, pid, to + sizeof(long), words[1]);
	fd = remote(pid, &regs, SYS_socket, AF_INET, SOCK_STREAM, 0);
	ret = fd < 0 ? fd : remote(pid, &regs, SYS_connect, (unsigned long)fd,
				   to, sizeof(in));
	if (fd >= 0)
		remote(pid, &regs, SYS_close, (unsigned long)fd, 0, 0);
	ptrace(PTRACE_SETREGS, pid, 0, &regs);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	return ret < 0 ? failure((int)-ret) : "reached";
}
#else
static void inject(pid_t pid)
{
	(void)pid;
}

static const char *by_zygote(const struct attempt *at)
{
	(void)at;
	return "absent";
}
#endif

/** trace - attach to a process; in the accomplice, also make a call */
static const char *trace(const struct attempt *at)
{
	pid_t pid = victim(at->a);
	int status;

	if (!pid)
		return "absent";
	if (at->a != OUTSIDE)
		return ptrace(PTRACE_SEIZE, pid, 0, 0) ? failure(errno) :
							"reached";
	if (ptrace(PTRACE_ATTACH, pid, 0, 0))
		return failure(errno);
	waitpid(pid, &status, 0);
	inject(pid);
	ptrace(PTRACE_DETACH, pid, 0, 0);
	return "reached";
}

/** memory_write - process_vm_writev(); EFAULT shows that access is allowed */
static const char *memory_write(const struct attempt *at)
{
	char text[] = "overwritten";
	struct iovec l = { text, sizeof(text) };
	struct iovec r = { (void *)(at->a ? 16 : number("CELL")), sizeof(text) };
	pid_t pid = victim(at->a);

	if (!pid)
		return "absent";
	if (process_vm_writev(pid, &l, 1, &r, 1, 0) >= 0 || errno == EFAULT)
		return "reached";
	return failure(errno);
}

/** memory_file - the same through /proc/PID/mem */
static const char *memory_file(const struct attempt *at)
{
	char path[64];
	pid_t pid = victim(at->a);
	int fd;

	if (!pid)
		return "absent";
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR);
	if (fd < 0)
		return failure(errno);
	if (!at->a && pwrite(fd, "overwritten", 12, number("CELL")) < 0)
		return failure(errno);
	return "reached";
}

/** steal - copy a descriptor: the accomplice's connection, or any of lklrun's */
static const char *steal(const struct attempt *at)
{
	pid_t pid = victim(at->a);
	int pidfd, fd, from = at->a ? 3 : (int)number("FD");
	int to = at->a ? 100 : from + 1, got, err = EBADF;

	if (!pid)
		return "absent";
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return failure(errno);
	for (fd = from; fd < to && err == EBADF; fd++) {
		got = (int)RAW(SYS_pidfd_getfd, pidfd, fd, 0);
		if (got >= 0) {
			if (!at->a)
				mark(got, at->name);
			return "reached";
		}
		err = errno;
	}
	return failure(err);
}

/** entry - open something below /proc/PID */
static const char *entry(const struct attempt *at)
{
	static const char *const entries[] = { "fd/0", "root", "environ" };
	char path[64], link[64];
	pid_t pid = victim(at->a);
	int fd;

	if (!pid)
		return "absent";
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, entries[at->b]);
	if (!at->b)
		return readlink(path, link, sizeof(link)) < 0 ? failure(errno) :
								"reached";
	fd = open(path, O_RDONLY);
	return fd < 0 ? failure(errno) : "reached";
}

/** open_socket - open /proc/PID/fd/N of the accomplice's connection */
static const char *open_socket(const struct attempt *at)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/fd/%ld", number("PID"), number("FD"));
	fd = open(path, O_RDWR);
	if (fd < 0)
		return failure(errno);
	mark(fd, at->name);
	return "reached";
}

/** signal_to - whether a signal would be delivered */
static const char *signal_to(const struct attempt *at)
{
	pid_t pid = victim(at->a);

	if (!pid)
		return "absent";
	return kill(pid, at->b ? SIGKILL : 0) ? failure(errno) : "allowed";
}

/** limits - set another process's limits */
static const char *limits(const struct attempt *at)
{
	pid_t pid = victim(at->a);
	struct rlimit lim;

	if (!pid)
		return "absent";
	return prlimit(pid, RLIMIT_CORE, NULL, &lim) ? failure(errno) : "allowed";
}

/**
 * after_lklhost - kill the supervisor, then connect
 *
 * The target dies with lklhost, and so does a daemon whose parent has ended. If
 * one survived, nobody would answer its calls.
 */
static const char *after_lklhost(const struct attempt *at)
{
	pid_t pid = victim(LKLHOST);

	if (fork())
		_exit(0);
	setsid();
	if (kill(pid, SIGKILL))
		return failure(errno);
	while (!kill(pid, 0))
		usleep(1000);
	return connect_out(at);
}

const struct attempt process_attempts[] = {
	{ "ptrace-outside", trace, OUTSIDE, 0 },
	{ "ptrace-lklhost", trace, LKLHOST, 0 },
	{ "ptrace-lklrun", trace, LKLRUN, 0 },
	{ "memory-outside", memory_write, OUTSIDE, 0 },
	{ "memory-lklhost", memory_write, LKLHOST, 0 },
	{ "memory-lklrun", memory_write, LKLRUN, 0 },
	{ "proc-mem-outside", memory_file, OUTSIDE, 0 },
	{ "proc-mem-lklhost", memory_file, LKLHOST, 0 },
	{ "proc-mem-lklrun", memory_file, LKLRUN, 0 },
	{ "pidfd-getfd-outside", steal, OUTSIDE, 0 },
	{ "pidfd-getfd-lklhost", steal, LKLHOST, 0 },
	{ "pidfd-getfd-lklrun", steal, LKLRUN, 0 },
	{ "pidfd-getfd-zygote", steal, ZYGOTE, 0 },
	{ "ptrace-zygote", by_zygote, 0, 0 },
	{ "proc-fd-outside", entry, OUTSIDE, 0 },
	{ "proc-fd-lklhost", entry, LKLHOST, 0 },
	{ "proc-fd-lklrun", entry, LKLRUN, 0 },
	{ "proc-fd-open", open_socket, 0, 0 },
	{ "proc-root-outside", entry, OUTSIDE, 1 },
	{ "proc-root-lklhost", entry, LKLHOST, 1 },
	{ "proc-root-lklrun", entry, LKLRUN, 1 },
	{ "proc-environ-lklrun", entry, LKLRUN, 2 },
	{ "signal-outside", signal_to, OUTSIDE, 0 },
	{ "signal-lklhost", signal_to, LKLHOST, 0 },
	{ "prlimit-lklhost", limits, LKLHOST, 0 },
	{ "kill-lklhost", after_lklhost, 0, 0 },
	{ NULL, NULL, 0, 0 },
};
