// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack's files: the target sees /proc/net, /proc/sys/net and
 * /sys/class/net of the stack.
 *
 * Theory of operation
 *
 * lklhost serves a file system through /dev/fuse (include/uapi/linux/fuse.h).
 * It opens the device before it forks the target. The target mounts it in its
 * own namespace (mounts.c) and closes its copy of the descriptor. If lklhost
 * dies, the mount therefore fails at once: processes that wait for an answer
 * get ENOTCONN.
 *
 * Each request is one or two calls in the stack, made and answered at once. No
 * request remains unanswered: the host's kernel does not let a process be
 * killed while it waits for an answer to a request that has been fetched. This
 * process must never access a file of the view itself, nor wait for a process
 * that does:
 *
 * - It is not in the target's mount namespace.
 * - Closing a duplicate of a target's descriptor must send no request: there is
 *   no FLUSH. From Linux 5.16, FOPEN_NOFLUSH ensures this. On older kernels,
 *   the target provokes a first FLUSH before its exec; the answer ENOSYS
 *   disables further ones.
 * - Mapped files have no pages, see node_attr().
 * - The view ends before lklhost kills the target's tree and waits for it.
 *
 * One case remains. A program that writes to a file of the view and maps it
 * (which then has a page), and passes this memory to a socket call, blocks its
 * own stack. This lasts until the host's kernel breaks the connection after
 * REQUEST_S seconds (Linux 6.14), or until lklhost is killed.
 *
 * Permissions: the host's kernel checks the modes ("default_permissions"); the
 * stack then treats the request as one from root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "stack/stack.h"
#include "view/internal.h"
#include "view/view.h"

#define BURST		32	/* requests in one turn of the loop */
#define REQUEST_S	20
#define HEAD_MAX	4096	/* of a request, without the data of a write */

#ifndef FOPEN_NOFLUSH		/* 7.35 */
#define FOPEN_NOFLUSH	(1 << 5)
#endif
#ifndef FUSE_INIT_EXT		/* 7.36 */
#define FUSE_INIT_EXT	(1 << 30)
#endif
#define INIT_TIMEOUT2	(1u << 10)	/* FUSE_REQUEST_TIMEOUT, 7.43: bit 42 */

/* The fields after map_alignment in struct fuse_init_out of protocol 7.43. */
struct init_ext {
	uint32_t flags2;
	uint32_t max_stack_depth;
	uint16_t request_timeout;
};

static struct source dev = { .fd = -1 };
static const struct view_ops *view_ops;
static int dev_error;
static uint64_t n_requests;

static _Alignas(8) char in[HEAD_MAX + VIEW_DATA_MAX];
static _Alignas(8) char out[VIEW_DATA_MAX];

/**
 * view_open - open /dev/fuse before the target is forked
 *
 * The mount must be made in the user namespace in which the device was opened.
 */
void view_open(const struct view_ops *ops)
{
	view_ops = ops;
	table_inodes(ops->carrier_ino);
	dev.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (dev.fd < 0)
		dev_error = -errno;
}

/** view_fd - the descriptor that the target mounts, or a negative errno */
int view_fd(void)
{
	return dev.fd >= 0 ? dev.fd : dev_error;
}

/** view_stop - end the view; waiting processes get ENOTCONN */
void view_stop(void)
{
	int fd = dev.fd;

	if (fd < 0)
		return;
	loop_del(&dev);
	close(fd);
	handles_close();
}

/** reply - answer a request with @error, or with @len bytes of @data */
static void reply(const struct fuse_in_header *h, int error, const void *data,
		  size_t len)
{
	struct fuse_out_header oh = { .unique = h->unique };
	struct iovec iov[2] = { { &oh, sizeof(oh) },
				{ (void *)(uintptr_t)data, len } };

	/* The kernel rejects other values. */
	oh.error = error < -511 || error > 0 ? -EIO : error;
	oh.len = (uint32_t)(sizeof(oh) + (error ? 0 : len));
	/* ENOENT: the request was aborted. */
	if (writev(dev.fd, iov, error ? 1 : 2) < 0 && errno != ENOENT)
		log_line("answering a request of the view (%u): %s", h->opcode,
			 strerror(errno));
}

