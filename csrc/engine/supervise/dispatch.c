// SPDX-License-Identifier: GPL-2.0-only
/*
 * Caught calls: choose the handler of each call, and answer it.
 *
 * Theory of operation
 *
 * A caught call of the target waits in the host's kernel until it is answered
 * here. The answer is a result, a descriptor added to the caller, or
 * call_native(), which makes the host's kernel execute the call. native.h lists
 * when this is safe. A call that would block is held (blocked.c).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/lklhost.h"
#include "base/log.h"
#include "engine/call/call.h"
#include "engine/call/msg.h"
#include "engine/call/native.h"
#include "engine/call/paged_access.h"
#include "engine/call/rights.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/foreign_sock.h"
#include "engine/carrier/hostnet.h"
#include "engine/carrier/space.h"
#include "engine/common/netd.h"
#include "engine/dgram/dgram.h"
#include "engine/sock/sock.h"
#include "engine/stream/stream.h"
#include "engine/supervise/internal.h"
#include "process/process.h"
#include "process/zygote_link.h"

static char call_buf[CALL_BUF_SIZE] __attribute__((aligned(4096)));

/**
 * is_hidden - whether the call is a connect(2) to a service that the target must
 * not use: a name service of the host, or netd
 */
static bool is_hidden(const struct call *c)
{
	union {
		struct sockaddr_storage ss;
		struct sockaddr_un un;
		char text[sizeof(struct sockaddr_storage) + 1];
	} addr = { .text = "" };

	return addr_read(c, c->args[1], c->args[2], &addr.ss) > 0 &&
	       addr.ss.ss_family == AF_UNIX &&
	       (service_is(addr.un.sun_path) || netd_marks(addr.un.sun_path) ||
		(netd_names(addr.un.sun_path) && strcmp(host.abi, "host")));
}

/** is_timeout - whether setsockopt(2) changes how long calls on the socket wait */
static bool is_timeout(const struct call *c)
{
	switch ((int)c->args[2]) {
	case OPT_RCVTIMEO_OLD:
	case OPT_SNDTIMEO_OLD:
	case OPT_RCVTIMEO_NEW:
	case OPT_SNDTIMEO_NEW:
		return (int)c->args[1] == SOL_SOCKET;
	}
	return false;
}

/**
 * set_timeout - change a timeout by our duplicate
 *
 * The host's kernel could change that of a carrier, on which lklhost relies.
 */
static int64_t set_timeout(struct call *c)
{
	int64_t value[2], ret;
	int len = (int)c->args[4];

	if (len < 0)
		return -EINVAL;
	if (len > (int)sizeof(value))
		len = (int)sizeof(value);
	ret = mem_read(c, c->args[3], value, (size_t)len);
	if (ret)
		return ret;
	return setsockopt(c->dup, SOL_SOCKET, (int)c->args[2], value,
			  (socklen_t)len) ? -errno : 0;
}

/** no_carrier - handle a call on a descriptor that is not a carrier */
static int64_t no_carrier(struct call *c)
{
	int domain = foreign_sock_domain(c->dup);

	if (domain < 0)
		return -errno;
	if (foreign_sock_is(c->dup, domain)) {
		foreign_sock_refused(c);
		return -EPERM;
	}
	switch (c->nr) {
	case SYS_connect:
		if (is_hidden(c))
			return -ENOENT;
		break;
	case SYS_setsockopt:
		if (is_timeout(c))
			return set_timeout(c);
		break;
#ifdef __arm__
	case SYS_recvmmsg_time64:
#endif
	case SYS_recvmmsg:
	case SYS_recvmsg:
		return scm_rights_call(c);
	case SYS_recvfrom:
		if (host.trace && (c->args[3] & MSG_WAITALL) && !c->args[4])
			return scm_rights_call(c);
		break;
	}
	return call_native(NATIVE_LOCAL_SOCKET);
}

/** find_conn - find the connection whose carrier is the caller's descriptor */
static int64_t find_conn(struct call *c)
{
	int ret = call_dup(c, (int)c->args[0]);

	if (ret)
		return ret;
	c->conn = conn_of_carrier(c->dup);
	if (!c->conn)
		return carrier_is_old(c->dup) ? -ENOTCONN : no_carrier(c);
	c->conn->pid = c->pid;
	c->conn->tfd = (int)c->args[0];
	return 0;
}

/** enter_namespace - handle setns(2) */
static int64_t enter_namespace(struct call *c)
{
	int type = (int)c->args[1];

	return type && !(type & CLONE_NEWNET) ?
	       call_native(NATIVE_OTHER_NAMESPACE) : space_setns(c);
}

