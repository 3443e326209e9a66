// SPDX-License-Identifier: GPL-2.0-only
/*
 * A moment with a higher RLIMIT_NOFILE of another process.
 *
 * Other threads of that process can change the limit meanwhile. Each prlimit()
 * returns the value that it replaces, so no change of theirs is lost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/call/nofile.h"

static bool same(const struct rlimit *a, const struct rlimit *b)
{
	return a->rlim_cur == b->rlim_cur && a->rlim_max == b->rlim_max;
}

/**
 * nofile_raise - raise the soft limit of a process until nofile_restore()
 * @most: new limit, at most the hard limit
 *
 * Returns 0 or a negative errno. It may be called again to raise it further.
 */
int nofile_raise(struct nofile *n, pid_t pid, rlim_t most)
{
	struct rlimit now, more;

	if (prlimit(pid, RLIMIT_NOFILE, NULL, &now))
		return -errno;
	more = (struct rlimit){ most, now.rlim_max };
	if (most <= now.rlim_cur || most > now.rlim_max)
		return -EMFILE;
	if (prlimit(pid, RLIMIT_NOFILE, &more, &now))
		return -errno;
	if (!n->pid || !same(&now, &n->set))
		n->was = now;
	n->pid = pid;
	n->set = more;
	return 0;
}

/** nofile_restore - lower the limit again, unless the process has changed it */
void nofile_restore(struct nofile *n)
{
	struct rlimit now;

	if (n->pid && !prlimit(n->pid, RLIMIT_NOFILE, &n->was, &now) && !same(&now, &n->set))
		prlimit(n->pid, RLIMIT_NOFILE, &now, NULL);
	n->pid = 0;
}
