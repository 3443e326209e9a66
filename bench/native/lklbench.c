/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * lklbench: one set of measuring loops for two kernels. Without --lib its
 * system calls go to the host, with --lib to a stack library in this process,
 * in its ordinary threaded mode; the loops are the same code.
 *
 *	lklbench serve ADDR PORT                  host only: the other end
 *	lklbench [--lib SO [--tap DEV --ip A/N]] VERB ...
 *		boot                              ms until the first call
 *		getppid COUNT                     ns for one
 *		send|recv ADDR PORT MILLISECONDS  Gbit/s
 *		rr ADDR PORT COUNT                µs for one byte there and back
 *
 * A client's first byte tells the server what to be: 's' a sink that answers
 * the end of the stream with one byte, 'r' a source, 'e' an echo.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <lkl.h>

#define CHUNK	(128 * 1024)	/* of one send or receive */
#define LIMIT_S	60		/* the whole program's, by SIGALRM */

static char buf[CHUNK];

/**
 * die - end with a line that says what was being done
 * @what: that
 * @err: negative errno, or 0 for none
 */
static void __attribute__((noreturn)) die(const char *what, long err)
{
	if (err)
		fprintf(stderr, "lklbench: %s: %s\n", what, strerror((int)-err));
	else
		fprintf(stderr, "lklbench: %s\n", what);
	exit(1);
}

/**
 * now - CLOCK_MONOTONIC in seconds
 */
static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/**
 * host_call - the host's kernel behind the signature of lkl_syscall()
 * @nr: call number
 * @p: six arguments
 *
 * Return: what the kernel returned, a negative errno on failure
 */
static long host_call(long nr, long *p)
{
	long ret = syscall(nr, p[0], p[1], p[2], p[3], p[4], p[5]);

	return ret < 0 ? -errno : ret;
}

static long (*call)(long nr, long *params) = host_call;

#define sys(nr, ...) \
	call(nr, (long[6]){ __VA_ARGS__ })

/* The library's functions that are needed to bring a device up. */
static struct {
	int (*init)(struct lkl_host_operations *ops);
	int (*start_kernel)(const char *fmt, ...);
	long (*halt)(void);
	struct lkl_netdev *(*tap_create)(const char *ifname, int offload);
	int (*netdev_add)(struct lkl_netdev *nd, struct lkl_netdev_args *args);
	int (*get_ifindex)(int id);
	int (*if_up)(int ifindex);
	int (*if_set_ipv4)(int ifindex, unsigned int addr, unsigned int len);
} lib;

/**
 * symbol - a function of the library
 * @so: handle
 * @name: the function's
 */
static void *symbol(void *so, const char *name)
{
	void *p = dlsym(so, name);

	if (!p)
		die(dlerror(), 0);
	return p;
}

/**
 * load - fetch the library and its functions
 * @path: of liblkl.so
 */
static void load(const char *path)
{
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!so)
		die(dlerror(), 0);
	lib.init = symbol(so, "lkl_init");
	lib.start_kernel = symbol(so, "lkl_start_kernel");
	lib.halt = symbol(so, "lkl_sys_halt");
	lib.tap_create = symbol(so, "lkl_netdev_tap_create");
	lib.netdev_add = symbol(so, "lkl_netdev_add");
	lib.get_ifindex = symbol(so, "lkl_netdev_get_ifindex");
	lib.if_up = symbol(so, "lkl_if_up");
	lib.if_set_ipv4 = symbol(so, "lkl_if_set_ipv4");
	call = symbol(so, "lkl_syscall");
}

/**
 * boot - start the library's kernel, with a device when one is asked for
 * @tap: the host's name of it, or NULL
 * @ip: its address in the stack, A/N
 */
