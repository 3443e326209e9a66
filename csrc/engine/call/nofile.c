// SPDX-License-Identifier: GPL-2.0-only
/*
 * A moment with a higher RLIMIT_NOFILE of another process.
 *
 * Other threads of that process can change the limit meanwhile. Each prlimit()
 * returns the value that it replaces, so the last change of theirs is put back.
 * A process that forks at such a moment gives the raised limit to its child.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/call/nofile.h"

#define TRIES	1000	/* a process that does nothing else could go on for ever */

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

/**
 * nofile_restore - lower the limit again, unless the process has changed it
 *
 * A value that was not ours to replace is put back, which can again replace a
 * newer one.
 */
void nofile_restore(struct nofile *n)
{
	struct rlimit ours = n->set, put = n->was, got;
	int i;

	for (i = 0; n->pid && i < TRIES; i++) {
		if (prlimit(n->pid, RLIMIT_NOFILE, &put, &got) || same(&got, &ours))
			break;
		ours = put;
		put = got;
	}
	n->pid = 0;
}
