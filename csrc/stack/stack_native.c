// SPDX-License-Identifier: GPL-2.0-only
/*
 * Back end "native": our own library, third_party/lkl, in loop mode. In a
 * process without a loop (preload) it runs in threaded mode.
 *
 * Theory of operation
 *
 * The library creates only one thread, which writes frames while the loop is
 * saturated; it does not call our code. The descriptors of its devices are in
 * the loop's epoll, and lkl_loop_event() passes their events to it. It runs
 * inside lkl_loop_step() and inside calls. A wait-queue hook on the stack's
 * epoll sets a flag that shows its readiness.
 *
 * The kernel's log goes to the ring and the run directory. On a panic, the
 * callback leaves the library permanently (loop_panic()).
 *
 * The library's functions are looked up by name, because the library is chosen
 * at run time and may be upstream's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "shared/ctl_proto.h"
#include "stack/backend.h"
#include "stack/stack_functions.h"

#define MAX_DEVS	64

/* third_party/lkl/include/lkl_host.h */
struct lkl_host_operations {
	const char *virtio_devices;
	void (*print)(const char *str, int len);
	void (*panic)(void);
};

/* third_party/lkl/include/lkl.h */
#define LKL_NETDEV_VNET_HDR	1
#define LKL_NETDEV_OFFLOAD	2
#define LKL_NETDEV_RAWIP	4
#define LKL_NETDEV_BIG		8
#define LKL_NETDEV_WIRE		16
#define LKL_NETDEV_VNET10	32
#define LKL_LOAD_EASY		0
#define LKL_LOAD_FULL		1
#define LKL_LOAD_RUSH		2

struct lkl_netdev;

struct lkl_netdev_args {
	void *mac;
	unsigned int offload;
};

static struct {
	int (*init)(struct lkl_host_operations *ops);
	int (*start_kernel)(const char *fmt, ...);
	long (*syscall)(long no, long *params);
	long (*sys_halt)(void);
	void (*cleanup)(void);
	int (*loop_init)(int epfd, uint64_t tag);
	void (*loop_event)(uint64_t data, uint32_t events);
	long long (*loop_step)(void);
	long long (*loop_rest)(void);
	int (*loop_watch)(int epfd, int *flag);
	int (*loop_refs)(int fd, struct iovec *iov, int max, unsigned long len);
	void (*loop_load)(int load);
	unsigned long (*loop_blocked)(void);
	void (*set_coalesce)(unsigned int usec);
	int (*holding)(void);
	unsigned long (*holds)(void);
	void (*netdev_prepare)(void);
	struct lkl_netdev *(*netdev_fd_create)(int fd, int flags);
	int (*netdev_add)(struct lkl_netdev *nd, struct lkl_netdev_args *args);
	int (*netdev_wire_join)(int id, int bell);
	void (*netdev_remove)(int id);
	void (*netdev_free)(struct lkl_netdev *nd);
	int (*netdev_get_ifindex)(int id);
	int (*if_set_mtu)(int ifindex, int mtu);
} lkl;

static struct {
	struct lkl_netdev *nd;
	uint16_t mtu;
} devs[MAX_DEVS];

static int flag;
static bool booted;

/** native_print - a part of the kernel's log */
static void native_print(const char *str, int len)
{
	log_console(str, (size_t)len);
}

static struct lkl_host_operations ops = {
	.print = native_print,
	.panic = loop_panic,
};

/** stack_native_bind - look up the functions and choose the loop mode */
int stack_native_bind(void *lib, char *err, size_t errlen)
{
	const struct {
		const char *name;
		void *to;
	} want[] = {
#define WANT(fn)	{ "lkl_" #fn, &lkl.fn },
		STACK_FUNCTIONS(WANT)
#undef WANT
	};
	size_t i;

	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		void *p = stack_symbol(lib, want[i].name, err, errlen);

		if (!p)
			return -ENOEXEC;
		memcpy(want[i].to, &p, sizeof(p));
	}
	stack = &stack_native_ops;
	lkl.netdev_prepare();	/* not possible later, see isolation.c */
	return 0;
}

/** native_prepare - called once, before the first device or the boot */
static int native_prepare(void)
{
	static bool done;
	int ret;

	if (done)
		return 0;
	ret = lkl.init(&ops);
	if (!ret && loop_epfd() >= 0)	/* otherwise threaded mode */
		ret = lkl.loop_init(loop_epfd(), LOOP_STACK_TAG);
	done = !ret;
	return ret;
}

/** native_mtu - set the MTU that LINK_ADD requested */
static void native_mtu(int id)
{
	int ifindex = lkl.netdev_get_ifindex(id);
	int ret = devs[id].mtu && ifindex > 0 ?
		  lkl.if_set_mtu(ifindex, devs[id].mtu) : 0;

	if (ret)
		warn_user("setting the MTU of device %d to %u: %s", id,
			  devs[id].mtu, strerror(-ret));
}

/** native_boot - start the kernel */
static int native_boot(uint64_t mem, const char *cmdline)
{
	char text[64] = "";
	int ret, i;

	ret = native_prepare();
	if (ret)
		return ret;
	if (mem)
		snprintf(text, sizeof(text), "mem=%lluK ",
			 (unsigned long long)(mem / 1024));
	ret = lkl.start_kernel("%s%s", text, cmdline);
	if (ret)
		return ret;
	booted = true;
	for (i = 0; i < MAX_DEVS; i++)
		if (devs[i].nd)
			native_mtu(i);
	return 0;
}

/**
 * native_call - a system call; the library changes only its own copy of @args
 */
static long native_call(long nr, const long args[6])
{
	return lkl.syscall(nr, (long *)(uintptr_t)args);
}

