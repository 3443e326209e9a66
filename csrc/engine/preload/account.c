// SPDX-License-Identifier: GPL-2.0-only
/* Statistics of the preload engine. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/common/proc_text.h"
#include "engine/preload/internal.h"
#include "engine/preload/signal.h"
#include "shared/ctl_proto.h"

#define TEXT_SIZE	(256UL << 10)

/** in_stack - make a call in the stack, from any thread (also the control server's) */
long in_stack(long nr, long a, long b, long c, long d, long e)
{
	return lkl.syscall(nr, (long[6]){ a, b, c, d, e });
}

/** stack_file_text - read a file of the stack's /proc as a string; NULL on failure */
char *stack_file_text(const char *path)
{
	char *text = pages(TEXT_SIZE);
	long fd, n, len = 0;

	if (!text)
		return NULL;
	enter();
	fd = in_stack(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0, 0);
	while (fd >= 0 && len < (long)TEXT_SIZE - 1) {
		n = in_stack(SYS_read, fd, (long)text + len,
			     (long)TEXT_SIZE - 1 - len, 0, 0);
		if (n <= 0)
			break;
		len += n;
	}
	if (fd >= 0)
		in_stack(SYS_close, fd, 0, 0, 0, 0);
	leave();
	if (fd < 0) {
		RAW2(munmap, text, TEXT_SIZE);
		return NULL;
	}
	text[len] = '\0';
	return text;
}

void stack_file_free(char *text)
{
	RAW2(munmap, text, TEXT_SIZE);
}

/** owner_comm - the name of the process, whichever thread calls */
static void owner_comm(char comm[16])
{
	long fd = RAW4(openat, AT_FDCWD, "/proc/self/comm", O_RDONLY, 0);
	long n = 0;

	if (fd >= 0) {
		n = RAW3(read, fd, comm, 15);
		RAW1(close, fd);
	}
	comm[n > 0 ? n : 0] = '\0';
	comm[strcspn(comm, "\n")] = '\0';
}

/**
 * engine_stats - write the counters as lines "name value\n"
 *
 * The calling thread must share the program's descriptor table in the stack.
 */
size_t engine_stats(char *buf, size_t len)
{
	char comm[16], prefix[48];
	int n;

	n = snprintf(buf, len,
			 "calls.stack %llu\nsockets.stack %llu\n"
			 "sockets.refused %llu\nsockets.open %llu\n"
			 "sockets.accepted %llu\nsockets.fallback %llu\n"
			 "bytes.received %llu\nbytes.sent %llu\n"
			 "datagrams.received %llu\ndatagrams.sent %llu\n",
			 (unsigned long long)counts.calls,
			 (unsigned long long)counts.made,
			 (unsigned long long)counts.refused,
			 (unsigned long long)counts.open,
			 (unsigned long long)counts.accepted,
			 (unsigned long long)counts.fallback,
			 (unsigned long long)counts.bytes_in,
			 (unsigned long long)counts.bytes_out,
			 (unsigned long long)counts.dgrams_in,
			 (unsigned long long)counts.dgrams_out);
	if (n < 0 || (size_t)n >= len)
		return 0;
	owner_comm(comm);
	snprintf(prefix, sizeof(prefix), "proc.%d.%s", owner_pid, comm);
	return (size_t)n + tally_print(prefix, buf + n, len - (size_t)n);
}

/** engine_account - write the MPTCP counters of the stack, then our own */
size_t engine_account(char *buf, size_t len)
{
	char *text = stack_file_text("/proc/net/netstat");
	size_t n = 0;

	if (text) {
		n = text_group(text, "MPTcpExt", buf, len);
		stack_file_free(text);
	}
	return n + engine_stats(buf + n, len - n);
}

/** engine_owners - write a struct ctl_owner for each socket; returns the bytes written */
size_t engine_owners(void *buf, size_t len)
{
	struct ctl_owner *o = buf;
	char comm[16] = "";
	size_t n = 0;
	int fd;

	owner_comm(comm);

	for (fd = 0; fd <= max_fd && (n + 1) * sizeof(*o) <= len; fd++) {
		bool found;

		lock();
		found = is_sock(fd) && sock_of(fd)->domain;
		if (found) {
			const struct sock *s = sock_of(fd);

			memset(&o[n], 0, sizeof(*o));
			o[n].stack_ino = s->stack_ino;
			o[n].carrier_ino = s->ino;
			o[n].conn = s->id;
			o[n].stack_fd = entries[fd].sfd;
			o[n].pid = (uint32_t)owner_pid;
			memcpy(o[n].comm, comm, sizeof(o[n].comm));
		}
		unlock();
		n += found;
	}
	return n * sizeof(*o);
}

/** engine_has_stack_fd - always false: clients have descriptor tables of their own */
bool engine_has_stack_fd(int fd)
{
	(void)fd;
	return false;
}
