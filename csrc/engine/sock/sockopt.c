// SPDX-License-Identifier: GPL-2.0-only
/*
 * getsockopt() and setsockopt().
 *
 * Theory of operation
 *
 * Options belong to the stack's socket, with these exceptions:
 *
 * - SO_ERROR first reports errors that the pump has recorded.
 * - SO_PROTOCOL returns the protocol that the target requested, even if the
 *   stack uses MPTCP instead of TCP.
 * - The options of carrier_opts.c are also set on the carrier, on which the
 *   target's plain calls wait.
 * - Some options are refused: those that contain pointers or descriptors of the
 *   caller, and those that move the data path into the socket (TLS, zero copy).
 *   The error is that of a kernel without the option, so that programs fall
 *   back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/log.h"
#include "engine/call/call.h"
#include "engine/carrier/carrier.h"
#include "engine/carrier/conn.h"
#include "engine/carrier/hostnet.h"
#include "engine/dgram/dgram.h"
#include "engine/sock/sock.h"
#include "engine/stream/stream.h"
#include "stack/stack.h"

#define OPT_MAX		65536	/* must fit into the buffer of a call */
#define FILTER_MAX	4096	/* BPF_MAXINSNS */

/*
 * Some C libraries lack these; see include/uapi/asm-generic/socket.h and
 * linux/tcp.h.
 */
#define OPT_TIMESTAMP_OLD	29
#define OPT_TIMESTAMPNS_OLD	35
#define OPT_TIMESTAMPING_OLD	37
#define OPT_TIMESTAMP_NEW	63
#define OPT_TIMESTAMPNS_NEW	64
#define OPT_TIMESTAMPING_NEW	65
#define OPT_ATTACH_BPF		50
#define OPT_REUSEPORT_CBPF	51
#define OPT_REUSEPORT_EBPF	52
#define OPT_ZEROCOPY		60
#define OPT_TCP_ULP		31
#define OPT_TCP_ZEROCOPY_RECEIVE 35
#define OPT_TCP_INQ		36
#define OPT_SOL_MPTCP		284
#define OPT_MPTCP_FULL_INFO	4
#define FULL_INFO_MAX		512	/* larger than each part of the value */
#define FULL_INFO_FLOWS		32
/*
 * The tables of arptables and ebtables contain pointers; see
 * linux/netfilter_arp/arp_tables.h and linux/netfilter_bridge/ebtables.h.
 */
#define OPT_ARPT_FIRST		96
#define OPT_EBT_LAST		131

/**
 * opt_refused - get the error for an option that cannot be passed on; 0 if it
 * can
 */
static int64_t opt_refused(int level, int name, bool set)
{
	if (level == SOL_SOCKET && set) {
		switch (name) {
		case OPT_ZEROCOPY:
			return -EOPNOTSUPP;
		case OPT_ATTACH_BPF:
		case OPT_REUSEPORT_EBPF:
			return -EPERM;
		}
	}
	if (level == IPPROTO_TCP) {
		if (set && name == OPT_TCP_ULP)
			return -ENOENT;
		if (!set && name == OPT_TCP_ZEROCOPY_RECEIVE)
			return -ENOPROTOOPT;
	}
	if (level == IPPROTO_IP && name >= OPT_ARPT_FIRST &&
	    name <= OPT_EBT_LAST)
		return -ENOPROTOOPT;
	return 0;
}

/**
 * refuse_repair - refuse TCP_REPAIR
 *
 * It accesses the socket's queues, and part of the queued data is in the
 * carrier. These data have no sequence number yet.
 */
static int64_t refuse_repair(const struct call *c)
{
	log_line("%s (pid %d): TCP_REPAIR is refused, because lklhost also holds data in flight",
		 task_comm(c->task), c->pid);
	return -EPERM;
}

/**
 * add_unsent - add the data that the stack does not have yet to the unsent
 * bytes of TCP_INFO
 */
static void add_unsent(const struct call *c, socklen_t len)
{
	struct tcp_info *ti = (struct tcp_info *)c->buf;

	if (len >= offsetof(struct tcp_info, tcpi_notsent_bytes) +
		   sizeof(ti->tcpi_notsent_bytes))
		ti->tcpi_notsent_bytes += (uint32_t)pump_unsent(stream_of(c->conn));
}

