// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests the stack that is linked into the lklhost of a device, through the
 * interface that lklhost uses: boots it in loop mode, and uses a file and a
 * connection in it. There is no target, so the test also runs under qemu-user,
 * which does not support seccomp.
 *
 *	linked LIB OTHER	LIB is the library that is linked in, OTHER is not
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/lklhost.h"
#include "base/loop.h"
#include "stack/stack.h"
#include "tap.h"

#define FAR	((uint64_t)5 << 30)	/* beyond 32 bits */

/** files - 64-bit positions and sizes, passed as the calls of this architecture require */
static void files(void)
{
	char buf[8] = "";
	struct stat st;
	long fd = ST(SYS_openat, AT_FDCWD, "/far",
		     O_CREAT | O_RDWR | O_LARGEFILE, 0600, 0, 0);

	memset(&st, 0, sizeof(st));
	ok(fd >= 0 && st_pwrite((int)fd, "there", 5, FAR) == 5, "pwrite at 5 GiB");
	ok(st_pread((int)fd, buf, sizeof(buf), FAR) == 5 &&
	   !memcmp(buf, "there", 5), "pread from there");
	ok(st_pread((int)fd, buf, 4, 0) == 4 && !buf[0], "and from the start");
	ok(!st_stat(AT_FDCWD, "/far", 0, &st) && S_ISREG(st.st_mode) &&
	   (uint64_t)st.st_size == FAR + 5 && st.st_ino && st.st_mtim.tv_sec,
	   "stat: size, mode, inode, time");
	ok(!st_stat((int)fd, "", AT_EMPTY_PATH, &st), "stat of a descriptor");
	st_close(fd);
}

static bool woken;

static void wake(struct stack_src *src, uint32_t events)
{
	(void)src;
	(void)events;
	woken = true;
}

/** connection - use TCP over the stack's loopback, with readiness from its epoll */
static void connection(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	struct stack_src src = { .fn = wake };
	socklen_t len = sizeof(sa);
	char buf[16] = "";
	int l, c, s, i;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	l = (int)st_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	c = (int)st_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ok(l >= 0 && c >= 0 && !st_bind(l, &sa, sizeof(sa)) &&
	   !st_listen(l, 1) && !st_getsockname(l, &sa, &len) && sa.sin_port,
	   "sockets, and a port");
	ok(!st_watch(l, &src, 1), "watched");
	st_connect(c, &sa, sizeof(sa));
	for (i = 0; i < 1000 && !woken; i++)
		stack_turn();
	s = (int)st_accept4(l, NULL, NULL, SOCK_NONBLOCK);
	ok(woken && s >= 0, "accepted when the stack's epoll said so");
	ok(st_sendto(c, "hello", 5, 0, NULL, 0) == 5, "sent");
	for (i = 0; i < 1000 && !st_readable(s); i++)
		stack_turn();
	ok(st_recvfrom(s, buf, sizeof(buf), 0, NULL, NULL) == 5 &&
	   !memcmp(buf, "hello", 5), "received");
}

int main(int argc, char **argv)
{
	unsigned char ifr[40] = "lo";
	char err[512] = "";
	int s;

	if (argc != 3)
		return 2;
	host.stack_path = argv[2];
	ok(stack_open(argv[2], "auto", err, sizeof(err)) &&
	   strstr(err, "can only use its built-in library"),
	   "another library is refused: %s", err);
	host.stack_path = argv[1];
	err[0] = '\0';
	ok(!loop_init() && !stack_open(argv[1], "auto", err, sizeof(err)),
	   "the stack is found %s", err);
	ok(!stack_boot(64 << 20, "quiet"), "and boots: %s", stack_release());
	s = (int)st_socket(AF_INET, SOCK_DGRAM, 0);
	ifr[16] = 1;		/* IFF_UP in ifr_flags, netdevice(7) */
	ok(!st_ioctl(s, 0x8914 /* SIOCSIFFLAGS */, ifr), "lo is up");
	st_close(s);
	files();
	connection();
	return tap_end();
}
