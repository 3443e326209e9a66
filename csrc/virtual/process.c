// SPDX-License-Identifier: GPL-2.0-only
/* The processes and threads of programs: tables, memory, state in /proc. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "virtual/virtual.h"

struct thread threads[MAX_THREADS];
int thread_count;
struct process processes[MAX_PROCESSES];
int process_count;

int mem_read(struct thread *t, void *to, uint64_t from, size_t len)
{
	return !len || pread(t->p->mem, to, len, (off_t)from) == (ssize_t)len ? 0 : -EFAULT;
}

int mem_write(struct thread *t, uint64_t to, const void *from, size_t len)
{
	return !len || pwrite(t->p->mem, from, len, (off_t)to) == (ssize_t)len ? 0 : -EFAULT;
}

/** mem_string - read a string; -ENAMETOOLONG if it is longer than @size */
int mem_string(struct thread *t, char *to, uint64_t from, size_t size)
{
	ssize_t n = pread(t->p->mem, to, size, (off_t)from);

	if (n <= 0)
		return -EFAULT;
	return memchr(to, 0, (size_t)n) ? 0 : n == (ssize_t)size ? -ENAMETOOLONG : -EFAULT;
}

/* The last number of a field of /proc/PID/status, which is that of the innermost namespace */
uint64_t status_field(pid_t pid, const char *name, int base)
{
	char path[64], text[4096], *at, *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strstr(text, name);
	end = at ? strchr(++at, '\n') : NULL;
	if (!end)
		return 0;
	*end = 0;
	return strtoull(strrchr(at, '\t'), NULL, base);
}

/** process_reaped - whether the parent has fetched the status of an ended process */
bool process_reaped(struct process *p)
{
	if (!p->reaped && syscall(SYS_pidfd_send_signal, p->pidfd, 0, NULL, 0)) {
		p->reaped = true;
		close(p->pidfd);
	}
	return p->reaped;
}
