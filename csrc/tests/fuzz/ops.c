// SPDX-License-Identifier: GPL-2.0-only
/*
 * The calls of the fuzzer, each with new random arguments.
 *
 * The fuzzer avoids calls that would affect the host beyond its own sockets:
 * requests outside the socket range on arbitrary descriptors, other families
 * than those used here, other signal owners than this process, and names in the
 * file system.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define CHILD_MS	50	/* a child makes calls for that long at most */
#define NOBODY		65534

static __thread struct slot *mine;
static __thread bool forking;

/** ops_forking - whether this thread may make processes */
void ops_forking(bool yes)
{
	forking = yes;
}

/** call - make a system call, recorded for the watchdog */
long call(long nr, long a, long b, long c, long d, long e, long f)
{
	const long args[6] = { a, b, c, d, e, f };
	int i;

	if (mine) {
		for (i = 0; i < 6; i++)
			atomic_store_explicit(&mine->args[i], args[i],
					      memory_order_relaxed);
		atomic_store_explicit(&mine->nr, nr, memory_order_relaxed);
	}
	return syscall(nr, a, b, c, d, e, f);
}

static const int levels[] = {
	SOL_SOCKET, SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP,
	IPPROTO_IPV6, IPPROTO_ICMPV6, IPPROTO_RAW, 284 /* SOL_MPTCP */,
	270 /* SOL_NETLINK */, 263 /* SOL_PACKET */, 136 /* SOL_UDPLITE */,
};

/** any_level - return the level of an option */
static int any_level(void)
{
	return one_in(20) ? any_int() : levels[below(sizeof(levels) /
						     sizeof(levels[0]))];
}

static long op_socket(void)
{
	static const int families[] = { AF_INET, AF_INET, AF_INET6, AF_INET6,
					AF_NETLINK, AF_PACKET, AF_UNIX };
	static const int types[] = { SOCK_STREAM, SOCK_STREAM, SOCK_DGRAM,
				     SOCK_RAW, SOCK_SEQPACKET, SOCK_RDM };
	static const int protos[] = { 0, 0, 0, IPPROTO_TCP, IPPROTO_UDP,
		IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_RAW, 262, 136, 4, 16, 12 };
	int family = families[below(7)], type = types[below(6)];
	int proto = protos[below(13)];

	if (one_in(30)) {
		/* Only try to create these: other families could affect the host. */
		family = one_in(2) ? any_int() : (int)below(46);
		if (family == 38)	/* AF_ALG loads modules of the host's kernel */
			family = -1;
		return CALL(SYS_close, CALL(SYS_socket, family, any_int(), any_int()));
	}
	if (family == AF_NETLINK) {
		static const int parts[] = { 0, 4, 12, 16, 6 };

		type = one_in(2) ? SOCK_RAW : SOCK_DGRAM;
		proto = parts[below(5)];
	}
	if (family == AF_PACKET)
		proto = htons(one_in(2) ? 3 : 0x800);
	if (one_in(2))
		type |= SOCK_NONBLOCK;
	if (one_in(2))
		type |= SOCK_CLOEXEC;
	return CALL(SYS_socket, family, type, proto);
}

static long op_socketpair(void)
{
	return CALL(SYS_socketpair, AF_UNIX, one_in(2) ? SOCK_STREAM :
		    SOCK_DGRAM | SOCK_NONBLOCK, 0, any_buf(8));
}

static long op_bind(void)
{
	uint32_t len;
	void *p = any_name(&len);

	return CALL(SYS_bind, any_fd(), p, len);
}

static long op_connect(void)
{
	uint32_t len;
	void *p = any_name(&len);

	return CALL(SYS_connect, any_fd(), p, len);
}

static long op_listen(void)
{
	return CALL(SYS_listen, any_fd(), any_int());
}

static long op_accept(void)
{
	uint32_t *len = good_mem(sizeof(*len));

	*len = (uint32_t)any_len();
	return CALL(SYS_accept, any_fd(), one_in(3) ? NULL : any_buf(128),
		    one_in(8) ? any_ptr() : len);
}

static long op_accept4(void)
{
	uint32_t *len = good_mem(sizeof(*len));

	*len = (uint32_t)any_len();
	return CALL(SYS_accept4, any_fd(), one_in(2) ? NULL : any_buf(128),
		    one_in(8) ? any_ptr() : len,
		    one_in(8) ? any_int() : (long)(below(2) * SOCK_NONBLOCK));
}

