// SPDX-License-Identifier: GPL-2.0-only
/*
 * --user UID:GID[:GROUP,GROUP...]: who the target runs as.
 *
 * lklhost stays who it is. The target changes when its namespaces, filter and
 * mounts are made, which takes root's rights, and before the zygote comes from it,
 * so that programs of `lklctl exec` are the user's as well. It has no capability
 * from then on, and by no_new_privs it gets none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "user.h"

static struct {
	bool any;
	uid_t uid;
	gid_t gid;
	size_t n;
	gid_t groups[NGROUPS_MAX];
} user;

/** id - a number at *@p, which is moved behind it; false: there is none */
static bool id(const char **p, unsigned int *value)
{
	unsigned long n;
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	n = strtoul(*p, &end, 10);
	*p = end;
	*value = (unsigned int)n;
	return n < UINT_MAX;	/* -1 would change nothing, setresuid(2) */
}

/** user_set - take the option's value; false: it cannot be read */
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

/** user_become - change this process; 0, also without --user, or a negative errno */
int user_become(void)
{
	if (!user.any)
		return 0;
	if (setgroups(user.n, user.groups) ||
	    setresgid(user.gid, user.gid, user.gid) ||
	    setresuid(user.uid, user.uid, user.uid) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	caps_drop(~0ull);	/* user 0 keeps them else */
	return 0;
}

/** user_rehearse - whether it will work: a child tries */
int user_rehearse(void)
{
	int status;
	pid_t pid;

	if (!user.any)
		return 0;
	pid = fork();
	if (!pid)
		_exit(-user_become());
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EPERM;
}
