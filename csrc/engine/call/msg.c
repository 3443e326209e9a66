// SPDX-License-Identifier: GPL-2.0-only
/*
 * Messages in the target's memory.
 *
 * struct msghdr and struct iovec have the layout of the host architecture,
 * because the filter refuses calls of other architectures.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/loop.h"
#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/call/paged_access.h"

#define MMSG_BATCH	64	/* elements read at a time */

/**
 * struct kernel_msghdr - the kernel's struct msghdr
 *
 * This is struct user_msghdr of include/linux/socket.h. The struct msghdr of a
 * C library may differ: musl has an int and padding in place of a size_t. In a
 * message for the target, the padding would become part of a length.
 */
struct kernel_msghdr {
	void *msg_name;
	int msg_namelen;
	struct iovec *msg_iov;
	size_t msg_iovlen;
	void *msg_control;
	size_t msg_controllen;
	unsigned int msg_flags;
};

/** struct kernel_mmsghdr - the kernel's struct mmsghdr */
struct kernel_mmsghdr {
	struct kernel_msghdr hdr;
	unsigned int len;
};

static_assert(sizeof(struct kernel_mmsghdr) == sizeof(struct mmsghdr),
	      "mmsg_addr() computes addresses of elements");

/*
 * Elements of the caller's array, read with two calls of the host and written
 * back with one.
 * @first: number of the first element
 * @n: number of elements; 0: none have been read
 * @done: how many of them have a result
 * @hdr: the elements
 * @iov: their vectors, one behind the other
 * @name: address of senders' names that are adjacent in the caller's memory, as
 *	in an array, and @names: these @name_len bytes, which are written together
 */
static struct {
	uint64_t first;
	size_t n, done;
	uint64_t name;
	size_t name_len;
	char names[MMSG_BATCH * sizeof(struct sockaddr_storage)];
	struct kernel_mmsghdr hdr[MMSG_BATCH];
	struct iovec iov[MSG_IOV_MAX];
} batch;

/**
 * set_msg - fill in @um from a struct msghdr, except for its vector
 * @addr: address of @mh in the caller
 */
static int64_t set_msg(struct user_msg *um, const struct kernel_msghdr *mh,
		       uint64_t addr)
{
	if (mh->msg_iovlen > MSG_IOV_MAX)
		return -EMSGSIZE;
	if (mh->msg_namelen < 0)
		return -EINVAL;
	um->hdr = addr;
	um->batch = NULL;
	um->name = (uint64_t)(uintptr_t)mh->msg_name;
	um->namelen = um->name ? (uint32_t)mh->msg_namelen : 0;
	um->namelenp = addr + offsetof(struct kernel_msghdr, msg_namelen);
	um->control = (uint64_t)(uintptr_t)mh->msg_control;
	um->controllen = um->control ? mh->msg_controllen : 0;
	um->iovcnt = mh->msg_iovlen;
	um->total = 0;
	return 0;
}

/** set_total - compute the length of a message from its vector */
static int64_t set_total(struct user_msg *um)
{
	size_t i;

	for (i = 0; i < um->iovcnt; i++) {
		if (um->iov[i].iov_len > SSIZE_MAX - um->total)
			return -EINVAL;
		um->total += um->iov[i].iov_len;
	}
	return 0;
}

/**
 * msg_get_hdr - read a struct msghdr and its vector
 * @addr: address in the caller
 * @um: the result; um->flags is not changed
 */
int64_t msg_get_hdr(const struct call *c, uint64_t addr, struct user_msg *um)
{
	struct kernel_msghdr mh;
	int64_t ret;

	ret = mem_read(c, addr, &mh, sizeof(mh));
	if (!ret)
		ret = set_msg(um, &mh, addr);
	if (!ret)
		ret = mem_read(c, (uint64_t)(uintptr_t)mh.msg_iov, um->iov,
			       um->iovcnt * sizeof(um->iov[0]));
	return ret ? ret : set_total(um);
}

/**
 * msg_get - read the message of sendto, recvfrom, sendmsg or recvmsg
 *
 * The length of the buffer for the sender's address is not read for recvfrom:
 * see msg_get_named().
 */
