/* SPDX-License-Identifier: GPL-2.0-only */
/* The stack's files in the target's /proc and /sys: declarations shared by its files. */
#ifndef LKLHOST_VIEW_INTERNAL_H
#define LKLHOST_VIEW_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/fuse.h>

#include "base/list.h"

#define VIEW_DATA_MAX	(64 * 1024)	/* bytes of one read or write */

/**
 * struct node - a name that the host's kernel has looked up
 * @lookups: number of lookups, minus those it has forgotten
 * @text: text of a symbolic link of the view itself, else NULL
 * @path: path in the stack
 */
struct node {
	uint64_t lookups;
	const char *text;
	char path[];
};

/**
 * struct handle - an open file or folder
 * @link: in the list of all handles
 * @fd: descriptor in the stack; -1: a folder that the stack does not have,
 *	which is empty
 * @at: position of the stack's descriptor of a folder; -1: unknown
 * @fold: links in this folder appear as folders
 * @table: a socket table; @text and @len were set when its beginning was read
 */
struct handle {
	struct list link;
	int fd;
	int64_t at;
	bool fold, table;
	char *text;
	size_t len;
};

/*
 * The size that files show, as in sysfs. With size 0, the host's kernel would
 * treat a sendfile() from such a file as complete without any request
 * (filemap_splice_read()). With this size it sends a request, which fails, and
 * programs such as busybox's cat use read() instead.
 */
#define VIEW_FILE_SIZE	4096

/* names.c */
struct node *node_of(uint64_t id);
int node_lookup(uint64_t dir, const char *name, struct fuse_entry_out *out);
void node_forget(uint64_t id, uint64_t n);
uint64_t node_valid(const struct node *n);
int node_attr(const struct node *n, struct fuse_attr *attr);
long node_readlink(const struct node *n, char *buf, size_t len);
bool node_folds(const struct node *n);

/* files.c */
int file_open(const struct node *n, uint32_t flags, struct handle **out);
int dir_open(const struct node *n, struct handle **out);
long file_read(struct handle *h, char *buf, size_t len, uint64_t at);
long file_write(struct handle *h, const char *buf, size_t len, uint64_t at);
long dir_read(struct handle *h, char *buf, size_t len, uint64_t at);
void handle_close(struct handle *h);
void handles_close(void);

/* proc_net.c */
void table_inodes(uint64_t (*carrier_ino)(uint64_t stack_ino));
bool table_is(const char *path);
long table_read(int fd, char **out);

#endif
