/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The control protocol between lklhost (C) and its clients lklrun and lklctl
 * (Go): what travels over ctl.sock and over the descriptor lklrun starts
 * lklhost with.
 *
 * Theory of operation
 *
 * A connection is a SOCK_STREAM unix socket. Both sides send frames: a struct
 * ctl_hdr, then len - sizeof(struct ctl_hdr) bytes of body. Everything is
 * little-endian, naturally aligned, without padding that is not named. The
 * client chooses hdr.id; the reply carries the same id and type | CTL_REPLY.
 * Requests on one connection may be answered out of order: a call that waits
 * (CTL_SYSCALL with a timeout) does not hold up those behind it.
 *
 * hdr.status of a reply is 0 or a negative errno: whether the *request* could
 * be carried out. What a system call of the stack returned is in the body.
 *
 * The first frame of a connection is CTL_HELLO. An unknown type is answered
 * with -EOPNOTSUPP, a frame that breaks a length with -EBADMSG and the end of
 * the connection.
 *
 * internal/ctlproto/proto_gen.go is generated from this file (`make generate`):
 * every #define CTL_* with an integer value becomes a Go constant. The layouts
 * are written out by hand on both sides and held by golden bytes
 * (internal/ctlproto/testdata, csrc/tests/test_ctl_proto.c).
 */
#ifndef LKLRUN_CTL_PROTO_H
#define LKLRUN_CTL_PROTO_H

#include <stdint.h>

#define CTL_VERSION		1
#define CTL_MAGIC		0x524c4b4c	/* "LKLR" */
#define CTL_HDR_SIZE		16
#define CTL_FRAME_MAX		0x110000	/* 1 MiB of payload and its head */

/* Frame types. A reply has the type of its request | CTL_REPLY. */
#define CTL_REPLY		0x8000
#define CTL_HELLO		1	/* versions, who and what runs */
#define CTL_LINK_ADD		2	/* one descriptor in SCM_RIGHTS */
#define CTL_LINK_DEL		3
#define CTL_BOOT		4	/* start the kernel */
#define CTL_GO			5	/* release the target */
#define CTL_SYSCALL		6	/* a system call made in the stack */
#define CTL_CANCEL		7	/* give up a waiting CTL_SYSCALL */
#define CTL_STATS		8	/* engine and pump counters */
#define CTL_OWNERS		9	/* whose socket is this */
#define CTL_EVENTS		10	/* subscribe */
#define CTL_EVENT		11	/* pushed, never answered; id of CTL_EVENTS */
#define CTL_STOP		12	/* end the target, then the stack */
#define CTL_LOG			13	/* the last kernel log lines */
#define CTL_EXEC		14	/* another program; three descriptors in SCM_RIGHTS */
#define CTL_EXEC_SIGNAL		15	/* a signal for it */
#define CTL_ASK			16	/* a question for lklrun; with CTL_ASKF_FD a descriptor in SCM_RIGHTS */
#define CTL_ASKED		17	/* pushed to lklrun, likewise; id 0 */
#define CTL_ANSWER		18	/* lklrun's, to CTL_ASKED */

/* What the stack host is doing; in HELLO. */
#define CTL_STATE_NEW		0	/* before CTL_BOOT: LINK_ADD, BOOT */
#define CTL_STATE_BOOTED	1	/* SYSCALL works, the target still waits */
#define CTL_STATE_RUNNING	2	/* the target was released */
#define CTL_STATE_ENDING	3	/* the target is gone, sent data drains */
#define CTL_STATE_PANICKED	4	/* the kernel is dead: only HELLO, LOG, STATS, STOP */

/* Event kinds, bits of the mask in CTL_EVENTS. Of PROC and SOCKET a slow reader loses some, and a WARN says how many. */
#define CTL_EV_EXIT		0x01	/* the target itself ended; arg = wait status, text = MPTcpExt, STATS then */
#define CTL_EV_PANIC		0x02	/* the kernel panicked; text = its message */
#define CTL_EV_PROC		0x04	/* a process of the target's came or went; arg: 1 came, 0 went */
#define CTL_EV_SOCKET		0x08	/* arg = connection number; text = what happened */
#define CTL_EV_WARN		0x20	/* a line for the user */
#define CTL_EV_NOTE		0x40	/* a line for a user who wants to know more */
#define CTL_EV_START		0x80	/* the target executes its program (engine supervise) */
#define CTL_EV_SIGNAL		0x100	/* a terminal's, or for our process group; arg: SIGINT, SIGQUIT */

struct ctl_hdr {
	uint32_t len;		/* of the frame, this header included */
	uint16_t type;
	uint16_t flags;		/* 0 */
	uint32_t id;
	int32_t status;		/* replies only */
};

/* CTL_HELLO */
struct ctl_hello_req {
	uint32_t magic;
	uint32_t version;	/* highest the client speaks */
};

