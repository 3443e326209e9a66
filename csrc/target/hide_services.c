// SPDX-License-Identifier: GPL-2.0-only
/*
 * Covers: mounts in the target's mount namespace. They hide the host's name
 * services and the run directories, and show the run's resolv.conf and hosts.
 *
 * Theory of operation
 *
 * If a program asks nscd, systemd-resolved or avahi for a name, that daemon
 * resolves the name over the host's stack. Empty file systems therefore cover
 * the folders that contain the daemons' sockets. If only the sockets were
 * covered, a socket that a daemon creates later would be visible.
 *
 * A mount can disappear. If any process in any mount namespace unlinks, removes
 * or replaces the file or folder below a mount, the kernel detaches the mount
 * (__detach_mounts(), fs/namespace.c). If a folder is renamed, its mount moves
 * with it. systemd removes a RuntimeDirectory= when the service stops, and most
 * programs replace /etc/resolv.conf with rename(2). No mount below /run or /etc
 * is safe from this. A process in the target's mount namespace therefore
 * watches the parent folders, and covers files and folders that appear again.
 * It has the rights that the target had before its exec.
 *
 * It watches with F_NOTIFY of fcntl(2). The kernel frees the watches of an
 * inotify instance synchronously, which takes 5 to 20 ms at the end of each
 * run, and a user can only have 128 instances. inotify(7) is used if the kernel
 * does not have F_NOTIFY.
 *
 *	lklhost -- target	(fork)
 *	   `------ covers	(clone with CLONE_PARENT, by the target;
 *				ends with lklhost)
 *
 * A new folder is visible for some microseconds before it is covered. With the
 * supervise engine, a connect(2) to a name in one of the folders is therefore
 * refused as well (service_is()).
 *
 * The target uses the D-Bus of the host, see docs/reference/limits.md.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "process/process.h"
#include "stack/stack.h"
#include "target/child.h"
#include "target/hide_services.h"
#include "target/mounts.h"

#define MARKER		".inside"	/* InsideFile in package instance */
#define NOTHING		".nothing"
#define NETD_FOLDER	"/dev/socket"
#define FLAGS		(MS_NOSUID | MS_NODEV | MS_NOEXEC)
#define WATCHED		(IN_CREATE | IN_MOVED_TO | IN_ONLYDIR)
#define FOLDERS_MAX	64	/* more than there are parent folders */

/*
 * The sticky bit distinguishes covers from the host's folders, which do not
 * have these modes.
 */
#define MODE_EMPTY	01555
#define MODE_RUNS	01700
#define EXIT_OWN	125

/* For programs that read the files of systemd-resolved, see resolv.conf(5). */
static const char *const resolved_files[] = { "resolv.conf", "stub-resolv.conf" };

/*
 * Files of the run that the target sees instead of the host's, and the sockets
 * of Android's netd (engine/common/netd.c), which are covered by a socket on
 * which nobody listens.
 */
enum { RESOLV, HOSTS, NETD_MARKS, NETD_NAMES, SHOWN };

static struct shown {
	const char *path;	/* where the target sees it */
	enum child_step step;	/* to report that it sees the host's file */
	int fd;			/* O_PATH of the run's file, or -1 */
	struct stat st;
} shown[SHOWN] = {
	[RESOLV] = { .path = "/etc/resolv.conf", .step = STEP_RESOLV, .fd = -1 },
	[HOSTS] = { .path = "/etc/hosts", .step = STEP_HOSTS, .fd = -1 },
	[NETD_MARKS] = { .path = NETD_FOLDER "/fwmarkd", .step = STEP_HIDE, .fd = -1 },
	[NETD_NAMES] = { .path = NETD_FOLDER "/dnsproxyd", .step = STEP_HIDE, .fd = -1 },
};

static struct {
	char runs[PATH_MAX];	/* the folder with the run directories */
	int inotify;		/* -1: F_NOTIFY is used */
	bool watches;		/* this process is the one that watches */
} covers = { .inotify = -1 };