/** refuse_ptrace - refuse ptrace(2), with the engine trace */
static int64_t refuse_ptrace(const struct call *c)
{
	static bool told;

	if (!told)
		warn_user("%s (pid %d): ptrace is refused, because the engine trace itself traces the program; to trace programs, use --engine supervise or preload on a host that supports it",
			  task_comm(c->task), task_tgid(c->task));
	told = true;
	return -EPERM;
}

/** refuse_foreign - kill a program of another architecture */
static int64_t refuse_foreign(struct call *c)
{
	warn_user("%s (pid %d): killed, because programs of a foreign architecture are not supported",
		  task_comm(c->task), c->pid);
	task_signal(c, SIGKILL);
	return -ENOSYS;
}

/** stream_send - handle sendto(2) and sendmsg(2) of a stream */
static int64_t stream_send(struct call *c)
{
	int flags = (int)c->args[c->nr == SYS_sendto ? 3 : 2];

	return flags & MSG_FASTOPEN ? fastopen_send(c) : tcp_send(c);
}

/** dispatch_conn - dispatch a call on a carrier */
static int64_t dispatch_conn(struct call *c)
{
	struct sockaddr_storage ss;
	int64_t len, ret;

	switch (c->nr) {
	case SYS_connect:
		len = addr_read(c, c->args[1], c->args[2], &ss);
		if (len < 0)
			return len;
		ret = hostnet_connect(c, &ss, len);
		if (ret)
			return ret;
		if (c->conn->kind == KIND_STREAM)
			return tcp_connect(c, &ss, (socklen_t)len);
		return dgram_connect(c, &ss, (socklen_t)len);
	case SYS_bind:
		return sock_bind(c);
	case SYS_listen:
		return tcp_listen(c);
	case SYS_accept:
	case SYS_accept4:
		return tcp_accept(c);
	case SYS_shutdown:
		return c->conn->kind == KIND_STREAM ? stream_half_close(c) :
		       shutdown(c->dup, SHUT_WR) ? -errno : 0;
	case SYS_getsockname:
		return sock_name(c, false);
	case SYS_getpeername:
		return sock_name(c, true);
	case SYS_getsockopt:
		return sock_getsockopt(c);
	case SYS_setsockopt:
		return sock_setsockopt(c);
	case SYS_sendto:
		return c->conn->kind == KIND_STREAM ? stream_send(c) :
						      dgram_sendto(c);
	case SYS_recvfrom:
		return c->conn->kind == KIND_STREAM ? tcp_recv(c) :
						      dgram_recvfrom(c);
	case SYS_sendmsg:
		return c->conn->kind == KIND_STREAM ? stream_send(c) :
						      dgram_sendmsg(c);
	case SYS_recvmsg:
		return c->conn->kind == KIND_STREAM ? tcp_recv(c) :
						      dgram_recvmsg(c);
	case SYS_sendmmsg:
		return c->conn->kind == KIND_STREAM ? tcp_sendmmsg(c) :
						      dgram_sendmmsg(c);
#ifdef __arm__
	case SYS_recvmmsg_time64:
#endif
	case SYS_recvmmsg:
		return c->conn->kind == KIND_STREAM ? tcp_recvmmsg(c) :
						      dgram_recvmmsg(c);
	}
	return -ENOSYS;
}

/** settle_retry - retry a call that waits for datagrams that were sent before */
static int64_t settle_retry(struct call *c, struct held *h)
{
	struct dgram *d = dgram_of(c->conn);

	(void)h;
	if (!call_valid(c))
		return CALL_ANSWERED;
	dgram_flush(d);
	if (c->conn->facts & F_DEAD)
		return -EBADF;
	return c->conn->to_stack.buf ? CALL_HELD : dispatch_conn(c);
}

/**
 * settle - before a caught call, forward what the target has sent natively
 *
 * The peer, an option and the device of a socket apply to the datagrams that
 * follow. If the stack's socket is full, a call that changes these waits, as
 * the sends before it would have. On a non-blocking socket it does not wait.
 *
 * Returns 0, CALL_HELD, or a negative errno.
 */
static int64_t settle(struct call *c)
{
	struct conn *conn = c->conn;
	struct dgram *d = dgram_of(conn);
	bool changes = c->nr == SYS_connect || c->nr == SYS_bind ||
		       c->nr == SYS_setsockopt;

	if (changes && call_nonblocking(c))
		dgram_flush_all(d);
	else
		dgram_flush(d);
	if (conn->facts & F_DEAD)
		return -EBADF;
	if (!changes || !conn->to_stack.buf)
		return 0;
	dgram_want_out(conn);
	return call_hold(c, &conn->held, 0, settle_retry, 0, 0) ? CALL_HELD : -ENOMEM;
}

