// SPDX-License-Identifier: GPL-2.0-only
/*
 * Namespaces and mounts: attempts to enter the host's network namespace or new
 * ones, and to reach host files that a mount covers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

#define PIDFD_GET_NET_NAMESPACE	0xff04	/* _IO(PIDFS_IOCTL_MAGIC, 4), Linux 6.11 */

/** entered - after setns(): whether we are in the host's namespace */
static const char *entered(int ret)
{
	return ret ? failure(errno) : "reached";
}

/** open_of - open a file below /proc/PID/ns of process @pid */
static int open_of(long pid, const char *ns)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%ld/ns/%s", pid, ns);
	return open(path, O_RDONLY);
}

/** enter_process - setns() with /proc/PID/ns/net; @a 1: of pid 1; @b: the type passed to setns() */
static const char *enter_process(const struct attempt *at)
{
	int fd = open_of(at->a ? at->a : number("PID"), "net");

	return fd < 0 ? failure(errno) : entered(setns(fd, (int)at->b));
}

/** enter_named - setns() with a name that every user may open */
static const char *enter_named(const struct attempt *at)
{
	int fd = open(setting("NETNS"), O_RDONLY);

	(void)at;
	return fd < 0 ? failure(errno) : entered(setns(fd, CLONE_NEWNET));
}

/** enter_pidfd - setns() with a pidfd, or with the namespace that a pidfd returns */
static const char *enter_pidfd(const struct attempt *at)
{
	int fd = (int)syscall(SYS_pidfd_open, number("PID"), 0);

	if (fd >= 0 && at->a)
		fd = ioctl(fd, PIDFD_GET_NET_NAMESPACE, 0);
	if (fd < 0)
		return errno == ENOTTY || errno == EINVAL ? "absent" :
							    failure(errno);
	return entered(setns(fd, CLONE_NEWNET));
}

/** enter_as_root - setns() in a new user namespace, in which we are root */
static const char *enter_as_root(const struct attempt *at)
{
	if (unshare(CLONE_NEWUSER))
		return failure(errno);
	return enter_named(at);
}

/** enter_bind - setns() with a bind mount of the namespace's file */
static const char *enter_bind(const struct attempt *at)
{
	char from[64], to[] = "/tmp/lklrun-escape-ns";
	int fd;

	(void)at;
	snprintf(from, sizeof(from), "/proc/%ld/ns/net", number("PID"));
	if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return failure(errno);
	close(open(to, O_CREAT | O_RDONLY, 0600));
	if (mount(from, to, NULL, MS_BIND, NULL)) {
		int err = errno;

		unlink(to);
		return failure(err);
	}
	fd = open(to, O_RDONLY);
	umount2(to, MNT_DETACH);
	unlink(to);
	return fd < 0 ? failure(errno) : entered(setns(fd, CLONE_NEWNET));
}

/** named - the process @name among the children of @parent; -1: none */
static long named(long parent, const char *name)
{
	char path[64], comm[32];
	long pid, found = -1;
	FILE *children, *f;

	snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", parent, parent);
	children = fopen(path, "r");
	while (children && found < 0 && fscanf(children, "%ld", &pid) == 1) {
		snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
		f = fopen(path, "r");
		if (f && fscanf(f, "%31s", comm) == 1 && !strcmp(comm, name))
			found = pid;
		if (f)
			fclose(f);
	}
	if (children)
		fclose(children);
	return found;
}

/** lklhost - pid of the parent of these tests' first process */
static long lklhost(void)
{
	char path[64], line[128];
	int parent = 0;
	FILE *f;

	/* This process is its child. */
	snprintf(path, sizeof(path), "/proc/%d/status", getppid());
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "PPid: %d", &parent) == 1)
			break;
	if (f)
		fclose(f);
	return parent;
}

/** enter_run - enter the namespace of lklhost (@a: 0), of its maker (1) or of another run's target */
static const char *enter_run(const struct attempt *at)
{
	long pid = at->a == 2 ? number("OTHER_PID") :
		   at->a ? named(lklhost(), "lklhost-maker") : lklhost();
	int fd = open_of(pid, "net");

	return fd < 0 ? failure(errno) : entered(setns(fd, CLONE_NEWNET));
}

