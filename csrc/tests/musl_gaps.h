/* SPDX-License-Identifier: GPL-2.0-only */
/* Definitions that the tests use and musl lacks; included before everything else. */
#ifndef MUSL_GAPS_H
#define MUSL_GAPS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/** strerrorname_np - return the names of errors that the tests print */
static inline const char *strerrorname_np(int err)
{
#define NAME(e)	{ e, #e }
	static const struct {
		int err;
		const char *name;
	} names[] = {
		NAME(EACCES), NAME(EADDRINUSE), NAME(EADDRNOTAVAIL), NAME(EAFNOSUPPORT),
		NAME(EAGAIN), NAME(EALREADY), NAME(EBADF), NAME(ECHILD), NAME(ECONNABORTED),
		NAME(ECONNREFUSED), NAME(ECONNRESET), NAME(EDESTADDRREQ), NAME(EDOM),
		NAME(EEXIST), NAME(EFAULT), NAME(EHOSTUNREACH), NAME(EINPROGRESS), NAME(EINTR),
		NAME(EINVAL), NAME(EISCONN), NAME(ELOOP), NAME(EMFILE), NAME(EMSGSIZE),
		NAME(ENETDOWN), NAME(ENETUNREACH), NAME(ENOBUFS), NAME(ENODEV), NAME(ENOENT),
		NAME(ENOMEM), NAME(ENOPROTOOPT), NAME(ENOSYS), NAME(ENOTCONN), NAME(ENOTDIR),
		NAME(ENOTSOCK), NAME(ENOTTY), NAME(ENXIO), NAME(EOPNOTSUPP), NAME(EPERM), NAME(EPIPE),
		NAME(EPROTONOSUPPORT), NAME(EPROTOTYPE), NAME(ERANGE), NAME(ESOCKTNOSUPPORT),
		NAME(ESPIPE), NAME(ESRCH), NAME(ETIMEDOUT), NAME(ETOOMANYREFS),
	};
#undef NAME
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].err == err)
			return names[i].name;
	return "?";
}

static inline int close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

#endif
