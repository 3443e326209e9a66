// SPDX-License-Identifier: GPL-2.0-only
/* Boot, the results of the first calls, halt, and what remains afterwards. */
#include "tap.h"

#include <dirent.h>
#include <sys/utsname.h>

static int count_dir(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Kilobytes mapped read-write and private without a file: arenas and stacks */
static long anon_kb(void)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	int anon = 0;
	long kb = 0, n;

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long a, b, ino;
		char perm[5];

		if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &a, &b, perm, &ino) == 4)
			anon = !ino;
		else if (anon && sscanf(line, "Size: %ld kB", &n) == 1)
			kb += n;
	}
	if (f)
		fclose(f);
	return kb;
}

static int lines;

static void count_print(const char *s, int len)
{
	(void)s;
	(void)len;
	lines++;
}

int main(void)
{
	long before, params[6] = { 0 };
	int tasks, fds;
	struct utsname u;
	uint64_t t, best;
	char buf[4096];
	int i, ret;

	start(60);
	ok(!lkl_is_running(), "not running before boot");
	ok(lkl_syscall(SYS_getpid, params) == -ENODEV, "a call before boot says ENODEV");
	ok(lkl_start_kernel("mem=64M") == -EINVAL, "boot before init refused");

	fds = count_dir("/proc/self/fd");
	tasks = count_dir("/proc/self/task");
	before = anon_kb();
	quiet_ops.print = count_print;
	lkl_init(&quiet_ops);
	t = now_ns();
	ret = lkl_start_kernel("mem=64M loglevel=7");
	t = now_ns() - t;
	ok(ret == 0, "boot");
	printf("# boot took %.1f ms\n", t / 1e6);
	ok(lines > 10, "the log comes through print");
	ok(lkl_is_running() == 1, "running");
	ok(lkl_start_kernel("mem=64M") == -EBUSY, "a second boot refused");

	ok(L0(getpid) == 1 && L0(getppid) == 0 && L0(getuid) == 0,
	   "pid 1, no parent, root");
	ok(L1(uname, &u) == 0 && strstr(u.release, "-lkl"), "uname says %s",
	   u.release);
	ok(L5(clone, SIGCHLD, 0, 0, 0, 0) == -ENOSYS &&
	   L3(execve, "/init", 0, 0) == -ENOSYS && L1(exit_group, 0) == -ENOSYS, "clone, execve, exit_group are not there");
	ok(lcall(100000, 0, 0, 0, 0, 0, 0) == -ENOSYS, "neither is call 100000");
	ok(L3(socket, AF_INET, SOCK_STREAM, 0) >= 3, "descriptors start at 3");
	ret = lkl_mount_fs("proc");
	ok(ret == 0 && lkl_mount_fs("proc") == 1, "proc mounts: %d", ret);
	ret = lkl_mount_fs("sysfs");
	ok(ret == 0, "sysfs mounts: %d", ret);
	ok(lkl_sysctl("net.ipv4.ip_forward", "1") == 0 &&
	   lread_file("/proc/sys/net/ipv4/ip_forward", buf, sizeof(buf)) == 2 &&
	   buf[0] == '1', "sysctl");
	ok(lread_file("/proc/kallsyms", buf, sizeof(buf)) > 0 && strchr(buf, ' '),
	   "kallsyms");
	ok(lread_file("/sysfs/class/net/lo/mtu", buf, sizeof(buf)) > 0 &&
	   atoi(buf) == 65536, "sysfs knows lo");
	ok(lread_file("/proc/net/mptcp", buf, sizeof(buf)) > 0 &&
	   strstr(buf, "loc_tok"), "/proc/net/mptcp is there");
	for (i = 0, best = ~0ULL; i < 20; i++) {
		int k;

		t = now_ns();
		for (k = 0; k < 100000; k++)
			lkl_syscall(SYS_getppid, params);
		t = now_ns() - t;
		best = t < best ? t : best;
	}
	for (i = 0, t = now_ns(); i < 100000; i++)
		syscall(SYS_getppid);
	t = now_ns() - t;
	/*
	 * An emulated host call leaves the emulator, a call of the stack does
	 * not.
	 */
	if (slow(1) == 1)
		printf("# getppid took %.1f ns, the host's %.1f\n", best / 1e5,
		       t / 1e5);

	ok(lkl_sys_halt() == 0, "halt");
	ok(!lkl_is_running() && lkl_syscall(SYS_getpid, params) == -ENODEV,
	   "a call after halt says ENODEV");
	ok(lkl_sys_halt() == -ENODEV, "so does another halt");
	ok(count_dir("/proc/self/task") == tasks, "no thread is left");
	ok(count_dir("/proc/self/fd") == fds, "no descriptor is left");
	/* An emulator's own memory is included. */
	if (slow(1) == 1)
		ok(anon_kb() < before + 1024,
		   "no memory is left (%ld kB before, %ld after)", before, anon_kb());
	lkl_cleanup();
	return finish();
}
