/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The control protocol between lklhost (C) and its clients lklrun and lklctl
 * (Go). It is used on ctl.sock and on the descriptor that lklrun passes to
 * lklhost at start.
 *
 * Theory of operation
 *
 * A connection is a SOCK_STREAM unix socket. Both sides send frames: a struct
 * ctl_hdr, then len - sizeof(struct ctl_hdr) bytes of body. All fields are
 * little-endian and naturally aligned; padding is always a named field. The
 * client chooses hdr.id; the reply carries the same id and type | CTL_REPLY.
 * Requests on one connection may be answered out of order: a call that waits
 * (CTL_SYSCALL with a timeout) does not delay later requests.
 *
 * hdr.status of a reply is 0 or a negative errno. It reports whether lklhost
 * could carry out the request itself. The result of a system call in the stack
 * is in the body of the reply.
 *
 * The first frame of a connection is CTL_HELLO. lklhost answers an unknown type
 * with -EOPNOTSUPP. It answers a frame of invalid length with -EBADMSG and
 * closes the connection.
 *
 * internal/stack/ctlproto/proto_gen.go is generated from this file (`make generate`):
 * every #define CTL_* with an integer value becomes a Go constant. The layouts
 * are written by hand on both sides; the tests of internal/stack/stackconn use
 * both.
 */
#ifndef LKLRUN_CTL_PROTO_H
#define LKLRUN_CTL_PROTO_H

#include <stdint.h>

#define CTL_VERSION		1
#define CTL_MAGIC		0x524c4b4c	/* "LKLR" */
#define CTL_HDR_SIZE		16
#define CTL_FRAME_MAX		0x110000	/* 1 MiB and headers */

/* Frame types. A reply has the type of its request | CTL_REPLY. */
#define CTL_REPLY		0x8000
#define CTL_HELLO		1	/* versions, pids, state */
#define CTL_LINK_ADD		2	/* one descriptor in SCM_RIGHTS */
#define CTL_LINK_DEL		3
#define CTL_BOOT		4	/* start the kernel */
#define CTL_GO			5	/* release the target */
#define CTL_SYSCALL		6	/* a system call made in the stack */
#define CTL_CANCEL		7	/* cancel a waiting CTL_SYSCALL */
#define CTL_STATS		8	/* engine and pump counters */
#define CTL_OWNERS		9	/* owners of the stack's sockets */
#define CTL_EVENTS		10	/* subscribe */
#define CTL_EVENT		11	/* pushed, no reply; id of CTL_EVENTS */
#define CTL_STOP		12	/* end the target, then the stack */
#define CTL_LOG			13	/* the last kernel log lines */
#define CTL_EXEC		14	/* run another program; three descriptors in SCM_RIGHTS */
#define CTL_EXEC_SIGNAL		15	/* send a signal to a program of CTL_EXEC */
#define CTL_ASK			16	/* a request to lklrun; with CTL_ASKF_FD a descriptor in SCM_RIGHTS */
#define CTL_ASKED		17	/* a forwarded CTL_ASK, pushed to lklrun; id 0 */
#define CTL_ANSWER		18	/* lklrun's answer to CTL_ASKED */
#define CTL_LINK_JOIN		19	/* join a device of kind WIRE to another one; its bell in SCM_RIGHTS */
#define CTL_SERVE		20	/* serve processes that are not ours; two descriptors in SCM_RIGHTS */
#define CTL_NETNS		21	/* use a network namespace that the target has made */

/* State of lklhost, reported in HELLO. */
#define CTL_STATE_NEW		0	/* before CTL_BOOT: LINK_ADD, BOOT */
#define CTL_STATE_BOOTED	1	/* SYSCALL works, the target waits */
#define CTL_STATE_RUNNING	2	/* the target was released */
#define CTL_STATE_ENDING	3	/* target has ended, sent data drains */
#define CTL_STATE_PANICKED	4	/* the kernel is dead: only HELLO, LOG, STATS, STOP */

/*
 * Event kinds, bits of the mask. Slow readers may lose PROC, SOCKET and LISTEN
 * events.
 */
#define CTL_EV_EXIT		0x01	/* the target itself ended; arg = wait status, text = MPTcpExt, then STATS */
#define CTL_EV_PANIC		0x02	/* the kernel panicked; text = its message */
#define CTL_EV_PROC		0x04	/* a process of the target started or ended; arg: 1 started, 0 ended */
#define CTL_EV_SOCKET		0x08	/* arg = connection number; text = what happened */
#define CTL_EV_WARN		0x20	/* a line for the user; also reports how many events were lost */
#define CTL_EV_NOTE		0x40	/* an additional line for verbose output */
#define CTL_EV_START		0x80	/* the target executes its program (engine supervise) */
#define CTL_EV_SIGNAL		0x100	/* from a terminal or to our process group; arg: SIGINT, SIGQUIT */
#define CTL_EV_REFUSED		0x200	/* the stack refused a connect to loopback; text = ADDRESS:PORT */
#define CTL_EV_LISTEN		0x400	/* a TCP socket of the target began (arg: 1) or ceased (0) to listen (engine supervise) */

