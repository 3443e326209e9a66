// SPDX-License-Identifier: GPL-2.0-only
/*
 * Back end "foreign": a library with upstream LKL's interface.
 *
 * Theory of operation
 *
 * Such a library runs its kernel in its own threads, so the loop need not drive
 * it. But it does not report readiness. A helper thread therefore waits inside
 * the stack, on an outer epoll that contains the stack's epoll, and then writes
 * to an eventfd of the host. The outer epoll is edge-triggered and thus
 * consumes no event. At the end, an eventfd in the stack wakes the helper.
 *
 * Call numbers are those of asm-generic; foreign_calls.c translates them. The
 * packing of struct epoll_event depends on how the library was built, and is
 * detected.
 *
 * The old interface has lkl_start_kernel(ops, mem, fmt...), and devices only
 * before boot. The new one has lkl_init(ops) and lkl_start_kernel(fmt...). Both
 * export lkl_host_ops; lklhost replaces print and panic in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/thread.h"
#include "shared/ctl_proto.h"
#include "stack/backend.h"
#include "stack/foreign_calls.h"
#include "stack/foreign_netdev.h"

#define MEM_DEFAULT	(64ul << 20)
#define HALT_S		3

/* First members of struct lkl_host_operations, the same in both interfaces. */
struct foreign_ops {
	const char *virtio_devices;
	void (*print)(const char *str, int len);
	void (*panic)(void);
};

static struct {
	struct foreign_ops *ops;
	int (*init)(void *ops);
	int (*start_old)(void *ops, unsigned long mem, const char *fmt, ...);
	int (*start_new)(const char *fmt, ...);
	long (*syscall)(long no, long *params);
	long (*sys_halt)(void);
	struct foreign_netdev netdev;
} lkl;

static bool is_old;
static bool booted;
static bool packed = true;	/* struct epoll_event */
static bool stopping;
static bool asked;
static int outer = -1;		/* epoll in the stack, for the helper */
static int wake = -1;		/* eventfd in the stack, to end the helper */
static pthread_t helper;
static pthread_t main_thread;
static struct source bell = { .fd = -1 };
static bool panicked;

/** foreign_print - a part of the kernel's log; called from any thread */
static void foreign_print(const char *str, int len)
{
	log_console(str, (size_t)len);
}

/**
 * foreign_panic - the kernel is dead
 *
 * In a thread of the library, this notifies the loop and stops the thread.
 */
static void foreign_panic(void)
{
	uint64_t one = 1;

	if (pthread_equal(pthread_self(), main_thread))
		loop_panic();
	__atomic_store_n(&panicked, true, __ATOMIC_SEQ_CST);
	if (write(bell.fd, &one, sizeof(one)) < 0)
		_exit(HOST_EXIT_PANIC);
	for (;;)
		pause();
}

/** raw - a call with a number of asm-generic */
static long raw(long nr, long a, long b, long c, long d, long e, long f)
{
	long params[6] = { a, b, c, d, e, f };

	return lkl.syscall(nr, params);
}

/** help - main function of the helper thread */
static void *help(void *arg)
{
	char ev[16];
	uint64_t one = 1;

	(void)arg;
	while (!__atomic_load_n(&stopping, __ATOMIC_SEQ_CST)) {
		long n = raw(GENERIC_epoll_pwait, outer, (long)ev, 1, -1, 0, 8);

		if (n < 0 && n != -EINTR)
			break;
		if (n > 0 && write(bell.fd, &one, sizeof(one)) < 0)
			break;
	}
	return NULL;
}

/** rung - the stack has events or is dead */
static void rung(struct source *src, uint32_t events)
{
	uint64_t n;

	(void)events;
	if (read(src->fd, &n, sizeof(n)) < 0)
		return;
	if (__atomic_load_n(&panicked, __ATOMIC_SEQ_CST))
		stack_panicked();
	else
		asked = true;
}