static void boot(const char *tap, const char *ip)
{
	static struct lkl_host_operations ops; /* no log, no panic callback */
	struct lkl_netdev *nd;
	struct in_addr addr;
	char text[64], *slash;
	int id = -1, ifindex, err;

	err = lib.init(&ops);
	if (err < 0)
		die("lkl_init", err);
	if (tap) {
		nd = lib.tap_create(tap, LKL_OFFLOAD_ALL);
		if (!nd)
			die("lkl_netdev_tap_create", -errno);
		id = lib.netdev_add(nd, NULL);
		if (id < 0)
			die("lkl_netdev_add", id);
	}
	err = lib.start_kernel("mem=256M loglevel=3");
	if (err < 0)
		die("lkl_start_kernel", err);
	if (!tap)
		return;
	snprintf(text, sizeof(text), "%s", ip);
	slash = strchr(text, '/');
	if (!slash)
		die("--ip wants ADDRESS/PREFIX", 0);
	*slash = 0;
	if (inet_pton(AF_INET, text, &addr) != 1)
		die("--ip is no IPv4 address", 0);
	ifindex = lib.get_ifindex(id);
	err = lib.if_up(ifindex);
	if (err < 0)
		die("lkl_if_up", err);
	err = lib.if_set_ipv4(ifindex, addr.s_addr, (unsigned int)atoi(slash + 1));
	if (err < 0)
		die("lkl_if_set_ipv4", err);
}

/**
 * address - a socket address from words of the command line
 * @ip: IPv4 address
 * @port: decimal
 */
static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};

	if (inet_pton(AF_INET, ip, &sin.sin_addr) != 1)
		die("no IPv4 address", 0);
	return sin;
}

/**
 * dial - connect and tell the server what to be
 * @ip: the server's address
 * @port: and port
 * @what: 's', 'r' or 'e'
 *
 * Return: the connection's descriptor in the kernel that is measured
 */
static int dial(const char *ip, const char *port, char what)
{
	struct sockaddr_in sin = address(ip, port);
	int one = 1;
	long fd, ret;

	fd = sys(SYS_socket, AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket", fd);
	ret = sys(SYS_connect, fd, (long)&sin, sizeof(sin));
	if (ret < 0)
		die("connect", ret);
	ret = sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, (long)&one, sizeof(one));
	if (ret < 0)
		die("TCP_NODELAY", ret);
	ret = sys(SYS_write, fd, (long)&what, 1);
	if (ret != 1)
		die("first byte", ret);
	return (int)fd;
}

/**
 * run_send - send for a time, until the other side has it all
 * @fd: connection to a sink
 * @ms: how long
 */
static void run_send(int fd, long ms)
{
	double begin = now(), end = begin + (double)ms / 1e3;
	unsigned long long sent = 0;
	long ret;

	do {
		ret = sys(SYS_write, fd, (long)buf, sizeof(buf));
		if (ret < 0)
			die("write", ret);
		sent += (unsigned long long)ret;
	} while (now() < end);
	ret = sys(SYS_shutdown, fd, SHUT_WR);
	if (ret < 0)
		die("shutdown", ret);
	ret = sys(SYS_read, fd, (long)buf, 1);
	if (ret != 1)
		die("the sink's answer", ret);
	printf("%.4f\n", (double)sent * 8 / 1e9 / (now() - begin));
}

/**
 * run_recv - receive for a time
 * @fd: connection to a source
 * @ms: how long
 */
static void run_recv(int fd, long ms)
{
	double begin = now(), end = begin + (double)ms / 1e3;
	unsigned long long got = 0;
	long ret;

	do {
		ret = sys(SYS_read, fd, (long)buf, sizeof(buf));
		if (ret <= 0)
			die("read", ret);
		got += (unsigned long long)ret;
	} while (now() < end);
	printf("%.4f\n", (double)got * 8 / 1e9 / (now() - begin));
}

/**
 * hang_up - close the connection, so that the other end learns of it
 * @fd: connection
 */
static void hang_up(int fd)
{
	long ret = sys(SYS_close, fd);

	if (ret < 0)
		die("close", ret);
}

/**
 * run_rr - one byte there and back, again and again
 * @fd: connection to an echo
 * @count: how often
 */
