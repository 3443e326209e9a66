// SPDX-License-Identifier: GPL-2.0-only
/* Files: which the host opens, and which are those of the stack. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "virtual/virtual.h"

#define RANDOM_FILE	(1 << 20)	/* what a program can read from /dev/urandom */

const char *hosts_file;

/* Files of /proc and /sys without time and without the host's network */
static const char *const known_files[] = {
	"/proc/self/", "/proc/thread-self/", "/proc/sys/vm/", "/proc/sys/kernel/", "/proc/cgroups",
	"/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems", "/proc/mounts",
	"/sys/devices/system/cpu/",
	"/sys/devices/system/clocksource/", "/sys/devices/system/node/", "/sys/kernel/mm/",
	"/sys/fs/cgroup/",
};
static const char *const stack_files[] = {
	"/proc/net/", "/proc/sys/net/", "/sys/module/", "/sys/class/net/",
};
static const char *const unknown_files[] = {	/* of those */
	"/proc/self/net", "/proc/self/sched", "/proc/self/stat", "/proc/self/task",
	"/proc/self/mountstats", "/proc/self/io", "/proc/self/timers", "/proc/sys/kernel/random",
	"/proc/thread-self/net", "/proc/thread-self/sched", "/proc/thread-self/stat",
};

static bool in_list(const char *path, const char *const *list, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strncmp(path, list[i], strlen(list[i])))
			return true;
	return false;
}
#define IN_LIST(path, list) in_list(path, list, sizeof(list) / sizeof(*(list)))

static int random_file(void)
{
	int fd = memfd_create("random", MFD_CLOEXEC), i;
	uint64_t *r = (uint64_t *)buf;

	for (i = 0; fd >= 0 && i < RANDOM_FILE / BUF_SIZE; i++) {
		size_t k;

		for (k = 0; k < BUF_SIZE / sizeof(*r); k++)
			r[k] = random_next();
		if (write(fd, r, BUF_SIZE) != BUF_SIZE)
			fail("a file of random bytes: %s", strerror(errno));
	}
	if (fd >= 0)
		lseek(fd, 0, SEEK_SET);
	return fd;
}

static int text_file(const char *text, size_t len)
{
	int fd = memfd_create("text", MFD_CLOEXEC);

	if (fd >= 0 && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET)))
		fail("a file: %s", strerror(errno));
	return fd;
}

static long stack_open(const char *path, uint64_t flags)
{
	static bool mounted;

	if (!mounted && !strncmp(path, "/sys/", 5)) {
		ST(mkdir, "/sys", 0755, 0, 0, 0, 0);
		ST(mount, "none", "/sys", "sysfs", 0, 0, 0);
		mounted = true;
	}
	return ST(open, path, flags, 0, 0, 0, 0);
}

/* A file of the stack's /proc or /sys, as it is at this time */
static int stack_file(const char *path)
{
	long f = stack_open(path, O_RDONLY), n, len = 0;

	if (f < 0) {
		errno = (int)-f;
		return -1;
	}
	while ((n = ST(read, f, buf + len, BUF_SIZE - (size_t)len, 0, 0, 0)) > 0)
		len += n;
	ST(close, f, 0, 0, 0, 0, 0);
	return text_file(buf, (size_t)len);
}

/*
 * /proc/PID/stat, with zeros for times, page faults and addresses, and with all
 * memory present: these depend on the host
 */
static int stat_file(const struct process *p)
{
	uint64_t size = status_field(p->pid, "\nVmSize:", 10);
	char path[64], comm[32] = "";
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, comm, sizeof(comm) - 1);
	if (fd >= 0)
		close(fd);
	comm[n > 0 ? n - 1 : 0] = 0;	/* without the end of line */
	n = snprintf(buf, BUF_SIZE, "%d (%s) R %d %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 %d 0 0 %llu %llu"
		     " 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
		     p->ns_pid, comm, !p->parent ? 0 : p->parent->live ? p->parent->ns_pid : 1,
		     (int)status_field(p->pid, "\nNSpgid:", 10), (int)status_field(p->pid, "\nNSsid:", 10),
		     (int)status_field(p->pid, "\nThreads:", 10), (unsigned long long)size * 1024,
		     (unsigned long long)size / 4);
	return text_file(buf, (size_t)n);
}

