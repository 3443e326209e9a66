// SPDX-License-Identifier: Apache-2.0
/*
 * Tries to get around the engine trace: a child that nobody traces, and other
 * answers to its own calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Print the outcome of a call. */
static void report(const char *what, long ret)
{
	printf("%s: %s\n", what, strerror(ret < 0 ? errno : 0));
	fflush(stdout);
}

/* Install a filter whose calls of socket() this program would answer itself. */
static long own_listener(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		       SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
}

int main(void)
{
	report("untraced", syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0));
	report("clone3", syscall(SYS_clone3, NULL, 0));
	report("listener", own_listener());
	report("ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0));
	report("parent: socket", socket(AF_INET, SOCK_STREAM, 0));
	return 0;
}