struct ctl_hello_rep {
	uint32_t version;	/* that will be spoken: min of both, never 0 */
	uint32_t state;
	uint32_t host_pid;	/* 0: of another machine, whose processes the client cannot look at */
	uint32_t target_pid;	/* 0: none yet, or gone */
	uint32_t abi;
	uint32_t strings_len;	/* bytes that follow: stack '\0' release '\0' architecture '\0' */
	uint64_t start_ns;	/* CLOCK_MONOTONIC of the host at its start */
};

/*
 * The architecture is the stack host's: amd64, arm64 or arm. Call numbers, flags of
 * open(2), the size of addresses and what contains them are its own in all calls,
 * also where the client's are others.
 */

/* hello.abi */
#define CTL_ABI_NATIVE		1	/* our library: host's call numbers, loop mode */
#define CTL_ABI_LKL_NEW		2	/* lkl_init() + lkl_start_kernel(fmt): generic call numbers */
#define CTL_ABI_LKL_OLD		3	/* lkl_start_kernel(ops, mem, fmt) */
#define CTL_ABI_HOST		4	/* the host kernel itself, no library */

/* CTL_LINK_ADD, before CTL_BOOT or after it; the device becomes ethN in order. */
#define CTL_LINK_TAP		1	/* a tap descriptor, TUNSETIFF done, IFF_NO_PI */
#define CTL_LINK_FRAME		2	/* SOCK_DGRAM or SOCK_SEQPACKET, a frame per message */
#define CTL_LINK_PACKET		3	/* a packet socket (AF_PACKET, SOCK_RAW) bound to a device, a frame per message */
#define CTL_LINK_COOKED		4	/* a packet socket on a device without link layer, SOCK_DGRAM or SOCK_RAW: an IP packet per message */
#define CTL_LINK_TUN		5	/* a tun descriptor, TUNSETIFF done, IFF_NO_PI */
#define CTL_LINKF_VNET_HDR	0x1	/* struct virtio_net_hdr_mrg_rxbuf (12 bytes; a packet socket: as it was given) before each frame */
#define CTL_LINKF_OFFLOAD	0x2	/* TSO and checksum offload both ways */
#define CTL_LINKF_RAWIP		0x4	/* no link layer: an IP packet per message; COOKED and TUN never have one */
#define CTL_LINKF_BIG		0x8	/* the host takes TSO frames above 64 KiB, and connections end there: a tap without bridge and NAT */
#define CTL_LINKF_FEATURES_SHIFT 16	/* above: bits of virtio-net features that OFFLOAD is limited to; none: all */

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

/* CTL_BOOT; the reply's body is the kernel's release, not terminated */
struct ctl_boot {
	uint64_t mem;		/* bytes; 0: the library's default */
	uint32_t cmdline_len;	/* bytes that follow */
	uint32_t reserved;
};

/* CTL_GO; the reply's body is a uint32_t, the target's pid */
#define CTL_GOF_MPTCP		0x1	/* TCP stream sockets become MPTCP */
#define CTL_GOF_TREE		0x2	/* CTL_EV_EXIT when all of the target's tree have ended, not itself alone */
#define CTL_GOF_ASK_END		0x4	/* after CTL_EV_EXIT, ask lklrun too, and wait for its answer */

struct ctl_go {
	uint32_t flags;
	uint32_t spin_us;	/* busy-wait before sleeping; 0: none */
	uint32_t resolv_len;	/* path that shall stand for the target's /etc/resolv.conf; 0: leave it */
	uint32_t reserved;
};

/*
 * CTL_SYSCALL: a call in the stack. nr is the host architecture's own number,
 * also for a foreign library (lklhost translates). Each of nbuf buffers says
 * where its address goes: into argument `place`, or, with CTL_BUF_IN_BUF, to
 * byte `offset` of buffer `place` (which comes before it), for msghdr, iovec
 * and the like; an address has the size it has in the stack host's architecture. The bytes of IN and INOUT buffers follow the ctl_buf array in
 * order, without padding; OUT buffers come zeroed. Arguments that no buffer
 * fills are passed as given.
 *
 * With timeout_ms > 0 a call that says EAGAIN is held until the descriptor in
 * args[0] has one of wait_events (EPOLLIN ...), then made again; after the
 * time the reply's ret is -EAGAIN, after CTL_CANCEL -EINTR. The descriptor
 * must be non-blocking (lklhost makes no call that could block).
 *
 * Descriptors that calls on a connection opened are closed with it.
 *
 * A ctl_buf with CTL_BUF_USED alone, and len 0, is no buffer: after a recvmmsg the
 * uint32_t at byte `offset` of the OUT or INOUT buffer `place` (which comes before
 * it) says how many bytes of the OUT buffer right before it count, as msg_len in a
 * struct mmsghdr does. Only these are in the reply; they do not come zeroed. Each
 * message has at most one such buffer, and they stand in the order of the messages.
 * The call returns early, as one whose socket is empty does, when the rest of the
 * reply has no room for the next buffer in full. So the sum of their lengths has no
 * limit.
 *
 * Reply: struct ctl_syscall_rep, then the bytes of OUT and INOUT buffers in
 * order, each in full save for CTL_BUF_USED, unless the call failed: then nothing
 * follows.
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

/* CTL_CANCEL: the reply is empty, also when no such call waits any more */
struct ctl_cancel {
	uint32_t id;		/* of the CTL_SYSCALL */
};