/** init - negotiate the protocol */
static void init(const struct fuse_in_header *h, const struct fuse_init_in *req)
{
	struct fuse_init_out rep = { .major = FUSE_KERNEL_VERSION,
				     .max_write = VIEW_DATA_MAX,
				     .time_gran = 1 };
	struct init_ext ext = { .request_timeout = REQUEST_S };
	uint32_t flags2;

	rep.minor = req->minor < FUSE_KERNEL_MINOR_VERSION ?
		    req->minor : FUSE_KERNEL_MINOR_VERSION;
	rep.max_readahead = req->max_readahead;
	rep.flags = req->flags & (FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
				  FUSE_PARALLEL_DIROPS);
	/* flags2 follows flags since 7.36; older kernels do not send it. */
	if ((req->flags & FUSE_INIT_EXT) &&
	    h->len >= sizeof(*h) + 5 * sizeof(uint32_t)) {
		memcpy(&flags2, (const char *)req + 4 * sizeof(uint32_t),
		       sizeof(flags2));
		ext.flags2 = flags2 & INIT_TIMEOUT2;
		rep.flags |= ext.flags2 ? (uint32_t)FUSE_INIT_EXT : 0;
	}
	if (ext.flags2)
		memcpy((char *)&rep + offsetof(struct fuse_init_out,
					       map_alignment) + 2,
		       &ext, sizeof(ext));
	reply(h, req->major == FUSE_KERNEL_VERSION ? 0 : -EPROTO, &rep,
	      sizeof(rep));
}

/** attributes - answer GETATTR and SETATTR */
static void attributes(const struct fuse_in_header *h)
{
	const struct node *n = node_of(h->nodeid);
	struct fuse_attr_out rep = { .attr_valid = node_valid(n) };
	int ret = node_attr(n, &rep.attr);

	reply(h, ret, &rep, sizeof(rep));
}

/** setattr - allow no change; truncating a file without length succeeds */
static void setattr(const struct fuse_in_header *h,
		    const struct fuse_setattr_in *req)
{
	if (req->valid & (FATTR_MODE | FATTR_UID | FATTR_GID))
		reply(h, -EPERM, NULL, 0);
	else
		attributes(h);
}

/**
 * opened - answer OPEN and OPENDIR
 * @elsewhere: the caller is not in the run's network namespace. As on a host, it
 *	sees the devices of the namespace in which /sys was mounted
 */
static void opened(const struct fuse_in_header *h,
		   const struct fuse_open_in *req, bool elsewhere)
{
	const struct node *n = node_of(h->nodeid);
	struct fuse_open_out rep = { 0 };
	struct handle *handle = NULL;
	int ret;

	if (elsewhere && (req->flags & O_ACCMODE) != O_RDONLY &&
	    !strncmp(n->path, "/sys/", 5)) {
		ret = -EACCES;
	} else if (h->opcode == FUSE_OPENDIR) {
		ret = dir_open(n, &handle);
	} else {
		ret = file_open(n, req->flags, &handle);
		rep.open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH;
	}
	rep.fh = (uint64_t)(uintptr_t)handle;
	reply(h, ret, &rep, sizeof(rep));
}

/** transfer - answer READ, READDIR and READLINK; @ret: a length or an errno */
static void transfer(const struct fuse_in_header *h, long ret)
{
	reply(h, ret < 0 ? (int)ret : 0, out, ret < 0 ? 0 : (size_t)ret);
}

/** written - answer WRITE */
static void written(const struct fuse_in_header *h,
		    const struct fuse_write_in *req)
{
	struct fuse_write_out rep = { 0 };
	long ret = -EINVAL;

	if (req->size <= h->len - sizeof(*h) - sizeof(*req))
		ret = file_write((struct handle *)(uintptr_t)req->fh,
				 (const char *)(req + 1), req->size,
				 req->offset);
	rep.size = ret < 0 ? 0 : (uint32_t)ret;
	reply(h, ret < 0 ? (int)ret : 0, &rep, sizeof(rep));
}

/** forget_all - handle BATCH_FORGET */
static void forget_all(const struct fuse_batch_forget_in *req)
{
	const struct fuse_forget_one *one = (const void *)(req + 1);
	uint32_t i;

	for (i = 0; i < req->count; i++)
		node_forget(one[i].nodeid, one[i].nlookup);
}