/**
 * adds_to_stack - whether the stack's kernel may keep memory for the call
 *
 * An option of the size of an int only changes a number.
 */
static bool adds_to_stack(const struct call *c)
{
	if (c->nr == SYS_setsockopt)
		return c->args[4] > sizeof(int);
	return c->conn->kind == KIND_NETLINK &&
	       (c->nr == SYS_sendto || c->nr == SYS_sendmsg || c->nr == SYS_sendmmsg);
}

/** dispatch - pass a call to its handler */
static int64_t dispatch(struct call *c, bool foreign)
{
	int64_t ret;

	if (foreign)
		return refuse_foreign(c);
	switch (c->nr) {
	case SYS_socket:
		return sock_socket(c);
	case SYS_setns:
		return enter_namespace(c);
	case SYS_unshare:
		return space_unshare(c);
	case SYS_mount:
	case SYS_umount2:
		return sysfs_call(c);
	case SYS_ptrace:
		return refuse_ptrace(c);
	case SYS_syslog:
		return klog_call(c);
	case SYS_pidfd_getfd:
		return getfd_call(c);
	case SYS_ioctl:
		return sock_ioctl(c);
	}
	ret = find_conn(c);
	if (!ret && c->conn && adds_to_stack(c) && memory_full())
		return -ENOBUFS;
	if (!ret && c->conn && c->conn->kind != KIND_STREAM)
		ret = settle(c);
	else if (!ret && c->conn && (c->nr == SYS_setsockopt || c->nr == SYS_connect))
		pump_flush(stream_of(c->conn));
	return c->conn && !ret ? dispatch_conn(c) : ret;
}

/** needs_no_right - whether no kernel asks for a capability in this call */
static bool needs_no_right(int nr)
{
	switch (nr) {
	case SYS_accept:
	case SYS_accept4:
	case SYS_getsockname:
	case SYS_getpeername:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_shutdown:
		return true;
	}
	return false;
}

/** dispatch_served - dispatch a call of a served process, with its rights */
static int64_t dispatch_served(struct call *c, bool foreign)
{
	int64_t ret;

	if (needs_no_right(c->nr))
		return dispatch(c, foreign);
	ret = rights_get(c);
	if (!ret)
		ret = rights_set(c->rights, NULL);
	if (ret)
		return ret;
	ret = dispatch(c, foreign);
	rights_set(RIGHTS_ALL, NULL);
	return ret;
}

/**
 * is_shut_zygote - whether the zygote receives a request, and is not dumpable
 *
 * lklhost can then not access the zygote to receive the request for it.
 */
static bool is_shut_zygote(const struct call *c)
{
	int fd;

	if (c->nr != SYS_recvmsg || !zygote_is(c->pid))
		return false;
	fd = call_getfd(c, (int)c->args[0]);
	if (fd >= 0)
		close(fd);
	return fd == -EPERM;
}

/**
 * has_sent - whether a call with the result @ret has sent something itself
 *
 * Over loopback, the receiver has it when the call returns: the datagram, the
 * connection.
 */
static bool has_sent(const struct call *c, int64_t ret)
{
	switch (c->conn ? c->nr : -1) {
	case SYS_connect:
		return c->conn->kind == KIND_STREAM &&
		       (ret == CALL_HELD || ret == -EINPROGRESS || !ret);
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
		return c->conn->kind == KIND_DGRAM && ret >= 0;
	}
	return false;
}

/**
 * dispatch_call - handle a caught call, see struct call_ops
 * @c: its id, pid, nr and args are set
 * @foreign: it is a call of a foreign architecture
 */
void dispatch_call(struct call *c, bool foreign)
{
	int64_t ret;

	notify_stats.calls++;
	c->dup = -1;
	c->buf = call_buf;
	c->rights = RIGHTS_ALL;
	c->task = task_of(c);
	if (!c->task)
		ret = -ENOMEM;
	else if (is_shut_zygote(c))
		ret = call_native(NATIVE_ZYGOTE);
	else if (c->served)
		ret = dispatch_served(c, foreign);
	else
		ret = dispatch(c, foreign);
	mem_close();
	if (c->dup >= 0)
		paged_close(c, c->dup);
	reserve_fill();
	if (has_sent(c, ret))
		stack_deliver();
	if (ret != CALL_HELD && ret != CALL_ANSWERED)
		call_answer(c, ret);
}