/** link_moved - move a device to a namespace; @a: the type of the attribute that names it */
static const char *link_moved(const struct attempt *at)
{
	struct {
		struct nlmsghdr h;
		struct ifinfomsg link;
		struct nlattr a;
		uint32_t value;
	} m = { .h = { .nlmsg_len = sizeof(m), .nlmsg_type = RTM_SETLINK,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.a = { sizeof(m.a) + sizeof(m.value), (uint16_t)at->a } };
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char rest[1024];
	} answer = { .e = { .error = -EIO } };
	const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	if (fd < 0)
		return failure(errno);
	m.value = at->a == IFLA_NET_NS_PID ? (uint32_t)number("PID") :
		  (uint32_t)open(setting("NETNS"), O_RDONLY);
	m.link.ifi_index = (int)if_nametoindex("eth0");
	if (sendto(fd, &m, sizeof(m), 0, (const struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.e))
		return failure(errno);
	return answer.e.error ? failure(-answer.e.error) : "reached";
}

/** enter_mounts - enter the accomplice's mount namespace, where nothing is covered */
static const char *enter_mounts(const struct attempt *at)
{
	int fd = open_of(number("PID"), "mnt");

	(void)at;
	if (fd < 0)
		return failure(errno);
	return setns(fd, CLONE_NEWNS) ? failure(errno) : "allowed";
}

static int exchanged[3];	/* the exchanged number, and the two files */
static volatile bool stop;

/** exchange - thread that alternates two namespaces at the number */
static void *exchange(void *arg)
{
	(void)arg;
	while (!stop) {
		dup2(exchanged[1], exchanged[0]);
		dup2(exchanged[2], exchanged[0]);
	}
	return NULL;
}

/** same_netns - whether we are in the network namespace @fd */
static bool same_netns(int fd)
{
	struct stat own, other;

	return !stat("/proc/thread-self/ns/net", &own) && !fstat(fd, &other) &&
	       own.st_ino == other.st_ino;
}

/** enter_exchanged - setns() with a descriptor that another thread exchanges; @a: type */
static const char *enter_exchanged(const struct attempt *at)
{
	const char *outcome = "EPERM";
	pthread_t thread;
	int i, err = 0;

	exchanged[1] = open_of(getpid(), at->a ? "net" : "uts");
	exchanged[2] = open(setting("NETNS"), O_RDONLY);
	if (exchanged[1] < 0 || exchanged[2] < 0)
		return failure(errno);
	exchanged[0] = dup(exchanged[1]);
	pthread_create(&thread, NULL, exchange, NULL);
	for (i = 0; i < 3000; i++) {
		if (setns(exchanged[0], (int)at->a))
			err = errno;
		if (same_netns(exchanged[2])) {
			outcome = "reached";
			break;
		}
	}
	stop = true;
	pthread_join(thread, NULL);
	return err || !strcmp(outcome, "reached") ? outcome : "allowed";
}

/** new_spaces - create new namespaces, then connect */
static const char *new_spaces(const struct attempt *at)
{
	return unshare((int)at->a) ? failure(errno) : connect_out(at);
}

/** clone_spaces - clone3() or else clone() into new namespaces, then connect */
static const char *clone_spaces(const struct attempt *at)
{
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS,
		.exit_signal = SIGCHLD,
	};
	char text[64];
	ssize_t n;
	int p[2];
	long pid;

	if (pipe(p))
		return failure(errno);
	pid = RAW(SYS_clone3, &args, sizeof(args));
	if (pid < 0 && errno == ENOSYS)	/* engine trace */
		pid = RAW(SYS_clone, args.flags | SIGCHLD, 0, 0, 0, 0);
	if (!pid) {
		dprintf(p[1], "%s", connect_out(at));
		_exit(0);
	}
	if (pid < 0)
		return failure(errno);
	close(p[1]);
	n = read(p[0], text, sizeof(text) - 1);
	waitpid((pid_t)pid, NULL, 0);
	text[n < 0 ? 0 : n] = '\0';
	return word("%s", text);
}