/** take_error - get and clear SO_ERROR */
static int take_error(struct call *c)
{
	struct dgram *d;
	socklen_t len = sizeof(int);
	int err;

	if (c->conn->kind != KIND_DGRAM)
		return stream_take_error(c);
	d = dgram_of(c->conn);
	err = dgram_take_error(d, c->dup);
	if (!err)
		st_getsockopt(c->conn->sfd, SOL_SOCKET, SO_ERROR, &err, &len);
	dgram_look_again(d, c->dup);
	return err;
}

/** put_int - write an int as the value of an option */
static int64_t put_int(struct call *c, int value, int room)
{
	int len = room < (int)sizeof(value) ? room : (int)sizeof(value);
	int64_t ret = mem_write(c, c->args[3], &value, (size_t)len);

	return ret ? ret : mem_write(c, c->args[4], &len, sizeof(len));
}

/**
 * full_info - handle getsockopt(SOL_MPTCP, MPTCP_FULL_INFO)
 *
 * struct mptcp_full_info (include/uapi/linux/mptcp.h) contains two pointers to
 * arrays. In the structure for the stack, they point into @c->buf.
 */
static int64_t full_info(struct call *c, int room)
{
	struct {
		uint32_t tcp_kernel, tcp_size, sf_kernel, sf_size, subflows,
			 entries;
		uint64_t sf, tcp;
		char rest[FULL_INFO_MAX];
	} info;
	const size_t head = offsetof(__typeof__(info), rest);
	uint64_t sf, tcp;
	uint32_t entries;
	size_t n, sf_len, tcp_len;
	socklen_t len;
	int64_t ret;

	if (room > (int)sizeof(info))
		room = (int)sizeof(info);
	if (room < (int)head)
		return -EINVAL;
	ret = mem_read(c, c->args[3], &info, (size_t)room);
	if (ret)
		return ret;
	if (info.sf_size > FULL_INFO_MAX || info.tcp_size > FULL_INFO_MAX)
		return -EINVAL;
	entries = info.entries;
	if (info.entries > FULL_INFO_FLOWS)
		info.entries = FULL_INFO_FLOWS;
	sf = info.sf;
	tcp = info.tcp;
	info.sf = sf ? (uint64_t)(uintptr_t)c->buf : 0;
	info.tcp = tcp ? (uint64_t)(uintptr_t)c->buf + CALL_BUF_SIZE / 2 : 0;
	len = (socklen_t)room;
	ret = st_getsockopt(c->conn->sfd, OPT_SOL_MPTCP, OPT_MPTCP_FULL_INFO,
			    &info, &len);
	if (ret)
		return ret;
	n = info.entries < info.subflows ? info.entries : info.subflows;
	info.entries = entries;
	sf_len = sf ? n * info.sf_size : 0;
	tcp_len = tcp ? n * info.tcp_size : 0;
	info.sf = sf;
	info.tcp = tcp;
	if (sf_len > CALL_BUF_SIZE / 2 || tcp_len > CALL_BUF_SIZE / 2 ||
	    len > (socklen_t)room)
		return -EINVAL;
	ret = mem_write(c, sf, c->buf, sf_len);
	if (!ret)
		ret = mem_write(c, tcp, c->buf + CALL_BUF_SIZE / 2, tcp_len);
	if (!ret)
		ret = mem_write(c, c->args[3], &info, len);
	return ret ? ret : mem_write(c, c->args[4], &len, sizeof(len));
}

/** peek_off - get SO_PEEK_OFF from the carrier, whose reads change it */
static int64_t peek_off(struct call *c, int room)
{
	socklen_t len = sizeof(int);
	int value;

	return getsockopt(c->dup, SOL_SOCKET, SO_PEEK_OFF, &value, &len) ?
	       -errno : put_int(c, value, room);
}

/** set_peek_off - set SO_PEEK_OFF of a stream: peeks read from the carrier */
static int64_t set_peek_off(struct call *c, int len)
{
	int64_t ret;
	int value;

	if (len < (int)sizeof(value))
		return -EINVAL;
	ret = mem_read(c, c->args[3], &value, sizeof(value));
	if (ret)
		return ret;
	return setsockopt(c->dup, SOL_SOCKET, SO_PEEK_OFF, &value,
			  sizeof(value)) ? -errno : 0;
}