/** stack_foreign_bind - look up the functions */
int stack_foreign_bind(void *lib, bool old, char *err, size_t errlen)
{
	const struct {
		const char *name;
		void *to;
		bool needed;
	} want[] = {
		{ "lkl_host_ops", &lkl.ops, true },
		{ "lkl_init", &lkl.init, !old },
		{ "lkl_start_kernel", &lkl.start_old, old },
		{ "lkl_start_kernel", &lkl.start_new, !old },
		{ "lkl_syscall", &lkl.syscall, true },
		{ "lkl_sys_halt", &lkl.sys_halt, true },
		{ "lkl_netdev_add", &lkl.netdev.add, true },
		{ "lkl_netdev_remove", &lkl.netdev.remove, false },
		{ "lkl_netdev_get_ifindex", &lkl.netdev.get_ifindex, true },
		{ "lkl_register_netdev_fd", &lkl.netdev.fd, false },
		{ "lkl_register_netdev_linux_fdnet", &lkl.netdev.fd, false },
	};
	size_t i;

	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		void *p = stack_symbol(lib, want[i].name,
				       want[i].needed ? err : NULL, errlen);

		if (!p && want[i].needed)
			return -ENOEXEC;
		if (p)
			memcpy(want[i].to, &p, sizeof(p));
	}
	if (!lkl.netdev.fd) {
		snprintf(err, errlen, "%s: the library does not support devices on descriptors (lkl_register_netdev_fd())",
			 host.stack_path);
		return -ENOEXEC;
	}
	is_old = lkl.netdev.old = old;
	main_thread = pthread_self();
	lkl.ops->print = foreign_print;
	lkl.ops->panic = foreign_panic;
	stack = old ? &stack_old_ops : &stack_new_ops;
	return 0;
}

/** bell_make - create the eventfd that the helper writes to */
static int bell_make(void)
{
	bell.fn = rung;
	bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bell.fd < 0)
		return -errno;
	return loop_add(&bell, EPOLLIN);
}

/** foreign_init - called once, before the first device or the boot */
static int foreign_init(void)
{
	static bool done;
	int ret;

	if (done)
		return 0;
	ret = bell_make();
	if (!ret && !is_old)
		ret = lkl.init(lkl.ops);
	done = !ret;
	return ret;
}

/** foreign_boot - start the kernel */
static int foreign_boot(uint64_t mem, const char *cmdline)
{
	int ret = foreign_init();

	if (ret)
		return ret;
	if (!mem)
		mem = MEM_DEFAULT;
	if (is_old)
		ret = lkl.start_old(lkl.ops, mem, "%s", cmdline);
	else
		ret = lkl.start_new("mem=%luK %s", (unsigned long)(mem / 1024),
				    cmdline);
	booted = !ret;
	return ret;
}

/**
 * packing - detect the library's layout of struct epoll_event
 *
 * One buffer is valid in both layouts; the returned data reveal which one is
 * used.
 */
static int packing(void)
{
	const uint64_t mark = 0x1122334455667788;
	char ev[16] = { 0 }, out[16] = { 0 };
	const uint32_t in = EPOLLIN;
	long ep, fd, n;

	ep = raw(GENERIC_epoll_create1, 0, 0, 0, 0, 0, 0);
	fd = raw(GENERIC_eventfd2, 1, 0, 0, 0, 0, 0);
	if (ep < 0 || fd < 0)
		return (int)(ep < 0 ? ep : fd);
	memcpy(ev, &in, sizeof(in));
	memcpy(ev + 4, &mark, sizeof(mark));
	n = raw(GENERIC_epoll_ctl, ep, EPOLL_CTL_ADD, fd, (long)ev, 0, 0);
	if (!n)
		n = raw(GENERIC_epoll_pwait, ep, (long)out, 1, 0, 0, 8);
	/* If unpacked, the kernel reads and writes bytes 8 to 15. */
	packed = n == 1 && !memcmp(out + 4, &mark, sizeof(mark));
	raw(GENERIC_close, fd, 0, 0, 0, 0, 0);
	raw(GENERIC_close, ep, 0, 0, 0, 0, 0);
	return n == 1 ? 0 : -EPROTO;
}

/** outer_add - add a descriptor of the stack to the helper's epoll */
static long outer_add(int fd)
{
	const uint32_t events = EPOLLIN | EPOLLET;
	char ev[16] = { 0 };

	memcpy(ev, &events, sizeof(events));
	return raw(GENERIC_epoll_ctl, outer, EPOLL_CTL_ADD, fd, (long)ev, 0, 0);
}

/** foreign_watch - start the helper on the stack's epoll */
static int foreign_watch(int epfd)
{
	long ret;

	outer = (int)raw(GENERIC_epoll_create1, 0, 0, 0, 0, 0, 0);
	wake = (int)raw(GENERIC_eventfd2, 0, 0, 0, 0, 0, 0);
	if (outer < 0 || wake < 0)
		return outer < 0 ? outer : wake;
	ret = outer_add(epfd);
	if (!ret)
		ret = outer_add(wake);
	if (ret)
		return (int)ret;
	return thread_start(&helper, "stack events", help, NULL);
}