struct ctl_hdr {
	uint32_t len;		/* of the frame, including this header */
	uint16_t type;
	uint16_t flags;		/* 0 */
	uint32_t id;
	int32_t status;		/* replies only */
};

/* CTL_HELLO */
struct ctl_hello_req {
	uint32_t magic;
	uint32_t version;	/* highest version of the client */
};

struct ctl_hello_rep {
	uint32_t version;	/* version in use: min of both, never 0 */
	uint32_t state;
	uint32_t host_pid;	/* 0: on another machine */
	uint32_t target_pid;	/* 0: not started yet, or ended */
	uint32_t abi;
	uint32_t strings_len;	/* bytes that follow: stack '\0' release '\0' architecture '\0' */
	uint64_t start_ns;	/* host's CLOCK_MONOTONIC at start */
};

/*
 * The architecture is that of the stack host: amd64, arm64 or arm. It
 * determines call numbers, flags of open(2), the size of addresses and the
 * layout of structures that contain them. This holds for all calls, even if the
 * client runs on another architecture.
 */

/* hello.abi */
#define CTL_ABI_NATIVE		1	/* our library: the host's call numbers, loop mode */
#define CTL_ABI_LKL_NEW		2	/* lkl_init() + lkl_start_kernel(fmt): generic call numbers */
#define CTL_ABI_LKL_OLD		3	/* lkl_start_kernel(ops, mem, fmt) */
#define CTL_ABI_HOST		4	/* the host kernel, no library */

/* CTL_LINK_ADD, before or after CTL_BOOT; devices become ethN in this order. */
#define CTL_LINK_TAP		1	/* a tap descriptor, TUNSETIFF done, IFF_NO_PI */
#define CTL_LINK_FRAME		2	/* SOCK_DGRAM or SOCK_SEQPACKET, one frame per message */
#define CTL_LINK_PACKET		3	/* a packet socket (AF_PACKET, SOCK_RAW) bound to a device, one frame per message */
#define CTL_LINK_COOKED		4	/* a packet socket on a device without link layer, SOCK_DGRAM or SOCK_RAW: one IP packet per message */
#define CTL_LINK_TUN		5	/* a tun descriptor, TUNSETIFF done, IFF_NO_PI */
#define CTL_LINK_WIRE		6	/* an epoll without descriptors; its peers follow with CTL_LINK_JOIN, see third_party/lkl/include/lkl.h */
#define CTL_LINKF_VNET_HDR	0x1	/* struct virtio_net_hdr_mrg_rxbuf (12 bytes; packet socket: the size set on it) before each frame */
#define CTL_LINKF_OFFLOAD	0x2	/* TSO and checksum offload both ways */
#define CTL_LINKF_RAWIP		0x4	/* no link layer: one IP packet per message; always the case for COOKED and TUN */
#define CTL_LINKF_BIG		0x8	/* the host takes TSO frames above 64 KiB and terminates connections: a tap without bridge and NAT */
#define CTL_LINKF_VNET10	0x10	/* struct virtio_net_hdr (10 bytes) before each frame; kind FRAME only */
#define CTL_LINKF_FEATURES_SHIFT 16	/* higher bits: the virtio-net features that OFFLOAD is limited to; none: all */

struct ctl_link_add {
	uint32_t kind;
	uint32_t flags;
	uint8_t mac[6];		/* all zero: the stack picks one */
	uint16_t mtu;		/* 0: the stack's default */
};

struct ctl_link_rep {
	int32_t dev;		/* device id, for CTL_LINK_DEL */
	int32_t ifindex;	/* in the stack; 0 before CTL_BOOT */
};

struct ctl_link_del {
	int32_t dev;
};

struct ctl_link_join {
	int32_t dev;
};

/* CTL_BOOT; the reply's body is the kernel's release, not NUL-terminated */
struct ctl_boot {
	uint64_t mem;		/* bytes; 0: the library's default */
	uint32_t cmdline_len;	/* bytes that follow */
	uint32_t reserved;
};

/* CTL_GO; the reply's body is a uint32_t, the target's pid */
#define CTL_GOF_MPTCP		0x1	/* TCP stream sockets become MPTCP */
#define CTL_GOF_TREE		0x2	/* send CTL_EV_EXIT when the target's whole tree has ended, not only the target */
#define CTL_GOF_ASK_END		0x4	/* after CTL_EV_EXIT, also ask lklrun and wait for its answer */

