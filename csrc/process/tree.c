// SPDX-License-Identifier: GPL-2.0-only
/*
 * The target's tree: all descendants of lklhost.
 *
 * lklhost is a child subreaper: a process that loses its parent becomes a child
 * of lklhost and thus stays in the tree (prctl(2)). The tree is read from
 * /proc/PID/task/TID/children (needs CONFIG_PROC_CHILDREN).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/loop.h"
#include "process/process.h"
#include "process/zygote_link.h"
#include "trace/trace.h"

#define TREE_MAX	8192

/**
 * children_of - append the children of one thread
 * @path: its children file
 *
 * Returns the new count.
 */
static size_t children_of(const char *path, pid_t *pids, size_t n, size_t max)
{
	FILE *f = fopen(path, "re");
	int pid;

	if (!f)
		return n;
	while (n < max && fscanf(f, "%d", &pid) == 1)
		if (!helper_is(pid))	/* a helper does not belong to the target */
			pids[n++] = pid;
	fclose(f);
	return n;
}

/** children_all - append the children of all threads of a process */
static size_t children_all(pid_t pid, pid_t *pids, size_t n, size_t max)
{
	char path[320];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/children", pid,
			 d->d_name);
		n = children_of(path, pids, n, max);
	}
	if (dir)
		closedir(dir);
	return n;
}

/**
 * tree_below - append the descendants of the first @n of @pids
 * @pids: room for @max
 */
size_t tree_below(pid_t *pids, size_t n, size_t max)
{
	size_t done;

	for (done = 0; done < n; done++)
		n = children_all(pids[done], pids, n, max);
	return n;
}

/**
 * tree_list - list the pids of all descendants of lklhost
 * @pids: room for @max
 */
size_t tree_list(pid_t *pids, size_t max)
{
	return tree_below(pids, children_all(getpid(), pids, 0, max), max);
}

/** parent_of - parent of a process; 0 if there is no such process */
static pid_t parent_of(pid_t pid)
{
	char path[48], line[128];
	int parent = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "PPid: %d", &parent) == 1)
			break;
	if (f)
		fclose(f);
	return parent;
}

/** tree_has - whether a process belongs to the tree */
bool tree_has(pid_t pid)
{
	int depth;

	for (depth = 0; depth < TREE_MAX && pid > 1 && !helper_is(pid); depth++) {
		pid = parent_of(pid);
		if (pid == getpid())
			return true;
	}
	return false;
}

/** tree_empty - whether no process is left, except the zygote */
bool tree_empty(void)
{
	pid_t pids[2];
	size_t n = tree_list(pids, 2);

	return !n || (n == 1 && pids[0] == zygote_pid());
}

/** tree_signal - send @sig to all descendants */
void tree_signal(int sig)
{
	static pid_t pids[TREE_MAX];
	size_t n = tree_list(pids, TREE_MAX);

	while (n)
		kill(pids[--n], sig);
}

/**
 * tree_kill - kill until no process is left
 * @limit_ms: give up after this time
 *
 * Returns true if no process is left. A process that forks while the tree is
 * read is found in a later round. An idle zygote is not waited for: it dies by
 * itself while the stack ends.
 */
bool tree_kill(uint32_t limit_ms)
{
	uint64_t end = now_ns() + (uint64_t)limit_ms * 1000000;
	static pid_t pids[TREE_MAX];
	const struct timespec pause = { .tv_nsec = 1000000 };
	pid_t zygote = zygote_idle();
	size_t i, n;

	for (;;) {
		n = tree_list(pids, TREE_MAX);
		for (i = 0; i < n; i++)
			kill(pids[i], SIGKILL);
		if (!n || (n == 1 && pids[0] == zygote))
			return true;
		trace_reap();
		if (now_ns() >= end)
			return false;
		/* Dying processes need the CPU; the limit is above. */
		nanosleep(&pause, NULL);
	}
}
