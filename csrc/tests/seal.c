// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests what a sealed gateway (gateway/seal.c) can do with sockets of the host: move
 * bytes along their connections, and nothing else.
 *
 * Each attempt has a process of its own, with a TCP and a UDP socket that are connected
 * to one listener. It tries to reach another listener, which must stay untouched.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/gateway.h"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd	438
#endif

static struct sockaddr_in right, wrong;	/* where the sockets lead, and elsewhere */
static int tcp, udp, spare;		/* spare: not connected */

static const struct sockaddr none = { .sa_family = AF_UNSPEC };

static long dissolve(void)
{
	return connect(tcp, &none, sizeof(none));
}

static long reconnect(void)
{
	return connect(udp, (void *)&wrong, sizeof(wrong));
}

static long send_to(void)
{
	return sendto(udp, "x", 1, 0, (void *)&wrong, sizeof(wrong));
}

static long fast_open(void)
{
	return sendto(tcp, "x", 1, MSG_FASTOPEN, (void *)&wrong, sizeof(wrong));
}

static struct iovec iov = { "x", 1 };

static long send_msg(void)
{
	struct msghdr m = { .msg_name = &wrong, .msg_namelen = sizeof(wrong), .msg_iov = &iov,
			    .msg_iovlen = 1 };

	return sendmsg(udp, &m, 0);
}

static long send_mmsg(void)
{
	struct mmsghdr m = { .msg_hdr = { .msg_name = &wrong, .msg_namelen = sizeof(wrong),
					  .msg_iov = &iov, .msg_iovlen = 1 } };

	return sendmmsg(udp, &m, 1, 0);
}

static long new_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static long new_unix(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}

static long bind_port(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	return bind(spare, (void *)&any, sizeof(any));
}

static long listen_on(void)
{
	return listen(spare, 1);
}

static long accept_one(void)
{
	return accept(spare, NULL, NULL);
}

static long ring(void)
{
	struct io_uring_params p = { 0 };

	return syscall(SYS_io_uring_setup, 8, &p);
}

static long option(void)
{
	const int on = 1;

	return setsockopt(tcp, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on));
}

static long device(void)
{
	return setsockopt(udp, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
}

static long open_file(void)
{
	return open("/proc/self/status", O_RDONLY);
}

static long program(void)
{
	return execl("/bin/true", "true", (char *)NULL);
}

static long child(void)
{
	return syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
}

static long trace(void)
{
	return ptrace(PTRACE_SEIZE, getppid(), 0, 0);
}

static long memory_of(void)
{
	return syscall(SYS_process_vm_readv, getppid(), &iov, 1, &iov, 1, 0);
}

static long steal(void)
{
	return syscall(SYS_pidfd_getfd, spare, 0, 0);
}

static long namespace(void)
{
	return syscall(SYS_unshare, 0x40000000);	/* CLONE_NEWNET */
}

static long code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? -1 : 0;
}

static long make_code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static long signal_other(void)
{
	return kill(getppid(), SIGUSR1);
}

static long move(void)
{
	return syscall(SYS_splice, tcp, NULL, spare, NULL, 1, 0);
}

static const struct {
	const char *what;
	long (*fn)(void);
} attempts[] = {
	{ "connect() with AF_UNSPEC", dissolve },
	{ "connect() of a UDP socket to elsewhere", reconnect },
	{ "sendto() elsewhere", send_to },
	{ "sendto() with MSG_FASTOPEN", fast_open },
	{ "sendmsg() elsewhere", send_msg },
	{ "sendmmsg() elsewhere", send_mmsg },
	{ "a new socket", new_socket },
	{ "a new unix socket", new_unix },
	{ "a pair of sockets", pair },
	{ "bind()", bind_port },
	{ "listen()", listen_on },
	{ "accept()", accept_one },
	{ "io_uring", ring },
	{ "TCP_REPAIR", option },
	{ "SO_BINDTODEVICE", device },
	{ "open()", open_file },
	{ "execve()", program },
	{ "a process", child },
	{ "ptrace()", trace },
	{ "process_vm_readv()", memory_of },
	{ "pidfd_getfd()", steal },
	{ "a network namespace", namespace },
	{ "executable memory", code },
	{ "memory that becomes executable", make_code },
	{ "a signal to another process", signal_other },
	{ "splice()", move },
};

