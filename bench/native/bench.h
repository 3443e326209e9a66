/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Common code of the measuring programs: error messages, the clock, and the CPU
 * time of all processes of the benchmarks, which bench/lab passes as descriptor
 * 3. Programs print pairs of a value and its unit on stdout.
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

/** cpu_asked - time of the last cpu_seconds() call, CLOCK_MONOTONIC in seconds */
static double cpu_asked;

/**
 * die - print an error message and exit
 * @what: what failed
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
 * cpu_seconds - CPU time of all participating processes
 *
 * Return: seconds, negative if unknown
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
 * report_cpu - print the CPU time of a measurement, if known, and its interval
 * if bench/lab needs that (LKLRUN_BENCH_WINDOW)
 * @begin: cpu_seconds() before the measurement
 * @factor: units per second
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
 * serve_each - serve each connection in a process of its own, for ever
 * @l: listening socket
 * @attend: serves one connection
 * @limit: time limit for that, in seconds
 */
static inline void __attribute__((noreturn)) serve_each(int l, void (*attend)(int fd),
							unsigned int limit)
{
	signal(SIGCHLD, SIG_IGN);	/* reap them automatically */
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
