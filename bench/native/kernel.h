/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The measured kernel: the host's kernel, or a stack library in this process in
 * its usual threaded mode. sys() makes a call in the selected kernel.
 */
#ifndef BENCH_KERNEL_H
#define BENCH_KERNEL_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <lkl.h>

#include "bench.h"
#include "old.h"

#define MOST	8	/* maximum number of devices and settings */

/**
 * struct library - a stack library and its configuration
 * @path: of the shared object; NULL: the host's kernel
 * @taps: names of its devices
 * @ips: their addresses, A/N
 * @ip6s: their IPv6 addresses
 * @sysctls: NAME=VALUE
 * @ntaps: number of devices
 * @nsysctls: number of settings
 * @offload: LKL_OFFLOAD_* bits
 * @cmdline: text before our options on the kernel's command line, where the
 *	first mem= is used
 * @spin: microseconds to poll before sleeping, -1: the library's default
 */
struct library {
	const char *path, *taps[MOST], *ips[MOST], *ip6s[MOST], *sysctls[MOST];
	int ntaps, nsysctls;
	unsigned int offload;
	const char *cmdline;
	long spin;
};

/**
 * library_option - parse an option of the command line for a library
 * @l: the configuration
 * @name: the option
 * @value: its value
 *
 * Return: 0 if it is not such an option
 */
static inline int library_option(struct library *l, const char *name, const char *value)
{
	if (!strcmp(name, "--lib"))
		l->path = value;
	else if (!strcmp(name, "--tap") && l->ntaps < MOST)
		l->taps[l->ntaps++] = value;
	else if (!strcmp(name, "--ip") && l->ntaps)
		l->ips[l->ntaps - 1] = value;
	else if (!strcmp(name, "--ip6") && l->ntaps)
		l->ip6s[l->ntaps - 1] = value;
	else if (!strcmp(name, "--offload"))
		l->offload = (unsigned int)strtoul(value, NULL, 0);
	else if (!strcmp(name, "--cmdline"))
		l->cmdline = value;
	else if (!strcmp(name, "--sysctl") && l->nsysctls < MOST)
		l->sysctls[l->nsysctls++] = value;
	else if (!strcmp(name, "--spin"))
		l->spin = atol(value);
	else
		return 0;
	return 1;
}

/**
 * host_call - the host's kernel with the signature of lkl_syscall()
 * @nr: call number
 * @p: six arguments
 *
 * Return: the kernel's result, a negative errno on failure
 */
static inline long host_call(long nr, long *p)
{
	long ret;

	/*
	 * Use the C library's functions, which a preloaded library may replace.
	 */
	if (nr == SYS_read)
		ret = read((int)p[0], (void *)p[1], (size_t)p[2]);
	else if (nr == SYS_write)
		ret = write((int)p[0], (void *)p[1], (size_t)p[2]);
	else
		ret = syscall(nr, p[0], p[1], p[2], p[3], p[4], p[5]);
	return ret < 0 ? -errno : ret;
}

static long (*call)(long nr, long *params) = host_call;

#define sys(nr, ...) \
	call(nr, (long[6]){ __VA_ARGS__ })

static long (*library_halt)(void);

/**
 * symbol - look up a function of the library
 * @so: handle
 * @name: the function's name
 */
static inline void *symbol(void *so, const char *name)
{
	void *p = dlsym(so, name);

	if (!p)
		die(dlerror(), 0);
	return p;
}

/**
 * cut - copy the part of a setting before a separator
 * @text: such as ADDRESS/PREFIX, or NAME=VALUE
 * @sign: the separator
 * @room: for the copy
 * @size: of @room
 *
 * Return: the part after the separator
 */
static inline char *cut(const char *text, char sign, char *room, size_t size)
{
	char *at;

	snprintf(room, size, "%s", text);
	at = strchr(room, sign);
	if (!at)
		die(text, -EINVAL);
	*at = 0;
	return at + 1;
}

/**
 * address_device - set the addresses of a device of the library
 * @so: handle
 * @ifindex: the device's index
 * @ip: A/N
 * @ip6: A/N or NULL
 */