/* A file of /proc that depends on time, as it is in virtual time; -2: @path is another one */
static int proc_file(struct thread *t, const char *path)
{
	char own[64];
	int i, n;

	if (!strcmp(path, "/proc/stat")) {	/* no time of the one processor is used */
		n = snprintf(buf, BUF_SIZE, "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nbtime %llu\n",
			     (unsigned long long)(REAL_OFFSET / 1000000000));
		return text_file(buf, (size_t)n);
	}
	if (!strcmp(path, "/proc/self/stat"))
		return stat_file(t->p);
	for (i = 0; i < process_count; i++) {
		snprintf(own, sizeof(own), "/proc/%d/stat", processes[i].ns_pid);
		if (processes[i].live && !strcmp(path, own))
			return stat_file(&processes[i]);
	}
	return -2;
}

/* The tun driver of the stack. The program configures the new descriptor by ioctl(). */
static int tun_device(void)
{
	static bool made;

	if (!made)
		ST(mknod, "/tun", S_IFCHR | 0600, makedev(10, 200), 0, 0, 0);
	made = true;
	return (int)ST(open, "/tun", O_RDWR | O_NONBLOCK, 0, 0, 0, 0);
}

/*
 * /proc/PID/task/TID/stat of a thread of the same program. The host would say that a
 * thread sleeps that only waits for its turn. Fields that are not known here are 0.
 */
static int thread_state(struct thread *t, const char *path)
{
	const char *name = strrchr(t->p->program->name, '/');
	int pid, tid, end = 0, i;
	char text[256];

	name = name ? name + 1 : t->p->program->name;
	if (sscanf(path, "/proc/%d/task/%d/stat%n", &pid, &tid, &end) != 2 || path[end])
		return -1;
	for (i = 0; i < thread_count; i++) {
		struct thread *o = &threads[i];

		if (!o->live || o->p->program != t->p->program || o->p->ns_pid != pid || o->ns_tid != tid)
			continue;
		snprintf(text, sizeof(text), "%d (%.15s) %c %d%s\n", tid, name, o->held && o->retry ? 'S' : 'R',
			 o->p->parent ? o->p->parent->ns_pid : 0,
			 " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
			 " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
		return text_file(text, strlen(text));
	}
	return -1;
}

/* Opens a file as the program would; -1 if it cannot be opened */
static int open_as(struct thread *t, int dir, const char *path)
{
	char base[64];
	int at = AT_FDCWD, fd;

	if (*path != '/') {
		if (dir == AT_FDCWD)
			snprintf(base, sizeof(base), "/proc/%d/cwd", t->p->pid);
		else
			snprintf(base, sizeof(base), "/proc/%d/fd/%d", t->p->pid, dir);
		at = open(base, O_PATH | O_CLOEXEC);
	}
	fd = openat(at, path, O_PATH | O_CLOEXEC);
	if (at >= 0)
		close(at);
	return fd;
}

static enum verdict open_file(struct thread *t, int dir, uint64_t name, uint64_t flags, long *ret)
{
	static const char no_server[] = "nameserver 127.0.0.1\n";
	char path[4096];
	struct statfs fs;
	struct stat st;
	bool cloexec = flags & O_CLOEXEC, known;
	int fd;

	*ret = mem_string(t, path, name, sizeof(path));
	if (*ret)
		return ANSWER;
	if (!strcmp(path, "/etc/hosts") && hosts_file) {
		*ret = fd_add_host(t, open(hosts_file, O_RDONLY | O_CLOEXEC), cloexec);
		return ANSWER;
	}
	if (!strcmp(path, "/etc/resolv.conf")) {	/* nothing listens there */
		*ret = fd_add_host(t, text_file(no_server, strlen(no_server)), cloexec);
		return ANSWER;
	}
	if (IN_LIST(path, stack_files) && !(flags & O_DIRECTORY)) {
		if ((flags & O_ACCMODE) == O_RDONLY)
			*ret = fd_add_host(t, stack_file(path), cloexec);
		else
			*ret = fd_add(t, (int)stack_open(path, flags & ~(uint64_t)O_CREAT), FD_OTHER,
				      flags & O_NONBLOCK, cloexec);
		return ANSWER;
	}
	if (!strcmp(path, "/dev/net/tun")) {
		*ret = fd_add(t, tun_device(), FD_OTHER, flags & O_NONBLOCK, cloexec);
		return ANSWER;
	}
	fd = proc_file(t, path);
	if (fd != -2) {
		*ret = fd_add_host(t, fd, cloexec);
		return ANSWER;
	}
	fd = thread_state(t, path);
	if (!strcmp(path, "/proc/uptime")) {
		snprintf(path, sizeof(path), "%llu.%02llu 0.00\n", now / 1000000000, now / 10000000 % 100);
		fd = text_file(path, strlen(path));
	}
	if (fd >= 0) {
		*ret = fd_add_host(t, fd, cloexec);
		return ANSWER;
	}
	known = IN_LIST(path, known_files) &&
		!IN_LIST(path, unknown_files) &&
		!strstr(path, "/../");
	if (known)
		return NATIVE;
	fd = open_as(t, dir, path);
	if (fd < 0)
		return NATIVE;	/* there is none, or the program makes it */
	if (fstat(fd, &st) || fstatfs(fd, &fs))
		fail("%s: %s", path, strerror(errno));
	close(fd);
	if (S_ISCHR(st.st_mode) && major(st.st_rdev) == 1) {
		if (minor(st.st_rdev) == 8 || minor(st.st_rdev) == 9) {	/* random, urandom */
			*ret = fd_add_host(t, random_file(), cloexec);
			return ANSWER;
		}
		if (minor(st.st_rdev) == 3 || minor(st.st_rdev) == 5 || minor(st.st_rdev) == 7)
			return NATIVE;	/* null, zero, full */
	}
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 0)) {	/* /dev/tty */
		*ret = -ENXIO;
		return ANSWER;
	}
	if (!(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) || fs.f_type == PROC_SUPER_MAGIC ||
	    fs.f_type == SYSFS_MAGIC)
		fail("%s: the file %s is not supported in virtual time", t->p->program->name, path);
	return NATIVE;
}