int64_t msg_get(const struct call *c, struct user_msg *um)
{
	if (c->nr == SYS_sendmsg || c->nr == SYS_recvmsg) {
		um->flags = (int)c->args[2];
		return msg_get_hdr(c, c->args[1], um);
	}
	um->hdr = 0;
	um->batch = NULL;
	um->flags = (int)c->args[3];
	um->name = c->args[4];
	um->namelen = c->nr == SYS_sendto ? (uint32_t)c->args[5] : 0;
	um->namelenp = c->args[5];
	um->control = 0;
	um->controllen = 0;
	um->iov[0].iov_base = (void *)(uintptr_t)c->args[1];
	um->iov[0].iov_len = c->args[2];
	um->iovcnt = 1;
	um->total = c->args[2];
	return um->total > SSIZE_MAX ? -EINVAL : 0;
}

/** msg_get_named - msg_get() for a receive that returns the sender's address */
int64_t msg_get_named(struct call *c, struct user_msg *um)
{
	int64_t ret = msg_get(c, um);

	if (ret || c->nr != SYS_recvfrom || !um->name)
		return ret;
	if (!c->has_name_room) {
		c->name_room = 0;
		if (mem_read(c, um->namelenp, &c->name_room, sizeof(c->name_room)) &&
		    paged_waits(c))
			return -EFAULT;
		c->has_name_room = true;
	}
	um->namelen = c->name_room;
	return 0;
}

/**
 * slice - get @len bytes of a vector, starting at byte @off
 * @out: the resulting vector, with room for MSG_IOV_MAX elements
 *
 * Returns the number of elements.
 */
static size_t slice(const struct user_msg *um, size_t off, size_t len,
		    struct iovec *out)
{
	size_t i, n = 0;

	for (i = 0; i < um->iovcnt && len; i++) {
		size_t have = um->iov[i].iov_len;

		if (off >= have) {
			off -= have;
			continue;
		}
		have -= off;
		if (have > len)
			have = len;
		/*
		 * This address is in the target, so compute with integers, not
		 * pointers.
		 */
		out[n].iov_base = (void *)((uintptr_t)um->iov[i].iov_base + off);
		out[n++].iov_len = have;
		len -= have;
		off = 0;
	}
	return n;
}

/** msg_get_data - read bytes of the message, starting at byte @off */
int64_t msg_get_data(const struct call *c, const struct user_msg *um,
		     size_t off, void *buf, size_t len)
{
	struct iovec from[MSG_IOV_MAX];
	size_t cnt = slice(um, off, len, from);
	int64_t n = cnt ? mem_readv(c, from, cnt, buf, len) : (int64_t)len;

	return n < 0 ? n : n == (int64_t)len ? 0 : -EFAULT;
}

/** msg_put_data - write @len bytes at byte @off, truncated to the message */
int64_t msg_put_data(const struct call *c, const struct user_msg *um,
		     size_t off, const void *buf, size_t len)
{
	struct iovec to[MSG_IOV_MAX];

	if (len > um->total - off)
		len = um->total - off;
	return mem_writev(c, to, slice(um, off, len, to), buf, len);
}

/** names_flush - write the collected names */
static int64_t names_flush(const struct call *c)
{
	size_t len = batch.name_len;

	batch.name_len = 0;
	return mem_write(c, batch.name, batch.names, len);
}

/** put_name - write the sender's name, or collect it */
static int64_t put_name(const struct call *c, const struct user_msg *um,
			const void *name, size_t len)
{
	int64_t ret = 0;

	if (!len)
		return 0;	/* the message has no sender */
	if (!um->batch)
		return mem_write(c, um->name, name, len);
	if (um->name != batch.name + batch.name_len ||
	    len > sizeof(batch.names) - batch.name_len) {
		ret = names_flush(c);
		batch.name = um->name;
	}
	if (!ret && len <= sizeof(struct sockaddr_storage)) {
		memcpy(batch.names + batch.name_len, name, len);
		batch.name_len += len;
	}
	return ret;
}

/**
 * msg_put_result - write the results of a receive, except the data
 * @name: the sender's address; if @namelen is 0, there is none
 * @control: ancillary data, which must fit into the caller's buffer
 * @flags: result flags, such as MSG_TRUNC
 */