/** op_pair - make a connection, which would rarely result from random calls */
static long op_pair(void)
{
	int family = one_in(2) ? AF_INET : AF_INET6, one = 1;
	char *name = good_mem(128);
	uint32_t *len = good_mem(sizeof(*len));
	long lis, c, s;

	lis = CALL(SYS_socket, family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	c = CALL(SYS_socket, family, SOCK_STREAM |
		 (one_in(2) ? SOCK_NONBLOCK : 0), 0);
	memset(name, 0, 128);
	name[0] = (char)family;
	if (one_in(2))
		CALL(SYS_setsockopt, lis, SOL_SOCKET, SO_REUSEADDR, &one, 4);
	CALL(SYS_bind, lis, name, 28);
	CALL(SYS_listen, lis, below(4));
	*len = 128;
	CALL(SYS_getsockname, lis, name, len);
	CALL(SYS_connect, c, name, *len);
	*len = (uint32_t)any_len();
	s = CALL(SYS_accept4, lis, one_in(2) ? NULL : any_buf(128),
		 one_in(8) ? any_ptr() : len, below(2) * SOCK_NONBLOCK);
	if (one_in(2))
		CALL(SYS_close, lis);
	return s;
}

static long op_name_of(void)
{
	uint32_t *len = good_mem(sizeof(*len));

	*len = (uint32_t)any_len();
	return CALL(one_in(2) ? SYS_getsockname : SYS_getpeername, any_fd(),
		    any_buf(128), one_in(8) ? any_ptr() : len);
}

static long op_getsockopt(void)
{
	int *len = good_mem(sizeof(*len));

	*len = (int)any_len();
	return CALL(SYS_getsockopt, any_fd(), any_level(),
		    one_in(20) ? any_int() : (int)below(90), any_buf(256),
		    one_in(8) ? any_ptr() : len);
}

static long op_setsockopt(void)
{
	int level = any_level(), name = one_in(20) ? any_int() : (int)below(90);
	char *p = good_mem(256);

	fill(p, 256);
	if (one_in(2)) {
		int n = any_int();

		memcpy(p, &n, sizeof(n));
	}
	return CALL(SYS_setsockopt, any_fd(), level, name,
		    one_in(8) ? any_ptr() : p,
		    one_in(2) ? 4 : one_in(2) ? below(200) : any_len());
}

static long op_send(void)
{
	uint32_t namelen = 0;
	void *name = one_in(2) ? any_name(&namelen) : NULL;
	uint64_t len = any_len();

	return CALL(SYS_sendto, any_fd(), any_buf(len), len,
		    one_in(2) ? MSG_DONTWAIT : one_in(4) ? any_int() : 0, name,
		    namelen);
}

static long op_recv(void)
{
	uint32_t *namelen = good_mem(sizeof(*namelen));
	uint64_t len = any_len();
	bool named = one_in(2);

	*namelen = (uint32_t)any_len();
	return CALL(SYS_recvfrom, any_fd(), any_buf(len), len,
		    one_in(2) ? MSG_DONTWAIT : one_in(4) ? any_int() : 0,
		    named ? any_buf(128) : NULL,
		    !named ? NULL : one_in(8) ? any_ptr() : namelen);
}

static long op_read_write(void)
{
	uint64_t len = any_len();

	return CALL(one_in(2) ? SYS_read : SYS_write, any_fd(), any_buf(len),
		    len);
}

static long op_vectors(void)
{
	struct iovec *iov = good_mem(4 * sizeof(*iov));
	size_t i;

	for (i = 0; i < 4; i++) {
		iov[i].iov_len = any_len();
		iov[i].iov_base = any_buf(iov[i].iov_len);
	}
	return CALL(one_in(2) ? SYS_readv : SYS_writev, any_fd(), iov,
		    one_in(16) ? any_len() : below(5));
}

static long op_shutdown(void)
{
	return CALL(SYS_shutdown, any_fd(), one_in(8) ? any_int() : (int)below(3));
}

static long op_ioctl(void)
{
	static const unsigned int others[] = { FIONREAD, FIONBIO, TIOCOUTQ,
					       0x8905 /* SIOCATMARK */ };
	static const char *const names[] = { "eth0", "eth1", "lo", "nothing",
					     "" };
	unsigned int cmd = one_in(3) ? others[below(4)] :
				       0x8900 + (unsigned int)below(256);
	static __thread char p[256];	/* no other thread can write the name of the device */

	/* FIOSETOWN and SIOCSPGRP set the receiver of signals. */
	if (cmd == 0x8901 || cmd == 0x8902)
		cmd = FIONREAD;
	fill(p, sizeof(p));
	strcpy(p, names[below(5)]);
	/* The loopback device must stay usable: the fuzzer only queries it. */
	if (!strcmp(p, "lo") && (cmd & 1) == 0)
		cmd = 0x8913;	/* SIOCGIFFLAGS */
	return CALL(SYS_ioctl, any_fd(), cmd, one_in(8) ? any_ptr() : p);
}

static long op_fcntl(void)
{
	static const int cmds[] = { F_GETFL, F_SETFL, F_GETFD, F_SETFD,
				    F_DUPFD, F_DUPFD_CLOEXEC, F_GETOWN };
	int cmd = cmds[below(7)];

	return CALL(SYS_fcntl, any_fd(), cmd, cmd == F_SETFL ?
		    (int)(below(2) * O_NONBLOCK) : (int)below(FD_LIMIT));
}

static long op_dup(void)
{
	switch (below(3)) {
	case 0:
		return CALL(SYS_dup, any_fd());
	case 1:
		return CALL(SYS_dup2, any_fd(), any_fd());
	default:
		return CALL(SYS_dup3, any_fd(), any_fd(),
			    one_in(8) ? any_int() : (int)(below(2) * O_CLOEXEC));
	}
}

static long op_close(void)
{
	return CALL(SYS_close, any_fd());
}

static long op_close_range(void)
{
	unsigned int from = (unsigned int)below(FD_LIMIT);

	if (one_in(30))
		return CALL(SYS_close_range, 3, ~0u, 0);
	return CALL(SYS_close_range, from, from + below(6),
		    one_in(3) ? CLOSE_RANGE_CLOEXEC : 0);
}

static long op_poll(void)
{
	struct pollfd *p = good_mem(8 * sizeof(*p));
	int i;

	for (i = 0; i < 8; i++)
		p[i] = (struct pollfd){ any_fd(), (short)rnd(), 0 };
	return CALL(SYS_poll, one_in(16) ? any_ptr() : p,
		    one_in(16) ? any_len() : below(9), below(5));
}

static long op_select(void)
{
	fd_set *sets = good_mem(3 * sizeof(*sets));
	struct timespec *ts = good_mem(sizeof(*ts));

	fill(sets, 3 * sizeof(*sets));
	*ts = (struct timespec){ 0, (long)below(3000000) };
	return CALL(SYS_pselect6, below(FD_LIMIT), sets,
		    one_in(8) ? any_ptr() : sets + 1, sets + 2, ts, NULL);
}

static long op_epoll(void)
{
	struct epoll_event *ev = good_mem(8 * sizeof(*ev));

	switch (below(4)) {
	case 0:
		return CALL(SYS_epoll_create1, 0);
	case 1:
		return CALL(SYS_epoll_wait, any_fd(), any_buf(8 * sizeof(*ev)),
			    8, below(4));
	default:
		fill(ev, sizeof(*ev));
		ev->events = (uint32_t)rnd() & ~(uint32_t)EPOLLWAKEUP;
		return CALL(SYS_epoll_ctl, any_fd(), 1 + below(3), any_fd(), ev);
	}
}

static long op_pipe(void)
{
	return CALL(SYS_pipe2, any_buf(8), one_in(2) ? O_NONBLOCK : 0);
}

static long op_memfd(void)
{
	return CALL(SYS_memfd_create, "fuzz", 0);
}

static long op_splice(void)
{
	uint64_t *off = good_mem(2 * sizeof(*off));

	off[0] = below(100000);
	off[1] = 0;
	switch (below(3)) {
	case 0:
		return CALL(SYS_sendfile, any_fd(), any_fd(),
			    one_in(2) ? NULL : one_in(8) ? any_ptr() : off,
			    any_len());
	case 1:
		return CALL(SYS_tee, any_fd(), any_fd(), any_len(), below(4));
	default:
		return CALL(SYS_splice, any_fd(), one_in(3) ? off : NULL,
			    any_fd(), one_in(8) ? off + 1 : NULL, any_len(),
			    below(16));
	}
}

static long op_setns(void)
{
	long fd = CALL(SYS_openat, AT_FDCWD, "/proc/self/ns/net", O_RDONLY);

	CALL(SYS_setns, fd, one_in(2) ? 0 : CLONE_NEWNET);
	return CALL(SYS_close, fd);
}

static long op_io_uring(void)
{
	return CALL(SYS_io_uring_setup, 8, any_buf(128));
}

/** child - after fork(): make calls for a while, then end in one of several ways */
static void child(void)
{
	struct itimerval tick = { { 0, 3000 }, { 0, 3000 } };
	uint64_t n = below(40);
	long ret;

	mine = NULL;		/* the slot belongs to the parent */
	forking = false;
	setitimer(ITIMER_REAL, &tick, NULL);
	if (one_in(4))
		prctl(PR_SET_DUMPABLE, 0);
	if (one_in(4) && !geteuid()) {
		ret = syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY);
		ret |= syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY);
		if (ret)
			_exit(1);
	}
	while (n--)
		op_plain(NULL);
	switch (below(4)) {
	case 0:
		syscall(SYS_execve, "/proc/self/exe",
			((char *const[]){ (char *)"fuzz", (char *)"inherited",
					  NULL }), NULL);
		_exit(1);
	case 1:
		syscall(SYS_close_range, 3, ~0u, 0);
		break;
	case 2:
		syscall(SYS_kill, getpid(), SIGKILL);
	}
	_exit(0);
}

