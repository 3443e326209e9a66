// SPDX-License-Identifier: GPL-2.0-only
/*
 * The log: the run directory's file, a ring of the kernel's last lines for
 * CTL_LOG, and lines for the user.
 *
 * Standard output and error are the target's, so nothing is ever printed here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl_proto.h"
#include "host.h"

#define RING_SIZE	(64 * 1024)
#define FILE_MAX	(16 * 1024 * 1024)	/* then the file gets no more */

static int log_fd = -1;
static size_t log_written;
static char ring[RING_SIZE];
static size_t ring_end;		/* bytes ever written */

/** log_open - append to DIR/log; a full disk later on is no error */
int log_open(const char *dir)
{
	char path[512];

	if ((size_t)snprintf(path, sizeof(path), "%s/log", dir) >= sizeof(path))
		return -ENAMETOOLONG;
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return log_fd < 0 ? -errno : 0;
}

/**
 * log_take_stdio - what a library prints goes to the log as well
 *
 * Standard input, output and error belong to the target, which has copies.
 */
void log_take_stdio(void)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		close(null);
	}
	dup2(log_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
}

/** file_put - append to the file, silently less when it cannot be */
static void file_put(const char *text, size_t len)
{
	if (log_fd < 0 || log_written > FILE_MAX)
		return;
	log_written += len;
	if (write(log_fd, text, len) < 0)
		log_written += 4096;	/* a full disk is not asked for ever */
}

/** log_console - kernel output: to the ring and the file */
void log_console(const char *text, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		ring[ring_end++ % RING_SIZE] = text[i];
	file_put(text, len);
}

/**
 * log_ring - the last lines of the kernel
 * @buf: room for @len
 *
 * Returns bytes written. The first, cut line is left out.
 */
size_t log_ring(char *buf, size_t len)
{
	size_t have = ring_end < RING_SIZE ? ring_end : RING_SIZE;
	size_t from, i;

	if (have > len)
		have = len;
	from = ring_end - have;
	if (from) {
		while (have && ring[from % RING_SIZE] != '\n') {
			from++;
			have--;
		}
		if (have) {
			from++;
			have--;
		}
	}
	for (i = 0; i < have; i++)
		buf[i] = ring[(from + i) % RING_SIZE];
	return have;
}

/** line_put - format a line with a time stamp into the file */
static void line_put(const char *text)
{
	char line[1200];
	struct timespec ts;
	int n;

	clock_gettime(CLOCK_REALTIME, &ts);
	n = snprintf(line, sizeof(line), "%lld.%03ld lklhost: %s\n",
		     (long long)ts.tv_sec, ts.tv_nsec / 1000000, text);
	if (n >= (int)sizeof(line)) {
		n = sizeof(line) - 1;
		line[n - 1] = '\n';
	}
	file_put(line, (size_t)n);
}

/** log_line - a line for the file only */
void log_line(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	line_put(text);
}

/** warn_user - a line for the user: CTL_EV_WARN and the file */
void warn_user(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	line_put(text);
	ctl_event(CTL_EV_WARN, 0, 0, text);
}
