/* SPDX-License-Identifier: GPL-2.0-only */
/* A moment with a higher RLIMIT_NOFILE of another process */
#ifndef ENGINE_CALL_NOFILE_H
#define ENGINE_CALL_NOFILE_H

#include <sys/resource.h>
#include <sys/types.h>

/** struct nofile - a raised limit; zero: not raised */
struct nofile {
	pid_t pid;
	struct rlimit was, set;
};

int nofile_raise(struct nofile *n, pid_t pid, rlim_t most);
void nofile_restore(struct nofile *n);

#endif