/**
 * op_fork - fork a child; wait for it, or kill it early
 */
static long op_fork(void)
{
	struct timespec pause = { 0, (long)below(3000000) };
	uint64_t ms = 0;
	bool killed;
	pid_t pid;

	if (!forking)
		return 0;
	pid = fork();
	if (!pid) {
		rnd_seed(rnd() ^ (uint64_t)getpid());
		child();
	}
	if (pid < 0)
		return -1;
	killed = one_in(2);
	if (killed) {
		nanosleep(&pause, NULL);
		kill(pid, SIGKILL);
		shared->killed++;
	}
	pause.tv_nsec = 1000000;
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		nanosleep(&pause, NULL);
		if (++ms == CHILD_MS)
			kill(pid, SIGKILL);
	}
	return 0;
}

static long op_trouble(void)
{
	args_trouble();
	return 0;
}

static const struct {
	const char *name;
	long (*fn)(void);
	int weight;
} ops[] = {
	{ "socket", op_socket, 10 }, { "socketpair", op_socketpair, 1 },
	{ "bind", op_bind, 6 }, { "connect", op_connect, 10 },
	{ "listen", op_listen, 5 }, { "accept", op_accept, 5 },
	{ "accept4", op_accept4, 5 }, { "names", op_name_of, 4 },
	{ "connection", op_pair, 4 },
	{ "getsockopt", op_getsockopt, 10 }, { "setsockopt", op_setsockopt, 12 },
	{ "send", op_send, 8 }, { "recv", op_recv, 8 },
	{ "sendmsg", op_sendmsg, 6 }, { "recvmsg", op_recvmsg, 6 },
	{ "sendmmsg", op_sendmmsg, 4 }, { "recvmmsg", op_recvmmsg, 4 },
	{ "SCM_RIGHTS", op_pass_fds, 3 }, { "netlink", op_netlink, 4 },
	{ "read, write", op_read_write, 6 }, { "vectors", op_vectors, 4 },
	{ "shutdown", op_shutdown, 3 }, { "ioctl", op_ioctl, 5 },
	{ "fcntl", op_fcntl, 3 }, { "dup", op_dup, 4 }, { "close", op_close, 6 },
	{ "close_range", op_close_range, 1 }, { "poll", op_poll, 2 },
	{ "select", op_select, 2 }, { "epoll", op_epoll, 3 },
	{ "pipe", op_pipe, 1 }, { "memfd", op_memfd, 1 },
	{ "splice", op_splice, 3 }, { "setns", op_setns, 1 },
	{ "io_uring", op_io_uring, 1 }, { "fork", op_fork, 1 },
	{ "memory", op_trouble, 6 },
};

#define OPS	((int)(sizeof(ops) / sizeof(ops[0])))

_Static_assert(sizeof(ops) / sizeof(ops[0]) <= OPS_MAX, "OPS_MAX");

/** op_count - number of operations */
int op_count(void)
{
	return OPS;
}

/** op_name - name of an operation */
const char *op_name(int op)
{
	return ops[op].name;
}

/** pick - pick an operation by weight */
static int pick(void)
{
	int all = 0, i;
	int64_t at;

	for (i = 0; i < OPS; i++)
		all += ops[i].weight;
	at = (int64_t)below((uint64_t)all);
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	return i;
}

/** op_plain - make one call; @slot may be NULL */
void op_plain(struct slot *slot)
{
	int op = pick();
	long ret;

	mine = slot;
	ret = ops[op].fn();
	atomic_fetch_add_explicit(&shared->made[op], 1, memory_order_relaxed);
	if (ret >= 0)
		atomic_fetch_add_explicit(&shared->good[op], 1,
					  memory_order_relaxed);
}

/** op_random - make one call, counted for the watchdog */
void op_random(struct slot *slot)
{
	op_plain(slot);
	atomic_fetch_add_explicit(&slot->calls, 1, memory_order_relaxed);
}