enum verdict on_open(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return open_file(t, AT_FDCWD, a[0], a[1], ret);
}

enum verdict on_openat(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return open_file(t, (int)a[0], a[1], a[2], ret);
}

/* A call about the file whose name is at @name: of the stack if it is one of its files */
static bool names_stack_file(struct thread *t, uint64_t name, char *path, size_t size)
{
	return !mem_string(t, path, name, size) && IN_LIST(path, stack_files);
}

static enum verdict stat_path(struct thread *t, uint64_t name, uint64_t to, long *ret)
{
	char path[4096];

	if (!names_stack_file(t, name, path, sizeof(path)))
		return NATIVE;
	*ret = stack_open(path, O_PATH);
	if (*ret >= 0) {
		int f = (int)*ret;

		stat_stack(t, f, to, ret);
		ST(close, f, 0, 0, 0, 0, 0);
	}
	return ANSWER;
}

/* stat(), lstat() */
enum verdict on_stat(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return stat_path(t, a[0], a[1], ret);
}

enum verdict on_newfstatat(struct thread *t, uint64_t *a, int f, long *ret)
{
	return f < 0 || !(a[3] & AT_EMPTY_PATH) ? stat_path(t, a[1], a[2], ret) :
						  stat_stack(t, f, a[2], ret);
}

static enum verdict access_path(struct thread *t, uint64_t name, uint64_t mode, long *ret)
{
	char path[4096];

	if (!names_stack_file(t, name, path, sizeof(path)))
		return NATIVE;
	*ret = ST(access, path, mode, 0, 0, 0, 0);
	return ANSWER;
}

enum verdict on_access(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return access_path(t, a[0], a[1], ret);
}

/* faccessat(), faccessat2() */
enum verdict on_faccessat(struct thread *t, uint64_t *a, int f, long *ret)
{
	(void)f;
	return access_path(t, a[1], a[2], ret);
}

enum verdict on_statx(struct thread *t, uint64_t *a, int f, long *ret)
{
	char path[4096];
	struct statx st;

	(void)f;
	if (!names_stack_file(t, a[1], path, sizeof(path)))
		return NATIVE;
	*ret = ST(statx, AT_FDCWD, path, a[2], a[3], &st, 0);
	if (!*ret)
		*ret = mem_write(t, a[4], &st, sizeof(st));
	return ANSWER;
}