/** shows_host - whether a list of devices contains the host's */
static bool shows_host(const char *path)
{
	char text[8192];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return strstr(text, setting("LINK"));
}

/** mount_anew - mount /proc or /sys again, in our own namespaces */
static const char *mount_anew(const struct attempt *at)
{
	char link[64];
	const char *kind = at->a ? "sysfs" : "proc";
	struct stat st;

	if (geteuid() && unshare(CLONE_NEWUSER))
		return failure(errno);
	if (unshare(CLONE_NEWNS | CLONE_NEWPID) ||
	    mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return failure(errno);
	if (fork())
		_exit(wait(NULL) < 0);
	if (mount(kind, "/mnt", kind, 0, NULL))
		return failure(errno);
	snprintf(link, sizeof(link), "/mnt/class/net/%s", setting("LINK"));
	return shows_host("/mnt/self/net/dev") || !stat(link, &st) ? "reached" :
								     "own";
}

/** mount_network - mount a file system whose kernel code makes network connections */
static const char *mount_network(const struct attempt *at)
{
	char source[64], opts[160];
	static const char *const kinds[] = { "nfs4", "cifs", "9p", "ceph" };
	const char *outcome = "absent";
	size_t i;

	(void)at;
	if (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return failure(errno);
	snprintf(source, sizeof(source), "%s:/", setting("HOST4"));
	snprintf(opts, sizeof(opts), "addr=%s,ip=%s,trans=tcp,port=%ld",
		 setting("HOST4"), setting("HOST4"), number("TCP"));
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!mount(source, "/mnt", kinds[i], 0, opts))
			return "reached";
		if (errno != ENODEV)
			outcome = failure(errno);
	}
	return outcome;
}

/** uncover - unmount the covers of the host's files; @a: in a new user namespace */
static const char *uncover(const struct attempt *at)
{
	static const char *const covers[] = {
		"/run/nscd/socket", "/run/nscd", "/run/systemd/resolve",
		"/etc/resolv.conf", "/proc/sys/net", "/run/lklrun",
	};
	int err = 0;
	size_t i;

	if (at->a && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return failure(errno);
	if (!at->a && !geteuid() &&
	    (unshare(CLONE_NEWNS) || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL)))
		return failure(errno);
	for (i = 0; i < sizeof(covers) / sizeof(covers[0]); i++) {
		if (!umount2(covers[i], MNT_DETACH))
			return "allowed";
		if (errno != ENOENT)
			err = errno;
	}
	return failure(err);
}

/* Host files that the view covers; ESCAPE_TTL is the value in the host's files. */
static const char *const ttl_paths[] = {
	"/proc/sys/net/ipv4/ip_default_ttl",
	"/proc/sys/net/../sys/net/ipv4/ip_default_ttl",
	"/proc/self/root/proc/sys/net/ipv4/ip_default_ttl",
	"/proc/sys/net/ipv4/./../ipv4//ip_default_ttl",
	"/proc/sys/net/.link/../../sys/net/ipv4/ip_default_ttl",
	"/proc/1/../sys/net/ipv4/ip_default_ttl",
};

