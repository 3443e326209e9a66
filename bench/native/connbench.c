/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * connbench: many simultaneous connections, some of them busy. The server is an
 * epoll loop on the host's kernel that echoes every byte. The client keeps one
 * byte in flight on each busy connection. The client runs on the host's kernel
 * or, with the library options of lklbench, on a stack library in this process.
 *
 *	connbench [--cc NAME] serve ADDR PORT
 *	connbench [OPTION VALUE]... load ADDR PORT IDLE BUSY MILLISECONDS
 *		memory of the connections, round trips of the busy ones
 *	connbench small CMD...
 *		executes a command without huge pages, whose unused parts would
 *		count as used memory
 *	connbench [OPTION VALUE]... churn ADDR PORT MILLISECONDS
 *		connections one after another: connect, a byte there and back, reset
 *
 * The client makes the idle connections first. Each exchanges a single byte,
 * which shows that the server has accepted it. The memory is measured for the
 * whole machine: both ends, in kernels and processes.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "kernel.h"

#define EVENTS		256	/* fetched at once */
#define LIMIT_S		60	/* time limit of a client, by SIGALRM */
#define WAIT_MS		5000	/* for a byte */
#define FILES		65536	/* descriptor limit, if we may raise it */
#define SAMPLES_MAX	(1 << 22)

static const char *cc;	/* congestion control of the connections; NULL: the kernel's default */

/** now_ns - CLOCK_MONOTONIC */
static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/** address - make a socket address from words of the command line */
static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)atoi(port)),
	};

	if (inet_pton(AF_INET, ip, &sin.sin_addr) != 1)
		die(ip, -EINVAL);
	return sin;
}

/** all_files - raise the limit of descriptors to the maximum */
static void all_files(void)
{
	struct rlimit lim = { FILES, FILES };

	if (!setrlimit(RLIMIT_NOFILE, &lim))
		return;
	if (getrlimit(RLIMIT_NOFILE, &lim))
		die("RLIMIT_NOFILE", -errno);
	lim.rlim_cur = lim.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &lim))
		die("RLIMIT_NOFILE", -errno);
}

/** memory_kb - memory of the machine used by processes and the host's kernel */
static double memory_kb(void)
{
	static const char *const parts[] = {
		"AnonPages", "Shmem", "Slab", "PageTables", "KernelStack",
	};
	FILE *f = fopen("/proc/meminfo", "re");
	char name[64];
	double sum = 0, kb;
	size_t i;

	if (!f)
		die("/proc/meminfo", -errno);
	while (fscanf(f, "%63[^:]: %lf%*[^\n]\n", name, &kb) == 2)
		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
			if (!strcmp(name, parts[i]))
				sum += kb;
	fclose(f);
	return sum;
}

/** accept_all - accept all waiting connections */
static void accept_all(int ep, int l)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int one = 1, fd;

	while ((fd = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		ev.data.u64 = (uint64_t)fd;
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
			die("epoll_ctl", -errno);
	}
	if (errno != EAGAIN && errno != ECONNABORTED)
		die("accept", -errno);
}

/** echo - echo available data, or close */
static void echo(int fd)
{
	char buf[4096];
	ssize_t got = read(fd, buf, sizeof(buf));

	if (got > 0 && write(fd, buf, (size_t)got) == got)
		return;
	if (got >= 0 || errno != EAGAIN)
		close(fd);
}

/** serve - run the echo server, for ever */
static void __attribute__((noreturn)) serve(const struct sockaddr_in *sin)
{
	struct epoll_event ev[EVENTS];
	int l, ep, one = 1, i, n;

	signal(SIGPIPE, SIG_IGN);
	ep = epoll_create1(EPOLL_CLOEXEC);
	l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (ep < 0 || l < 0)
		die("socket", -errno);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (cc && setsockopt(l, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)))
		die(cc, -errno);
	if (bind(l, (const struct sockaddr *)sin, sizeof(*sin)))
		die("bind", -errno);
	if (listen(l, 1024))
		die("listen", -errno);
	ev[0] = (struct epoll_event){ .events = EPOLLIN, .data.u64 = (uint64_t)l };
	if (epoll_ctl(ep, EPOLL_CTL_ADD, l, &ev[0]))
		die("epoll_ctl", -errno);
	puts("ready");
	fflush(stdout);
	for (;;) {
		n = epoll_wait(ep, ev, EVENTS, -1);
		if (n < 0 && errno != EINTR)
			die("epoll_wait", -errno);
		for (i = 0; i < n; i++) {
			if ((int)ev[i].data.u64 == l)
				accept_all(ep, l);
			else
				echo((int)ev[i].data.u64);
		}
	}
}

/** dial - connect, and exchange the first byte */
static long dial(const struct sockaddr_in *sin)
{
	struct linger hard = { 1, 0 };	/* close with a RST, which leaves no state behind */
	long fd, ret;
	int one = 1;
	char byte = 0;

	fd = sys(SYS_socket, AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket", fd);
	if (cc) {
		ret = sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, (long)cc, (long)strlen(cc));
		if (ret < 0)
			die(cc, ret);
	}
	ret = sys(SYS_connect, fd, (long)sin, sizeof(*sin));
	if (ret < 0)
		die("connect", ret);
	ret = sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, (long)&one, sizeof(one));
	if (!ret)
		ret = sys(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, (long)&hard, sizeof(hard));
	if (ret < 0)
		die("setsockopt", ret);
	ret = sys(SYS_write, fd, (long)&byte, 1);
	if (ret == 1)
		ret = sys(SYS_read, fd, (long)&byte, 1);
	if (ret != 1)
		die("first byte", ret);
	return fd;
}

