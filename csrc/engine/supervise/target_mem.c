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
 * cannot replace its memory. A write through the file also succeeds on private
 * pages that the caller itself may only read.
 *
 * Opening and closing the file costs some microseconds. The files of up to
 * KEPT_MAX threads that write often therefore stay open. Such a file remains
 * that of the memory for which it was opened, but the thread may execute a
 * program, and then has another memory. The old one may still belong to a
 * process that shares it (vfork(2)). Each call that uses the file therefore
 * first reads the 16 random bytes that the kernel stores in each memory at
 * execve(2) (AT_RANDOM). If they are not those of the file's memory, the file
 * is closed and opened again. The bytes are read like all others: by pid, and
 * then the call must still wait. They identify the memory only for the thread
 * for which the file was opened, since the children of fork(2) have the same.
 *
 * If lklhost runs in its own user namespace, it has no rights over processes
 * outside this namespace (ptrace(2)), and cannot open the memory file of a
 * process that is not dumpable. A write by pid can then only reach processes of
 * the run. In this case, the check comes first, and the write uses the pid. The
 * same is done if the file cannot be opened: lklhost then belongs to an
 * ordinary user, and the process is not dumpable.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "engine/supervise/notify.h"
#include "engine/supervise/stall.h"
#include "engine/supervise/watchdog.h"

#define KEPT_MAX	64	/* number of memory files that stay open */
#define KEEP_AFTER	16	/* calls of a thread that open its file first */
#define AUXV_MAX	64	/* entries of /proc/TID/auxv */

/*
 * The memory file of the call that wrote last.
 * @kept: it belongs to the thread, and is not closed after the call
 */
static struct {
	uint64_t id;
	int fd;
	bool kept;
} mem = { .fd = -1 };

static unsigned int n_kept;

/** mem_close - close the memory file, unless it stays open */
void mem_close(void)
{
	if (mem.fd >= 0 && !mem.kept)
		close(mem.fd);
	mem.fd = -1;
}

/** mem_forget - close a file that stayed open */
void mem_forget(struct task_mem *m)
{
	if (m->fd < 0)
		return;
	if (mem.fd == m->fd)
		mem.fd = -1;
	close(m->fd);
	m->fd = -1;
	n_kept--;
}

/** mem_set - set the memory file of a call */
static void mem_set(const struct call *c, int fd, bool kept)
{
	mem_close();
	mem.id = c->id;
	mem.fd = fd;
	mem.kept = kept;
}

/** mem_has - whether the memory file of the call is known */
static bool mem_has(const struct call *c)
{
	return mem.fd >= 0 && mem.id == c->id;
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
	int64_t ret;

	if (stall_none(c, from, n, len)) {
		watchdog_enter(c);
		ret = process_vm_readv(c->pid, &to, 1, from, n, 0);
		watchdog_leave();
	} else {
		ret = stall_read(c, from, n, buf, len);
	}
	if (!call_valid(c))
		return -ESRCH;
	return ret < 0 ? -EFAULT : ret;
}

/**
 * random_at - find the address of the random bytes in the caller's memory
 *
 * Returns 0 if it cannot be found.
 */
static uint64_t random_at(const struct call *c)
{
	ElfW(auxv_t) aux[AUXV_MAX];
	char path[32];
	ssize_t n;
	size_t i;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/auxv", c->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, aux, sizeof(aux));
	close(fd);
	for (i = 0; n > 0 && i < (size_t)n / sizeof(aux[0]); i++)
		if (aux[i].a_type == AT_RANDOM)
			return aux[i].a_un.a_val;
	return 0;
}

/**
 * keep - let the memory file of the call stay open
 *
 * The call waits until the end of this function, so address and bytes are those
 * of the file's memory.
 */
static void keep(const struct call *c, struct task_mem *m)
{
	struct iovec from = { .iov_len = sizeof(m->random) };

	if (n_kept == KEPT_MAX || m->opened++ < KEEP_AFTER)
		return;
	m->opened = 0;
	m->at = random_at(c);
	from.iov_base = (void *)(uintptr_t)m->at;
	if (!m->at || mem_readv(c, &from, 1, m->random, sizeof(m->random)) !=
		      sizeof(m->random))
		return;
	m->fd = mem.fd;
	mem.kept = true;
	n_kept++;
}