/**
 * names_file - whether a request names a file or a folder, which its caller's
 * network namespace decides; a handle stays what it was when it was opened
 */
static bool names_file(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_SETATTR:
	case FUSE_READLINK:
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		return true;
	}
	return false;
}

/** request - carry out a request of the host's kernel, which is trusted */
static void request(const struct fuse_in_header *h)
{
	const void *arg = h + 1;
	const struct fuse_read_in *r = arg;
	struct handle *handle = (struct handle *)(uintptr_t)r->fh;
	size_t room = sizeof(out);
	struct fuse_kstatfs fs = { .bsize = 4096, .namelen = 255,
				   .frsize = 4096 };
	struct fuse_entry_out entry;
	bool elsewhere = false;
	int ret;

	n_requests++;
	if (names_file(h->opcode)) {
		ret = view_ops->enter((pid_t)h->pid);
		elsewhere = ret > 0;
		if (ret < 0) {
			reply(h, ret, NULL, 0);
			return;
		}
	}
	switch (h->opcode) {
	case FUSE_INIT:
		init(h, arg);
		break;
	case FUSE_LOOKUP:
		ret = node_lookup(h->nodeid, arg, &entry);
		reply(h, ret, &entry, sizeof(entry));
		break;
	case FUSE_FORGET:
		node_forget(h->nodeid,
			    ((const struct fuse_forget_in *)arg)->nlookup);
		break;
	case FUSE_BATCH_FORGET:
		forget_all(arg);
		break;
	case FUSE_GETATTR:
		attributes(h);
		break;
	case FUSE_SETATTR:
		setattr(h, arg);
		break;
	case FUSE_READLINK:
		transfer(h, node_readlink(node_of(h->nodeid), out, room - 1));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		opened(h, arg, elsewhere);
		break;
	case FUSE_READ:
		/*
		 * Refuse reads into the page cache, which have no lock owner.
		 */
		transfer(h, !(r->read_flags & FUSE_READ_LOCKOWNER) ? -EINVAL :
			 file_read(handle, out, r->size < room ? r->size : room,
				   r->offset));
		break;
	case FUSE_READDIR:
		transfer(h, dir_read(handle, out, r->size < room ? r->size :
				     room, r->offset));
		break;
	case FUSE_WRITE:
		written(h, arg);
		break;
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		handle_close((struct handle *)(uintptr_t)
			     ((const struct fuse_release_in *)arg)->fh);
		reply(h, 0, NULL, 0);
		break;
	case FUSE_STATFS:
		reply(h, 0, &fs, sizeof(fs));
		break;
	case FUSE_CREATE:
		reply(h, -EACCES, NULL, 0);
		break;
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_SYMLINK:
	case FUSE_LINK:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
		reply(h, -EPERM, NULL, 0);
		break;
	case FUSE_INTERRUPT:	/* for a request that is answered already */
		break;
	default:
		reply(h, -ENOSYS, NULL, 0);
	}
	view_ops->leave();
}

/** requests - read and carry out pending requests */
static void requests(struct source *src, uint32_t events)
{
	int i;

	(void)events;
	for (i = 0; i < BURST && src->fd >= 0; i++) {
		ssize_t n = read(src->fd, in, sizeof(in));

		if (n >= (ssize_t)sizeof(struct fuse_in_header)) {
			request((const void *)in);
			continue;
		}
		/* ENODEV: the file system is no longer mounted. */
		if (n >= 0 || (errno != EAGAIN && errno != EINTR &&
			       errno != ENOENT))
			view_stop();
		if (n < 0 && errno == EAGAIN)
			return;
	}
}

/**
 * view_mounted - the target has tried to mount the view
 * @error: 0 or a negative errno
 */
void view_mounted(int error)
{
	if (!error) {
		dev.fn = requests;
		error = loop_add(&dev, EPOLLIN);
	}
	if (!error)
		return;
	view_stop();
	note_user("the target has no /proc/net, /proc/sys/net and /sys/class/net, because mounting them requires /dev/fuse: %s",
		  strerror(-error));
}

/** view_stats - counters, "name value\n" */
size_t view_stats(char *buf, size_t len)
{
	int n = snprintf(buf, len, "view.requests %llu\n",
			 (unsigned long long)n_requests);

	return n > 0 && (size_t)n < len ? (size_t)n : 0;
}