/** sock_getsockopt - handle getsockopt(2) */
int64_t sock_getsockopt(struct call *c)
{
	int level = (int)c->args[1], name = (int)c->args[2], room, value;
	struct conn *conn = c->conn;
	socklen_t len;
	int64_t ret;

	ret = mem_read(c, c->args[4], &room, sizeof(room));
	if (!ret)
		ret = opt_refused(level, name, false);
	if (ret)
		return ret;
	if (room < 0) {
		len = 0;
		ret = st_getsockopt(conn->sfd, level, name, c->buf, &len);
		return ret == -EOPNOTSUPP && level != SOL_SOCKET &&
		       level != IPPROTO_TCP && level != IPPROTO_IP &&
		       level != IPPROTO_IPV6 ? ret : -EINVAL;
	}
	if (netfilter_opt_is(level, name))
		return netfilter_opt_get(c, room);
	if (room > OPT_MAX)
		room = OPT_MAX;
	if (level == SOL_SOCKET && name == SO_ERROR)
		return put_int(c, take_error(c), room);
	if (level == SOL_SOCKET && name == SO_PROTOCOL &&
	    conn->kind == KIND_STREAM)
		return put_int(c, conn->proto ? conn->proto : IPPROTO_TCP, room);
	if (level == OPT_SOL_MPTCP && name == OPT_MPTCP_FULL_INFO)
		return full_info(c, room);
	if (conn->kind == KIND_DGRAM &&
	    dgram_run_value(dgram_of(conn), level, name, &value))
		return put_int(c, value, room);
	if (level == SOL_SOCKET && name == SO_PEEK_OFF)
		return peek_off(c, room);
	/* For some options, the buffer is also an input. */
	ret = mem_read(c, c->args[3], c->buf, (size_t)room);
	if (ret)
		return ret;
	len = (socklen_t)room;
	ret = st_getsockopt(conn->sfd, level, name, c->buf, &len);
	if (ret < 0)
		ret = fallback_get(conn, level, name, c->buf, &len, ret);
	if (ret < 0)
		return ret;
	if (level == IPPROTO_TCP && name == TCP_INFO &&
	    conn->kind == KIND_STREAM)
		add_unsent(c, len);
	if (len > (socklen_t)room)
		room = 0;
	else
		room = (int)len;
	if (mem_write(c, c->args[3], c->buf, (size_t)room) ||
	    mem_write(c, c->args[4], &len, sizeof(len)))
		return -EFAULT;
	return ret;
}

/** set_filter - set a classic BPF program, which the value points to */
static int64_t set_filter(struct call *c, int name)
{
	struct sock_fprog fp;
	int64_t ret;

	if ((int)c->args[4] < (int)sizeof(fp))
		return -EINVAL;
	ret = mem_read(c, c->args[3], &fp, sizeof(fp));
	if (ret)
		return ret;
	if (!fp.len || fp.len > FILTER_MAX)
		return -EINVAL;
	ret = mem_read(c, (uint64_t)(uintptr_t)fp.filter, c->buf,
		       fp.len * sizeof(struct sock_filter));
	if (ret)
		return ret;
	fp.filter = (struct sock_filter *)c->buf;
	if (c->conn->kind == KIND_DGRAM)
		dgram_run_option(dgram_of(c->conn), SOL_SOCKET, name, &fp,
				 sizeof(fp));
	return st_setsockopt(c->conn->sfd, SOL_SOCKET, name, &fp, sizeof(fp));
}

/**
 * buffers - apply the buffer sizes of a stream to its carrier
 *
 * The target cannot distinguish data in the carrier from data in the stack.
 * With the usual sizes this hardly matters. Our end's SO_SNDBUF limits the data
 * that we may put into the carrier.
 */
