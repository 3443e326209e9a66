// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ways to bypass the supervisor that must be closed. test_ctl.py runs this
 * program under lklhost; it prints one line for each way. With the argument
 * "foreign" it makes a call of another architecture, which must end it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/** say - print the name of the error, or "done" */
static void say(const char *what, long ret)
{
	printf("%s: %s\n", what, ret < 0 ? strerrorname_np(errno) : "done");
	fflush(stdout);
}

/** main - see above */
int main(int argc, char **argv)
{
	int own;

	if (argc > 1 && !strcmp(argv[1], "foreign")) {
#ifdef __x86_64__
		long ret = 20;	/* getpid in the table of i386 */

		__asm__ volatile("int $0x80" : "+a"(ret) : : "memory");
		printf("came back: %ld\n", ret);
#endif
		return 0;
	}
	own = open("/proc/self/ns/net", O_RDONLY);
	say("setns, network", setns(own, CLONE_NEWNET));
	say("setns, any", setns(own, 0));
	say("io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
	say("io_uring_enter", syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL));
#ifdef __x86_64__
	say("socket, x32", syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0));
#endif
	/* Here the stack is the host kernel, so the devices are the host's. */
	say("packet socket", socket(AF_PACKET, SOCK_RAW, 0));
	say("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
	say("bluetooth", socket(AF_BLUETOOTH, SOCK_RAW, 1));
	say("sctp", socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP));
	say("high half of the family", syscall(SYS_socket, 1UL << 32 | AF_VSOCK, SOCK_STREAM, 0));
	say("a filter of its own", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	return 0;
}
