// SPDX-License-Identifier: GPL-2.0-only
/*
 * Translate the host's call numbers to those of asm-generic, for libraries with
 * upstream LKL's interface.
 *
 * Theory of operation
 *
 * On x86-64 the numbers differ, older calls have no counterpart and are
 * replaced by their *at() successors, and struct stat has another layout. On
 * arm64 the host's table is the generic one. Only the calls of the engine and
 * those that control clients may make (ctl_calls.c) are translated; all others
 * fail with ENOSYS.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "stack/foreign_calls.h"

#ifdef __x86_64__

/* include/uapi/asm-generic/unistd.h */
static const struct {
	short host;
	short generic;
} same[] = {
	{ SYS_dup, 23 }, { SYS_fcntl, 25 }, { SYS_ioctl, 29 },
	{ SYS_mknodat, 33 }, { SYS_mkdirat, 34 }, { SYS_unlinkat, 35 },
	{ SYS_umount2, 39 }, { SYS_mount, 40 }, { SYS_statfs, 43 },
	{ SYS_fstatfs, 44 }, { SYS_ftruncate, 46 }, { SYS_faccessat, 48 },
	{ SYS_openat, 56 }, { SYS_close, GENERIC_close },
	{ SYS_getdents64, 61 }, { SYS_lseek, 62 }, { SYS_read, 63 },
	{ SYS_write, GENERIC_write }, { SYS_readv, 65 }, { SYS_writev, 66 },
	{ SYS_pread64, 67 }, { SYS_pwrite64, 68 }, { SYS_ppoll, 73 },
	{ SYS_readlinkat, 78 }, { SYS_clock_gettime, 113 },
	{ SYS_syslog, 116 }, { SYS_uname, 160 }, { SYS_sethostname, 161 },
	{ SYS_gettimeofday, 169 }, { SYS_getpid, 172 }, { SYS_getppid, 173 },
	{ SYS_getuid, 174 }, { SYS_geteuid, 175 }, { SYS_getgid, 176 },
	{ SYS_sysinfo, 179 }, { SYS_socket, 198 }, { SYS_bind, 200 },
	{ SYS_listen, 201 }, { SYS_accept, 202 }, { SYS_connect, 203 },
	{ SYS_getsockname, 204 }, { SYS_getpeername, 205 },
	{ SYS_sendto, 206 }, { SYS_recvfrom, 207 }, { SYS_setsockopt, 208 },
	{ SYS_getsockopt, 209 }, { SYS_shutdown, 210 }, { SYS_sendmsg, 211 },
	{ SYS_recvmsg, 212 }, { SYS_accept4, 242 }, { SYS_recvmmsg, 243 },
	{ SYS_sendmmsg, 269 }, { SYS_getrandom, 278 }, { SYS_statx, 291 },
	{ SYS_epoll_create1, GENERIC_epoll_create1 },
	{ SYS_epoll_ctl, GENERIC_epoll_ctl },
	{ SYS_epoll_pwait, GENERIC_epoll_pwait },
};

#define G_UNLINKAT	35
#define G_MKDIRAT	34
#define G_FACCESSAT	48
#define G_OPENAT	56
#define G_READLINKAT	78
#define G_FSTATAT	79
#define G_FSTAT		80

/* include/uapi/asm-generic/stat.h */
struct generic_stat {
	unsigned long st_dev, st_ino;
	unsigned int st_mode, st_nlink, st_uid, st_gid;
	unsigned long st_rdev, pad1;
	long st_size;
	int st_blksize, pad2;
	long st_blocks;
	long atime, atime_nsec, mtime, mtime_nsec, ctime, ctime_nsec;
	unsigned int unused[2];
};

/** stat_call - fstat and similar calls, with the layout converted */
static long stat_call(long nr, const long a[6], foreign_raw raw)
{
	struct generic_stat g;
	struct stat *st;
	long ret;

	memset(&g, 0, sizeof(g));
	switch (nr) {
	case SYS_fstat:
		ret = raw(G_FSTAT, a[0], (long)&g, 0, 0, 0, 0);
		st = (struct stat *)a[1];
		break;
	case SYS_newfstatat:
		/* Linux 4.9 has AT_EMPTY_PATH, but fstat is more reliable. */
		if ((a[3] & AT_EMPTY_PATH) && !*(const char *)a[1])
			ret = raw(G_FSTAT, a[0], (long)&g, 0, 0, 0, 0);
		else
			ret = raw(G_FSTATAT, a[0], a[1], (long)&g, a[3], 0, 0);
		st = (struct stat *)a[2];
		break;
	default:
		ret = raw(G_FSTATAT, AT_FDCWD, a[0], (long)&g,
			  nr == SYS_lstat ? AT_SYMLINK_NOFOLLOW : 0, 0, 0);
		st = (struct stat *)a[1];
	}
	if (ret)
		return ret;
	memset(st, 0, sizeof(*st));
	st->st_dev = g.st_dev;
	st->st_ino = g.st_ino;
	st->st_mode = g.st_mode;
	st->st_nlink = g.st_nlink;
	st->st_uid = g.st_uid;
	st->st_gid = g.st_gid;
	st->st_rdev = g.st_rdev;
	st->st_size = g.st_size;
	st->st_blksize = g.st_blksize;
	st->st_blocks = g.st_blocks;
	st->st_atim.tv_sec = g.atime;
	st->st_atim.tv_nsec = g.atime_nsec;
	st->st_mtim.tv_sec = g.mtime;
	st->st_mtim.tv_nsec = g.mtime_nsec;
	st->st_ctim.tv_sec = g.ctime;
	st->st_ctim.tv_nsec = g.ctime_nsec;
	return 0;
}

/**
 * foreign_translate - make a call given by the host's number
 * @raw: makes a call given by the generic number
 */
long foreign_translate(long nr, const long a[6], foreign_raw raw)
{
	size_t i;

	for (i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (same[i].host == nr)
			return raw(same[i].generic, a[0], a[1], a[2], a[3],
				   a[4], a[5]);
	switch (nr) {
	case SYS_open:
		return raw(G_OPENAT, AT_FDCWD, a[0], a[1], a[2], 0, 0);
	case SYS_access:
		return raw(G_FACCESSAT, AT_FDCWD, a[0], a[1], 0, 0, 0);
	case SYS_readlink:
		return raw(G_READLINKAT, AT_FDCWD, a[0], a[1], a[2], 0, 0);
	case SYS_mkdir:
		return raw(G_MKDIRAT, AT_FDCWD, a[0], a[1], 0, 0, 0);
	case SYS_rmdir:
		return raw(G_UNLINKAT, AT_FDCWD, a[0], AT_REMOVEDIR, 0, 0, 0);
	case SYS_unlink:
		return raw(G_UNLINKAT, AT_FDCWD, a[0], 0, 0, 0, 0);
	case SYS_stat:
	case SYS_lstat:
	case SYS_fstat:
	case SYS_newfstatat:
		return stat_call(nr, a, raw);
	}
	return -ENOSYS;
}

#else

/** foreign_translate - the host's numbers are the generic ones */
long foreign_translate(long nr, const long a[6], foreign_raw raw)
{
	return raw(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#endif
