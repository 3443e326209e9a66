// SPDX-License-Identifier: GPL-2.0-only
/* The stack of a node: the library in loop mode with a virtual clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <lkl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "virtual/virtual.h"

#define TAG		(1ull << 40)
#define FRAME_MAX	65536

#define FUNCTIONS(X) \
	X(init) X(start_kernel) X(syscall) X(loop_init) X(set_virtual) X(loop_step) X(loop_rest) \
	X(loop_event) X(netdev_fd_create) X(netdev_add) X(if_up) X(sysctl)

static struct {
#define X(fn) __typeof__(lkl_##fn) *fn;
	FUNCTIONS(X)
#undef X
} lkl;

/* Our ends of the devices */
static int devices[MAX_IFS], device_count;

static void on_panic(void)
{
	fail("the kernel of the stack has panicked");
}

static void on_print(const char *str, int len)
{
	if (write(2, str, (size_t)len) < 0)
		return;	/* only the log */
}

long st_call(long nr, long a, long b, long c, long d, long e, long f)
{
	long args[6] = { a, b, c, d, e, f };

	return lkl.syscall(nr, args);
}

static void check(long ret, const char *what, const char *text)
{
	if (ret < 0)
		fail("%s %s: %s", what, text, strerror((int)-ret));
}

/** stack_begin - boot the kernel */
void stack_begin(const char *path, const char *mem, uint64_t seed)
{
	static struct lkl_host_operations ops = { .print = on_print, .panic = on_panic };
	/* struct sigaction of the kernel: handler, flags, restorer, mask */
	unsigned long ignore[4] = { (unsigned long)SIG_IGN, 0, 0, 0 };
	void *lib = dlopen(path, RTLD_NOW);

	if (!lib)
		fail("loading the stack library: %s", dlerror());
#define X(fn) \
	lkl.fn = (__typeof__(lkl.fn))dlsym(lib, "lkl_" #fn); \
	if (!lkl.fn) \
		fail("%s has no lkl_" #fn "(); virtual time requires a stack of this version", path);
	FUNCTIONS(X)
#undef X
	lkl.init(&ops);
	check(lkl.loop_init(epoll_create1(EPOLL_CLOEXEC), TAG), "the stack's", "loop");
	check(lkl.set_virtual(&now, REAL_OFFSET, seed), "virtual time of the stack", path);
	check(lkl.start_kernel("mem=%s loglevel=5 printk.time=1", mem), "booting the stack", path);
	/* Programs get this signal from program.c, so the task of the stack must not. */
	check(ST(rt_sigaction, SIGPIPE, ignore, 0, 8, 0, 0), "rt_sigaction", "");
	lkl.if_up(1);
	/* As in other labs, all addresses are known. */
	stack_sysctl("net.ipv6.conf.default.accept_ra=0");
	stack_sysctl("net.ipv6.conf.default.accept_dad=0");
}

/** stack_sysctl - NAME=VALUE */
void stack_sysctl(const char *text)
{
	char *name = strdup(text), *value = strchr(name, '=');

	if (!value)
		fail("sysctl %s: no value", text);
	*value++ = 0;
	check(lkl.sysctl(name, value), "sysctl", text);
	free(name);
}

/** stack_interface - add an interface with a hardware address: 02:00:0a:00:01:01 */
void stack_interface(const char *text)
{
	unsigned int m[6] = { 0 };
	uint8_t mac[6];
	struct lkl_netdev_args args = { .mac = mac };
	int sv[2], i, big = 4 << 20;

	if (sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 6)
		fail("interface %s: expected a hardware address", text);
	for (i = 0; i < 6; i++)
		mac[i] = (uint8_t)m[i];
	if (device_count == MAX_IFS || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK |
						  SOCK_CLOEXEC, 0, sv))
		fail("interface %d: %s", device_count, strerror(errno));
	for (i = 0; i < 2; i++)	/* without the right to do so, frames wait in the stack */
		if (setsockopt(sv[i], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big)))
			setsockopt(sv[i], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	i = lkl.netdev_add(lkl.netdev_fd_create(sv[1], 0), &args);
	check(i, "adding the interface", text);
	devices[i] = sv[0];
	device_count = i + 1;
}

/* Passes on what the devices have sent. */
static bool drain(void)
{
	static char frame[FRAME_MAX];
	bool any = false;
	ssize_t n;
	int i;

	for (i = 0; i < device_count; i++) {
		bool room = false;

		while ((n = recv(devices[i], frame, sizeof(frame), MSG_DONTWAIT)) > 0) {
			message(MSG_FRAME, i, now, frame, (uint32_t)n);
			room = true;
		}
		if (room)
			lkl.loop_event(TAG | (unsigned int)i, EPOLLOUT);
		any |= room;
	}
	return any;
}

/** stack_settle - run the kernel until it waits */
void stack_settle(void)
{
	long long ns;

	do {
		do {
			ns = lkl.loop_step();
			if (drain())
				ns = 0;
		} while (ns == 0);
		ns = ns < -1 ? ns : lkl.loop_rest();
		if (drain())
			ns = 0;
	} while (ns == 0);
	if (ns < -1)
		fail("the kernel of the stack has ended");
}

/** stack_next - the time of the kernel's next timer */
uint64_t stack_next(void)
{
	long long ns;

	while ((ns = lkl.loop_rest()) == 0)
		stack_settle();
	return ns < 0 ? NEVER : now + (uint64_t)ns;
}

/** stack_frame - a frame arrives at an interface */
void stack_frame(int iface, const void *frame, uint32_t len)
{
	if (iface >= device_count || send(devices[iface], frame, len, MSG_DONTWAIT) != (ssize_t)len)
		fail("a frame of %u bytes to interface %d: %s", len, iface, strerror(errno));
	lkl.loop_event(TAG | (unsigned int)iface, EPOLLIN);
	stack_settle();
}
