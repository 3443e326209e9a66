// SPDX-License-Identifier: GPL-2.0-only
/*
 * --user UID:GID[:GROUP,GROUP...]: the user that the target runs as.
 *
 * Theory of operation
 *
 * lklhost keeps its own user. Only root can make the namespaces, the filter and
 * the mounts of the target, so the target changes its user after that. It does
 * so before it forks the zygote, so that programs of `lklctl exec` run as this
 * user as well. From then on it has no capability, and no_new_privs prevents it
 * from gaining any.
 *
 * The target also gets its own user namespace, in which every id maps to
 * itself. It sees the same ids as without one. But the host's kernel denies it
 * ptrace(2), pidfd_getfd(2) and process_vm_readv(2) on the user's other
 * processes on the host, which are in another user namespace. It thus cannot
 * take a socket from them.
 *
 * The owner of the namespace is lklhost's user, root. The owner has every
 * capability in it (user_namespaces(7)), so lklhost can serve the target
 * without a capability.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "process/process.h"

#define MAP_LINE	36	/* bytes: three numbers of 32 bits */
#define MAP_MAX		4096	/* bytes of a map, user_namespaces(7) */

static struct {
	bool any;
	uid_t uid;
	gid_t gid;
	size_t n;
	gid_t groups[NGROUPS_MAX];
} user;

/** id - parse a number at *@p and advance *@p; false if there is none */
static bool id(const char **p, unsigned int *value)
{
	unsigned long n;
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	n = strtoul(*p, &end, 10);
	*p = end;
	*value = (unsigned int)n;
	return n < UINT_MAX;	/* -1 means no change, setresuid(2) */
}

/** user_set - parse the option's value; false if it is invalid */
bool user_set(const char *text)
{
	const char *p = text;

	user.n = 0;
	if (!id(&p, &user.uid) || *p++ != ':' || !id(&p, &user.gid))
		return false;
	while (*p) {
		if (*p != (user.n ? ',' : ':') || user.n == NGROUPS_MAX)
			return false;
		p++;
		if (!id(&p, &user.groups[user.n++]))
			return false;
	}
	user.any = true;
	return true;
}

/** user_change - become the user; 0, also without --user, or an errno */
int user_change(void)
{
	if (!user.any)
		return 0;
	if (setgroups(user.n, user.groups) ||
	    setresgid(user.gid, user.gid, user.gid) ||
	    setresuid(user.uid, user.uid, user.uid) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	caps_drop(~0ull);	/* otherwise user 0 keeps them */
	return 0;
}

/**
 * map_same - for @pid, map every id that exists here to itself
 * @file: "uid_map" or "gid_map"
 */
static int map_same(pid_t pid, const char *file)
{
	char path[64], text[MAP_MAX];
	unsigned int first, count;
	size_t at = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/%s", file);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (at + MAP_LINE < sizeof(text) &&
	       fscanf(f, "%u %*u %u", &first, &count) == 2)
		at += (size_t)sprintf(text + at, "%u %u %u\n", first, first,
				      count);
	fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	return at ? write_file(path, text) : -EINVAL;
}

/**
 * mapper - main function of the child that maps its parent's ids; never returns
 */
__attribute__((noreturn))
static void mapper(pid_t parent, int made)
{
	char word;
	int ret;

	if (read(made, &word, 1) != 1)
		_exit(EPERM);
	ret = map_same(parent, "gid_map");
	if (!ret)
		ret = map_same(parent, "uid_map");
	_exit(-ret);
}

/** exited - wait for a child; 0 or the negative errno in its exit status */
static int exited(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EPERM;
}

/**
 * own_namespace - move into a user namespace in which every id maps to itself
 *
 * Writing the map needs rights in the old namespace, so a child stays there.
 */
static int own_namespace(void)
{
	pid_t pid, parent = getpid();
	int made[2], ret = 0;

	if (pipe2(made, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid) {
		close(made[1]);
		mapper(parent, made[0]);
	}
	close(made[0]);
	if (pid < 0 || unshare(CLONE_NEWUSER) || write(made[1], "", 1) != 1)
		ret = -errno;
	close(made[1]);
	if (pid > 0) {
		int mapped = exited(pid);

		ret = ret ? ret : mapped;
	}
	return ret;
}

/** user_has_namespace - whether the target has its own user namespace */
bool user_has_namespace(void)
{
	return user.any && !host.shared_user_ns;
}

/** user_become - user_change() for the target, in its own user namespace */
int user_become(void)
{
	int ret = user_has_namespace() ? own_namespace() : 0;

	return ret ? ret : user_change();
}

/** probe_in_child - try in a child whether @become works */
static int probe_in_child(int (*become)(void))
{
	pid_t pid = fork();

	if (!pid)
		_exit(-become());
	return pid < 0 ? -errno : exited(pid);
}

/** user_rehearse - whether --user works, and whether with a user namespace */
int user_rehearse(void)
{
	int ret;

	if (!user.any)
		return 0;
	ret = probe_in_child(user_become);
	if (!ret)
		return 0;
	host.shared_user_ns = -ret;
	return probe_in_child(user_change);
}

/**
 * user_file_ids - make lklhost access files as the user
 *
 * The user owns the target's files in /proc/PID, and lklhost no longer has the
 * capability to override file modes. Needs CAP_SETUID and CAP_SETGID.
 */
void user_file_ids(void)
{
	setfsgid(user.gid);
	setfsuid(user.uid);
	prctl(PR_SET_DUMPABLE, 1);	/* reset by setfsuid() */
}
