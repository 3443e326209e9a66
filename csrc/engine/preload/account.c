// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics of the preload engine, and the delivery of sent data when the
 * program ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "engine/common/proc_text.h"
#include "engine/preload/internal.h"
#include "engine/preload/signal.h"
#include "shared/ctl_proto.h"

#define TEXT_SIZE	(256UL << 10)
#define DRAIN_NS	3000000000LL	/* without progress; lklhost uses the same value */
#define DRAIN_MAX_NS	60000000000LL

/** in_stack - make a call in the stack, from any thread (also the control server's) */
static long in_stack5(long nr, long a, long b, long c, long d, long e)
{
	return lkl.syscall(nr, (long[6]){ a, b, c, d, e });
}

static long in_stack(long nr, long a, long b, long c, long d)
{
	return in_stack5(nr, a, b, c, d, 0);
}

/** text_get - read a file of the stack's /proc as a string; NULL on failure */
static char *text_get(const char *path)
{
	char *text = pages(TEXT_SIZE);
	long fd, n, len = 0;

	if (!text)
		return NULL;
	enter();
	fd = in_stack(SYS_openat, AT_FDCWD, (long)path, O_RDONLY, 0);
	while (fd >= 0 && len < (long)TEXT_SIZE - 1) {
		n = in_stack(SYS_read, fd, (long)text + len,
			     (long)TEXT_SIZE - 1 - len, 0);
		if (n <= 0)
			break;
		len += n;
	}
	if (fd >= 0)
		in_stack(SYS_close, fd, 0, 0, 0);
	leave();
	if (fd < 0) {
		RAW2(munmap, text, TEXT_SIZE);
		return NULL;
	}
	text[len] = '\0';
	return text;
}

static void text_put(char *text)
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
	char *text = text_get("/proc/net/netstat");
	size_t n = 0;

	if (text) {
		n = text_group(text, "MPTcpExt", buf, len);
		text_put(text);
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

/** orphans - count the sockets of the stack that still have data to deliver */
static unsigned int orphans(const char *path, uint64_t *queued)
{
	char *text = text_get(path);
	unsigned int n;

	if (!text)
		return 0;
	n = text_orphans(text, queued);
	text_put(text);
	return n;
}

/** close_sockets - close the program's sockets without lingering, as process exit does */
static void close_sockets(void)
{
	int fd;

	for (fd = 0; fd <= max_fd; fd++) {
		struct linger l;
		int len = sizeof(l), sfd;

		if (!is_sock(fd))
			continue;
		sfd = entries[fd].sfd;
		lock();
		tally_close(sock_of(fd), sfd);
		unlock();
		if (!in_stack5(SYS_getsockopt, sfd, SOL_SOCKET, SO_LINGER, (long)&l, (long)&len) &&
		    l.l_onoff && l.l_linger) {
			l.l_onoff = 0;
			in_stack5(SYS_setsockopt, sfd, SOL_SOCKET, SO_LINGER, (long)&l, sizeof(l));
		}
		in_stack(SYS_close, sfd, 0, 0, 0);
	}
}

bool preload_drain(void)
{
	struct timespec wait = { .tv_nsec = 1000000 };
	int64_t begin = mono_ns(), moved = begin, now;
	uint64_t mark, last = 0;
	unsigned int n;

	if (!preload_alive() || !owner_pid)
		return true;
	threads_park();
	me.own++;
	enter();
	close_sockets();
	for (;;) {
		mark = 0;
		n = orphans("/proc/net/tcp", &mark) + orphans("/proc/net/tcp6", &mark) +
		    orphans("/proc/net/mptcp", &mark);
		now = mono_ns();
		mark += n;
		if (mark != last) {
			last = mark;
			moved = now;
		}
		if (!n || end_is_wanted() || now >= moved + DRAIN_NS || now >= begin + DRAIN_MAX_NS)
			break;
		end_goes_on();
		RAW2(nanosleep, &wait, 0);
		if (wait.tv_nsec < 16000000)
			wait.tv_nsec *= 2;
	}
	leave();
	me.own--;
	if (n && !end_is_wanted())
		warn_line("the last data of the command was not fully delivered within %lld s after its end",
			  (long long)((now - begin) / 1000000000));
	return !n;
}

void preload_halt(void)
{
	if (preload_alive() && owner_pid)
		lkl.halt();
}
