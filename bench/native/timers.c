/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * timers: measures how late a sleep ends.
 *
 *	timers [OPTION VALUE]... nanosleep|timerfd MICROSECONDS COUNT
 *		sleeps that long repeatedly, in the host's kernel or with --lib in a
 *		stack library, and prints quantiles of the delay between the requested
 *		time and the time at which the caller continues
 *	timers delivery MICROSECONDS COUNT
 *		sends datagrams to 127.0.0.1 through the kernel that the program
 *		uses, and prints the same quantiles of the delivery time minus
 *		MICROSECONDS
 *
 * The options are those of a library, see kernel.h.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "kernel.h"

#define LIMIT_S	60	/* of the whole program, by SIGALRM */
#define WARM	20	/* warm-up rounds */

/**
 * by_value - order two delays
 */
static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

/**
 * report - print the distribution
 * @late: delays in microseconds
 * @n: their number
 */
static void report(double *late, long n)
{
	static const double q[] = { 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9 };
	size_t i;

	qsort(late, (size_t)n, sizeof(*late), by_value);
	for (i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		printf("%.3f µs-p%g\n", late[(long)((double)(n - 1) * q[i] / 100)], q[i]);
}

/**
 * sleep_once - sleep once in the measured kernel
 * @tfd: a timerfd, or -1 for clock_nanosleep()
 * @us: duration
 *
 * Return: excess in microseconds
 */
static double sleep_once(int tfd, long us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000 };
	struct itimerspec it = { .it_value = ts };
	double begin = now();
	uint64_t ticks;
	long ret;

	if (tfd < 0) {
		ret = sys(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&ts, 0);
	} else {
		ret = sys(SYS_timerfd_settime, tfd, 0, (long)&it, 0);
		if (ret < 0)
			die("timerfd_settime", ret);
		ret = sys(SYS_read, tfd, (long)&ticks, sizeof(ticks));
	}
	if (ret < 0)
		die("sleeping", ret);
	return (now() - begin) * 1e6 - (double)us;
}

/**
 * deliver_once - send a datagram to ourselves
 * @fd: socket that is connected to itself
 * @us: expected time
 *
 * Return: excess in microseconds
 */
static double deliver_once(int fd, long us)
{
	double begin = now();
	char byte = 0;

	if (send(fd, &byte, 1, 0) != 1)
		die("send", -errno);
	if (recv(fd, &byte, 1, 0) != 1)
		die("recv", -errno);
	return (now() - begin) * 1e6 - (double)us;
}

/**
 * to_itself - make a UDP socket that receives what it sends
 */
static int to_itself(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sin, len) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sin, &len) < 0 ||
	    connect(fd, (struct sockaddr *)&sin, len) < 0)
		die("a socket to itself", -errno);
	return fd;
}

/**
 * main - see the top
 */
int main(int argc, char **argv)
{
	struct library lib = { .cmdline = "", .spin = -1 };
	long us, count, i, tfd = -1;
	double *late, t;
	int n, fd = -1;

	for (n = 1; n + 1 < argc && !strncmp(argv[n], "--", 2); n += 2)
		if (!library_option(&lib, argv[n], argv[n + 1]))
			goto usage;
	if (argc - n != 3)
		goto usage;
	us = atol(argv[n + 1]);
	count = atol(argv[n + 2]);
	late = calloc((size_t)count, sizeof(*late));
	if (us < 0 || count < 1 || !late)
		goto usage;
	alarm(LIMIT_S);
	if (lib.path)
		boot(&lib);
	if (!strcmp(argv[n], "timerfd")) {
		tfd = sys(SYS_timerfd_create, CLOCK_MONOTONIC, 0);
		if (tfd < 0)
			die("timerfd_create", tfd);
	} else if (!strcmp(argv[n], "delivery") && !lib.path) {
		fd = to_itself();
	} else if (strcmp(argv[n], "nanosleep")) {
		goto usage;
	}
	for (i = -WARM; i < count; i++) {
		t = fd < 0 ? sleep_once((int)tfd, us) : deliver_once(fd, us);
		if (i >= 0)
			late[i] = t;
	}
	report(late, count);
	finish(&lib);
	return 0;
usage:
	fputs("usage: timers [OPTION VALUE]... nanosleep|timerfd|delivery MICROSECONDS COUNT "
	      "(the options: see the source)\n", stderr);
	return 2;
}
