// SPDX-License-Identifier: GPL-2.0-only
/*
 * The helper at home: a process that stays in the network namespace in which
 * lklhost was started. It creates sockets there for destinations of --host-net.
 *
 * Theory of operation
 *
 * lklhost itself has left that namespace, in most cases without the right to
 * return. The helper is forked before that, and only if --host-net was given.
 * It answers one request at a time, with a socket in SCM_RIGHTS.
 *
 * lklhost waits for the answer, HOME_MS at most: the helper does nothing else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/log.h"
#include "process/process.h"

#define HOME_MS		2000

struct home_msg {
	int32_t domain, type, proto;
	int32_t ret;		/* only in the answer: 0 or a negative errno */
};

static int ours = -1;

/** put - send a message, with a descriptor unless @fd is negative */
static int put(int sock, const struct home_msg *m, int fd)
{
	ssize_t n = fd_pass_send(sock, m, sizeof(*m), &fd, fd >= 0, 0);

	return n == (ssize_t)sizeof(*m) ? 0 : n < 0 ? (int)n : -EPIPE;
}

/**
 * get - receive a message; 0 or a negative errno; @fd: its descriptor, or -1
 */
static int get(int sock, struct home_msg *m, int *fd)
{
	int fds[FD_PASS_MAX];
	unsigned int n;

	*fd = -1;
	if (fd_pass_recv(sock, m, sizeof(*m), fds, &n) != (ssize_t)sizeof(*m))
		return -EPIPE;
	if (n)
		*fd = fds[0];
	return 0;
}

/** serve - main loop of the helper; never returns */
__attribute__((noreturn))
static void serve(int sock)
{
	struct home_msg m;
	int fd, ret;

	for (;;) {
		if (get(sock, &m, &fd))
			_exit(0);	/* lklhost is gone */
		fd = socket(m.domain, m.type, m.proto);
		m.ret = fd < 0 ? -errno : 0;
		ret = put(sock, &m, fd);
		if (fd >= 0)
			close(fd);
		if (ret)
			_exit(0);
	}
}

/** home_start - fork the helper, before lklhost leaves the namespace */
int home_start(void)
{
	pid_t pid;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		return -errno;
	pid = helper_fork("lklhost-home", &sv[1], 1);
	if (!pid) {
		/* Create only sockets that the target could create itself. */
		if (user_change())
			_exit(0);
		caps_drop(~0ull);
		serve(HELPER_FDS);
	}
	close(sv[1]);
	ours = sv[0];
	return pid < 0 ? pid : 0;
}

/** hostnet_socket - a socket of the host's network; a descriptor or an errno */
int hostnet_socket(int domain, int type, int proto)
{
	struct home_msg m = { domain, type | SOCK_CLOEXEC, proto, 0 };
	struct pollfd p = { .fd = ours, .events = POLLIN };
	int ret, fd = -1;

	if (ours < 0)
		return -ENETUNREACH;
	ret = put(ours, &m, -1);
	if (!ret && poll(&p, 1, HOME_MS) != 1)
		ret = -ETIMEDOUT;
	if (!ret)
		ret = get(ours, &m, &fd);
	if (ret < 0) {
		log_line("the helper in the host's network namespace: %s",
			 strerror(-ret));
		close(ours);	/* so that no late answer is read */
		ours = -1;
		return -ENETUNREACH;
	}
	return m.ret ? m.ret : fd;
}
