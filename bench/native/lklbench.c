/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * lklbench: the same measuring loops for two kernels. Without --lib its system
 * calls go to the host, with --lib to a stack library in this process. Each
 * verb prints its results with units.
 *
 *	lklbench [OPTION VALUE]... VERB ...
 *		serve ADDR PORT                   host only: the other end
 *		boot                              until the first call
 *		getppid COUNT                     one call
 *		send|recv ADDR PORT MILLISECONDS  one connection, one way
 *		rr ADDR PORT COUNT                one byte there and back
 *
 *	Options of the connection: --cc NAME (default: the kernel's), --size BYTES (of
 *	one call), --mptcp 1, --nagle 1 (no TCP_NODELAY at either end), --busypoll
 *	USEC, --warm MS (warm-up time before the measurement; sent data is then
 *	counted by the receiver).
 *	Options of a library: --lib SO [--tap DEV --ip A/N [--ip6 A/N]]...
 *	[--offload MASK] [--cmdline TEXT] [--sysctl NAME=VALUE]... [--spin USEC]
 *
 * A client first sends a struct hello with the role of the server: 's' a sink
 * that answers the end of the stream with a struct tally, 'r' a source, 'e' an
 * echo.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "kernel.h"
#include "mptcp.h"
#include "peer.h"

static struct {
	const char *cc;
	size_t size;
	long warm_ms, mptcp, nagle, busypoll;
} opt = { .size = CHUNK };

/**
 * set - set an option of a socket of the measured kernel
 * @fd: the socket
 * @level: of the option
 * @name: its number
 * @value: its value
 * @len: of @value
 * @what: its name
 */
static void set(int fd, int level, int name, const void *value, size_t len, const char *what)
{
	long ret = sys(SYS_setsockopt, fd, level, name, (long)value, (long)len);

	if (ret < 0)
		die(what, ret);
}

/**
 * dial - connect and send the server its role
 * @ip: the server's address
 * @port: and port
 * @what: 's', 'r' or 'e'
 *
 * Return: the connection's descriptor in the measured kernel
 */
static int dial(const char *ip, const char *port, char what)
{
	struct hello hello = { (uint32_t)what, (uint32_t)opt.size, (uint32_t)opt.warm_ms, (uint32_t)opt.nagle, "" };
	struct sockaddr_storage ss;
	socklen_t len = address(ip, port, &ss);
	int one = 1, usec = (int)opt.busypoll;
	long fd, ret;

	fd = sys(SYS_socket, ss.ss_family, SOCK_STREAM, opt.mptcp ? IPPROTO_MPTCP : 0);
	if (fd < 0)
		die("socket", fd);
	if (opt.cc) {
		set((int)fd, IPPROTO_TCP, TCP_CONGESTION, opt.cc, strlen(opt.cc), "TCP_CONGESTION");
		snprintf(hello.cc, sizeof(hello.cc), "%s", opt.cc);
	}
	if (opt.busypoll)
		set((int)fd, SOL_SOCKET, SO_BUSY_POLL, &usec, sizeof(usec), "SO_BUSY_POLL");
	ret = sys(SYS_connect, fd, (long)&ss, len);
	if (ret < 0)
		die("connect", ret);
	if (!opt.nagle)
		set((int)fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one), "TCP_NODELAY");
	ret = sys(SYS_write, fd, (long)&hello, sizeof(hello));
	if (ret != sizeof(hello))
		die("first bytes", ret);
	return (int)fd;
}

/**
 * report_bulk - print throughput, and CPU time for each gigabyte
 * @bytes: transferred
 * @seconds: duration
 * @cpu: cpu_seconds() at the start
 * @moved: bytes transferred since then
 */
static void report_bulk(double bytes, double seconds, double cpu, double moved)
{
	printf("%.4f Gbit/s\n", bytes * 8 / 1e9 / seconds);
	report_cpu(cpu, 1e9 / moved, "cpu-s/GB");
}

/**
 * run_send - send for a time, and wait until the other side has everything
 * @fd: connection to a sink
 * @ms: duration
 */
static void run_send(int fd, long ms)
{
	double begin = now(), warm = begin + (double)opt.warm_ms / 1e3, end = warm + (double)ms / 1e3;
	double cpu = cpu_seconds();
	unsigned long long sent = 0;
	struct tally tally;
	long ret;

	do {
		ret = sys(SYS_write, fd, (long)buf, (long)opt.size);
		if (ret < 0)
			die("write", ret);
		sent += (unsigned long long)ret;
	} while (now() < end);
	ret = sys(SYS_shutdown, fd, SHUT_WR);
	if (ret < 0)
		die("shutdown", ret);
	ret = sys(SYS_read, fd, (long)&tally, sizeof(tally));
	if (ret != sizeof(tally))
		die("the sink's answer", ret);
	if (opt.warm_ms)
		report_bulk((double)tally.bytes, tally.seconds, cpu, (double)sent);
	else
		report_bulk((double)sent, now() - begin, cpu, (double)sent);
}

/**
 * run_recv - receive for a time
 * @fd: connection to a source
 * @ms: duration
 */