/**
 * read_both - read from the caller's memory, and check the file that is open
 *
 * Returns 0 if all @len bytes are read. If one of both is not accessible, it
 * returns -EFAULT, and the caller tries again without this check.
 */
static int64_t read_both(const struct call *c, struct task_mem *m,
			 uint64_t addr, void *buf, size_t len)
{
	uint8_t random[sizeof(m->random)];
	struct iovec from[] = {
		{ (void *)(uintptr_t)addr, len },
		{ (void *)(uintptr_t)m->at, sizeof(random) },
	};
	struct iovec to[] = { { buf, len }, { random, sizeof(random) } };
	int64_t n;

	if (!stall_none(c, from, 2, len + sizeof(random)))
		return -EFAULT;
	watchdog_enter(c);
	n = process_vm_readv(c->pid, to, 2, from, 2, 0);
	watchdog_leave();
	if (!call_valid(c))
		return -ESRCH;
	if (n != (int64_t)(len + sizeof(random)))
		return -EFAULT;
	if (memcmp(random, m->random, sizeof(random)))
		mem_forget(m);
	else
		mem_set(c, m->fd, true);
	return 0;
}

/** mem_open - open the caller's memory file; returns it or a negative errno */
static int mem_open(const struct call *c)
{
	struct task_mem *m = task_mem(c->task);
	char path[32], none;
	int fd;

	if (mem_has(c))
		return mem.fd;
	if (m->fd >= 0 && read_both(c, m, m->at, &none, 1) == -ESRCH)
		return -ESRCH;
	if (mem_has(c))
		return mem.fd;
	mem_forget(m);
	snprintf(path, sizeof(path), "/proc/%d/mem", c->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (!call_valid(c)) {
		close(fd);
		return -ESRCH;
	}
	mem_set(c, fd, false);
	keep(c, m);
	return fd;
}

/** mem_read - copy from the caller's memory; returns -EFAULT unless complete */
int64_t mem_read(const struct call *c, uint64_t addr, void *buf, size_t len)
{
	struct iovec from = { (void *)(uintptr_t)addr, len };
	struct task_mem *m = task_mem(c->task);
	int64_t n;

	if (!len)
		return 0;
	if (m->fd >= 0 && !mem_has(c)) {
		n = read_both(c, m, addr, buf, len);
		if (n != -EFAULT)
			return n;
	}
	n = mem_readv(c, &from, 1, buf, len);
	return n < 0 ? n : n == (int64_t)len ? 0 : -EFAULT;
}

/**
 * by_number - write by pid, if the memory file is not accessible or not needed
 */
static int64_t by_number(const struct call *c, const struct iovec *to,
			 const void *buf)
{
	struct iovec from = { (void *)(uintptr_t)buf, to->iov_len };
	ssize_t n;

	if (!call_valid(c))
		return -ESRCH;
	watchdog_enter(c);
	n = process_vm_writev(c->pid, &from, 1, to, 1, 0);
	watchdog_leave();
	return n;
}

/** mem_write - copy to the caller's memory; returns -EFAULT unless complete */
int64_t mem_write(const struct call *c, uint64_t addr, const void *buf,
		  size_t len)
{
	struct iovec to = { (void *)(uintptr_t)addr, len };
	int64_t n;
	int fd;

	if (!len)
		return 0;
	fd = host.in_userns ? -EACCES : mem_open(c);
	if (fd < 0 && fd != -EACCES)
		return fd == -ESRCH ? fd : -EFAULT;
	if (!stall_none(c, &to, 1, len)) {
		n = stall_write(c, fd, &to, buf);
	} else if (fd < 0) {
		n = by_number(c, &to, buf);
	} else {
		watchdog_enter(c);
		n = pwrite(fd, buf, len, (off_t)addr);
		watchdog_leave();
	}
	return n == -ESRCH ? n : n == (int64_t)len ? 0 : -EFAULT;
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