/** listener - a listening socket of one kind at @at, which it sets */
static int listener(struct sockaddr_in *at, int type)
{
	socklen_t len = sizeof(*at);
	int fd = socket(AF_INET, type, 0);

	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (void *)at, sizeof(*at)) ||
	    (type == SOCK_STREAM && listen(fd, 128)) || getsockname(fd, (void *)at, &len)) {
		perror("listener");
		exit(1);
	}
	return fd;
}

/** connected - a socket that is connected to the right listener */
static int connected(int type)
{
	int fd = socket(AF_INET, type, 0);

	if (fd < 0 || connect(fd, (void *)&right, sizeof(right))) {
		perror("connect");
		exit(1);
	}
	return fd;
}

/** usual - what a gateway does with a socket must work; returns what failed */
static const char *usual(void)
{
	const struct linger now = { .l_onoff = 1 };
	struct iovec two[2] = { { "a", 1 }, { "b", 1 } };
	socklen_t len = sizeof(int);
	int error;

	if (writev(tcp, two, 2) != 2)
		return "writev()";
	if (send(tcp, "c", 1, MSG_NOSIGNAL) != 1)
		return "send()";
	if (write(udp, "d", 1) != 1)
		return "write()";
	if (getsockopt(tcp, SOL_SOCKET, SO_ERROR, &error, &len) || error)
		return "SO_ERROR";
	if (shutdown(tcp, SHUT_WR))
		return "shutdown()";
	if (recv(tcp, two, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
		return "recv()";
	if (setsockopt(tcp, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) || close(tcp))
		return "SO_LINGER";
	return NULL;
}

/**
 * refused - run @fn in a sealed process; returns whether it failed with EPERM
 *
 * Without @fn: whether the usual calls work.
 */
static bool refused(long (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		const char *failed;

		signal(SIGUSR1, SIG_IGN);
		alarm(20);
		tcp = connected(SOCK_STREAM);
		udp = connected(SOCK_DGRAM);
		spare = socket(AF_INET, SOCK_STREAM, 0);
		if (gateway_seal())
			_exit(3);
		if (fn) {
			errno = 0;
			_exit(fn() == -1 && errno == EPERM ? 0 : 1);
		}
		failed = usual();
		if (failed)
			(void)!write(STDOUT_FILENO, failed, strlen(failed));
		_exit(failed ? 1 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
	size_t n = sizeof(attempts) / sizeof(attempts[0]), i;
	struct pollfd untouched[2];
	bool ok, all = true;

	listener(&right, SOCK_STREAM);
	untouched[0] = (struct pollfd){ listener(&wrong, SOCK_STREAM), POLLIN, 0 };
	signal(SIGUSR1, SIG_IGN);
	{	/* the same ports for UDP */
		int u = socket(AF_INET, SOCK_DGRAM, 0), v = socket(AF_INET, SOCK_DGRAM, 0);

		if (bind(u, (void *)&right, sizeof(right)) || bind(v, (void *)&wrong, sizeof(wrong))) {
			perror("bind");
			return 1;
		}
		untouched[1] = (struct pollfd){ v, POLLIN, 0 };
	}
	printf("1..%zu\n", n + 2);
	for (i = 0; i < n; i++) {
		ok = refused(attempts[i].fn);
		all = all && ok;
		printf("%sok %zu - a sealed gateway cannot use %s\n", ok ? "" : "not ", i + 1,
		       attempts[i].what);
		fflush(stdout);
	}
	ok = poll(untouched, 2, 0) == 0;
	all = all && ok;
	printf("%sok %zu - nothing has reached another destination\n", ok ? "" : "not ", n + 1);
	ok = refused(NULL);
	all = all && ok;
	printf("%sok %zu - a sealed gateway can use its connections\n", ok ? "" : "not ", n + 2);
	return all ? 0 : 1;
}
