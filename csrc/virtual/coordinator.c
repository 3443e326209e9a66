// SPDX-License-Identifier: GPL-2.0-only
/* The connection to the coordinator, and what else all files use: time and chance. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "virtual/virtual.h"

#define COORDINATOR	3	/* descriptor of the connection */

unsigned long long now = BOOT_NS;
char buf[BUF_SIZE];

bool alone;

static FILE *in, *out;
static uint64_t rng;

void random_seed(uint64_t seed)
{
	rng = seed;
}

/* SplitMix64 */
uint64_t random_next(void)
{
	uint64_t z = rng += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/** message - send a message to the coordinator, at the latest at the next MSG_DONE */
void message(int type, int id, uint64_t time, const void *data, uint32_t len)
{
	struct msg m = { .type = (uint8_t)type, .id = (uint16_t)id, .len = len, .time = time };

	if (alone)
		return;
	if (fwrite(&m, sizeof(m), 1, out) != 1 || (len && fwrite(data, len, 1, out) != 1))
		exit(1);	/* the coordinator has ended */
}

/** fail - end the lab with a line for the user */
void fail(const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (alone)
		fprintf(stderr, "lklvirtual: %s\n", line);
	message(MSG_FAIL, 0, now, line, (uint32_t)strlen(line));
	fflush(out);
	_exit(1);	/* which ends the programs */
}

/** coordinator_open - returns false if there is none */
bool coordinator_open(void)
{
	fcntl(COORDINATOR, F_SETFD, FD_CLOEXEC);
	in = fdopen(COORDINATOR, "r");
	out = fdopen(fcntl(COORDINATOR, F_DUPFD_CLOEXEC, 0), "w");
	if (!in || !out)
		return false;
	setvbuf(in, NULL, _IOFBF, BUF_SIZE);
	setvbuf(out, NULL, _IOFBF, BUF_SIZE);
	return true;
}

/** coordinator_read - read from the coordinator; false: it has ended */
bool coordinator_read(void *to, size_t len)
{
	return !len || fread(to, len, 1, in) == 1;
}

/** coordinator_done - report the time of the next event, and whether lklrun waits for one that is there */
void coordinator_done(uint64_t next, bool event)
{
	message(MSG_DONE, event, next, NULL, 0);
	fflush(out);
}