/** native_step - run the kernel until idle */
static int64_t native_step(void)
{
	return lkl.loop_step();
}

/** native_rest - stop the kernel's tick */
static int64_t native_rest(void)
{
	return lkl.loop_rest();
}

/** native_event - an event of a device of the library */
static void native_event(uint64_t data, uint32_t events)
{
	lkl.loop_event(data, events);
}

/** native_watch - make the library set the flag */
static int native_watch(int epfd)
{
	return lkl.loop_watch(epfd, &flag);
}

/** native_asked - read and clear the flag */
static bool native_asked(void)
{
	bool was = flag;

	flag = 0;
	return was;
}

/** native_refs - find received bytes */
static int native_refs(int fd, struct iovec *iov, int max, size_t len)
{
	return lkl.loop_refs(fd, iov, max, len);
}

/** native_coalesce - let frames gather */
static void native_coalesce(uint32_t us)
{
	lkl.set_coalesce(us);
}

/** native_holding - whether frames gather */
static bool native_holding(void)
{
	return lkl.holding();
}

/** native_load - report the load, so that another thread may write frames */
static void native_load(enum st_load load)
{
	lkl.loop_load(load == ST_LOAD_RUSH ? LKL_LOAD_RUSH :
		      load == ST_LOAD_FULL ? LKL_LOAD_FULL : LKL_LOAD_EASY);
}

/** netdev_flags - the library's flags for a kind of link and its flags */
static int netdev_flags(uint32_t kind, uint32_t flags)
{
	int f = 0;

	if (flags & CTL_LINKF_VNET_HDR)
		f |= LKL_NETDEV_VNET_HDR;
	if (flags & CTL_LINKF_VNET10)
		f |= LKL_NETDEV_VNET10;
	if (flags & CTL_LINKF_OFFLOAD)
		f |= LKL_NETDEV_OFFLOAD;
	if (flags & CTL_LINKF_BIG)
		f |= LKL_NETDEV_BIG;
	if (flags & CTL_LINKF_RAWIP || kind == CTL_LINK_COOKED ||
	    kind == CTL_LINK_TUN)
		f |= LKL_NETDEV_RAWIP;
	if (kind == CTL_LINK_WIRE)
		f |= LKL_NETDEV_WIRE;
	return f;
}

/**
 * native_link_add - add a device, before or after boot
 *
 * The library itself distinguishes a tap, a packet socket and another socket.
 */
static int native_link_add(int fd, uint32_t kind, uint32_t flags,
			   const uint8_t mac[6], uint16_t mtu)
{
	static const uint8_t none[6];
	struct lkl_netdev_args args = { 0 };
	uint8_t addr[6];
	struct lkl_netdev *nd;
	int own, ret;

	ret = native_prepare();
	if (ret)
		return ret;
	memcpy(addr, mac, sizeof(addr));
	if (memcmp(mac, none, sizeof(none)))
		args.mac = addr;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	args.offload = flags >> CTL_LINKF_FEATURES_SHIFT;
	nd = lkl.netdev_fd_create(own, netdev_flags(kind, flags));
	if (!nd) {
		ret = errno ? -errno : -EINVAL;
		close(own);
		return ret;
	}
	ret = lkl.netdev_add(nd, &args);
	if (ret >= MAX_DEVS) {
		lkl.netdev_remove(ret);
		ret = -ENOSPC;
	}
	if (ret < 0) {
		lkl.netdev_free(nd);	/* closes @own */
		return ret;
	}
	close(fd);
	devs[ret].nd = nd;
	devs[ret].mtu = mtu;
	if (booted)
		native_mtu(ret);
	return ret;
}

/** native_link_join - join a device to another one on its wire */
static int native_link_join(int id, int bell)
{
	int own, ret;

	if (id < 0 || id >= MAX_DEVS || !devs[id].nd)
		return -ENODEV;
	own = fcntl(bell, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return -errno;
	ret = lkl.netdev_wire_join(id, own);
	close(ret ? own : bell);
	return ret;
}

/** native_link_del - remove a device */
static int native_link_del(int id)
{
	if (id < 0 || id >= MAX_DEVS || !devs[id].nd)
		return -ENODEV;
	lkl.netdev_remove(id);
	lkl.netdev_free(devs[id].nd);
	devs[id].nd = NULL;
	return 0;
}

/** native_ifindex - ifindex of a device */
static int native_ifindex(int id)
{
	return lkl.netdev_get_ifindex(id);
}

/** native_halt - shut down; this closes the descriptors of devices */
static void native_halt(void)
{
	long ret = lkl.sys_halt();

	if (ret)
		log_line("halting the stack: %s", strerror((int)-ret));
	lkl.cleanup();
}

/** native_stats - counters of the loop mode */
static size_t native_stats(char *buf, size_t len)
{
	int n = snprintf(buf, len, "stack.blocked %lu\nstack.holds %lu\n",
			 booted ? lkl.loop_blocked() : 0,
			 booted ? lkl.holds() : 0);

	return n > 0 && (size_t)n < len ? (size_t)n : 0;
}

const struct stack_ops stack_native_ops = {
	.abi = CTL_ABI_NATIVE,
	.boot = native_boot,
	.call = native_call,
	.step = native_step,
	.rest = native_rest,
	.event = native_event,
	.watch = native_watch,
	.asked = native_asked,
	.refs = native_refs,
	.load = native_load,
	.coalesce = native_coalesce,
	.holding = native_holding,
	.link_add = native_link_add,
	.link_join = native_link_join,
	.link_del = native_link_del,
	.ifindex = native_ifindex,
	.halt = native_halt,
	.stats = native_stats,
};
