// SPDX-License-Identifier: GPL-2.0-only
/* Small things, none of which touches errno. */
#define _GNU_SOURCE
#include <asm/ioctls.h>
#include <linux/sockios.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define PAGE	4096
#define NEAR	64
#define PIECE	1984	/* whole cache lines, less than what any C library has for long */

/** carrier_left - what was written and is not read yet, as SIOCOUTQ weighs it */
int carrier_left(int fd)
{
	int n = 0;
	long ret = RAW(ioctl, fd, LANE_MAGIC << 32 | SIOCOUTQ, &n);

	return ret ? -1 : n;
}

/** lane_kick - have lklhost look at once */
void lane_kick(int fd)
{
	long ret;

	do
		ret = RAW(ioctl, fd, LANE_CALL(LANE_KICK), 0);
	while (ret == -EINTR);
}

/** now_ns - a clock for short waits */
uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/**
 * signals_off - no handler runs, and none leaves by longjmp(), until signals_on()
 *
 * Those of what the thread itself does wrong, a buffer that is not there, go on.
 */
void signals_off(uint64_t *old)
{
	uint64_t mask = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) |
			  1ull << (SIGILL - 1) | 1ull << (SIGFPE - 1) |
			  1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1));

	RAW(rt_sigprocmask, SIG_BLOCK, &mask, old, sizeof(mask));
}

void signals_on(const uint64_t *old)
{
	RAW(rt_sigprocmask, SIG_SETMASK, old, NULL, sizeof(*old));
}

/**
 * copy - memcpy(), in pieces where that is slow
 *
 * A long one is "rep movsb" in some C libraries, which some processors do a
 * twentieth as fast where the target lies a few bytes after the source within a
 * page (third_party/lkl/lib/copy.c).
 */
static void copy(char *to, const char *from, size_t n)
{
	size_t after = ((uintptr_t)to - (uintptr_t)from) % PAGE, part = n;

	if (after && after < NEAR)
		part = PIECE;
	__asm__("" : "+r"(part));	/* the compiler would do that very thing */
	for (; n > part; n -= part, to += part, from += part)
		memcpy(to, from, part);
	memcpy(to, from, n);
}

/** op_gather - @n bytes from the @off'th on, of what is to be written */
void op_gather(const struct op *op, size_t off, char *to, size_t n)
{
	const struct iovec *v = op->iov;

	for (; n; v++) {
		size_t part;

		if (off >= v->iov_len) {
			off -= v->iov_len;
			continue;
		}
		part = v->iov_len - off < n ? v->iov_len - off : n;
		copy(to, (const char *)v->iov_base + off, part);
		to += part;
		n -= part;
		off = 0;
	}
}
