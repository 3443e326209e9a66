// SPDX-License-Identifier: GPL-2.0-only
/*
 * Names of the view: which names the host's kernel may look up, and to which
 * paths of the stack these belong.
 *
 * Theory of operation
 *
 * One file system serves several places. Its root is the stack's /proc/sys/net.
 * The other places are hidden folders of the root (specials[]), which can be
 * looked up but are not listed. The target's mounts show them in their usual
 * places (mounts.c). A node is only a path in the stack. Its contents are not
 * cached, since devices and settings can appear and disappear. Only the places
 * themselves are permanent.
 *
 * Links in /sys/class/net lead to the folders of devices. The stack may have
 * these folders anywhere (a foreign library may have them on a bus of its own).
 * The view shows them where the host shows virtual devices: links there appear
 * as folders ("/." is appended to a path).
 *
 * AF_UNIX sockets belong to the host, so /proc/net/unix is the host's too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stack/stack.h"
#include "view/internal.h"

#define ROOT		"/proc/sys/net"
#define PROC_NET	"/proc/thread-self/net/."	/* of the current namespace */
#define CLASS		"/sys/class/net"
#define DEVICES		"/sys/class/net/."

static const struct {
	const char *dir, *name, *path, *text;
} specials[] = {
	{ ROOT, ".net", PROC_NET, NULL },
	{ ROOT, ".class", CLASS, NULL },
	{ ROOT, ".devices", DEVICES, NULL },
	{ ROOT, ".link", ROOT "/.link", "sys/net/.net" },
	{ PROC_NET, "unix", PROC_NET "/unix", "../../../self/net/unix" },
};

static struct {
	struct node node;
	char path[sizeof(ROOT)];
} root = { .path = ROOT };

static void *nodes;

/** by_path - compare two nodes by path */
static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct node *)a)->path,
		      ((const struct node *)b)->path);
}

/** node_of - the node with the id @id of the host's kernel */
struct node *node_of(uint64_t id)
{
	return id == FUSE_ROOT_ID ? &root.node : (struct node *)(uintptr_t)id;
}

/** is_place - whether a folder, or a link to one, exists in every stack */
static bool is_place(const struct node *n)
{
	size_t i;

	if (n == &root.node || n->text)
		return true;
	for (i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
		if (!specials[i].text && !strcmp(n->path, specials[i].path))
			return true;
	return false;
}

/** node_folds - whether links in this folder appear as folders */
bool node_folds(const struct node *n)
{
	return !strcmp(n->path, DEVICES);
}

/** node_valid - seconds for which the host's kernel may cache a node */
uint64_t node_valid(const struct node *n)
{
	return is_place(n) ? 3600 : 0;
}

/**
 * node_attr - the attributes that stat(2) shows
 *
 * Files belong to the owner of the run, who may do in the stack what root may
 * do elsewhere. Sizes are 0, also in /sys: a mapping of a file then has no
 * page. The engine, which reads the target's memory, can therefore never wait
 * for itself.
 */
int node_attr(const struct node *n, struct fuse_attr *attr)
{
	struct stat st = { .st_mode = S_IFDIR | 0555, .st_nlink = 2 };
	long ret = 0;

	if (n->text) {
		st.st_mode = S_IFLNK | 0777;
		st.st_size = (off_t)strlen(n->text);
		st.st_nlink = 1;
	} else {
		ret = st_stat(AT_FDCWD, n->path, AT_SYMLINK_NOFOLLOW, &st);
	}
	if (ret && !is_place(n))
		return ret == -ENOTDIR ? -ENOENT : (int)ret;
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) &&
	    !S_ISLNK(st.st_mode))
		return -ENOENT;
	memset(attr, 0, sizeof(*attr));
	attr->ino = st.st_ino;
	attr->size = S_ISLNK(st.st_mode) ? (uint64_t)st.st_size :
		     S_ISREG(st.st_mode) ? VIEW_FILE_SIZE : 0;
	attr->atime = (uint64_t)st.st_atim.tv_sec;
	attr->mtime = (uint64_t)st.st_mtim.tv_sec;
	attr->ctime = (uint64_t)st.st_ctim.tv_sec;
	attr->atimensec = (uint32_t)st.st_atim.tv_nsec;
	attr->mtimensec = (uint32_t)st.st_mtim.tv_nsec;
	attr->ctimensec = (uint32_t)st.st_ctim.tv_nsec;
	attr->mode = st.st_mode;
	attr->nlink = (uint32_t)st.st_nlink;
	attr->uid = geteuid();
	attr->gid = getegid();
	attr->blksize = 4096;
	return 0;
}

/**
 * child - create a node for a name; it is not in the tree yet
 *
 * Returns NULL with errno if there is no memory or the path is too long.
 */
static struct node *child(const struct node *dir, const char *name)
{
	char path[PATH_MAX];
	struct node *n;
	int len = -1;
	size_t i;

	errno = ENAMETOOLONG;
	for (i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
		if (!strcmp(dir->path, specials[i].dir) &&
		    !strcmp(name, specials[i].name))
			break;
	if (i < sizeof(specials) / sizeof(specials[0]))
		len = snprintf(path, sizeof(path), "%s", specials[i].path);
	else
		len = snprintf(path, sizeof(path), "%s/%s%s", dir->path, name,
			       node_folds(dir) ? "/." : "");
	if (len < 0 || (size_t)len >= sizeof(path))
		return NULL;
	n = calloc(1, sizeof(*n) + (size_t)len + 1);
	if (!n)
		return NULL;
	memcpy(n->path, path, (size_t)len + 1);
	if (i < sizeof(specials) / sizeof(specials[0]))
		n->text = specials[i].text;
	return n;
}

/** node_lookup - look up a name in a folder */
int node_lookup(uint64_t dir, const char *name, struct fuse_entry_out *out)
{
	struct node *n = child(node_of(dir), name), **found;
	int ret;

	if (!n)
		return -errno;
	memset(out, 0, sizeof(*out));
	ret = node_attr(n, &out->attr);
	found = ret ? NULL : tsearch(n, &nodes, by_path);
	if (!found) {
		free(n);
		return ret ? ret : -ENOMEM;
	}
	if (*found != n)
		free(n);
	n = *found;
	n->lookups++;
	out->nodeid = (uint64_t)(uintptr_t)n;
	out->entry_valid = node_valid(n);
	out->attr_valid = node_valid(n);
	return 0;
}

/** node_forget - drop @n lookups of the host's kernel */
void node_forget(uint64_t id, uint64_t n)
{
	struct node *node = node_of(id);

	if (node == &root.node)
		return;
	node->lookups -= n < node->lookups ? n : node->lookups;
	if (node->lookups)
		return;
	tdelete(node, &nodes, by_path);
	free(node);
}

/** node_readlink - a link's text, not terminated; its length or an errno */
long node_readlink(const struct node *n, char *buf, size_t len)
{
	const char *name = n->path + sizeof(CLASS);
	long ret;

	if (n->text)
		return snprintf(buf, len, "%s", n->text);
	ret = ST(SYS_readlinkat, AT_FDCWD, n->path, buf, len, 0, 0);
	if (ret <= 0)
		return ret;
	/* The link of a device, and the link "subsystem" of a device. */
	if (!strncmp(n->path, CLASS "/", sizeof(CLASS)) && !strchr(name, '/'))
		return snprintf(buf, len, "../../devices/virtual/net/%s", name);
	name = strrchr(n->path, '/');
	if (!strcmp(name, "/subsystem"))
		return snprintf(buf, len, "../../../../class/net");
	return ret;
}