struct ctl_go {
	uint32_t flags;
	uint32_t spin_us;	/* busy-wait before sleeping; 0: none */
	uint32_t resolv_len;	/* path of the target's /etc/resolv.conf; 0: leave it as it is */
	uint32_t coalesce_us;	/* frames may gather for this long; 0: each one wakes the stack */
};

/*
 * CTL_SYSCALL: a call in the stack. nr is the host architecture's own number,
 * also for a foreign library (lklhost translates it).
 *
 * Each of the nbuf buffers says where its address goes: into argument `place`,
 * or, with CTL_BUF_IN_BUF, to byte `offset` of the earlier buffer `place` (for
 * msghdr, iovec and the like). An address has the size that it has on the stack
 * host's architecture. The bytes of IN and INOUT buffers follow the ctl_buf
 * array in order, without padding. OUT buffers are zeroed before the call.
 * lklhost passes arguments without a buffer unchanged.
 *
 * With timeout_ms > 0, a call that returns EAGAIN waits until the descriptor in
 * args[0] has one of wait_events (EPOLLIN ...) and is then repeated. On
 * timeout, ret of the reply is -EAGAIN; after CTL_CANCEL it is -EINTR. The
 * descriptor must be non-blocking (lklhost makes no call that could block).
 *
 * lklhost closes the descriptors opened by calls on a connection together with
 * the connection.
 *
 * A ctl_buf with only CTL_BUF_USED set and len 0 describes no buffer. It
 * describes the used length of the OUT buffer right before it. After a
 * recvmmsg, that length is the uint32_t at byte `offset` of the earlier OUT or
 * INOUT buffer `place`, as msg_len in struct mmsghdr. The reply contains only
 * the used bytes, and such a buffer is not zeroed before the call. Each message
 * has at most one such buffer, in the order of the messages. If the rest of the
 * reply has no room for the whole next buffer, the call returns early, as if
 * the socket were empty. The sum of the buffer lengths is therefore unlimited.
 *
 * The reply is a struct ctl_syscall_rep, then the bytes of OUT and INOUT
 * buffers in order, each in full except with CTL_BUF_USED. If the call failed,
 * nothing follows.
 */
#define CTL_BUF_IN		0x1
#define CTL_BUF_OUT		0x2
#define CTL_BUF_INOUT		0x3
#define CTL_BUF_IN_BUF		0x4
#define CTL_BUF_USED		0x8
#define CTL_SYSCALL_BUFS	640	/* entries: a recvmmsg of 127 messages has 1 + 5 each */

struct ctl_syscall {
	uint32_t nr;
	uint32_t nbuf;
	uint32_t timeout_ms;
	uint32_t wait_events;
	uint64_t args[6];
};

struct ctl_buf {
	uint8_t place;		/* argument 0..5, or a buffer's index */
	uint8_t flags;
	uint16_t offset;	/* with CTL_BUF_IN_BUF; a multiple of an address's size */
	uint32_t len;
};

struct ctl_syscall_rep {
	int64_t ret;		/* the stack's return value: >= 0 or -errno */
};

/* CTL_CANCEL: the reply is empty, even if the call no longer waits */
struct ctl_cancel {
	uint32_t id;		/* of the CTL_SYSCALL */
};

/*
 * CTL_NETNS: sockets and files that later calls on this connection open belong to
 * a network namespace that the target has made, and report on it. If it has ended,
 * these calls return -ENONET. The reply's body is an array of uint64_t: the inode
 * numbers of all such namespaces on the host. Only sockets and files of the
 * stack's kernel know namespaces: all other requests are about the whole run.
 *
 * Errors:
 *
 * - -ENOENT: the target has made no such namespace, or no program in it has made a
 *   socket
 * - -EOPNOTSUPP: the run does not support namespaces
 */
struct ctl_netns {
	uint64_t ino;		/* of /proc/PID/ns/net on the host; 0: no change */
};

/* CTL_STATS and CTL_LOG: the reply's body is text; STATS: "name value\n" */

/* CTL_OWNERS: the reply's body is an array of this structure */
struct ctl_owner {
	uint64_t stack_ino;	/* inode of the socket in the stack, as ss and /proc/net show it */
	uint64_t carrier_ino;	/* inode of the target's end on the host, as in /proc/PID/fd */
	uint32_t pid;		/* process that created it */
	uint32_t conn;		/* connection number */
	int32_t stack_fd;
	uint32_t flags;		/* 0 */
	char comm[16];		/* of that process, at creation */
};

/*
 * CTL_EVENTS: subscribe. The reply is empty; CTL_EVENT frames follow. A later
 * CTL_EVENTS on the same connection replaces the earlier one.
 */
struct ctl_events {
	uint32_t mask;
};

struct ctl_event {
	uint32_t kind;
	uint32_t pid;
	uint64_t time_ns;	/* CLOCK_MONOTONIC */
	int64_t arg;
	/* text follows to the end of the frame */
};