/** by_value - order of samples */
static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/** table - allocate @n items */
static void *table(size_t n, size_t size)
{
	void *p = calloc(n, size);

	if (!p)
		die("memory", -ENOMEM);
	return p;
}

/** put - send one byte, and record the time */
static void put(long fd, uint64_t *when)
{
	long ret = sys(SYS_write, fd, (long)"", 1);

	if (ret != 1)
		die("write", ret);
	*when = now_ns();
}

/** trips - exchange single bytes on @n connections; prints the results */
static void trips(const long *fds, long n, long ms)
{
	uint32_t *took = table(SAMPLES_MAX, sizeof(*took));
	uint64_t *sent = table((size_t)n, sizeof(*sent));
	long ep = sys(SYS_epoll_create1, 0), i, got;
	struct epoll_event ev[EVENTS];
	uint64_t begin, at, count = 0;
	double cpu = cpu_seconds();
	char byte;

	for (i = 0; i < n; i++) {
		ev[0] = (struct epoll_event){ .events = EPOLLIN, .data.u64 = (uint64_t)i };
		got = sys(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fds[i], (long)&ev[0]);
		if (got < 0)
			die("epoll_ctl", got);
	}
	begin = now_ns();
	for (i = 0; i < n; i++)
		put(fds[i], &sent[i]);
	do {
		got = sys(SYS_epoll_pwait, ep, (long)ev, EVENTS, WAIT_MS, 0, 8);
		if (got <= 0)
			die("waiting for bytes", got ? got : -ETIMEDOUT);
		for (i = 0; i < got; i++) {
			uint64_t id = ev[i].data.u64;
			long ret = sys(SYS_read, fds[id], (long)&byte, 1);

			if (ret != 1)
				die("read", ret);
			took[count++ % SAMPLES_MAX] = (uint32_t)(now_ns() - sent[id]);
			put(fds[id], &sent[id]);
		}
		at = now_ns();
	} while (at < begin + (uint64_t)ms * 1000000);
	report_cpu(cpu, 1e6 / (double)count, "cpu-µs/op");
	printf("%.0f 1/s\n", (double)count * 1e9 / (double)(at - begin));
	if (count > SAMPLES_MAX)
		count = SAMPLES_MAX;
	qsort(took, count, sizeof(*took), by_value);
	printf("%.1f µs-p50\n%.1f µs-p99\n", took[count / 2] / 1e3, took[count * 99 / 100] / 1e3);
}

/** load - make @idle silent connections and @busy ones */
static void load(const struct sockaddr_in *sin, long idle, long busy, long ms)
{
	long *fds = table((size_t)(idle + busy) + 1, sizeof(*fds)), i;
	double memory;

	sys(SYS_close, dial(sin));	/* the cost of the first connection does not count */
	memory = memory_kb();
	for (i = 0; i < idle; i++)
		fds[i] = dial(sin);
	if (idle)
		printf("%.3f KB/conn\n", (memory_kb() - memory) / (double)idle);
	for (; i < idle + busy; i++)
		fds[i] = dial(sin);
	if (busy)
		trips(fds + idle, busy, ms);
	for (i = 0; i < idle + busy; i++)
		sys(SYS_close, fds[i]);
}

/** churn - make one connection after another */
static void churn(const struct sockaddr_in *sin, long ms)
{
	uint64_t begin = now_ns(), end = begin + (uint64_t)ms * 1000000, at;
	double cpu = cpu_seconds();
	long n = 0;

	do {
		sys(SYS_close, dial(sin));
		n++;
		at = now_ns();
	} while (at < end);
	report_cpu(cpu, 1e6 / (double)n, "cpu-µs/op");
	printf("%.0f 1/s\n", (double)n * 1e9 / (double)(at - begin));
}

/** main - see the top */
int main(int argc, char **argv)
{
	struct library lib = { .offload = LKL_OFFLOAD_ALL | LKL_OFFLOAD_HOST_BIG, .cmdline = "", .spin = -1 };
	struct sockaddr_in sin;
	int i;

	for (i = 1; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2)
		if (!strcmp(argv[i], "--cc"))
			cc = argv[i + 1];
		else if (!library_option(&lib, argv[i], argv[i + 1]))
			goto usage;
	argc -= i;
	argv += i;
	if (argc > 1 && !strcmp(argv[0], "small")) {
		if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
			die("PR_SET_THP_DISABLE", -errno);
		execvp(argv[1], argv + 1);
		die(argv[1], -errno);
	}
	if (argc < 3)
		goto usage;
	all_files();
	sin = address(argv[1], argv[2]);
	if (!strcmp(argv[0], "serve") && argc == 3)
		serve(&sin);
	alarm(LIMIT_S);
	if (lib.path) {
		struct rlimit lim = { FILES, FILES };
		long ret;

		boot(&lib);
		ret = sys(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)&lim, 0);
		if (ret < 0)
			die("RLIMIT_NOFILE in the stack", ret);
	}
	if (!strcmp(argv[0], "load") && argc == 6)
		load(&sin, atol(argv[3]), atol(argv[4]), atol(argv[5]));
	else if (!strcmp(argv[0], "churn") && argc == 4)
		churn(&sin, atol(argv[3]));
	else
		goto usage;
	fflush(stdout);
	if (lib.path)
		library_halt();
	return 0;
usage:
	fputs("usage: connbench serve ADDR PORT | [OPTION VALUE]... "
	      "load ADDR PORT IDLE BUSY MS | churn ADDR PORT MS | small CMD...\n", stderr);
	return 2;
}