/** epoll_call - calls with a struct epoll_event that is not packed */
static long epoll_call(long nr, const long a[6])
{
	char tmp[64 * 16];
	long i, n = a[2] > 64 ? 64 : a[2];
	char *user = (char *)a[nr == SYS_epoll_ctl ? 3 : 1];

	if (nr == SYS_epoll_ctl) {
		memset(tmp, 0, 16);
		if (user) {
			memcpy(tmp, user, 4);
			memcpy(tmp + 8, user + 4, 8);
		}
		return raw(GENERIC_epoll_ctl, a[0], a[1], a[2], (long)tmp, 0, 0);
	}
	n = raw(GENERIC_epoll_pwait, a[0], (long)tmp, n, a[3], a[4], a[5]);
	for (i = 0; i < n; i++) {
		memcpy(user + 12 * i, tmp + 16 * i, 4);
		memcpy(user + 12 * i + 4, tmp + 16 * i + 8, 8);
	}
	return n;
}

/** foreign_call - make a call given by the host's number */
static long foreign_call(long nr, const long args[6])
{
	static bool tried;

	if (!tried) {
		int ret = packing();

		if (ret)
			return ret;
		tried = true;
	}
	if (!packed && (nr == SYS_epoll_ctl || nr == SYS_epoll_pwait))
		return epoll_call(nr, args);
	return foreign_translate(nr, args, raw);
}

/** foreign_step - nothing to do: the library has its own threads */
static int64_t foreign_step(void)
{
	return -1;
}

/** foreign_event - nothing to do: the library handles its devices */
static void foreign_event(uint64_t data, uint32_t events)
{
	(void)data;
	(void)events;
}

/** foreign_asked - whether the helper has reported events */
static bool foreign_asked(void)
{
	bool was = asked;

	asked = false;
	return was;
}

/** foreign_link_add - add a device on @fd */
static int foreign_link_add(int fd, uint32_t kind, uint32_t flags,
			    const uint8_t mac[6], uint16_t mtu)
{
	int ret = booted && is_old ? -EOPNOTSUPP :
				     foreign_netdev_check(fd, kind, flags);

	if (ret)
		return ret;
	if (mtu)
		log_line("the MTU %u of a device must be set through the stack", mtu);
	ret = foreign_init();
	return ret ? ret : foreign_netdev_add(&lkl.netdev, fd, kind, flags, mac);
}

/** foreign_link_del - remove a device */
static int foreign_link_del(int id)
{
	if (!lkl.netdev.remove)
		return -EOPNOTSUPP;
	lkl.netdev.remove(id);
	return 0;
}

/** foreign_ifindex - ifindex of a device, 0 before boot */
static int foreign_ifindex(int id)
{
	return booted ? lkl.netdev.get_ifindex(id) : 0;
}

/** halt - halt the kernel; a thread, since it may hang */
static void *halt(void *arg)
{
	uint64_t one = 1;

	(void)arg;
	if (wake >= 0) {
		raw(GENERIC_write, wake, (long)&one, sizeof(one), 0, 0, 0);
		pthread_join(helper, NULL);
	}
	lkl.sys_halt();
	return NULL;
}

/** foreign_halt - shut down, within a time limit */
static void foreign_halt(void)
{
	struct timespec end;
	pthread_t t;

	__atomic_store_n(&stopping, true, __ATOMIC_SEQ_CST);
	if (!booted || thread_start(&t, "stack halt", halt, NULL))
		return;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += HALT_S;
	if (pthread_timedjoin_np(t, NULL, &end))
		log_line("the stack did not halt within %d s", HALT_S);
}

#define FOREIGN_OPS(number) {			\
	.abi = (number),			\
	.boot = foreign_boot,			\
	.call = foreign_call,			\
	.step = foreign_step,			\
	.event = foreign_event,			\
	.watch = foreign_watch,			\
	.asked = foreign_asked,			\
	.link_add = foreign_link_add,		\
	.link_del = foreign_link_del,		\
	.ifindex = foreign_ifindex,		\
	.halt = foreign_halt,			\
}

const struct stack_ops stack_old_ops = FOREIGN_OPS(CTL_ABI_LKL_OLD);
const struct stack_ops stack_new_ops = FOREIGN_OPS(CTL_ABI_LKL_NEW);
