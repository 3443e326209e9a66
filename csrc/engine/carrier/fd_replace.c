// SPDX-License-Identifier: GPL-2.0-only
/*
 * Replace a socket of the target with another one: under its number, under all
 * other numbers in the calling process, and in the epolls of that process.
 *
 * Theory of operation
 *
 * An epoll identifies a watched file by its open file description and by the
 * number that it had when it was added. A new file must therefore be added
 * under the number that the target uses. In our own descriptor table, that
 * number may be in use. The file is therefore added by a thread that
 * temporarily has a separate descriptor table.
 *
 * The target can hold the lock of its epolls for any time. All work on them is
 * therefore done in threads (paged_run()), and the answer waits for it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/stream_conn.h"

#define COPIES_MAX	64	/* replaced descriptors of one socket */
#define WATCHES_MAX	64	/* replaced epoll entries of one socket */

/**
 * struct copies - the descriptors of a socket in a process, and its epolls
 * @pid: the process
 * @ino: inode number of the socket
 */
struct copies {
	pid_t pid;
	uint64_t ino;
	unsigned int n, n_watches;
	int num[COPIES_MAX];
	bool cloexec[COPIES_MAX];
	struct {
		int ep, num;
		uint32_t events;
		uint64_t data;
	} watch[WATCHES_MAX];
};

/**
 * struct renewal - a new entry for an epoll
 * @ep: the epoll
 * @fd: the file to watch
 * @num: the number under which the file is added
 * @ret: 0 or a negative errno
 */
struct renewal {
	int ep, fd, num, ret;
	struct epoll_event ev;
};

/** watches - collect an epoll's entries for the socket */
static void watches(int ep, struct copies *all)
{
	unsigned long long data, found;
	unsigned int num, events;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", all->pid, ep);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		/* For the format, see ep_show_fdinfo(), fs/eventpoll.c. */
		if (sscanf(line, "tfd: %u events: %x data: %llx pos:%*d ino:%llx",
			   &num, &events, &data, &found) != 4 || found != all->ino ||
		    all->n_watches == WATCHES_MAX)
			continue;
		all->watch[all->n_watches].ep = ep;
		all->watch[all->n_watches].num = (int)num;
		all->watch[all->n_watches].events = events;
		all->watch[all->n_watches++].data = data;
	}
	if (f)
		fclose(f);
}

/** cloexec - whether a descriptor of a process is close-on-exec */
static bool cloexec(pid_t pid, int fd)
{
	char path[64], text[256], *p;
	unsigned int flags = 0;
	ssize_t n;
	int f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", pid, fd);
	f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return true;
	n = read(f, text, sizeof(text) - 1);
	close(f);
	text[n > 0 ? n : 0] = '\0';
	p = strstr(text, "flags:");
	return !p || sscanf(p, "flags: %o", &flags) != 1 || (flags & O_CLOEXEC);
}

/** look - collect the descriptors of a socket; @arg: struct copies */
static int64_t look(void *arg)
{
	struct copies *all = arg;
	char path[64], want[64], text[64];
	struct dirent *d;
	ssize_t n;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", all->pid);
	snprintf(want, sizeof(want), "socket:[%llu]",
		 (unsigned long long)all->ino);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		n = readlinkat(dirfd(dir), d->d_name, text, sizeof(text) - 1);
		if (n <= 0)
			continue;
		text[n] = '\0';
		if (!strcmp(text, want) && all->n < COPIES_MAX) {
			all->num[all->n] = atoi(d->d_name);
			all->cloexec[all->n] = cloexec(all->pid, all->num[all->n]);
			all->n++;
		} else if (!strcmp(text, "anon_inode:[eventpoll]")) {
			watches(atoi(d->d_name), all);
		}
	}
	if (dir)
		closedir(dir);
	return 0;
}

/** look_cloexec - get one flag; @arg: struct copies with one number */
static int64_t look_cloexec(void *arg)
{
	const struct copies *one = arg;

	return cloexec(one->pid, one->num[0]);
}

/**
 * fd_replace_cloexec - whether the caller's descriptor is close-on-exec
 *
 * Returns a negative errno if the call is made again when this is known.
 */
int fd_replace_cloexec(const struct call *c, int fd)
{
	struct copies one = { .pid = c->pid, .num = { fd } };

	return (int)paged_run(c, look_cloexec, &one, sizeof(one), true);
}

/** keep_two - close all descriptors but two */
static void keep_two(int a, int b)
{
	unsigned int low = (unsigned int)(a < b ? a : b), high = (unsigned int)(a < b ? b : a);

	if (low)
		syscall(SYS_close_range, 0, low - 1, 0);
	if (high > low + 1)
		syscall(SYS_close_range, low + 1, high - 1, 0);
	syscall(SYS_close_range, high + 1, ~0u, 0);
}

/** renew - add an entry to an epoll; main function of a separate thread */
static void *renew(void *arg)
{
	struct renewal *r = arg;
	int ep = r->ep, fd = r->fd;

	if (unshare(CLONE_FILES)) {
		r->ret = -errno;
		return NULL;
	}
	if (ep == r->num)
		ep = dup(ep);
	if (fd != r->num && dup2(fd, r->num) < 0)
		r->ret = -errno;
	/*
	 * This table also contains all other files of lklhost. They must not
	 * stay open while epoll_ctl(2) waits for the epoll's lock, nor the
	 * replaced socket, which would stay in the epolls.
	 */
	keep_two(ep, r->num);
	if (!r->ret && epoll_ctl(ep, EPOLL_CTL_ADD, r->num, &r->ev))
		r->ret = -errno;
	syscall(SYS_close_range, 0, ~0u, 0);
	return NULL;
}

/**
 * renew_entry - make an epoll of the target watch a file; @arg: struct renewal
 *
 * This closes the descriptors.
 */
static int64_t renew_entry(void *arg)
{
	struct renewal *r = arg;
	pthread_t t;
	int ret = thread_start(&t, "epoll renewal", renew, r);

	if (ret)
		r->ret = ret;
	else
		pthread_join(t, NULL);
	close(r->ep);
	close(r->fd);
	return 0;
}

/**
 * fd_replace_all - replace a socket of the caller with @fd
 * @ino: inode number of the replaced socket
 *
 * Returns 0 or a negative errno.
 */
int fd_replace_all(struct call *c, int fd, uint64_t ino)
{
	static struct copies all;
	unsigned int i;
	int ret;

	all = (struct copies){ .pid = c->pid, .ino = ino };
	if (paged_run(c, look, &all, sizeof(all), true) || !all.n)
		return -EBADF;
	for (i = 0; i < all.n; i++) {
		ret = call_addfd_replace(c, fd, all.num[i],
					 all.cloexec[i]);
		if (ret < 0)
			return ret;
	}
	for (i = 0; i < all.n_watches; i++) {
		struct renewal r = {
			.ep = call_getfd(c, all.watch[i].ep),
			.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
			.num = all.watch[i].num,
			.ev = { .events = all.watch[i].events,
				.data.u64 = all.watch[i].data },
		};

		ret = r.ep < 0 ? -ENOMEM :
		      (int)paged_run(c, renew_entry, &r, sizeof(r), false);
		if (ret == -ENOMEM) {	/* it was not called */
			close(r.ep);
			close(r.fd);
		}
		ret = ret ? ret : r.ret;
		if (ret && r.ep >= 0)
			log_line("%s (pid %d): adding a transferred socket to its epoll: %s",
				 task_comm(c->task), c->pid, strerror(-ret));
	}
	conn_sweep_soon();
	return 0;
}