/* Folders that are watched with F_NOTIFY. */
static struct folder {
	int fd;
	dev_t dev;
	ino_t ino;
} folders[FOLDERS_MAX];
static size_t n_folders;

/** is_ours - whether a folder is a cover */
static bool is_ours(const struct stat *st)
{
	return st->st_mode == (S_IFDIR | MODE_EMPTY) ||
	       st->st_mode == (S_IFDIR | MODE_RUNS);
}

/**
 * empty - mount an empty, still writable file system on a folder
 *
 * Returns a descriptor of its root, or a negative errno. The caller must use
 * the descriptor instead of @path, which may refer to another folder later. If
 * @path refers to another folder already, this returns -ESTALE, and a watch
 * reports the new folder.
 */
static int empty(const char *path, mode_t mode, const char *size)
{
	char options[64];
	struct stat st;
	int fd;

	snprintf(options, sizeof(options), "mode=%o,size=%s", mode, size);
	if (mount("lklrun", path, "tmpfs", FLAGS, options))
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && is_ours(&st))
		return fd;
	close(fd);
	return -ESTALE;
}

/** seal - make a cover read-only */
static int seal(int folder)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", folder);
	return mount("", path, NULL,
		     MS_REMOUNT | MS_BIND | MS_RDONLY | FLAGS, NULL) ? -errno : 0;
}

/**
 * show - mount a file of the run at @path, which must exist
 *
 * If @path is a symbolic link, the link itself is covered and not the file it
 * points to. The folder of that file then need not be watched. This requires
 * system calls of Linux 5.2, which some containers forbid.
 */
static int show(const struct shown *s, const char *path)
{
	char fd[32];

	if (!mounts_place(s->fd, "", path))
		return 0;
	snprintf(fd, sizeof(fd), "/proc/self/fd/%d", s->fd);
	return mount(fd, path, NULL, MS_BIND, NULL) ? -errno : 0;
}

/**
 * fill_resolved - create the files in systemd-resolved's folder that programs
 * read
 */
static int fill_resolved(int folder)
{
	char path[64];
	int ret = 0;
	size_t i;

	for (i = 0; i < sizeof(resolved_files) / sizeof(resolved_files[0]) && !ret; i++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", folder,
			 resolved_files[i]);
		ret = mknod(path, S_IFREG | 0444, 0) ? -errno :
			show(&shown[RESOLV], path);
	}
	return ret;
}

/**
 * cover_folder - cover a folder; returns 0 also if it is missing or already
 * covered
 */
static int cover_folder(const char *path, bool resolved)
{
	struct stat st;
	int fd, ret = 0;

	if (stat(path, &st) || !S_ISDIR(st.st_mode) || is_ours(&st))
		return 0;
	fd = empty(path, MODE_EMPTY, "64k");
	if (fd < 0)
		return fd;
	if (resolved && shown[RESOLV].fd >= 0)
		ret = fill_resolved(fd);
	if (!ret)
		ret = seal(fd);
	close(fd);
	return ret;
}

/** mark - write the name of the run to a file, for an lklctl inside the run */
static int mark(int folder)
{
	int fd = openat(folder, MARKER, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			0444);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, host.name, strlen(host.name));
	close(fd);
	return n < 0 ? -EIO : 0;
}

/**
 * cover_runs - hide ctl.sock and the journals of this run and the user's other
 * runs
 *
 * The cover is writable, so that an lklrun inside the run can start and report
 * that nested runs are not supported.
 */
static int cover_runs(void)
{
	struct stat st;
	int fd, ret;

	if (!*covers.runs || stat(covers.runs, &st) || is_ours(&st))
		return 0;
	fd = empty(covers.runs, MODE_RUNS, "1m");
	if (fd < 0)
		return fd;
	ret = mark(fd);
	close(fd);
	return ret;
}

/**
 * keep_proc - keep a /proc without covers below that of the run directories,
 * where no path leads
 * @proc: a mount without a place
 *
 * With only a covered one, the kernel refuses a new /proc in a user namespace
 * (fs/namespace.c, mnt_already_visible()), which bubblewrap needs. A new /proc
 * shows the network namespace of the target, never that of the host.
 */
