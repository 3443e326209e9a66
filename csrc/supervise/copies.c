// SPDX-License-Identifier: GPL-2.0-only
/*
 * Another socket in the place of one the target has: under its number, under all
 * others by which the calling process has it, and in the epolls of that process.
 *
 * Theory of operation
 *
 * An epoll knows what it watches by the open file and by the number it had when
 * it was added, so a new file must be added under the number that the target has
 * it under. Among our own numbers that one may be taken, which is why a thread
 * does it that has a table of descriptors of its own for this moment.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn.h"
#include "host.h"

#define COPIES_MAX	64	/* descriptors of one socket that are replaced */
#define WATCHES_MAX	64	/* epoll entries that are renewed */

/** struct copies - descriptors of one socket in one process, and its epolls */
struct copies {
	unsigned int n, n_watches;
	int num[COPIES_MAX];
	struct {
		int ep, num;
		uint32_t events;
		uint64_t data;
	} watch[WATCHES_MAX];
};

/**
 * struct renewal - an entry for an epoll
 * @ep: the epoll
 * @fd: what it shall watch
 * @num: under which number
 * @ret: 0 or a negative errno
 */
struct renewal {
	int ep, fd, num, ret;
	struct epoll_event ev;
};

/** watches - entries of an epoll that are for the socket with inode @ino */
static void watches(const struct call *c, int ep, uint64_t ino,
		    struct copies *all)
{
	unsigned long long data, found;
	unsigned int num, events;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", c->pid, ep);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		/* ep_show_fdinfo(), fs/eventpoll.c */
		if (sscanf(line, "tfd: %u events: %x data: %llx pos:%*d ino:%llx",
			   &num, &events, &data, &found) != 4 || found != ino ||
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

/** look - find the descriptors of the caller that are the socket @ino */
static void look(const struct call *c, uint64_t ino, struct copies *all)
{
	char path[64], want[64], text[64];
	struct dirent *d;
	ssize_t n;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", c->pid);
	snprintf(want, sizeof(want), "socket:[%llu]", (unsigned long long)ino);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		n = readlinkat(dirfd(dir), d->d_name, text, sizeof(text) - 1);
		if (n <= 0)
			continue;
		text[n] = '\0';
		if (!strcmp(text, want) && all->n < COPIES_MAX)
			all->num[all->n++] = atoi(d->d_name);
		else if (!strcmp(text, "anon_inode:[eventpoll]"))
			watches(c, atoi(d->d_name), ino, all);
	}
	if (dir)
		closedir(dir);
}

/** is_cloexec - whether the caller's descriptor is close-on-exec */
static bool is_cloexec(const struct call *c, int fd)
{
	char path[64], text[256], *p;
	unsigned int flags = 0;
	ssize_t n;
	int f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", c->pid, fd);
	f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return true;
	n = read(f, text, sizeof(text) - 1);
	close(f);
	text[n > 0 ? n : 0] = '\0';
	p = strstr(text, "flags:");
	return !p || sscanf(p, "flags: %o", &flags) != 1 || (flags & O_CLOEXEC);
}

/** renew - in a thread of its own */
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
	if ((fd != r->num && dup2(fd, r->num) < 0) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, r->num, &r->ev))
		r->ret = -errno;
	/* Now, not some time after whoever joins us has gone on: what is replaced
	 * is open in our table too, and would stay in its epolls as long. */
	syscall(SYS_close_range, 0, ~0u, 0);
	return NULL;
}

/** renew_entry - have an epoll of the target's watch @fd */
static int renew_entry(struct renewal *r)
{
	pthread_t t;
	int ret = pthread_create(&t, NULL, renew, r);

	if (ret)
		return -ret;
	pthread_join(t, NULL);
	return r->ret;
}

/**
 * copies_replace - put @fd in the place of a socket of the caller's
 * @ino: inode of what it replaces
 *
 * Returns 0 or a negative errno.
 */
int copies_replace(struct call *c, int fd, uint64_t ino)
{
	static struct copies all;
	unsigned int i;
	int ret;

	all.n = all.n_watches = 0;
	look(c, ino, &all);
	if (!all.n)
		return -EBADF;
	for (i = 0; i < all.n; i++) {
		ret = call_addfd_replace(c, fd, all.num[i],
					 is_cloexec(c, all.num[i]));
		if (ret < 0)
			return ret;
	}
	for (i = 0; i < all.n_watches; i++) {
		struct renewal r = {
			.ep = task_getfd(c->task, all.watch[i].ep), .fd = fd,
			.num = all.watch[i].num,
			.ev = { .events = all.watch[i].events,
				.data.u64 = all.watch[i].data },
		};

		if (r.ep < 0)
			continue;
		ret = renew_entry(&r);
		if (ret)
			log_line("%s (pid %d): taking a socket over into its epoll: %s",
				 task_comm(c->task), c->pid, strerror(-ret));
		close(r.ep);
	}
	conn_sweep_soon();
	return 0;
}