/** view_read - try to read the host's value through unusual paths */
static const char *view_read(const struct attempt *at)
{
	char text[64];
	const char *outcome = "ENOENT";
	size_t i;

	(void)at;
	for (i = 0; i < sizeof(ttl_paths) / sizeof(ttl_paths[0]); i++) {
		int fd = open(ttl_paths[i], O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

		close(fd);
		text[n < 0 ? 0 : n] = '\0';
		if (n > 0 && !strcmp(text, setting("TTL")))
			return "reached";
		if (n > 0)
			outcome = "stack";
	}
	return outcome;
}

/** view_write - write the value; the test checks whether the host's value has changed */
static const char *view_write(const struct attempt *at)
{
	int fd = open(ttl_paths[at->a], O_WRONLY);

	if (fd < 0)
		return failure(errno);
	return write(fd, "33", 2) == 2 ? "stack" : failure(errno);
}

/** view_names - look up names that a file system might handle incorrectly */
static const char *view_names(const struct attempt *at)
{
	static const char *const names[] = {
		"/proc/sys/net/\n", "/proc/sys/net/%2e%2e/kernel",
		"/proc/sys/net/ipv4/..%2f..%2fkernel/hostname",
		"/proc/sys/net/.class/../../../../etc/shadow-escape",
		"/sys/class/net/../../../etc/passwd-escape",
		"/proc/net/../../etc/shadow-escape", "/proc/sys/net/.net/\\..\\",
	};
	char longest[256];
	size_t i;

	(void)at;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (open(names[i], O_RDONLY) >= 0)
			return word("reached by %zu", i);
	snprintf(longest, sizeof(longest), "/proc/sys/net/%0230d", 0);
	return open(longest, O_RDONLY) >= 0 ? "reached" : failure(errno);
}

/** devices - look for the host's devices in a list */
static const char *devices(const struct attempt *at)
{
	static const char *const lists[] = {
		"/proc/net/dev", "/proc/self/net/dev", "/proc/1/net/dev",
	};
	char link[64];
	struct stat st;

	if (at->a < 3)
		return shows_host(lists[at->a]) ? at->a == 2 ? "allowed" :
						  "reached" : "own";
	snprintf(link, sizeof(link), "/sys/class/net/%s", setting("LINK"));
	if (!stat(link, &st))
		return "reached";
	snprintf(link, sizeof(link), "/sys/devices/virtual/net/%s", setting("LINK"));
	return stat(link, &st) ? failure(errno) : "reached";
}

const struct attempt space_attempts[] = {
	{ "setns-init", enter_process, 1, CLONE_NEWNET },
	{ "setns-outside", enter_process, 0, CLONE_NEWNET },
	{ "setns-any-type", enter_process, 0, 0 },
	{ "setns-name", enter_named, 0, 0 },
	{ "setns-pidfd", enter_pidfd, 0, 0 },
	{ "setns-pidfd-namespace", enter_pidfd, 1, 0 },
	{ "setns-new-user", enter_as_root, 0, 0 },
	{ "setns-bind-mount", enter_bind, 0, 0 },
	{ "setns-exchanged", enter_exchanged, 0, 0 },
	{ "setns-exchanged-net", enter_exchanged, CLONE_NEWNET, 0 },
	{ "setns-lklhost", enter_run, 0, 0 },
	{ "setns-maker", enter_run, 1, 0 },
	{ "setns-other-run", enter_run, 2, 0 },
	{ "link-outside-pid", link_moved, IFLA_NET_NS_PID, 0 },
	{ "link-outside-fd", link_moved, IFLA_NET_NS_FD, 0 },
	{ "setns-mounts", enter_mounts, 0, 0 },
	{ "unshare-net", new_spaces, CLONE_NEWNET, 0 },
	{ "unshare-user-net", new_spaces, CLONE_NEWUSER | CLONE_NEWNET, 0 },
	{ "clone3-namespaces", clone_spaces, 0, 0 },
	{ "mount-proc", mount_anew, 0, 0 },
	{ "mount-sysfs", mount_anew, 1, 0 },
	{ "mount-network", mount_network, 0, 0 },
	{ "uncover", uncover, 0, 0 },
	{ "uncover-new-user", uncover, 1, 0 },
	{ "view-read", view_read, 0, 0 },
	{ "view-write", view_write, 0, 0 },
	{ "view-write-dots", view_write, 4, 0 },
	{ "view-names", view_names, 0, 0 },
	{ "proc-net", devices, 0, 0 },
	{ "proc-self-net", devices, 1, 0 },
	{ "proc-init-net", devices, 2, 0 },
	{ "sys-class-net", devices, 3, 0 },
	{ NULL, NULL, 0, 0 },
};
