// SPDX-License-Identifier: GPL-2.0-only
/*
 * pidfd_getfd(2): copy a descriptor of another process of the run.
 *
 * Theory of operation
 *
 * A process outside the run may have sockets of the host's network. lklhost
 * therefore takes the descriptor itself, with its own duplicate of the pidfd,
 * and gives it to the caller only if the process belongs to the run and the
 * descriptor is no foreign socket (foreign_sock.c).
 *
 * lklhost may have more rights than the caller. It therefore repeats the checks
 * of the kernel (__ptrace_may_access(), kernel/ptrace.c), and refuses the call
 * if it is not sure. The checks are made before and after the descriptor is
 * taken, because the process may execute a program with other rights.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/foreign_sock.h"
#include "process/process.h"
#include "process/zygote_link.h"

#define DEPTH_MAX	8192

/**
 * struct ids - the identity of a thread
 * @uid, @gid: real, effective and saved id, and that for files
 * @effective, @permitted: its capabilities
 */
struct ids {
	int tgid, parent;
	unsigned int uid[4], gid[4];
	unsigned long long effective, permitted;
};

static int yama = 3;		/* kernel.yama.ptrace_scope */

/** getfd_init - read the host's settings, before lklhost isolates itself */
void getfd_init(void)
{
	FILE *f = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");

	if (!f && errno == ENOENT)
		yama = 0;
	if (!f)
		return;
	if (fscanf(f, "%d", &yama) != 1)
		yama = 3;
	fclose(f);
}

/** ids_get - read the identity of a thread; false if it is gone */
static bool ids_get(pid_t tid, struct ids *ids)
{
	char path[48], line[160];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		n += sscanf(line, "Tgid: %d", &ids->tgid);
		n += sscanf(line, "PPid: %d", &ids->parent);
		n += sscanf(line, "Uid: %u %u %u %u", &ids->uid[0],
			    &ids->uid[1], &ids->uid[2], &ids->uid[3]);
		n += sscanf(line, "Gid: %u %u %u %u", &ids->gid[0],
			    &ids->gid[1], &ids->gid[2], &ids->gid[3]);
		n += sscanf(line, "CapPrm: %llx", &ids->permitted);
		n += sscanf(line, "CapEff: %llx", &ids->effective);
	}
	if (f)
		fclose(f);
	return n == 12;
}

/** same_userns - whether two processes are in the same user namespace */
static bool same_userns(pid_t a, pid_t b)
{
	struct stat one, other;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", a);
	if (stat(path, &one))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", b);
	return !stat(path, &other) && one.st_ino == other.st_ino;
}

/** is_dumpable - whether a process of the user @uid is dumpable, see proc(5) */
static bool is_dumpable(pid_t pid, unsigned int uid)
{
	struct stat st;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	return uid && !stat(path, &st) && st.st_uid == uid;
}

/** descends - whether a process descends from another one */
static bool descends(pid_t pid, pid_t from)
{
	struct ids ids;
	int depth;

	for (depth = 0; depth < DEPTH_MAX && pid > 1; depth++) {
		if (pid == from)
			return true;
		if (!ids_get(pid, &ids))
			return false;
		pid = ids.parent;
	}
	return false;
}

/** may_take - whether the caller may take descriptors of a process */
static bool may_take(const struct call *c, pid_t pid)
{
	struct ids own, other;
	int i;

	if (!tree_has(pid) || zygote_is(pid) || !ids_get(c->pid, &own) ||
	    !ids_get(pid, &other))
		return false;
	if (own.tgid == other.tgid)
		return true;
	if (!same_userns(c->pid, pid))
		return false;
	if (own.effective & 1ull << CAP_SYS_PTRACE)
		return yama < 3;
	for (i = 0; i < 3; i++)
		if (other.uid[i] != own.uid[0] || other.gid[i] != own.gid[0])
			return false;
	return !(other.permitted & ~own.permitted) &&
	       is_dumpable(pid, own.uid[0]) &&
	       (!yama || (yama == 1 && descends(pid, own.tgid)));
}

/** pidfd_pid - get the process of a pidfd, or a negative errno */
pid_t pidfd_pid(int fd)
{
	char path[48], line[128];
	int pid = -EBADF;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid > 0 || pid == -EBADF ? pid : -ESRCH;
}

/** getfd_call - handle pidfd_getfd(2) */
int64_t getfd_call(struct call *c)
{
	int ret = c->args[2] ? -EINVAL : call_dup(c, (int)c->args[0]), fd;
	pid_t pid;

	if (ret)
		return ret;
	pid = pidfd_pid(c->dup);
	if (pid < 0)
		return pid;
	if (!tree_has(pid)) {
		foreign_sock_refused(c);
		return -EPERM;
	}
	if (!may_take(c, pid))
		return -EPERM;
	fd = (int)syscall(SYS_pidfd_getfd, c->dup, (int)c->args[1], 0);
	if (fd < 0)
		return -errno;
	ret = -EPERM;
	if (foreign_sock_is(fd, foreign_sock_domain(fd)))
		foreign_sock_refused(c);
	else if (may_take(c, pid))
		ret = call_addfd_send(c, fd, true);
	paged_close(c, fd);
	return ret < 0 && ret != -ENOENT ? ret : CALL_ANSWERED;
}