static void buffers(struct call *c, int name, int size)
{
	struct conn *conn = c->conn;
	struct stream *s;

	if (conn->kind != KIND_STREAM)
		return;
	s = stream_of(conn);
	if (name == SO_SNDBUF && s->cork.bytes) {
		s->cork.sndbuf = size;
	} else if (name == SO_SNDBUF) {
		setsockopt(c->dup, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	} else {
		s->rcvbuf = size;
		if (conn->csrc.fd >= 0)
			setsockopt(conn->csrc.fd, SOL_SOCKET, SO_SNDBUF, &size,
				   sizeof(size));
	}
}

/** note_wanted - record ancillary data that stream_msg.c must provide */
static void note_wanted(struct call *c, int level, int name)
{
	struct stream *s;

	if (c->conn->kind != KIND_STREAM)
		return;
	s = stream_of(c->conn);
	if (level == IPPROTO_TCP && name == OPT_TCP_INQ)
		s->inq_wanted = *(const int *)c->buf;
	if (level != SOL_SOCKET)
		return;
	switch (name) {
	case OPT_TIMESTAMP_OLD:
	case OPT_TIMESTAMPNS_OLD:
	case OPT_TIMESTAMPING_OLD:
	case OPT_TIMESTAMP_NEW:
	case OPT_TIMESTAMPNS_NEW:
	case OPT_TIMESTAMPING_NEW:
		s->stamps.wanted = *(const int *)c->buf ? name : 0;
	}
}

/**
 * no_matter - whether an option that MPTCP lacks would have no effect
 *
 * SO_OOBINLINE has no effect without urgent data, because then every byte is
 * inline. TCP_QUICKACK is a hint that TCP may forget at once (tcp(7)). Neither
 * option justifies an error or plain TCP.
 */
static bool no_matter(const struct conn *conn, int level, int name, int len)
{
	if (!(conn->facts & F_MPTCP) || len < (int)sizeof(int))
		return false;
	return (level == SOL_SOCKET && name == SO_OOBINLINE &&
		stream_of(conn)->state == STREAM_OPEN) ||
	       (level == IPPROTO_TCP && name == TCP_QUICKACK);
}

/**
 * no_change - whether an option that MPTCP lacks is set to its current value
 *
 * Erlang, for example, gets a listener's options and sets them on its
 * connections. Our answers to these gets are the values of TCP
 * (fallback_get()), so we must accept these values.
 */
static bool no_change(const struct conn *conn, int level, int name,
		      const void *value, int len, int64_t ret)
{
	socklen_t size = sizeof(int);
	int now;

	return conn->kind == KIND_STREAM &&
	       stream_of(conn)->state != STREAM_NEW && value && len == (int)sizeof(now) &&
	       !fallback_get(conn, level, name, &now, &size, ret) &&
	       size == sizeof(now) && !memcmp(&now, value, sizeof(now));
}

/** sock_setsockopt - handle setsockopt(2) */
int64_t sock_setsockopt(struct call *c)
{
	int level = (int)c->args[1], name = (int)c->args[2];
	int len = (int)c->args[4];
	struct conn *conn = c->conn;
	const void *value = c->args[3] ? c->buf : NULL;
	int64_t ret;

	if (len < 0)
		return -EINVAL;
	ret = opt_refused(level, name, true);
	if (!ret && !hostnet_option(conn, level, name))
		ret = -EPERM;
	if (ret)
		return ret;
	if (level == IPPROTO_TCP && name == TCP_REPAIR)
		return refuse_repair(c);
	/* The right to hear other namespaces would be that of the run's own. */
	if (level == SOL_NETLINK && name == NETLINK_LISTEN_ALL_NSID &&
	    (conn->facts & F_SPACE))
		return -EPERM;
	if (level == SOL_SOCKET &&
	    (name == SO_ATTACH_FILTER || name == OPT_REUSEPORT_CBPF))
		return set_filter(c, name);
	if (netfilter_opt_is(level, name))
		return netfilter_opt_set(c);
	if (level == SOL_SOCKET && name == SO_PEEK_OFF &&
	    conn->kind == KIND_STREAM)
		return set_peek_off(c, len);
	if (len > OPT_MAX)
		return -ENOBUFS;
	ret = c->args[3] ? mem_read(c, c->args[3], c->buf, (size_t)len) : 0;
	if (ret)
		return ret;
	if (conn->kind == KIND_DGRAM &&
	    dgram_run_option(dgram_of(conn), level, name, value, len))
		return 0;
	ret = st_setsockopt(conn->sfd, level, name, value, len);
	if ((ret == -EOPNOTSUPP || ret == -ENOPROTOOPT) &&
	    (no_matter(conn, level, name, len) ||
	     no_change(conn, level, name, value, len, ret)))
		ret = 0;
	if (ret)
		ret = fallback_to_tcp(c, level, name, value, len, ret);
	if (ret)
		return ret;
	sockopt_log_add(conn, level, name, value, value ? len : 0);
	if (len >= (int)sizeof(int))
		note_wanted(c, level, name);
	if (level != SOL_SOCKET)
		return 0;
	carrier_option(c, name, len);
	if ((name == SO_SNDBUF || name == SO_RCVBUF) &&
	    len >= (int)sizeof(int)) {
		int size;

		memcpy(&size, c->buf, sizeof(size));
		buffers(c, name, size);
	}
	if (name == SO_LINGER && len >= (int)sizeof(struct linger)) {
		struct linger l;

		memcpy(&l, c->buf, sizeof(l));
		flag_set(&conn->facts, F_LINGER, l.l_onoff && l.l_linger);
		flag_set(&conn->facts, F_ABORTIVE, l.l_onoff && !l.l_linger);
	}
	return 0;
}
