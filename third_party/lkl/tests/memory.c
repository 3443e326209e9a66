// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exhausted memory inside the stack: calls fail, nothing crashes, and it
 * recovers.
 */
#include "tap.h"

static int panics;

static void count_panic(void)
{
	panics++;
}

static long free_kb(void)
{
	char buf[4096], *p;

	if (lread_file("/proc/meminfo", buf, sizeof(buf)) < 0)
		return -1;
	p = strstr(buf, "MemFree:");
	return p ? atol(p + 8) : -1;
}

static char buf[65536];

int main(void)
{
	static int fds[20000][2];
	long n, err = 0, fd, total, before;
	struct rlimit lim = { 100000, 100000 };
	int i, k;

	start(120);
	quiet_ops.panic = count_panic;
	boot("mem=32M loglevel=0");
	lkl_mount_fs("proc");
	L2(setrlimit, RLIMIT_NOFILE, &lim);
	before = free_kb();
	ok(before > 1000, "%ld kB free at first", before);

	/* a file in memory */
	L3(mkdirat, AT_FDCWD, "/tmp", 0755);
	fd = lopen("/tmp/big", O_RDWR | O_CREAT, 0600);
	for (total = 0; total < (64L << 20); total += n) {
		n = L3(write, fd, buf, sizeof(buf));
		if (n <= 0)
			break;
	}
	ok(n < 0 && total > (1 << 20), "a file ends at %ld kB with %s", total >> 10,
	   lkl_strerror(n));
	ok(L0(getpid) == 1 && !panics, "the stack lives");
	L1(close, fd);
	L3(unlinkat, AT_FDCWD, "/tmp/big", 0);
	n = free_kb();
	ok(n > before / 2, "the memory is back (%ld kB)", n);

	/* sockets */
	for (i = 0; i < 20000; i++) {
		err = L4(socketpair, AF_UNIX, SOCK_DGRAM, 0, fds[i]);
		if (err)
			break;
		for (k = 0; k < 64; k++)
			if (L6(sendto, fds[i][0], buf, 32768, MSG_DONTWAIT, 0, 0) < 0)
				break;
	}
	ok(i > 0 && err < 0, "%d socket pairs with full buffers, then %s", i,
	   lkl_strerror(err));
	ok(L0(getpid) == 1 && !panics, "the stack lives");
	for (k = 0; k < i; k++) {
		L1(close, fds[k][0]);
		L1(close, fds[k][1]);
	}

	/* TCP connections without a reader: limited by tcp_mem */
	fd = llisten("127.0.0.1", 80, 0);
	for (i = 0; i < 500; i++) {
		fds[i][0] = lconnect("127.0.0.1", 80, 0);
		if (fds[i][0] < 0)
			break;
		fds[i][1] = L4(accept4, fd, 0, 0, 0);
		for (k = 0; k < 100; k++)
			if (L6(sendto, fds[i][0], buf, sizeof(buf), MSG_DONTWAIT, 0, 0) <= 0)
				break;
	}
	ok(i > 10 && L0(getpid) == 1 && !panics,
	   "%d TCP connections with full buffers, and the stack lives", i);
	for (k = 0; k < i; k++) {
		L1(close, fds[k][0]);
		L1(close, fds[k][1]);
	}
	n = lconnect("127.0.0.1", 80, 0);
	ok(n >= 0, "a new connection works: %s", n < 0 ? lkl_strerror(n) : "yes");
	ok(lkl_sys_halt() == 0, "halt");
	return finish();
}
