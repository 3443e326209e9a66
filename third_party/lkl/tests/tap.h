/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Common to all tests: TAP output with a time limit, system calls into the
 * stack, a namespace of its own.
 */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <lkl.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int tap_count, tap_failed;

/* ok - print one result line */
static inline int ok(int good, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", good ? "" : "not ", ++tap_count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	tap_failed += !good;
	return good;
}

static inline int skip(const char *why)
{
	/* LKL_TEST_NO_SKIP turns every skipped test into a failure */
	if (getenv("LKL_TEST_NO_SKIP"))
		return ok(0, "would skip: %s", why);
	printf("ok %d # SKIP %s\n", ++tap_count, why);
	return 1;
}

/*
 * A time limit, or the inverse for a count. LKL_TEST_SLOW=n says that the CPU
 * is emulated and everything takes n times as long.
 */
static inline double slow(double limit)
{
	const char *env = getenv("LKL_TEST_SLOW");

	return env ? limit * atoi(env) : limit;
}

static void on_alarm(int sig)
{
	static const char msg[] = "Bail out! time limit\n";

	(void)sig;
	if (write(1, msg, sizeof(msg) - 1) < 0)
		_exit(3);
	_exit(2);
}

static inline void start(unsigned int limit_s)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, on_alarm);
	alarm(slow(limit_s));
}

static inline int finish(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed ? 1 : 0;
}

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static inline double cpu_s(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static inline long lcall(long no, long a, long b, long c, long d, long e, long f)
{
	long params[6] = { a, b, c, d, e, f };

	return lkl_syscall(no, params);
}

#define L6(no, a, b, c, d, e, f) \
	lcall(SYS_##no, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define L0(no)			L6(no, 0, 0, 0, 0, 0, 0)
#define L1(no, a)		L6(no, a, 0, 0, 0, 0, 0)
#define L2(no, a, b)		L6(no, a, b, 0, 0, 0, 0)
#define L3(no, a, b, c)		L6(no, a, b, c, 0, 0, 0)
#define L4(no, a, b, c, d)	L6(no, a, b, c, d, 0, 0)
#define L5(no, a, b, c, d, e)	L6(no, a, b, c, d, e, 0)

static struct lkl_host_operations quiet_ops;

static inline void boot(const char *cmdline)
{
	int ret;

	lkl_init(&quiet_ops);
	ret = lkl_start_kernel("%s", cmdline);
	if (ret) {
		printf("Bail out! boot: %s\n", lkl_strerror(ret));
		exit(2);
	}
	lkl_if_up(1);
}

static inline struct sockaddr_in addr4(const char *ip, int port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };

	sa.sin_addr.s_addr = inet_addr(ip);
	return sa;
}

/* Makes a listening socket of the stack */
static inline long llisten(const char *ip, int port, int proto)
{
	struct sockaddr_in sa = addr4(ip, port);
	long one = 1, s = L3(socket, AF_INET, SOCK_STREAM, proto), ret;

	if (s < 0)
		return s;
	L5(setsockopt, s, SOL_SOCKET, SO_REUSEADDR, &one, 4);
	ret = L3(bind, s, &sa, sizeof(sa));
	if (!ret)
		ret = L2(listen, s, 128);
	return ret ? ret : s;
}

static inline long lconnect(const char *ip, int port, int proto)
{
	struct sockaddr_in sa = addr4(ip, port);
	long s = L3(socket, AF_INET, SOCK_STREAM, proto), ret;

	if (s < 0)
		return s;
	ret = L3(connect, s, &sa, sizeof(sa));
	if (ret)
		L1(close, s);
	return ret ? ret : s;
}

/* open(2), which not every CPU has */
static inline long lopen(const char *path, int flags, int mode)
{
	return L4(openat, AT_FDCWD, path, flags, mode);
}

/* Reads a file of the stack into a string; returns its length or -errno */
static inline long lread_file(const char *path, char *buf, long size)
{
	long fd = lopen(path, O_RDONLY, 0), n, len = 0;

	if (fd < 0)
		return fd;
	while (len < size - 1 && (n = L3(read, fd, buf + len, size - 1 - len)) > 0)
		len += n;
	buf[len] = 0;
	L1(close, fd);
	return len;
}

/* Runs a command and discards its output; returns its exit status */
static inline int sh(const char *fmt, ...)
{
	char cmd[512];
	va_list ap;
	int n, ret;

	n = snprintf(cmd, sizeof(cmd), "{ ");
	va_start(ap, fmt);
	n += vsnprintf(cmd + n, sizeof(cmd) - n, fmt, ap);
	va_end(ap);
	snprintf(cmd + n, sizeof(cmd) - n, "; } >/dev/null 2>&1");
	ret = system(cmd);
	return WIFEXITED(ret) ? WEXITSTATUS(ret) : 128;
}

/*
 * fork() with a child that ends with this process: run.sh waits for all that
 * hold its pipe
 */
static inline pid_t fork_tied(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* A network namespace for this process, which ends with it */
static inline int own_netns(void)
{
	return unshare(CLONE_NEWNET) || sh("ip link set lo up");
}

#endif