/* CTL_STATS and CTL_LOG: the reply's body is text; STATS: "name value\n" */

/* CTL_OWNERS: the reply's body is an array of */
struct ctl_owner {
	uint64_t stack_ino;	/* inode of the socket in the stack, as ss and /proc/net show it */
	uint64_t carrier_ino;	/* inode of the target's end on the host, as in /proc/PID/fd */
	uint32_t pid;		/* process that made it */
	uint32_t conn;		/* connection number */
	int32_t stack_fd;
	uint32_t flags;		/* 0 */
	char comm[16];		/* of that process, at that time */
};

/*
 * CTL_EVENTS: subscribe; the reply is empty, CTL_EVENT frames follow. A later
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
 * CTL_STOP: signal to every process of the target; SIGKILL after grace_ms. The
 * reply is empty and comes at once; the end of the connection says it is done.
 */
struct ctl_stop {
	uint32_t signal;
	uint32_t grace_ms;
};

/*
 * CTL_EXEC: start another program where the target was started, with the
 * descriptors as standard input, output and error. argc + envc + 1 strings
 * follow, each with its '\0': the working directory, the command and its
 * arguments, the environment. The reply comes when the program has ended; when
 * the connection ends before, the program gets SIGHUP and SIGTERM, and SIGKILL
 * after five seconds.
 *
 * -EAGAIN: before CTL_GO; -ESHUTDOWN: the run is ending; -ESRCH: whoever
 * starts programs is gone; -EUSERS: too many at once; -EIO: the kernel panicked;
 * -EOPNOTSUPP: the kernel is inside the target (engine preload).
 */
struct ctl_exec {
	uint32_t argc;		/* at least 1 */
	uint32_t envc;
	uint32_t umask;
	uint32_t strings_len;	/* bytes that follow */
};

#define CTL_EXEC_RAN		0	/* wait_status is its own */
#define CTL_EXEC_CWD		1	/* the working directory could not be entered */
#define CTL_EXEC_COMMAND	2	/* it could not be executed: status 126 or 127 */
#define CTL_EXEC_RUN_ENDED	3	/* it was killed because the run ended */

struct ctl_exec_rep {
	int32_t wait_status;	/* as from waitpid(2) */
	uint32_t how;
	int32_t error;		/* an errno, with CWD and COMMAND */
	uint32_t reserved;
};

/* CTL_EXEC_SIGNAL; the reply is empty, -ENOENT when the program has ended */
#define CTL_EXECF_GROUP		0x1	/* for its process group */

struct ctl_exec_signal {
	uint32_t id;		/* of the CTL_EXEC, on this connection */
	uint32_t signal;
	uint32_t flags;
	uint32_t reserved;
};

/*
 * CTL_ASK: what only lklrun can do, with its rights and in its namespaces, as
 * adding a device of the host. lklhost hands the text (JSON, internal/ask), and
 * the descriptor if one comes with it, on to the connection it was started with
 * as CTL_ASKED, whose serial is what CTL_ANSWER names. The reply to CTL_ASK has
 * the answer's status, and its text as body. A client that goes away is
 * forgotten: the answer then goes nowhere, and CTL_ANSWER still says 0.
 *
 * -ENOTCONN: lklrun is gone; -EBUSY: CTL_ASKS_MAX are unanswered; -EMSGSIZE: a
 * text above CTL_ASK_MAX; -EBADF: no descriptor came. CTL_ANSWER: -EPERM from
 * others than lklrun, -ENOENT for a serial that nobody waits for.
 *
 * lklhost itself asks, with CTL_ASKF_END and no text, when the target has ended
 * and CTL_GOF_ASK_END was given: the stack goes on until the answer, for two seconds
 * at most, so that lklrun can take leave of the network.
 */
#define CTL_ASKF_FD		0x1
#define CTL_ASKF_END		0x2	/* in CTL_ASKED alone */
#define CTL_ASKS_MAX		32
#define CTL_ASK_MAX		0x10000

struct ctl_ask {
	uint32_t serial;	/* in CTL_ASK 0 */
	uint32_t flags;
	/* text follows to the end of the frame */
};

struct ctl_answer {
	uint32_t serial;
	int32_t status;		/* 0 or a negative errno */
	/* text follows to the end of the frame */
};

#endif
