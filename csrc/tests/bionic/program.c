// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program whose C library has bionic's form, see stubs.S and base.c. It checks that
 * its sockets are the stack's: lo of the host is down.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/preload/arch.h"
#include "tests/tap.h"

#define SA_RESTORER	0x04000000	/* <asm/signal.h> */

struct kernel_action {
	void (*handler)(int sig);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

long __rt_sigaction(int sig, const struct kernel_action *act,
		    struct kernel_action *old, size_t size);

static volatile int last;

static void handler(int sig)
{
	last = sig;
}

static void connections(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	char buf[16] = "";
	void *volatile bad = (void *)8;

	ok(l >= 0 && !bind(l, (void *)&a, sizeof(a)) && !listen(l, 1) &&
	   !getsockname(l, (void *)&a, &len), "the stack listens");
	ok(!connect(c, (void *)&a, sizeof(a)), "it connects");
	s = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	ok(s >= 0 && sendto(s, "over lo", 7, 0, NULL, 0) == 7 &&
	   recvfrom(c, buf, sizeof(buf), 0, NULL, NULL) == 7 &&
	   !strcmp(buf, "over lo"), "bytes arrive");
	/* The stack library finds the fault by its own handler for SIGSEGV. */
	ok(write(s, "more", 4) == 4 && read(c, bad, 4) == -1 &&
	   errno == EFAULT, "a bad pointer: EFAULT, in the program's errno");
	ok(!close(l) && !close(c) && !close(s), "they close");
	c = socket(AF_INET, SOCK_STREAM, 0);
	ok(connect(c, (void *)&a, sizeof(a)) == -1 && errno == ECONNREFUSED,
	   "nobody listens: ECONNREFUSED");
	close(c);
}

/** in_kernel - the handler that the kernel knows, asked without the C library */
static void *in_kernel(int sig)
{
	struct kernel_action now;

	raw6(SYS_rt_sigaction, sig, 0, (long)&now, sizeof(now.mask), 0, 0);
	return (void *)now.handler;
}

/** installs - install the handler for @sig, and raise the signal */
static bool installs(int sig)
{
	struct kernel_action act = { .handler = handler }, now = { 0 };

	/* The restorer of the C library's own actions. arm64 needs none. */
	raw6(SYS_rt_sigaction, SIGSEGV, 0, (long)&now, sizeof(now.mask), 0, 0);
	act.restorer = now.restorer;
	act.flags = now.flags & SA_RESTORER;
	return !__rt_sigaction(sig, &act, NULL, sizeof(act.mask)) &&
	       !raise(sig) && last == sig;
}

static void signals(void)
{
	int sig;

	for (sig = 34; sig < 38; sig++) {
		bool theirs = installs(sig) && in_kernel(sig) == (void *)handler;

		ok(theirs, "signal %d is bionic's: the kernel calls its handler", sig);
	}
	for (; sig < 40; sig++) {
		bool ours = installs(sig) && in_kernel(sig) != (void *)handler;

		ok(ours, "signal %d is the program's: the engine calls its handler", sig);
	}
}

int main(void)
{
	connections();
	signals();
	return tap_end();
}
