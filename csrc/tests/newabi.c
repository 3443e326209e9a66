// SPDX-License-Identifier: GPL-2.0-only
/*
 * A shared library that provides upstream LKL's newer interface: lkl_init() and
 * lkl_start_kernel(fmt), asm-generic's call numbers, devices by
 * lkl_register_netdev_linux_fdnet(), no loop mode. It loads our stack library
 * from LKL_REAL, so that stack_foreign.c runs on a real kernel in tests.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "stack/foreign_calls.c"	/* for its table of numbers, used in the other direction */

struct ops {
	const char *virtio_devices;
	void (*print)(const char *str, int len);
	void (*panic)(void);
};

/* The first members of upstream's struct lkl_netdev. */
struct netdev {
	void *ops;
	int id;
	unsigned char has_vnet_hdr;
	int fd;
};

struct netdev_args {
	void *mac;
	unsigned int offload;
};

struct ops lkl_host_ops;

static void *real;

/** load - load the real library early: later lklhost cannot access files of the host */
__attribute__((constructor))
static void load(void)
{
	real = dlopen(getenv("LKL_REAL"), RTLD_NOW | RTLD_LOCAL);
}

/** sym - look up a function of the real library */
static void *sym(const char *name)
{
	return real ? dlsym(real, name) : NULL;
}

int lkl_init(struct ops *ops);
int lkl_start_kernel(const char *fmt, ...);
long lkl_syscall(long no, long *params);
long lkl_sys_halt(void);
struct netdev *lkl_register_netdev_linux_fdnet(int fd);
int lkl_netdev_add(struct netdev *nd, struct netdev_args *args);
int lkl_netdev_get_ifindex(int id);

/** lkl_init - pass the operations to the real library */
int lkl_init(struct ops *ops)
{
	int (*f)(struct ops *) = sym("lkl_init");

	return f ? f(ops) : -ENOEXEC;
}

/** lkl_start_kernel - boot, in threaded mode */
int lkl_start_kernel(const char *fmt, ...)
{
	int (*f)(const char *, ...) = sym("lkl_start_kernel");
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return f("%s", text);
}

static long (*call)(long no, long *params);

#ifdef __x86_64__
/** generic_fstatat - fstatat(2) and fstat(2), with asm-generic's layout */
static long generic_fstatat(long no, const long *p)
{
	struct stat st;
	long at[6] = { p[0], no == G_FSTAT ? (long)"" : p[1], (long)&st,
		       no == G_FSTAT ? AT_EMPTY_PATH : p[3] };
	struct generic_stat *g = (void *)p[no == G_FSTAT ? 1 : 2];
	long ret = call(SYS_newfstatat, at);

	if (ret)
		return ret;
	memset(g, 0, sizeof(*g));
	g->st_ino = st.st_ino;
	g->st_mode = st.st_mode;
	g->st_nlink = (unsigned int)st.st_nlink;
	g->st_size = st.st_size;
	return 0;
}
#endif

/** lkl_syscall - translate the generic number to the host's and make the call */
long lkl_syscall(long no, long *params)
{
	size_t i;

	if (!call)
		call = sym("lkl_syscall");
	if (no == GENERIC_eventfd2)
		return call(SYS_eventfd2, params);
#ifdef __x86_64__
	if (no == G_FSTAT || no == G_FSTATAT)
		return generic_fstatat(no, params);
	for (i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (same[i].generic == no)
			return call(same[i].host, params);
	return -ENOSYS;
#else
	(void)i;
	return call(no, params);
#endif
}

/** lkl_sys_halt - shut down */
long lkl_sys_halt(void)
{
	long (*f)(void) = sym("lkl_sys_halt");

	return f();
}

/** lkl_register_netdev_linux_fdnet - create a device on a descriptor */
struct netdev *lkl_register_netdev_linux_fdnet(int fd)
{
	struct netdev *nd = calloc(1, sizeof(*nd));

	if (nd)
		nd->fd = fd;
	return nd;
}

/** lkl_netdev_add - add the device to the kernel */
int lkl_netdev_add(struct netdev *nd, struct netdev_args *args)
{
	void *(*create)(int, int) = sym("lkl_netdev_fd_create");
	int (*add)(void *, struct netdev_args *) = sym("lkl_netdev_add");
	void *dev = create(nd->fd, (nd->has_vnet_hdr ? 1 : 0) |
				   (args->offload ? 2 : 0));

	free(nd);
	return dev ? add(dev, args) : -ENODEV;
}

/** lkl_netdev_get_ifindex - return the ifindex of a device */
int lkl_netdev_get_ifindex(int id)
{
	int (*f)(int) = sym("lkl_netdev_get_ifindex");

	return f(id);
}