/*
 * CTL_STOP: send a signal to every process of the target, and SIGKILL after
 * grace_ms. The empty reply comes at once; lklhost closes the connection when
 * it is done.
 */
struct ctl_stop {
	uint32_t signal;
	uint32_t grace_ms;
};

/*
 * CTL_SERVE: also serve processes that lklhost has not started, such as those
 * of a container. The first descriptor is a listening unix socket. An OCI runtime
 * connects to it and sends a seccomp listener (linux.seccomp.listenerPath), one
 * for each filter that it installs. The second one is the network namespace of
 * these processes: their capabilities in its user namespace are their rights in
 * the stack. When all listeners have hung up, the run ends as with CTL_STOP,
 * unless the request has the flag CTL_SERVE_STAY; lklhost sends no signal to
 * these processes. The reply has no body.
 *
 * Errors:
 *
 * - -EBADF: a descriptor is missing
 * - -EAGAIN: before CTL_GO, or while the run is ending
 * - -EALREADY: there is such a socket already
 * - -EOPNOTSUPP: another engine than supervise, or a stack that does not check
 *   capabilities
 * - -EINVAL: an unknown flag
 */
#define CTL_SERVE_STAY		1	/* the run does not end with the last listener */
struct ctl_serve {
	uint32_t flags;
};

/*
 * CTL_EXEC: run another program in the target's environment, with the
 * descriptors as standard input, output and error. argc + envc + 1 strings
 * follow, each with its '\0': the working directory, the command and its
 * arguments, the environment. The reply comes when the program has ended. If
 * the connection closes earlier, the program gets SIGHUP and SIGTERM, and
 * SIGKILL after five seconds.
 *
 * Errors:
 *
 * - -EAGAIN: before CTL_GO
 * - -ESHUTDOWN: the run is ending
 * - -ESRCH: the process that starts programs is gone
 * - -EUSERS: too many programs at once
 * - -EIO: the kernel panicked
 * - -EOPNOTSUPP: the kernel is inside the target (engine preload)
 */
struct ctl_exec {
	uint32_t argc;		/* at least 1 */
	uint32_t envc;
	uint32_t umask;
	uint32_t strings_len;	/* bytes that follow */
};

#define CTL_EXEC_RAN		0	/* wait_status is that of the program */
#define CTL_EXEC_CWD		1	/* cannot enter the working directory */
#define CTL_EXEC_COMMAND	2	/* cannot execute the command: status 126 or 127 */
#define CTL_EXEC_RUN_ENDED	3	/* killed because the run ended */

struct ctl_exec_rep {
	int32_t wait_status;	/* as from waitpid(2) */
	uint32_t how;
	int32_t error;		/* an errno, with CWD and COMMAND */
	uint32_t reserved;
};

/* CTL_EXEC_SIGNAL; the reply is empty, -ENOENT if the program has ended */
#define CTL_EXECF_GROUP		0x1	/* send it to the process group */

struct ctl_exec_signal {
	uint32_t id;		/* of the CTL_EXEC, on this connection */
	uint32_t signal;
	uint32_t flags;
	uint32_t reserved;
};

/*
 * CTL_ASK: a request that only lklrun can carry out, with its rights and in its
 * namespaces, for example to add a device of the host. lklhost forwards the
 * text (JSON, internal/diag/rpc), and the descriptor if there is one, as CTL_ASKED
 * on the connection that it was started with. lklrun answers with CTL_ANSWER
 * and the serial of CTL_ASKED. The reply to CTL_ASK has the answer's status
 * and, as its body, the answer's text. If the client disconnects first, lklhost
 * drops the answer and still replies 0 to CTL_ANSWER.
 *
 * Errors of CTL_ASK:
 *
 * - -ENOTCONN: lklrun is gone
 * - -EBUSY: CTL_ASKS_MAX requests are unanswered
 * - -EMSGSIZE: the text is longer than CTL_ASK_MAX
 * - -EBADF: the descriptor is missing
 *
 * Errors of CTL_ANSWER: -EPERM if the client is not lklrun, -ENOENT if no
 * request with this serial waits.
 *
 * If CTL_GOF_ASK_END was given, lklhost itself asks when the target has ended,
 * with CTL_ASKF_END and no text. The stack keeps running until the answer, for
 * two seconds at most, so that lklrun can sign off from the network.
 */
#define CTL_ASKF_FD		0x1
#define CTL_ASKF_END		0x2	/* only in CTL_ASKED */
#define CTL_ASKS_MAX		32
#define CTL_ASK_MAX		0x10000

struct ctl_ask {
	uint32_t serial;	/* 0 in CTL_ASK */
	uint32_t flags;
	/* text follows to the end of the frame */
};

struct ctl_answer {
	uint32_t serial;
	int32_t status;		/* 0 or a negative errno */
	/* text follows to the end of the frame */
};

#endif