static inline void address_device(void *so, int ifindex, const char *ip, const char *ip6)
{
	int (*up)(int ifindex) = symbol(so, "lkl_if_up");
	int (*set4)(int ifindex, unsigned int addr, unsigned int len) = symbol(so, "lkl_if_set_ipv4");
	int (*set6)(int ifindex, void *addr, unsigned int len);
	struct in6_addr addr6;
	struct in_addr addr;
	char room[64], *len;
	int err;

	err = up(ifindex);
	if (err < 0)
		die("lkl_if_up", err);
	len = cut(ip, '/', room, sizeof(room));
	if (inet_pton(AF_INET, room, &addr) != 1)
		die("--ip is no IPv4 address", 0);
	err = set4(ifindex, addr.s_addr, (unsigned int)atoi(len));
	if (err < 0)
		die("lkl_if_set_ipv4", err);
	if (!ip6)
		return;
	set6 = symbol(so, "lkl_if_set_ipv6");
	len = cut(ip6, '/', room, sizeof(room));
	if (inet_pton(AF_INET6, room, &addr6) != 1)
		die("--ip6 is no IPv6 address", 0);
	err = set6(ifindex, &addr6, (unsigned int)atoi(len));
	if (err < 0)
		die("lkl_if_set_ipv6", err);
}

/**
 * boot - start the library's kernel with its devices
 * @l: the configuration
 */
static inline void boot(const struct library *l)
{
	static struct lkl_host_operations ops; /* no log, no panic callback */
	int (*init)(struct lkl_host_operations *ops);
	int (*start)(const char *fmt, ...);
	struct lkl_netdev *(*tap_create)(const char *ifname, int offload);
	int (*add)(struct lkl_netdev *nd, struct lkl_netdev_args *args);
	int (*get_ifindex)(int id);
	int (*set)(const char *path, const char *value);
	void (*set_spin)(unsigned int usec);
	char room[256], *value;
	int i, err, ids[MOST];
	struct lkl_netdev_args args = { .offload = l->offload };
	struct lkl_netdev *nd;
	void *so;
	int old;

	so = dlopen(l->path, RTLD_NOW | RTLD_LOCAL);
	if (!so)
		die(dlerror(), 0);
	old = !dlsym(so, "lkl_init");
	if (old)
		args.offload &= OLD_OFFLOADS;
	start = symbol(so, "lkl_start_kernel");
	tap_create = symbol(so, "lkl_netdev_tap_create");
	add = symbol(so, "lkl_netdev_add");
	get_ifindex = symbol(so, "lkl_netdev_get_ifindex");
	library_halt = symbol(so, "lkl_sys_halt");

	if (!old) {
		init = symbol(so, "lkl_init");
		err = init(&ops);
		if (err < 0)
			die("lkl_init", err);
	}
	for (i = 0; i < l->ntaps; i++) {
		nd = tap_create(l->taps[i], (int)args.offload);
		if (!nd)
			die("lkl_netdev_tap_create", -errno);
		ids[i] = add(nd, &args);
		if (ids[i] < 0)
			die("lkl_netdev_add", ids[i]);
	}
	if (l->spin >= 0) {
		set_spin = symbol(so, "lkl_set_spin");
		set_spin((unsigned int)l->spin);
	}
	err = old ? old_start(so, l->cmdline) :
		    start("%s mem=256M loglevel=3", l->cmdline);
	if (err < 0)
		die("lkl_start_kernel", err);
	old_syscall = symbol(so, "lkl_syscall");
	call = old ? old_call : old_syscall;
	for (i = 0; i < l->nsysctls; i++) {
		set = symbol(so, "lkl_sysctl");
		value = cut(l->sysctls[i], '=', room, sizeof(room));
		err = set(room, value);
		if (err < 0)
			die(l->sysctls[i], err);
	}
	for (i = 0; i < l->ntaps; i++)
		address_device(so, get_ifindex(ids[i]), l->ips[i], l->ip6s[i]);
}

/**
 * finish - flush the output, and halt a library's kernel
 * @l: the configuration
 */
static inline void finish(const struct library *l)
{
	long ret;

	fflush(stdout);
	if (!l->path)
		return;
	ret = library_halt();
	if (ret < 0)
		die("lkl_sys_halt", ret);
}

#endif
