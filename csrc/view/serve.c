// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stack's own view in files: /proc/net, /proc/sys/net and /sys/class/net of
 * the target are the stack's.
 *
 * Theory of operation
 *
 * lklhost serves a file system through /dev/fuse (include/uapi/linux/fuse.h). It
 * opens the device before the target is forked; the target mounts it in its own
 * namespace (mounts.c) and closes its copy, so that the mount is dead the moment
 * lklhost is: whoever waits for an answer then gets ENOTCONN.
 *
 * Each request is a call or two in the stack, made and answered at once: none is
 * ever left unanswered, for the host's kernel lets nobody be killed who waits for
 * an answer to a request that has been fetched. This process must never look at a
 * file of the view itself, nor wait for somebody who does:
 *
 *  - It is not in the target's mount namespace.
 *  - Closing a duplicate of a target's descriptor must ask nothing: there is no
 *    FLUSH (FOPEN_NOFLUSH; before Linux 5.16 a first one is provoked by the target
 *    before its exec, and answered with ENOSYS, which ends them).
 *  - Mapped files have no pages, see node_attr().
 *  - The view ends before the target's tree is killed, and waited for.
 *
 * Who maps a file that he has just written to, which has a page then, and hands
 * that to a socket's call halts his own stack: until the host's kernel breaks the
 * connection, after REQUEST_S seconds (Linux 6.14), or lklhost is killed.
 *
 * Rights: the host's kernel judges by the modes ("default_permissions"), then the
 * stack as if root had asked.
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

#include "host.h"
#include "loop.h"
#include "view.h"

#define BURST		32	/* requests in one turn of the loop */
#define REQUEST_S	20
#define HEAD_MAX	4096	/* of a request, before what is written */

#ifndef FOPEN_NOFLUSH		/* 7.35 */
#define FOPEN_NOFLUSH	(1 << 5)
#endif
#ifndef FUSE_INIT_EXT		/* 7.36 */
#define FUSE_INIT_EXT	(1 << 30)
#endif
#define INIT_TIMEOUT2	(1u << 10)	/* FUSE_REQUEST_TIMEOUT, 7.43: bit 42 */

/* What follows map_alignment in struct fuse_init_out of protocol 7.43. */
struct init_ext {
	uint32_t flags2;
	uint32_t max_stack_depth;
	uint16_t request_timeout;
};

static struct source dev = { .fd = -1 };
static int dev_error;
static uint64_t n_requests;

static _Alignas(8) char in[HEAD_MAX + VIEW_DATA_MAX];
static _Alignas(8) char out[VIEW_DATA_MAX];

/**
 * view_open - open /dev/fuse, before the target is forked
 *
 * The mount must be made in the user namespace in which it was opened.
 */
void view_open(void)
{
	dev.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (dev.fd < 0)
		dev_error = -errno;
}

/**
 * view_fd - the descriptor the target mounts
 *
 * A negative errno says why there is none.
 */
int view_fd(void)
{
	return dev.fd >= 0 ? dev.fd : dev_error;
}

/** view_stop - end it; whoever waits for an answer gets ENOTCONN */
void view_stop(void)
{
	int fd = dev.fd;

	if (fd < 0)
		return;
	loop_del(&dev);
	close(fd);
	handles_close();
}

/** reply - the answer to a request; @len bytes of @data, unless @error */
static void reply(const struct fuse_in_header *h, int error, const void *data,
		  size_t len)
{
	struct fuse_out_header oh = { .unique = h->unique };
	struct iovec iov[2] = { { &oh, sizeof(oh) },
				{ (void *)(uintptr_t)data, len } };

	/* Not what the kernel would not believe. */
	oh.error = error < -511 || error > 0 ? -EIO : error;
	oh.len = (uint32_t)(sizeof(oh) + (error ? 0 : len));
	/* ENOENT: nobody waits for it any more. */
	if (writev(dev.fd, iov, error ? 1 : 2) < 0 && errno != ENOENT)
		log_line("answering a request of the view (%u): %s", h->opcode,
			 strerror(errno));
}

/** init - agree on the protocol */
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
	/* flags2 follows flags in 7.36, where older ones have nothing to read. */
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

/** attributes - GETATTR and SETATTR */
static void attributes(const struct fuse_in_header *h)
{
	const struct node *n = node_of(h->nodeid);
	struct fuse_attr_out rep = { .attr_valid = node_valid(n) };
	int ret = node_attr(n, &rep.attr);

	reply(h, ret, &rep, sizeof(rep));
}

/** setattr - nothing can be changed; truncating what has no length succeeds */
static void setattr(const struct fuse_in_header *h,
		    const struct fuse_setattr_in *req)
{
	if (req->valid & (FATTR_MODE | FATTR_UID | FATTR_GID))
		reply(h, -EPERM, NULL, 0);
	else
		attributes(h);
}

/** opened - OPEN and OPENDIR */
static void opened(const struct fuse_in_header *h,
		   const struct fuse_open_in *req)
{
	const struct node *n = node_of(h->nodeid);
	struct fuse_open_out rep = { 0 };
	struct handle *handle = NULL;
	int ret;

	if (h->opcode == FUSE_OPENDIR) {
		ret = dir_open(n, &handle);
	} else {
		ret = file_open(n, req->flags, &handle);
		rep.open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH;
	}
	rep.fh = (uint64_t)(uintptr_t)handle;
	reply(h, ret, &rep, sizeof(rep));
}

/** transfer - READ, READDIR and READLINK: a length, or an errno */
static void transfer(const struct fuse_in_header *h, long ret)
{
	reply(h, ret < 0 ? (int)ret : 0, out, ret < 0 ? 0 : (size_t)ret);
}

/** written - WRITE */
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

/** forget_all - BATCH_FORGET */
static void forget_all(const struct fuse_batch_forget_in *req)
{
	const struct fuse_forget_one *one = (const void *)(req + 1);
	uint32_t i;

	for (i = 0; i < req->count; i++)
		node_forget(one[i].nodeid, one[i].nlookup);
}

/** request - carry one out; the bytes are the host kernel's own */
static void request(const struct fuse_in_header *h)
{
	const void *arg = h + 1;
	const struct fuse_read_in *r = arg;
	struct handle *handle = (struct handle *)(uintptr_t)r->fh;
	size_t room = sizeof(out);
	struct fuse_kstatfs fs = { .bsize = 4096, .namelen = 255,
				   .frsize = 4096 };
	struct fuse_entry_out entry;
	int ret;

	n_requests++;
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
		opened(h, arg);
		break;
	case FUSE_READ:
		/* Not for a page of a cache: those have no owner. */
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
	case FUSE_INTERRUPT:	/* of a request that was answered meanwhile */
		break;
	default:
		reply(h, -ENOSYS, NULL, 0);
	}
}

/** requests - the device has some */
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
		/* ENODEV: it is mounted nowhere any more. */
		if (n >= 0 || (errno != EAGAIN && errno != EINTR &&
			       errno != ENOENT))
			view_stop();
		if (n < 0 && errno == EAGAIN)
			return;
	}
}

/**
 * view_mounted - the target has tried to mount it
 * @error: 0, or a negative errno
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
	note_user("the target sees no /proc/net, /proc/sys/net and /sys/class/net: mounting the stack's needs /dev/fuse: %s",
		  strerror(-error));
}

/** view_stats - counters, "name value\n" */
size_t view_stats(char *buf, size_t len)
{
	int n = snprintf(buf, len, "view.requests %llu\n",
			 (unsigned long long)n_requests);

	return n > 0 && (size_t)n < len ? (size_t)n : 0;
}
