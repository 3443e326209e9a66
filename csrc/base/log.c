// SPDX-License-Identifier: GPL-2.0-only
/*
 * The log: the file in the run directory, a ring of the kernel's last lines for
 * CTL_LOG, and lines for the user.
 *
 * Standard output and error belong to the target, so nothing is printed here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "shared/ctl_proto.h"

#define RING_SIZE	(64 * 1024)
#define FILE_MAX	(16 * 1024 * 1024)	/* maximum size of the file */

#define TEXT_SIZE	1024			/* maximum length of a line */

#define WARN_BURST	20
#define WARN_NS		2000000000ull

void (*log_event)(uint32_t kind, uint32_t pid, int64_t arg, const char *text);

static int log_fd = -1;
static size_t log_written;
static char ring[RING_SIZE];
static size_t ring_end;		/* bytes ever written */

/** log_open - append to DIR/log; ignores a disk that becomes full later */
int log_open(const char *dir)
{
	char path[512];

	if ((size_t)snprintf(path, sizeof(path), "%s/log", dir) >= sizeof(path))
		return -ENAMETOOLONG;
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return log_fd < 0 ? -errno : 0;
}

/**
 * log_take_stdio - redirect the output of libraries to the log
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

/** file_put - append to the file; ignores errors */
static void file_put(const char *text, size_t len)
{
	if (log_fd < 0 || log_written > FILE_MAX)
		return;
	log_written += len;
	if (write(log_fd, text, len) < 0)
		log_written += 4096;	/* limits retries on a full disk */
}

/** log_console - add kernel output to the ring and the file */
void log_console(const char *text, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		ring[ring_end++ % RING_SIZE] = text[i];
	file_put(text, len);
}

/**
 * log_ring - copy the last lines of the kernel
 * @buf: room for @len
 *
 * Returns the number of bytes written. A first, incomplete line is left out.
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

/** line_put - format a line, and append it to the file with a timestamp */
static void line_put(char text[TEXT_SIZE], const char *fmt, va_list ap)
{
	char line[TEXT_SIZE + 176];
	struct timespec ts;
	int n;

	vsnprintf(text, TEXT_SIZE, fmt, ap);
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
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	line_put(text, fmt, ap);
	va_end(ap);
}

/**
 * warn_allowed - rate limit for lines to the user
 *
 * The target can cause any number of lines, and the client that prints them may
 * be slow. The limit is WARN_BURST lines at once, then one every WARN_NS. The
 * log contains all lines.
 */
static bool warn_allowed(void)
{
	static uint64_t full_at;	/* when the whole burst is free again */
	uint64_t now = now_ns();

	if (full_at < now)
		full_at = now;
	if (full_at + WARN_NS > now + WARN_BURST * WARN_NS)
		return false;
	full_at += WARN_NS;
	return true;
}

/** tell - pass a line to the user if log_event is set */
static void tell(uint32_t kind, const char *text)
{
	if (log_event)
		log_event(kind, 0, 0, text);
}

/** warn_user - a line for the user: CTL_EV_WARN and the file */
void warn_user(const char *fmt, ...)
{
	static unsigned long withheld;
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	line_put(text, fmt, ap);
	va_end(ap);
	if (!warn_allowed()) {
		withheld++;
		return;
	}
	if (withheld) {
		char more[64];

		snprintf(more, sizeof(more), "%lu more lines are in the log",
			 withheld);
		tell(CTL_EV_WARN, more);
		withheld = 0;
	}
	tell(CTL_EV_WARN, text);
}

/**
 * note_user - an additional line for verbose output: CTL_EV_NOTE and the file
 */
void note_user(const char *fmt, ...)
{
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	line_put(text, fmt, ap);
	va_end(ap);
	tell(CTL_EV_NOTE, text);
}
