// SPDX-License-Identifier: GPL-2.0-only
/*
 * Access to the caller's memory, and to its descriptors.
 *
 * Theory of operation
 *
 * A caller can be killed at any moment, even while one of these functions waits
 * for a page of its memory. The caller's pid may then belong to another
 * process. The pid alone therefore never determines whose memory is changed:
 *
 *	read	process_vm_readv(2) by pid, then a check whether the call still
 *		waits. If not, the data may be those of another process, and are
 *		discarded.
 *	write	/proc/TID/mem is opened, then the same check is made. If the
 *		call still waits, the file is the caller's memory and remains
 *		so, even if the pid is reused later (seccomp_unotify(2)).
 *
 * One file serves all writes of a call, because a thread that waits in a call
 * cannot replace its memory. Opening the file costs some microseconds per call.
 * A write through the file also succeeds on private pages that the caller
 * itself may only read.
 *
 * If lklhost runs in its own user namespace, it has no rights over processes
 * outside this namespace (ptrace(2)), and cannot open the memory file of a
 * process that is not dumpable. A write by pid can then only reach processes of
 * the run. In this case, the check comes first, and the write uses the pid. The
 * same is done if the file cannot be opened: lklhost then belongs to an
 * ordinary user, and the process is not dumpable.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "engine/call/call.h"
#include "engine/call/paged_access.h"
#include "engine/call/watchdog.h"

/* The memory file of the call that wrote last. */
static struct {
	uint64_t id;
	int fd;
} mem = { .fd = -1 };

/** mem_close - close the memory file */
void mem_close(void)
{
	if (mem.fd >= 0)
		close(mem.fd);
	mem.fd = -1;
}

/** mem_open - open the caller's memory file; returns it or a negative errno */
static int mem_open(const struct call *c)
{
	char path[32];
	int fd;

	if (mem.fd >= 0 && mem.id == c->id)
		return mem.fd;
	mem_close();
	snprintf(path, sizeof(path), "/proc/%d/mem", c->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno == EMFILE && reserve_use())
		fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return call_no_room(c);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (!call_valid(c)) {
		close(fd);
		return -ESRCH;
	}
	mem.id = c->id;
	mem.fd = fd;
	return fd;
}

/**
 * mem_readv - read up to @len bytes of the caller's memory
 *
 * Returns the number of bytes read, or a negative errno.
 */
int64_t mem_readv(const struct call *c, const struct iovec *from, size_t n,
		  void *buf, size_t len)
{
	struct iovec to = { buf, len };
	int64_t ret = 0;
	bool there;

	watchdog_enter(c, "process_vm_readv()");
	there = pages_present(c, from, n, len, false);
	if (there)
		ret = process_vm_readv(c->pid, &to, 1, from, n, 0);
	watchdog_leave();
	if (!there)
		ret = paged_read(c, from, n, buf, len);
	if (!call_valid(c))
		return -ESRCH;
	return ret < 0 ? -EFAULT : ret;
}

/** mem_read - copy from the caller's memory; returns -EFAULT unless complete */
int64_t mem_read(const struct call *c, uint64_t addr, void *buf, size_t len)
{
	struct iovec from = { (void *)(uintptr_t)addr, len };
	int64_t n = len ? mem_readv(c, &from, 1, buf, len) : 0;

	return n < 0 ? n : n == (int64_t)len ? 0 : -EFAULT;
}

/** mem_write - copy to the caller's memory; returns -EFAULT unless complete */
int64_t mem_write(const struct call *c, uint64_t addr, const void *buf,
		  size_t len)
{
	struct iovec to = { (void *)(uintptr_t)addr, len };
	struct iovec from = { (void *)(uintptr_t)buf, len };
	int64_t n = -ESRCH;
	bool there;
	int fd;

	if (!len)
		return 0;
	fd = host.in_userns ? -EACCES : mem_open(c);
	if (fd < 0 && fd != -EACCES)
		return fd == -ESRCH || fd == -ENOBUFS ? fd : -EFAULT;
	watchdog_enter(c, fd < 0 ? "process_vm_writev()" : "pwrite()");
	there = pages_present(c, &to, 1, len, true);
	if (there && fd >= 0)
		n = pwrite(fd, buf, len, (off_t)addr);
	else if (there && call_valid(c))
		n = process_vm_writev(c->pid, &from, 1, &to, 1, 0);
	watchdog_leave();
	if (!there && (fd >= 0 || call_valid(c)))
		n = paged_write(c, fd, &to, buf);
	return n == -ESRCH || n == -ENOBUFS ? n : n == (int64_t)len ? 0 : -EFAULT;
}

/** mem_writev - write @len bytes to pieces of the caller's memory */
int64_t mem_writev(const struct call *c, const struct iovec *to, size_t n,
		   const void *buf, size_t len)
{
	const char *p = buf;
	int64_t ret = 0;
	size_t i;

	for (i = 0; i < n && len && !ret; i++) {
		size_t part = to[i].iov_len < len ? to[i].iov_len : len;

		ret = mem_write(c, (uint64_t)(uintptr_t)to[i].iov_base, p, part);
		p += part;
		len -= part;
	}
	return ret;
}