int64_t msg_put_result(const struct call *c, const struct user_msg *um,
		       const void *name, uint32_t namelen, const void *control,
		       size_t controllen, int flags)
{
	struct kernel_msghdr mh;
	int64_t ret;

	if (!um->hdr && !um->name)
		return 0;
	if (!um->hdr && um->namelen > INT_MAX)
		return -EINVAL;
	if (um->name) {
		ret = put_name(c, um, name,
			       um->namelen < namelen ? um->namelen : namelen);
		if (!ret && um->batch)
			um->batch->msg_namelen = (int)namelen;
		else if (!ret)
			ret = mem_write(c, um->namelenp, &namelen,
					sizeof(namelen));
		if (ret)
			return ret;
	}
	if (!um->hdr)
		return 0;
	ret = mem_write(c, um->control, control, controllen);
	if (ret)
		return ret;
	if (um->batch) {
		um->batch->msg_controllen = controllen;
		um->batch->msg_flags = (unsigned int)flags;
		return 0;
	}
	mh.msg_controllen = controllen;
	mh.msg_flags = (unsigned int)flags;
	/* The fields are adjacent in the structure, so one copy is enough. */
	return mem_write(c, um->hdr + offsetof(struct kernel_msghdr, msg_controllen),
			 &mh.msg_controllen,
			 offsetof(struct kernel_msghdr, msg_flags) + sizeof(int) -
			 offsetof(struct kernel_msghdr, msg_controllen));
}

/**
 * msg_cut_control - truncate ancillary data to the caller's buffer
 * @out: buffer of @room bytes
 * @ctl: @len bytes of ancillary data
 * @flags: MSG_CTRUNC is added if some data do not fit
 *
 * Like put_cmsg() in net/core/scm.c, this truncates an element that does not
 * fit, or drops it if there is no room for its header. Returns the number of
 * bytes in @out.
 */
size_t msg_cut_control(char *out, size_t room, const char *ctl, size_t len,
		       int *flags)
{
	size_t at = 0, from = 0;
	struct cmsghdr cm;

	while (from < len && len - from >= sizeof(cm)) {
		size_t space;

		memcpy(&cm, ctl + from, sizeof(cm));
		space = CMSG_ALIGN(cm.cmsg_len);
		if (room - at < sizeof(cm)) {
			*flags |= MSG_CTRUNC;
			break;
		}
		if (room - at < cm.cmsg_len) {
			*flags |= MSG_CTRUNC;
			cm.cmsg_len = room - at;
		}
		memcpy(out + at, ctl + from, cm.cmsg_len);
		memcpy(out + at, &cm, sizeof(cm));
		from += space;
		at += space < room - at ? space : room - at;
	}
	return at;
}

/** mmsg_addr - address of element @i of the caller's struct mmsghdr array */
uint64_t mmsg_addr(const struct call *c, uint64_t i)
{
	return c->args[1] + i * sizeof(struct mmsghdr);
}

/** mmsg_put_len - write msg_len of element @i */
int64_t mmsg_put_len(const struct call *c, uint64_t i, int64_t n)
{
	uint32_t len = (uint32_t)n;

	return mem_write(c, mmsg_addr(c, i) + offsetof(struct mmsghdr, msg_len),
			 &len, sizeof(len));
}

/** mmsg_begin - a call on an array of messages begins */
void mmsg_begin(void)
{
	batch.n = batch.done = batch.name_len = 0;
}

/**
 * batch_read - read elements of the array, from @i on
 *
 * Elements that the caller may not access are left out: the call may not get so
 * far.
 */
static void batch_read(const struct call *c, uint64_t i)
{
	struct iovec from = { (void *)(uintptr_t)mmsg_addr(c, i), 0 };
	struct iovec vec[MMSG_BATCH];
	uint64_t left = mmsg_len(c) - i;
	size_t n, k, cnt = 0;
	int64_t got;

	batch.first = i;
	batch.n = batch.done = 0;
	n = left < MMSG_BATCH ? (size_t)left : MMSG_BATCH;
	from.iov_len = n * sizeof(batch.hdr[0]);
	got = mem_readv(c, &from, 1, batch.hdr, from.iov_len);
	n = got > 0 ? (size_t)got / sizeof(batch.hdr[0]) : 0;
	for (k = 0; k < n; k++) {
		size_t more = batch.hdr[k].hdr.msg_iovlen;

		if (more > MSG_IOV_MAX - cnt)
			break;
		vec[k].iov_base = batch.hdr[k].hdr.msg_iov;
		vec[k].iov_len = more * sizeof(batch.iov[0]);
		cnt += more;
	}
	got = cnt ? mem_readv(c, vec, k, batch.iov, cnt * sizeof(batch.iov[0])) : 0;
	if (got == (int64_t)(cnt * sizeof(batch.iov[0])))
		batch.n = k;
}

/**
 * mmsg_get - read element @i of the array
 * @um: the result; um->flags is not changed
 */