static void run_recv(int fd, long ms)
{
	double begin = now(), cpu = cpu_seconds(), warm = begin + (double)opt.warm_ms / 1e3;
	double end = warm + (double)ms / 1e3, t;
	unsigned long long got = 0, early = 0;
	long ret;

	do {
		ret = sys(SYS_read, fd, (long)buf, (long)opt.size);
		if (ret <= 0)
			die("read", ret);
		got += (unsigned long long)ret;
		t = now();
		if (t <= warm) {
			early = got;
			begin = t;
		}
	} while (t < end);
	report_bulk((double)(got - early), t - begin, cpu, (double)got);
	/*
	 * Close in order, so that nothing is in flight during the next
	 * measurement.
	 */
	ret = sys(SYS_shutdown, fd, SHUT_WR);
	if (ret < 0)
		die("shutdown", ret);
	while ((ret = sys(SYS_read, fd, (long)buf, sizeof(buf))) > 0)
		;
	if (ret < 0)
		die("reading to the end", ret);
}

/**
 * hang_up - close the connection, so that the other end notices
 * @fd: connection
 */
static void hang_up(int fd)
{
	long ret = sys(SYS_close, fd);

	if (ret < 0)
		die("close", ret);
}

/**
 * run_rr - send one byte and receive it, repeatedly
 * @fd: connection to an echo
 * @count: number of round trips
 */
static void run_rr(int fd, long count)
{
	double begin = 0, cpu = 0;
	long i, ret;

	for (i = -100; i < count; i++) {	/* the first hundred are a warm-up */
		if (i == 0) {
			cpu = cpu_seconds();
			begin = now();
		}
		ret = sys(SYS_write, fd, (long)buf, 1);
		if (ret != 1)
			die("write", ret);
		ret = sys(SYS_read, fd, (long)buf, 1);
		if (ret != 1)
			die("read", ret);
	}
	printf("%.3f µs\n", (now() - begin) * 1e6 / (double)count);
	report_cpu(cpu, 1e6 / (double)count, "cpu-µs/op");
}

/**
 * run_getppid - make the cheapest call
 * @count: number of calls
 */
static void run_getppid(long count)
{
	double begin = now();
	long i;

	for (i = 0; i < count; i++)
		sys(SYS_getppid, 0);
	printf("%.2f ns\n", (now() - begin) * 1e9 / (double)count);
}

/**
 * measure - run one verb
 * @n: number of words
 * @w: the words, the verb first
 *
 * Return: 0 if there is no such verb
 */
static int measure(int n, char **w)
{
	static const struct {
		const char *verb;
		char what;
		void (*run)(int fd, long arg);
	} verbs[] = {
		{ "send", 's', run_send },
		{ "recv", 'r', run_recv },
		{ "rr", 'e', run_rr },
	};
	size_t i;
	int fd;

	if (!strcmp(w[0], "getppid") && n == 2) {
		run_getppid(atol(w[1]));
		return 1;
	}
	for (i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(w[0], verbs[i].verb) || n != 4)
			continue;
		fd = dial(w[1], w[2], verbs[i].what);
		verbs[i].run(fd, atol(w[3]));
		hang_up(fd);
		return 1;
	}
	return 0;
}

/**
 * option - parse one option with its value
 * @l: configuration of the library
 * @name: the option
 * @value: its value
 *
 * Return: 0 if there is no such option
 */
static int option(struct library *l, const char *name, const char *value)
{
	if (library_option(l, name, value))
		return 1;
	if (!strcmp(name, "--cc"))
		opt.cc = strcmp(value, "default") ? value : NULL;
	else if (!strcmp(name, "--size") && atol(value) > 0 && atol(value) <= CHUNK)
		opt.size = (size_t)atol(value);
	else if (!strcmp(name, "--warm"))
		opt.warm_ms = atol(value);
	else if (!strcmp(name, "--mptcp"))
		opt.mptcp = atol(value);
	else if (!strcmp(name, "--nagle"))
		opt.nagle = atol(value);
	else if (!strcmp(name, "--busypoll"))
		opt.busypoll = atol(value);
	else
		return 0;
	return 1;
}

/**
 * main - see the top
 */
int main(int argc, char **argv)
{
	struct library lib = { .offload = LKL_OFFLOAD_ALL | LKL_OFFLOAD_HOST_BIG, .cmdline = "", .spin = -1 };
	double begin = now();
	int i;

	for (i = 1; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2)
		if (!option(&lib, argv[i], argv[i + 1]))
			goto usage;
	if (i >= argc || (lib.ntaps && (!lib.path || !lib.ips[lib.ntaps - 1])))
		goto usage;
	if (!strcmp(argv[i], "serve") && argc - i == 3)
		serve(argv[i + 1], argv[i + 2], opt.mptcp != 0, opt.cc);
	alarm(LIMIT_S);
	if (lib.path) {
		boot(&lib);
		sys(SYS_getppid, 0);
		if (opt.mptcp)
			mptcp_limits(8);
	}
	if (lib.path && !strcmp(argv[i], "boot"))
		printf("%.3f ms\n", (now() - begin) * 1e3);
	else if (!measure(argc - i, argv + i))
		goto usage;
	finish(&lib);
	return 0;
usage:
	fputs("usage: lklbench [OPTION VALUE]... serve ADDR PORT | boot | getppid COUNT | "
	      "send|recv ADDR PORT MS | rr ADDR PORT COUNT (the options: see the source)\n", stderr);
	return 2;
}
