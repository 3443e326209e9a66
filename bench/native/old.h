/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A library with LKL's older interface, that of Linux 4.9: no lkl_init(),
 * memory as an argument, asm-generic's call numbers. Its kernel sometimes
 * stalls. The program therefore has a short time limit, and its parent starts
 * it again.
 */
#ifndef BENCH_OLD_H
#define BENCH_OLD_H

#include <sys/syscall.h>

#include <lkl.h>

#define OLD_LIMIT_S	8	/* of the whole program, by SIGALRM */
#define OLD_MEM		(256ul << 20)

/*
 * The features of its virtio device; without them it accepts no larger frames.
 */
#define OLD_OFFLOADS	(LKL_OFFLOAD_CSUM | LKL_OFFLOAD_GUEST_CSUM | \
			 LKL_OFFLOAD_GUEST_TSO4 | LKL_OFFLOAD_HOST_TSO4)

/* The start of its struct lkl_host_operations. */
struct old_ops {
	const char *virtio_devices;
	void (*print)(const char *str, int len);
};

/* The calls of the measuring loops, include/uapi/asm-generic/unistd.h. */
static const short old_numbers[] = {
#ifdef __x86_64__
	[SYS_read] = 63, [SYS_write] = 64, [SYS_close] = 57,
	[SYS_socket] = 198, [SYS_bind] = 200, [SYS_listen] = 201,
	[SYS_accept] = 202, [SYS_connect] = 203, [SYS_sendto] = 206,
	[SYS_recvfrom] = 207, [SYS_setsockopt] = 208, [SYS_getsockopt] = 209,
	[SYS_shutdown] = 210, [SYS_getppid] = 173, [SYS_clock_nanosleep] = 115,
	[SYS_nanosleep] = 101,
#endif
};

static long (*old_syscall)(long nr, long *params);

/** old_call - lkl_syscall() with the host's number */
static inline long old_call(long nr, long *p)
{
	size_t n = sizeof(old_numbers) / sizeof(old_numbers[0]);

	if (nr < 0 || (size_t)nr >= n || !old_numbers[nr])
		return n ? -ENOSYS : old_syscall(nr, p);
	return old_syscall(old_numbers[nr], p);
}

/** old_print - discard the log of the kernel */
static inline void old_print(const char *str, int len)
{
	(void)str;
	(void)len;
}

/**
 * old_start - boot the kernel
 * @so: handle
 * @cmdline: addition to the kernel's command line
 */
static inline int old_start(void *so, const char *cmdline)
{
	int (*start)(void *ops, unsigned long mem, const char *fmt, ...);
	struct old_ops *ops = dlsym(so, "lkl_host_ops");

	start = dlsym(so, "lkl_start_kernel");
	if (!ops || !start)
		return -ENOEXEC;
	ops->print = old_print;
	alarm(OLD_LIMIT_S);
	return start(ops, OLD_MEM, "loglevel=3 %s", cmdline);
}

#endif
