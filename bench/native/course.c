/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * course: throughput of a transfer over time, measured by the receiver.
 *
 *	course serve ADDR PORT                    host only: the other end
 *	course [OPTION VALUE]... send ADDR PORT SECONDS
 *		sends for that time, and prints the Gbit/s that the other end
 *		received in each tenth of a second after it accepted the
 *		connection; also prints the CPU time for each gigabyte
 *
 * --cc NAME sets the connection's congestion control; the other options are
 * those of a library, see kernel.h.
 *
 * A client first sends the number of seconds. After that time the server
 * answers with its counts and reads until the client closes. Data still in
 * flight at that time does not have to arrive.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>

#include "kernel.h"

#define LIMIT_S	60		/* of the whole program, by SIGALRM */
#define TICKS	10		/* per second */

static char buf[128 * 1024];

/**
 * struct counts - received data
 * @bytes: in each tick
 */
struct counts {
	uint64_t bytes[LIMIT_S * TICKS];
};

/**
 * address - make an IPv4 socket address from words of the command line
 * @ip: the address
 * @port: decimal
 */
static struct sockaddr_in address(const char *ip, const char *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };

	if (inet_pton(AF_INET, ip, &sin.sin_addr) != 1)
		die("no address", 0);
	return sin;
}

/**
 * attend - count for as long as the client requests
 * @fd: accepted connection
 */
static void attend(int fd)
{
	static struct counts counts;
	double begin = now(), t = 0;
	uint32_t seconds;
	ssize_t n;

	if (recv(fd, &seconds, sizeof(seconds), MSG_WAITALL) != sizeof(seconds) || seconds > LIMIT_S)
		return;
	while (t < seconds && (n = read(fd, buf, sizeof(buf))) > 0) {
		t = now() - begin;
		if (t < seconds)
			counts.bytes[(int)(t * TICKS)] += (uint64_t)n;
	}
	n = (ssize_t)(sizeof(counts.bytes[0]) * seconds * TICKS);
	if (write(fd, &counts, (size_t)n) != n)
		perror("course: the answer");
	while (read(fd, buf, sizeof(buf)) > 0)
		;
}

/**
 * serve - run the other end, with a process for each connection
 * @ip: address to listen on
 * @port: and port
 */
static void serve(const char *ip, const char *port)
{
	struct sockaddr_in sin = address(ip, port);
	int one = 1, l;

	l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0)
		die("socket", -errno);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(l, 16) < 0)
		die("listen", -errno);
	serve_each(l, attend, LIMIT_S);
}

/**
 * run_send - send, and print the counts of the other end
 * @cc: congestion control, or NULL for the kernel's default
 * @sin: address of the server
 * @seconds: duration
 */
static void run_send(const char *cc, struct sockaddr_in *sin, uint32_t seconds)
{
	struct linger hard = { .l_onoff = 1 };
	double cpu = cpu_seconds(), end;
	static struct counts counts;
	size_t want = sizeof(counts.bytes[0]) * seconds * TICKS, got = 0, i;
	double sum = 0;
	long fd, ret;

	fd = sys(SYS_socket, AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		die("socket", fd);
	ret = cc ? sys(SYS_setsockopt, fd, IPPROTO_TCP, TCP_CONGESTION, (long)cc, (long)strlen(cc)) : 0;
	if (ret < 0)
		die("TCP_CONGESTION", ret);
	ret = sys(SYS_connect, fd, (long)sin, sizeof(*sin));
	if (ret < 0)
		die("connect", ret);
	end = now() + seconds;
	ret = sys(SYS_write, fd, (long)&seconds, sizeof(seconds));
	while (ret > 0 && now() < end)
		ret = sys(SYS_write, fd, (long)buf, sizeof(buf));
	if (ret < 0)
		die("write", ret);
	while (got < want) {
		ret = sys(SYS_read, fd, (long)counts.bytes + (long)got, (long)(want - got));
		if (ret <= 0)
			die("the other end's answer", ret);
		got += (size_t)ret;
	}
	for (i = 0; i < seconds * TICKS; i++) {
		printf("%.4f ", (double)counts.bytes[i] * 8 * TICKS / 1e9);
		sum += (double)counts.bytes[i];
	}
	printf("Gbit/s\n");
	report_cpu(cpu, 1e9 / sum, "cpu-s/GB");
	sys(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, (long)&hard, sizeof(hard));
	ret = sys(SYS_close, fd);
	if (ret < 0)
		die("close", ret);
}

/**
 * main - see the top
 */
int main(int argc, char **argv)
{
	struct library lib = { .offload = LKL_OFFLOAD_ALL | LKL_OFFLOAD_HOST_BIG, .cmdline = "", .spin = -1 };
	const char *cc = NULL;
	struct sockaddr_in sin;
	int i, seconds;
	long ret;

	for (i = 1; i + 1 < argc && !strncmp(argv[i], "--", 2); i += 2) {
		if (!strcmp(argv[i], "--cc"))
			cc = argv[i + 1];
		else if (!library_option(&lib, argv[i], argv[i + 1]))
			goto usage;
	}
	if (argc - i == 3 && !strcmp(argv[i], "serve"))
		serve(argv[i + 1], argv[i + 2]);
	if (argc - i != 4 || strcmp(argv[i], "send"))
		goto usage;
	seconds = atoi(argv[i + 3]);
	if (seconds < 1 || seconds > LIMIT_S - 10)
		goto usage;
	alarm(LIMIT_S);
	if (lib.path)
		boot(&lib);
	sin = address(argv[i + 1], argv[i + 2]);
	run_send(cc, &sin, (uint32_t)seconds);
	fflush(stdout);
	if (lib.path) {
		ret = library_halt();
		if (ret < 0)
			die("lkl_sys_halt", ret);
	}
	return 0;
usage:
	fputs("usage: course serve ADDR PORT | course [OPTION VALUE]... send ADDR PORT SECONDS (1 to 50)\n", stderr);
	return 2;
}
