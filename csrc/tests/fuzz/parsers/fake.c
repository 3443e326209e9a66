// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fake stack of a fuzzer: descriptors, readiness, panics, and results that
 * the input chooses. Only calls that lklhost makes for itself write to the
 * caller's memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shared/ctl_proto.h"
#include "fuzz.h"
#include "base/lklhost.h"
#include "base/loop.h"
#include "stack/stack.h"

#define WATCHES	64
#define FDS	100	/* number of the first descriptor */

long (*fake_more)(long nr, const long *args);

static struct {
	struct input *in;
	bool panic, asked;
	int last_fd;
	struct {
		int fd;
		uint32_t ready;
		void *ptr;
	} watch[WATCHES];
} fake;

/** fake_result - result of a call: an error, often EAGAIN, or a small number */
long fake_result(void)
{
	uint8_t v = fake.in ? get8(fake.in) : 0;

	return v < 64 ? v : v < 128 ? -EAGAIN : v - 256;
}

/** new_fd - return a new descriptor, or an error */
static long new_fd(void)
{
	long ret = fake_result();

	if (ret < 0)
		return ret;
	/* Numbers are reused, like those of closed descriptors. */
	fake.last_fd = (fake.last_fd + 1) % 16;
	return FDS + fake.last_fd;
}

/** watch - epoll_ctl(2) */
static long watch(int op, int fd, const struct epoll_event *ev)
{
	size_t i, slot = WATCHES;

	for (i = 0; i < WATCHES; i++) {
		if (fake.watch[i].ptr && fake.watch[i].fd == fd)
			break;
		if (!fake.watch[i].ptr && slot == WATCHES)
			slot = i;
	}
	if (i == WATCHES && op != EPOLL_CTL_ADD)
		return -ENOENT;
	if (i == WATCHES)
		i = slot;
	else if (op == EPOLL_CTL_ADD)
		return -EEXIST;
	if (i == WATCHES)
		return -ENOSPC;
	fake.watch[i].fd = fd;
	fake.watch[i].ready = 0;
	fake.watch[i].ptr = op == EPOLL_CTL_DEL ? NULL : ev->data.ptr;
	return 0;
}

/** events - epoll_pwait(2) */
static long events(struct epoll_event *ev, long max)
{
	long n = 0;
	size_t i;

	for (i = 0; i < WATCHES && n < max; i++) {
		if (!fake.watch[i].ptr || !fake.watch[i].ready)
			continue;
		ev[n].events = fake.watch[i].ready;
		ev[n++].data.ptr = fake.watch[i].ptr;
		fake.watch[i].ready = 0;
	}
	return n;
}

/** release - uname(2) */
static long release(struct utsname *u)
{
	memset(u, 0, sizeof(*u));
	strcpy(u->release, "6.12.0");
	return 0;
}

/** fake_call - a system call of the stack */
static long fake_call(long nr, const long a[6])
{
	long ret = fake_more ? fake_more(nr, a) : FAKE_NEXT;

	if (ret != FAKE_NEXT)
		return ret;
	if (fake.panic)
		loop_panic();
	switch (nr) {
	case SYS_uname:
		return fake.in ? fake_result() : release((void *)a[0]);
	case SYS_epoll_create1:
	case SYS_mount:
	case SYS_mkdirat:
	case SYS_prlimit64:
		return fake.in ? fake_result() : 3;
	case SYS_epoll_ctl:
		return watch((int)a[1], (int)a[2], (const void *)a[3]);
	case SYS_epoll_pwait:
		return events((void *)a[1], a[2]);
	case SYS_socket:
	case SYS_accept4:
	case SYS_openat:
	case SYS_dup:
		return new_fd();
	case SYS_fcntl:
		return a[1] == F_DUPFD_CLOEXEC || a[1] == F_DUPFD ? new_fd() :
								    0;
	case SYS_close:
		return 0;
	}
	return fake_result();
}

/** fake_boot - nothing to start; may fail if the input says so */
static int fake_boot(uint64_t mem, const char *cmdline)
{
	(void)mem;
	return cmdline[0] == '!' ? -EINVAL : 0;
}

/** fake_step - there are no timers */
static int64_t fake_step(void)
{
	return -1;
}

/** fake_event - never called: the fake has no descriptors of its own */
static void fake_event(uint64_t data, uint32_t ev)
{
	(void)data;
	(void)ev;
}

/** fake_watch - nothing to do: fake_asked() is called in each turn */
static int fake_watch(int epfd)
{
	(void)epfd;
	return 0;
}

/** fake_asked - whether something has become ready */
static bool fake_asked(void)
{
	bool was = fake.asked;

	fake.asked = false;
	return was;
}

/** fake_link_add - accept or refuse the descriptor */
static int fake_link_add(int fd, uint32_t kind, uint32_t flags,
			 const uint8_t mac[6], uint16_t mtu)
{
	(void)kind;
	(void)mac;
	if (flags & 1 || mtu == 1)
		return -EINVAL;
	close(fd);
	return (int)(flags & 63);
}

/** fake_link_join - accept or refuse the bell */
static int fake_link_join(int id, int bell)
{
	if (id & 1)
		return -EINVAL;
	close(bell);
	return 0;
}

/** fake_link_del - remove any device */
static int fake_link_del(int id)
{
	return id < 0 ? -ENODEV : 0;
}

/** fake_ifindex - ifindex of any device */
static int fake_ifindex(int id)
{
	return id + 2;
}

/** fake_halt - nothing to stop */
static void fake_halt(void)
{
}

static const struct stack_ops fake_ops = {
	.abi = CTL_ABI_NATIVE, .boot = fake_boot, .call = fake_call,
	.step = fake_step, .event = fake_event, .watch = fake_watch,
	.asked = fake_asked, .link_add = fake_link_add,
	.link_join = fake_link_join, .link_del = fake_link_del, .ifindex = fake_ifindex,
	.halt = fake_halt,
};

/** fake_ready - report an event of the @n-th watched descriptor */
void fake_ready(unsigned int n)
{
	fake.watch[n % WATCHES].ready = EPOLLIN;
	fake.asked = true;
}

/** fake_panic - let the kernel panic in the next call */
void fake_panic(void)
{
	fake.panic = true;
}

/** fake_host - set the state that the command line would set */
__attribute__((constructor))
static void fake_host(void)
{
	host.ctl_fd = -1;
	host.abi = "native";
	host.stack_path = "liblkl.so";
	host.run_dir = ".";
}

/** fake_start - start with a booted stack; @in contains its results */
void fake_start(struct input *in)
{
	memset(&fake, 0, sizeof(fake));
	stack = &fake_ops;
	stack_boot(0, "");
	fake.in = in;
}

/** fake_end - stop reading @in; later calls still get results */
void fake_end(void)
{
	fake.in = NULL;
	fake.panic = false;
}
