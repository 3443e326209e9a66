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

#include "base/log.h"
#include "engine/supervise/conn.h"
#include "engine/supervise/notify.h"
#include "engine/supervise/stream.h"

#define COPIES_MAX	64	/* replaced descriptors of one socket */
#define WATCHES_MAX	64	/* replaced epoll entries of one socket */

/** struct copies - the descriptors of a socket in a process, and its epolls */
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

/** watches - collect an epoll's entries for the socket with inode @ino */
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
		/* For the format, see ep_show_fdinfo(), fs/eventpoll.c. */
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

/** look - collect the caller's descriptors of the socket with inode @ino */
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

/** copies_cloexec - whether the caller's descriptor is close-on-exec */
bool copies_cloexec(const struct call *c, int fd)
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
	if ((fd != r->num && dup2(fd, r->num) < 0) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, r->num, &r->ev))
		r->ret = -errno;
	/*
	 * Close the descriptors now. The exit of the thread would close them
	 * too, but perhaps only after pthread_join() returns in the other
	 * thread. The replaced socket is also open in this table, and would
	 * stay in the epolls until then.
	 */
	syscall(SYS_close_range, 0, ~0u, 0);
	return NULL;
}

/** renew_entry - make an epoll of the target watch @fd */
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
 * copies_replace - replace a socket of the caller with @fd
 * @ino: inode number of the replaced socket
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
					 copies_cloexec(c, all.num[i]));
		if (ret < 0)
			return ret;
	}
	for (i = 0; i < all.n_watches; i++) {
		struct renewal r = {
			.ep = call_getfd(c, all.watch[i].ep), .fd = fd,
			.num = all.watch[i].num,
			.ev = { .events = all.watch[i].events,
				.data.u64 = all.watch[i].data },
		};

		if (r.ep < 0)
			continue;
		ret = renew_entry(&r);
		if (ret)
			log_line("%s (pid %d): adding a transferred socket to its epoll: %s",
				 task_comm(c->task), c->pid, strerror(-ret));
		close(r.ep);
	}
	conn_sweep_soon();
	return 0;
}
