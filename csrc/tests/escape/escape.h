/* SPDX-License-Identifier: GPL-2.0-only */
/* Attempts to leave a run; see main.c. */
#ifndef ESCAPE_H
#define ESCAPE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * struct attempt - one attempt to get out
 * @name: as in the test's table
 * @run: makes the attempt and returns its outcome: the name of an error, or a
 *	word (listed in main.c)
 * @a, @b: arguments for @run
 */
struct attempt {
	const char *name;
	const char *(*run)(const struct attempt *at);
	long a, b;
};

/* The tables end with an entry without a name. */
extern const struct attempt socket_attempts[];
extern const struct attempt door_attempts[];
extern const struct attempt process_attempts[];
extern const struct attempt space_attempts[];
extern const struct attempt fd_attempts[];
extern const struct attempt name_attempts[];
extern const struct attempt hostnet_attempts[];
extern const struct attempt exchange_attempts[];

extern const char *self;		/* path of this program */

/* main.c */
const char *failure(int err);
const char *word(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *setting(const char *name);
long number(const char *name);
const char *in_child(const char *(*run)(const struct attempt *at),
		     const struct attempt *at);
const char *by_exec(const char *path, const char *name, bool bare);
const char *tool_status(const char *tool, const char *const args[]);
void mark(int fd, const char *name);

/* sockets.c */
const char *connect_out(const struct attempt *at);

/* fds.c */
int outside_connect(void);

/* raw.c: system calls that no library sees */
long raw(long nr, long a, long b, long c, long d, long e, long f);
#define RAW(nr, ...)	RAW_(nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define RAW_(nr, a, b, c, d, e, f, ...) \
	raw(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* outside.c: a process of the same user that is not in the run */
int outside(void);
int outside_socket(int family, int type, int protocol);

#endif
