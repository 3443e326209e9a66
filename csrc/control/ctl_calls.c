// SPDX-License-Identifier: GPL-2.0-only
/*
 * The system calls that a control client may make in the stack.
 *
 * Permitted are calls on sockets and files, mounts and queries. Not permitted
 * are calls that
 *
 * - change the one task that all calls share (credentials, namespaces, working
 *   directory);
 * - create or end processes, or change memory;
 * - wait without a descriptor.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "control/internal.h"

struct entry {
	uint16_t nr;
	uint16_t flags;
};

static const struct entry entries[] = {
	{ SYS_read, CALL_FD }, { SYS_write, CALL_FD },
	{ SYS_readv, CALL_FD }, { SYS_writev, CALL_FD },
	{ SYS_pread64, CALL_FD }, { SYS_pwrite64, CALL_FD },
	{ SYS_lseek, CALL_FD }, { SYS_close, CALL_FD },
	{ SYS_fstat, CALL_FD }, { SYS_ioctl, CALL_FD },
	{ SYS_fcntl, CALL_FD | CALL_OPENS }, { SYS_dup, CALL_FD | CALL_OPENS },
	{ SYS_ftruncate, CALL_FD }, { SYS_getdents64, CALL_FD },
	{ SYS_fstatfs, CALL_FD },
	{ SYS_openat, CALL_AT | CALL_OPENS | CALL_NETNS },
#ifdef SYS_newfstatat
	{ SYS_newfstatat, CALL_AT },
#else
	{ SYS_fstatat64, CALL_AT },
#endif
	{ SYS_statx, CALL_AT }, { SYS_readlinkat, CALL_AT },
	{ SYS_mkdirat, CALL_AT }, { SYS_unlinkat, CALL_AT },
	{ SYS_faccessat, CALL_AT }, { SYS_mknodat, CALL_AT },
	{ SYS_statfs, 0 }, { SYS_mount, 0 }, { SYS_umount2, 0 },
#ifdef SYS_open
	{ SYS_open, CALL_OPENS | CALL_NETNS }, { SYS_stat, 0 }, { SYS_lstat, 0 },
	{ SYS_access, 0 }, { SYS_readlink, 0 }, { SYS_mkdir, 0 },
	{ SYS_rmdir, 0 }, { SYS_unlink, 0 },
#endif
	{ SYS_socket, CALL_OPENS | CALL_NETNS }, { SYS_bind, CALL_FD },
	{ SYS_connect, CALL_FD }, { SYS_listen, CALL_FD },
	{ SYS_accept, CALL_FD | CALL_OPENS },
	{ SYS_accept4, CALL_FD | CALL_OPENS },
	{ SYS_getsockname, CALL_FD }, { SYS_getpeername, CALL_FD },
	{ SYS_getsockopt, CALL_FD }, { SYS_setsockopt, CALL_FD },
	{ SYS_sendto, CALL_FD }, { SYS_recvfrom, CALL_FD },
	{ SYS_sendmsg, CALL_FD }, { SYS_recvmsg, CALL_FD },
	{ SYS_sendmmsg, CALL_FD }, { SYS_recvmmsg, CALL_FD },
	{ SYS_shutdown, CALL_FD },
	{ SYS_uname, 0 }, { SYS_sysinfo, 0 }, { SYS_syslog, 0 },
	{ SYS_getpid, 0 }, { SYS_getppid, 0 }, { SYS_getuid, 0 },
	{ SYS_geteuid, 0 }, { SYS_getgid, 0 },
#ifdef SYS_clock_gettime
	{ SYS_clock_gettime, 0 }, { SYS_gettimeofday, 0 },
#else
	{ SYS_clock_gettime64, 0 },
#endif
	{ SYS_getrandom, 0 },
	{ SYS_sethostname, 0 },
};

/** ctl_call_flags - CALL_* of a call, or -EPERM if it is not permitted */
int ctl_call_flags(uint32_t nr)
{
	size_t i;

	for (i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
		if (entries[i].nr == nr)
			return entries[i].flags;
	return -EPERM;
}
