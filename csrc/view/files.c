// SPDX-License-Identifier: GPL-2.0-only
/*
 * Open files and folders of the view. Each has its own descriptor in the stack,
 * so that a file read in pieces is consistent.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stack/stack.h"
#include "view/internal.h"

#define ENTRIES		8192	/* bytes of directory entries read at once */

/* An entry as returned by getdents64(2). */
struct entry {
	uint64_t ino;
	int64_t next;
	uint16_t len;
	uint8_t type;
	char name[];
};

static struct list handles = LIST_INIT(handles);

/** handle_make - create a handle that owns a descriptor of the stack */
static int handle_make(long fd, struct handle **out)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h) {
		if (fd >= 0)
			st_close(fd);
		return -ENOMEM;
	}
	h->fd = (int)fd;
	list_add_tail(&h->link, &handles);
	*out = h;
	return 0;
}

/** handle_close - free a handle and close its descriptor */
void handle_close(struct handle *h)
{
	if (h->fd >= 0)
		st_close(h->fd);
	list_del(&h->link);
	free(h->text);
	free(h);
}

/** handles_close - close all handles */
void handles_close(void)
{
	while (!list_empty(&handles))
		handle_close(container_of(handles.next, struct handle, link));
}

/**
 * file_open - open a file
 * @flags: of open(2); only the access mode counts
 */
int file_open(const struct node *n, uint32_t flags, struct handle **out)
{
	long fd = ST(SYS_openat, AT_FDCWD, n->path,
		     (flags & O_ACCMODE) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC,
		     0, 0, 0);
	int ret = fd < 0 ? (int)fd : handle_make(fd, out);

	if (!ret)
		(*out)->table = table_is(n->path);
	return ret;
}

/** dir_open - open a folder; it is empty if the stack has no such folder */
int dir_open(const struct node *n, struct handle **out)
{
	long fd = ST(SYS_openat, AT_FDCWD, n->path,
		     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0, 0);
	int ret;

	if (fd < 0 && fd != -ENOENT)
		return (int)fd;
	ret = handle_make(fd < 0 ? -1 : fd, out);
	if (!ret)
		(*out)->fold = node_folds(n);
	return ret;
}

/** piece - read a part of a table; reading from offset 0 refreshes it */
static long piece(struct handle *h, char *buf, size_t len, uint64_t at)
{
	long ret;

	if (!at || !h->text) {
		free(h->text);
		h->text = NULL;
		ret = table_read(h->fd, &h->text);
		if (ret < 0)
			return ret;
		h->len = (size_t)ret;
	}
	if (at >= h->len)
		return 0;
	if (len > h->len - at)
		len = h->len - at;
	memcpy(buf, h->text + at, len);
	return (long)len;
}

/** file_read - read at most @len bytes at offset @at */
long file_read(struct handle *h, char *buf, size_t len, uint64_t at)
{
	if (h->table)
		return piece(h, buf, len, at);
	return st_pread(h->fd, buf, len, at);
}

/** file_write - pwrite(2) */
long file_write(struct handle *h, const char *buf, size_t len, uint64_t at)
{
	return st_pwrite(h->fd, buf, len, at);
}

/** put - write one fuse_dirent; returns its size, 0 if there is no room */
static size_t put(const struct handle *h, const struct entry *e, char *buf,
		  size_t len)
{
	size_t name = strlen(e->name);
	size_t need = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name);
	struct fuse_dirent d = { .ino = e->ino, .off = (uint64_t)e->next,
				 .namelen = (uint32_t)name, .type = e->type };

	if (need > len)
		return 0;
	if (h->fold && e->type == DT_LNK)
		d.type = DT_DIR;
	memset(buf, 0, need);
	memcpy(buf, &d, FUSE_NAME_OFFSET);
	memcpy(buf + FUSE_NAME_OFFSET, e->name, name);
	return need;
}

/**
 * dir_read - read entries of a folder
 * @at: 0, or the offset of the next entry that an entry reported
 *
 * Returns the size of the struct fuse_dirent entries in bytes; 0 at the end.
 */
long dir_read(struct handle *h, char *buf, size_t len, uint64_t at)
{
	static _Alignas(8) char got[ENTRIES];
	size_t used = 0;
	long n, off;

	if (h->fd < 0)
		return 0;
	if (h->at != (int64_t)at) {
		n = ST(SYS_lseek, h->fd, at, SEEK_SET, 0, 0, 0);
		if (n < 0)
			return n;
		h->at = (int64_t)at;
	}
	while (!used) {
		n = ST(SYS_getdents64, h->fd, got, sizeof(got), 0, 0, 0);
		if (n <= 0)
			return n;
		for (off = 0; off < n;) {
			const struct entry *e = (void *)(got + off);
			bool other = h->fold && e->type != DT_LNK &&
				     e->type != DT_DIR;
			size_t put_len = other ? 0 :
				put(h, e, buf + used, len - used);

			if (!other && !put_len) {
				h->at = -1;	/* it is further ahead */
				return used ? (long)used : -EINVAL;
			}
			used += put_len;
			off += e->len;
			h->at = e->next;
		}
	}
	return (long)used;
}