static void keep_proc(int proc)
{
	char path[PATH_MAX + 8];

	if (proc < 0 || !*covers.runs ||
	    mount("lklrun", covers.runs, "tmpfs", FLAGS, "mode=700,size=64k"))
		return;
	snprintf(path, sizeof(path), "%s/proc", covers.runs);
	if (mkdir(path, 0) || mounts_move(proc, path))
		umount2(covers.runs, MNT_DETACH);
}

/**
 * nothing_open - get a socket on which nobody listens
 *
 * It is mounted over files that must not be used: open(2) fails with ENXIO, even
 * for root, and connect(2) with ECONNREFUSED. It requires cover_runs(). A
 * mount on the socket itself keeps the target from removing it, because no mount
 * can be made of a file without a name. Returns a negative errno on failure.
 */
static int nothing_open(void)
{
	char path[PATH_MAX + sizeof(NOTHING)];
	int fd;

	snprintf(path, sizeof(path), "%s/" NOTHING, covers.runs);
	if (mknod(path, S_IFSOCK | 0666, 0) ||
	    mount(path, path, NULL, MS_BIND, NULL))
		return -errno;
	fd = open(path, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/**
 * cover_logs - hide the host's kernel log, because the target must see the
 * stack's
 */
static int cover_logs(const struct shown *nothing)
{
	static const char *const logs[] = { "/dev/kmsg", "/proc/kmsg" };
	int ret = 0;
	size_t i;

	for (i = 0; i < sizeof(logs) / sizeof(logs[0]) && !ret; i++)
		if (!access(logs[i], F_OK))
			ret = show(nothing, logs[i]);
	return ret;
}

/**
 * cover_unused - hide files that must not be used; with --stack host, the target
 * may use them
 */
static int cover_unused(void)
{
	struct shown nothing = { .fd = -1 };
	int i, ret;

	if (!strcmp(host.abi, "host") || !*covers.runs)
		return 0;
	ret = cover_runs();
	if (!ret)
		ret = nothing.fd = nothing_open();
	if (nothing.fd < 0)
		return ret;
	ret = cover_logs(&nothing);
	for (i = NETD_MARKS; i < SHOWN && !access(NETD_FOLDER, F_OK); i++) {
		shown[i].fd = fcntl(nothing.fd, F_DUPFD_CLOEXEC, 0);
		if (shown[i].fd < 0 || fstat(shown[i].fd, &shown[i].st))
			ret = -errno;
	}
	close(nothing.fd);
	return ret;
}

/**
 * cover_file - mount a file of the run, unless it is mounted
 *
 * On error, the target sees the host's file. Without such a file, lklrun serves
 * names on the stack's loopback (internal/stack/resolver).
 */
static int cover_file(const struct shown *s)
{
	struct stat st;

	if (s->fd < 0)
		return 0;
	if (lstat(s->path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (st.st_dev == s->st.st_dev && st.st_ino == s->st.st_ino)
		return 0;
	return show(s, s->path);
}

/** folder_slot - where to record a further folder; NULL if there is no room */
static struct folder *folder_slot(void)
{
	struct stat st;
	size_t i;

	for (i = 0; i < n_folders; i++)
		if (!fstat(folders[i].fd, &st) && !st.st_nlink) {
			close(folders[i].fd);	/* it was removed */
			return &folders[i];
		}
	return n_folders < FOLDERS_MAX ? &folders[n_folders++] : NULL;
}

/**
 * watch_folder - send this process SIGIO for new entries of a folder
 *
 * The descriptor of a watched folder stays open, so no other folder gets its
 * inode number. If the folder is missing, the watch of its parent reports it.
 */
static void watch_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct folder *f = NULL;
	struct stat st;
	size_t i;

	if (fd < 0)
		return;
	if (!fstat(fd, &st)) {
		for (i = 0; i < n_folders; i++)
			if (folders[i].dev == st.st_dev &&
			    folders[i].ino == st.st_ino)
				break;
		if (i == n_folders)
			f = folder_slot();
	}
	if (!f) {
		close(fd);
		return;
	}
	*f = (struct folder){ .fd = fd, .dev = st.st_dev, .ino = st.st_ino };
	(void)fcntl(fd, F_NOTIFY, DN_CREATE | DN_MULTISHOT);
}

/** watch_above - watch the parent folders of @path for new entries */
static void watch_above(const char *path)
{
	char above[PATH_MAX];
	char *p;

	if (!covers.watches)
		return;
	snprintf(above, sizeof(above), "%s", path);
	while ((p = strrchr(above, '/')) && p != above) {
		*p = '\0';
		if (covers.inotify < 0)
			watch_folder(above);
		else	/* on ENOENT, the parent's watch reports the creation */
			(void)inotify_add_watch(covers.inotify, above, WATCHED);
		if (!strcmp(above, service_bases[0]) || !strcmp(above, service_bases[1]))
			break;
	}
}

/**
 * hide_all - cover the existing files and folders, and watch for new ones
 * @files: set to 0, or to a negative errno if the host's file is visible
 * @hide: set to a negative errno if other parts of the host are visible
 */
static void hide_all(int files[SHOWN], int *hide)
{
	char path[PATH_MAX];
	size_t i, j;
	int ret;

	for (i = 0; i < SERVICE_BASES; i++)
		for (j = 0; j < SERVICE_FOLDERS; j++) {
			snprintf(path, sizeof(path), "%s/%s", service_bases[i],
				 service_folders[j]);
			watch_above(path);
			ret = cover_folder(path, !strcmp(service_folders[j], SERVICE_RESOLVED));
			if (ret)
				*hide = ret;
		}
	for (i = 0; i < SHOWN; i++) {
		if (shown[i].step != STEP_HIDE || shown[i].fd >= 0)
			watch_above(shown[i].path);
		files[i] = cover_file(&shown[i]);
	}
	/* This folder is permanent, because it contains a run directory. */
	ret = cover_runs();
	if (ret)
		*hide = ret;
}

/** runs_alone - whether a folder contains only run directories */
static bool runs_alone(const char *folder)
{
	char path[PATH_MAX + NAME_MAX + 8];
	DIR *dir = opendir(folder);
	struct dirent *e;
	bool alone = dir;

	while (alone && (e = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s/lock", folder, e->d_name);
		alone = e->d_name[0] == '.' || !access(path, F_OK);
	}
	if (dir)
		closedir(dir);
	return alone;
}

/**
 * find_runs - find the folder with run directories that is to be hidden
 *
 * This is the folder of all runs. If that folder contains other files, it is
 * only the directory of this run.
 */
static void find_runs(void)
{
	char *p;

	if (!realpath(host.run_dir, covers.runs)) {
		covers.runs[0] = '\0';
		return;
	}
	p = strrchr(covers.runs, '/');
	*p = '\0';
	if (p == covers.runs || !runs_alone(covers.runs))
		*p = '/';
}

/**
 * notify_works - whether the kernel has F_NOTIFY and the user may use it
 *
 * By default, a process ignores the signal that this watch may cause.
 */
static bool notify_works(void)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool works = fd >= 0 && !fcntl(fd, F_SETSIG, SIGURG) &&
		     !fcntl(fd, F_NOTIFY, DN_CREATE);

	if (fd >= 0)
		close(fd);	/* ends the watch */
	return works;
}

/** open_watch - choose how to watch; returns 0 or a negative errno */
static int open_watch(void)
{
	if (notify_works())
		return 0;
	covers.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	return covers.inotify < 0 ? -errno : 0;
}

/**
 * keep_fds - close all descriptors of the target, and keep our own
 *
 * Returns false on error.
 */
static bool keep_fds(void)
{
	int null = open("/dev/null", O_RDWR), kept[SHOWN], i, next = HELPER_FDS;

	for (i = 0; i < SHOWN; i++)
		kept[i] = shown[i].fd < 0 ? -1 :
			fcntl(shown[i].fd, F_DUPFD_CLOEXEC, HELPER_FDS + SHOWN);
	for (i = 0; i < HELPER_FDS; i++)
		if (dup2(null, i) < 0)
			return false;
	for (i = 0; i < SHOWN; i++) {
		if (shown[i].fd < 0)
			continue;
		if (kept[i] < 0 || dup3(kept[i], next, O_CLOEXEC) < 0)
			return false;
		shown[i].fd = next++;
	}
	return helper_close_from(next) && !chdir("/");
}

/** await_change - wait until a watched folder may have a new entry */
static void await_change(void)
{
	struct pollfd p = { .fd = covers.inotify, .events = POLLIN };
	char events[4096];
	sigset_t io;

	if (covers.inotify < 0) {
		sigemptyset(&io);
		sigaddset(&io, SIGIO);
		while (sigwaitinfo(&io, NULL) < 0)
			;
		return;
	}
	while (poll(&p, 1, -1) <= 0)
		;
	while (read(covers.inotify, events, sizeof(events)) > 0)
		;
}

/**
 * keep_covered - main loop of the covers process; never returns
 *
 * The watches belong to this process, so they start only here. hide_all()
 * covers whatever has appeared since the target called it.
 */
__attribute__((noreturn))
static void keep_covered(pid_t parent)
{
	int files[SHOWN], ignored;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "lklhost-covers");
	if (getppid() != parent || !keep_fds() || open_watch())
		_exit(EXIT_OWN);
	covers.watches = true;
	for (;;) {
		hide_all(files, &ignored);
		await_change();
	}
}

/** start - start the covers process; returns its pid or a negative errno */
static int start(void)
{
	pid_t parent = getppid(), pid;
	int ret = open_watch();

	if (ret)
		return ret;
	if (covers.inotify >= 0)	/* the new process opens its own */
		close(covers.inotify);
	covers.inotify = -1;
	pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		keep_covered(parent);
	return pid < 0 ? -errno : pid;
}

/** open_shown - open a file of the run that the target will see */
static void open_shown(int sync, struct shown *s, const char *path)
{
	s->fd = open(path, O_PATH | O_CLOEXEC);
	if (s->fd < 0 || fstat(s->fd, &s->st))
		child_report(sync, s->step, -errno);
}

/** leave_hidden - leave the working directory if it is below a cover */
static void leave_hidden(void)
{
	char cwd[PATH_MAX];

	if (getcwd(cwd, sizeof(cwd) - 1) && service_is(strcat(cwd, "/")) &&
	    chdir(cwd))
		(void)!chdir("/");
}

/**
 * covers_make - cover files in the target's mount namespace, and keep them
 * covered
 * @sync: descriptor for reports
 * @resolv: file to show as /etc/resolv.conf; if empty, the file is not covered
 * @proc: a copy of the mount /proc without covers, or a negative errno
 */
void covers_make(int sync, const char *resolv, int proc)
{
	int failed[SHOWN] = { 0 }, hide = 0, pid, i;
	char hosts[PATH_MAX];

	find_runs();
	if (*resolv)
		open_shown(sync, &shown[RESOLV], resolv);
	/* lklrun writes this file only for --add-host. */
	if (snprintf(hosts, sizeof(hosts), "%s/hosts", host.run_dir) <
	    (int)sizeof(hosts) && !access(hosts, F_OK))
		open_shown(sync, &shown[HOSTS], hosts);
	keep_proc(proc);
	hide = cover_unused();
	hide_all(failed, &hide);
	leave_hidden();
	for (i = 0; i < SHOWN; i++)
		if (failed[i] && shown[i].step == STEP_HIDE)
			hide = failed[i];
		else if (failed[i])
			child_report(sync, shown[i].step, failed[i]);
	if (hide)
		child_report_visible(sync, STEP_HIDE, hide);
	pid = start();
	if (pid < 0 && pid != -EINVAL)
		child_report_visible(sync, STEP_COVERS, pid);
	else
		child_report(sync, STEP_COVERS, pid);
	for (i = 0; i < SHOWN; i++)
		if (shown[i].fd >= 0)
			close(shown[i].fd);
}