static void run_rr(int fd, long count)
{
	double begin = 0;
	long i, ret;

	for (i = -100; i < count; i++) {	/* the first hundred warm up */
		if (i == 0)
			begin = now();
		ret = sys(SYS_write, fd, (long)buf, 1);
		if (ret != 1)
			die("write", ret);
		ret = sys(SYS_read, fd, (long)buf, 1);
		if (ret != 1)
			die("read", ret);
	}
	printf("%.3f\n", (now() - begin) * 1e6 / (double)count);
}

/**
 * run_getppid - the cheapest call
 * @count: how often
 */
static void run_getppid(long count)
{
	double begin = now();
	long i;

	for (i = 0; i < count; i++)
		sys(SYS_getppid, 0);
	printf("%.2f\n", (now() - begin) * 1e9 / (double)count);
}

/**
 * attend - be what the client's first byte says, until it closes
 * @fd: accepted connection
 */
static void attend(int fd)
{
	int one = 1;
	char what;
	ssize_t n;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (read(fd, &what, 1) != 1)
		return;
	switch (what) {
	case 's':
		while (read(fd, buf, sizeof(buf)) > 0)
			;
		if (write(fd, "", 1) != 1)
			perror("lklbench: the sink's answer");
		break;
	case 'r':
		while (write(fd, buf, sizeof(buf)) > 0)
			;
		break;
	case 'e':
		while ((n = read(fd, buf, 1)) == 1)
			if (write(fd, buf, 1) != 1)
				break;
		break;
	}
}

/**
 * serve - the other end of every measurement, a process for each connection
 * @ip: address to listen on
 * @port: and port
 */
static void serve(const char *ip, const char *port)
{
	struct sockaddr_in sin = address(ip, port);
	int one = 1, l, fd;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);	/* nobody waits for them */
	l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0)
		die("socket", -errno);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (struct sockaddr *)&sin, sizeof(sin)) < 0)
		die("bind", -errno);
	if (listen(l, 16) < 0)
		die("listen", -errno);
	for (;;) {
		fd = accept(l, NULL, NULL);
		if (fd < 0)
			die("accept", -errno);
		switch (fork()) {
		case -1:
			die("fork", -errno);
		case 0:
			alarm(LIMIT_S);
			attend(fd);
			_exit(0);
		}
		close(fd);
	}
}

/**
 * measure - one verb
 * @n: number of words
 * @w: the words, the verb first
 *
 * Return: 0 when there is no such verb
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
 * main - see the top
 */
int main(int argc, char **argv)
{
	const char *so = NULL, *tap = NULL, *ip = NULL;
	double begin = now();
	int i;

	for (i = 1; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
		if (!strcmp(argv[i], "--lib"))
			so = argv[i + 1];
		else if (!strcmp(argv[i], "--tap"))
			tap = argv[i + 1];
		else if (!strcmp(argv[i], "--ip"))
			ip = argv[i + 1];
		else
			break;
	}
	if (i >= argc || !tap != !ip || (tap && !so))
		goto usage;
	if (!strcmp(argv[i], "serve") && argc - i == 3)
		serve(argv[i + 1], argv[i + 2]);
	alarm(LIMIT_S);
	if (so) {
		load(so);
		boot(tap, ip);
		sys(SYS_getppid, 0);
	}
	if (so && !strcmp(argv[i], "boot"))
		printf("%.3f\n", (now() - begin) * 1e3);
	else if (!measure(argc - i, argv + i))
		goto usage;
	fflush(stdout);
	if (so) {
		long ret = lib.halt();

		if (ret < 0)
			die("lkl_sys_halt", ret);
	}
	return 0;
usage:
	fputs("usage: lklbench serve ADDR PORT | [--lib SO [--tap DEV --ip A/N]] "
	      "boot | getppid COUNT | send|recv ADDR PORT MS | rr ADDR PORT COUNT\n", stderr);
	return 2;
}
