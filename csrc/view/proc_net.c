// SPDX-License-Identifier: GPL-2.0-only
/*
 * Socket tables, /proc/net/tcp and the like. They are read whole, and show the
 * inodes that the sockets have in /proc/PID/fd (engine/carrier/inode_map.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stack/stack.h"
#include "view/internal.h"

#define FOLDER		"/proc/thread-self/net/./"
#define INODE		9	/* column of the inode in each table, from 0 */
#define GROWS		20	/* additional digits that an inode may need */

static uint64_t (*carrier_ino)(uint64_t stack_ino);

/** table_inodes - set the function that translates inodes, see view_open() */
void table_inodes(uint64_t (*fn)(uint64_t stack_ino))
{
	carrier_ino = fn;
}

/** table_is - whether @path is a socket table */
bool table_is(const char *path)
{
	static const char *const names[] = {
		"tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw",
		"raw6", "icmp", "icmp6", "mptcp",
	};
	size_t i;

	if (strncmp(path, FOLDER, strlen(FOLDER)))
		return false;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(path + strlen(FOLDER), names[i]))
			return true;
	return false;
}

/** read_all - read a whole file; its length or a negative errno */
static long read_all(int fd, char **out)
{
	size_t len = 0, room = 0;
	char *buf = NULL, *p;
	long n;

	do {
		if (room - len < VIEW_DATA_MAX) {
			room = 2 * room + VIEW_DATA_MAX;
			p = realloc(buf, room);
			if (!p) {
				free(buf);
				return -ENOMEM;
			}
			buf = p;
		}
		n = st_pread((int)fd, buf + len, room - len, len);
		if (n < 0) {
			free(buf);
			return n;
		}
		len += (size_t)n;
	} while (n);
	*out = buf;
	return (long)len;
}

/** column - where column @n of a line begins; @end if there is none */
static const char *column(const char *p, const char *end, unsigned int n)
{
	for (;;) {
		while (p < end && *p == ' ')
			p++;
		if (!n-- || p == end)
			return p;
		while (p < end && *p != ' ')
			p++;
	}
}

/** translate - copy one line including its end; the bytes written */
static size_t translate(char *to, const char *line, const char *end)
{
	const char *at = column(line, end, INODE);
	uint64_t ino = 0;
	const char *p;
	size_t n;

	for (p = at; p < end && *p >= '0' && *p <= '9'; p++)
		ino = 10 * ino + (uint64_t)(*p - '0');
	n = (size_t)(at - line);
	memcpy(to, line, n);
	if (p > at)	/* not the header line */
		n += (size_t)sprintf(to + n, "%" PRIu64,
				     carrier_ino(ino));
	memcpy(to + n, p, (size_t)(end - p));
	return n + (size_t)(end - p);
}

/**
 * table_read - read the whole table as it is now
 * @out: the caller frees it
 *
 * Returns its length or a negative errno.
 */
long table_read(int fd, char **out)
{
	char *raw = NULL, *text;
	const char *p, *end;
	size_t lines = 1, used = 0;
	long len = read_all(fd, &raw);

	if (len < 0)
		return len;
	for (p = raw; p < raw + len; p++)
		lines += *p == '\n';
	text = malloc((size_t)len + lines * GROWS);
	if (!text) {
		free(raw);
		return -ENOMEM;
	}
	for (p = raw; p < raw + len; p = end) {
		end = memchr(p, '\n', (size_t)(raw + len - p));
		end = end ? end + 1 : raw + len;
		used += translate(text + used, p, end);
	}
	free(raw);
	*out = text;
	return (long)used;
}