int64_t mmsg_get(const struct call *c, uint64_t i, struct user_msg *um)
{
	const struct iovec *iov = batch.iov;
	size_t at, k;
	int64_t ret;

	if (!batch.n || i - batch.first >= batch.n) {
		ret = mmsg_end(c);
		if (ret)
			return ret;
		batch_read(c, i);
	}
	if (!batch.n)
		return msg_get_hdr(c, mmsg_addr(c, i), um);
	at = (size_t)(i - batch.first);
	for (k = 0; k < at; k++)
		iov += batch.hdr[k].hdr.msg_iovlen;
	ret = set_msg(um, &batch.hdr[at].hdr, mmsg_addr(c, i));
	if (ret)
		return ret;
	memcpy(um->iov, iov, um->iovcnt * sizeof(um->iov[0]));
	um->batch = &batch.hdr[at].hdr;
	return set_total(um);
}

/** mmsg_done - set the result of element @i, which mmsg_get() has read */
int64_t mmsg_done(const struct call *c, uint64_t i, int64_t n)
{
	if (!batch.n)
		return mmsg_put_len(c, i, n);
	batch.done = (size_t)(i - batch.first) + 1;
	batch.hdr[batch.done - 1].len = (unsigned int)n;
	return 0;
}

/** mmsg_end - write the elements with a result back to the caller */
int64_t mmsg_end(const struct call *c)
{
	size_t n = batch.done;
	int64_t ret = names_flush(c);

	batch.done = 0;
	return ret ? ret : mem_write(c, mmsg_addr(c, batch.first), batch.hdr,
			 n * sizeof(batch.hdr[0]));
}

/** mmsg_len - get the number of messages that the caller wants */
uint64_t mmsg_len(const struct call *c)
{
	uint32_t n = (uint32_t)c->args[2];

	return n > MSG_IOV_MAX ? MSG_IOV_MAX : n;
}

/**
 * timeout_read - read the timeout of recvmmsg(), whose word size depends on the
 * call
 */
static int64_t timeout_read(const struct call *c, int64_t ts[2])
{
	long words[2];
	int64_t ret;

	if (c->nr != SYS_recvmmsg)
		return mem_read(c, c->args[4], ts, 2 * sizeof(ts[0]));
	ret = mem_read(c, c->args[4], words, sizeof(words));
	ts[0] = words[0];
	ts[1] = words[1];
	return ret;
}

/**
 * mmsg_deadline - the deadline of a blocking recvmmsg()
 * @deadline: set to the deadline; 0 if there is none
 */
int64_t mmsg_deadline(const struct call *c, uint64_t *deadline)
{
	int64_t ts[2], ret;

	*deadline = hold_deadline(c, SO_RCVTIMEO);
	if (!c->args[4])
		return 0;
	ret = timeout_read(c, ts);
	if (ret)
		return ret;
	if (ts[0] < 0 || ts[1] < 0 || ts[1] > 999999999)
		return -EINVAL;
	*deadline = now_ns() + (uint64_t)ts[0] * 1000000000ull + (uint64_t)ts[1];
	return 0;
}

/**
 * addr_read - read a socket address from the caller's memory
 * @len: length that the caller passed
 *
 * Returns the length of the address or a negative errno, like
 * move_addr_to_kernel().
 */
int64_t addr_read(const struct call *c, uint64_t addr, uint64_t len,
		  struct sockaddr_storage *ss)
{
	int n = (int)len;
	int64_t ret;

	if (n < 0 || n > (int)sizeof(*ss))
		return -EINVAL;
	memset(ss, 0, sizeof(*ss));
	ret = mem_read(c, addr, ss, (size_t)n);
	return ret ? ret : n;
}

/**
 * addr_write - write a socket address to the caller's memory
 * @lenp: address of the caller's int: buffer size on input, length on output
 *
 * Like move_addr_to_user(), this truncates the address but returns the full
 * length.
 */
int64_t addr_write(const struct call *c, uint64_t addr, uint64_t lenp,
		   const void *ss, socklen_t len)
{
	int room, full = (int)len;
	int64_t ret;

	ret = mem_read(c, lenp, &room, sizeof(room));
	if (ret)
		return ret;
	if (room < 0)
		return -EINVAL;
	if (room > full)
		room = full;
	ret = mem_write(c, addr, ss, (size_t)room);
	return ret ? ret : mem_write(c, lenp, &full, sizeof(full));
}
