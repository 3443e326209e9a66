/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every measuring program needs: to end with a line, the clock, and the
 * CPU time of all processes of the benchmarks, which bench/lab hands over as
 * descriptor 3. Programs report pairs of a value and its unit on stdout.
 */
#ifndef BENCH_H
#define BENCH_H

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CPU_FD	3

/** cpu_asked - when CPU time was asked for last, CLOCK_MONOTONIC in seconds */
static double cpu_asked;

/**
 * die - end with a line that says what was being done
 * @what: that
 * @err: negative errno, or 0 for none
 */
static inline void __attribute__((noreturn)) die(const char *what, long err)
{
	if (err)
		fprintf(stderr, "bench: %s: %s\n", what, strerror((int)-err));
	else
		fprintf(stderr, "bench: %s\n", what);
	exit(1);
}

/**
 * now - CLOCK_MONOTONIC in seconds
 */
static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/**
 * cpu_seconds - CPU time of everything that takes part
 *
 * Return: seconds, negative when nobody accounts it
 */
static inline double cpu_seconds(void)
{
	unsigned long long t[7];
	char text[256];
	ssize_t n;

	cpu_asked = now();
	n = pread(CPU_FD, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return -1;
	text[n] = 0;
	if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1],
		   &t[2], &t[3], &t[4], &t[5], &t[6]) == 7)
		return (double)(t[0] + t[1] + t[2] + t[5] + t[6]) / 100;
	if (sscanf(text, "usage_usec %llu", &t[0]) == 1)
		return (double)t[0] / 1e6;
	if (sscanf(text, "%llu", &t[0]) == 1)
		return (double)t[0] / 1e9;
	return -1;
}

/**
 * report_cpu - print what something took, when it is known, and from when to
 * when that was, where bench/lab wants to know (LKLRUN_BENCH_WINDOW)
 * @begin: cpu_seconds() before it
 * @factor: how much of the unit a second is
 * @unit: such as cpu-s/GB
 */
static inline void report_cpu(double begin, double factor, const char *unit)
{
	double from = cpu_asked, end = cpu_seconds();

	if (getenv("LKLRUN_BENCH_WINDOW"))
		printf("%.6f begin-s\n%.6f end-s\n", from, cpu_asked);
	if (begin >= 0 && end >= begin)
		printf("%.6f %s\n", (end - begin) * factor, unit);
}

/**
 * serve_each - a process for each connection, for ever
 * @l: listening socket
 * @attend: serves one
 * @limit: seconds it has for that
 */
static inline void __attribute__((noreturn)) serve_each(int l, void (*attend)(int fd),
							unsigned int limit)
{
	signal(SIGCHLD, SIG_IGN);	/* nobody waits for them */
	for (;;) {
		int fd = accept(l, NULL, NULL);

		if (fd < 0)
			die("accept", -errno);
		switch (fork()) {
		case -1:
			die("fork", -errno);
		case 0:
			alarm(limit);
			attend(fd);
			_exit(0);
		}
		close(fd);
	}
}

#endif
