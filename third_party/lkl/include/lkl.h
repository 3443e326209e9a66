/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * liblkl: the Linux kernel's network stack as a library.
 *
 * System-call numbers, structures and constants are those of the host
 * architecture (<sys/syscall.h>, <linux/...>), so programs use their ordinary
 * headers. Every function returns 0 or a positive value, or a negative errno.
 *
 * Threaded mode (the default): any thread may call. The first call of a thread
 * makes it a task of the kernel; all share descriptors, working directory and
 * the credentials of pid 1 (root). A thread that calls needs 64 KiB of stack.
 *
 * Loop mode (lkl_loop_init()): one thread drives everything, the library makes
 * no thread, timer or event descriptor of its own, but for a thread that writes
 * frames, and what it rings, once lkl_loop_load() has said that it may.
 *
 * A system call made from a signal handler that interrupted the same thread
 * inside the library says -EDEADLK. After fork() the child gets -ENODEV from
 * everything. After a panic or a halt every call says -EIO or -ENODEV.
 */
#ifndef LKL_H
#define LKL_H

#include <stdint.h>
#include <lkl_host.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * lkl_init - hand over the host operations
 * @ops: kept by reference; must stay valid
 *
 * First call of all. A process can boot the library once; to boot again, load
 * another copy (dlmopen) or start another process.
 */
int lkl_init(struct lkl_host_operations *ops);

/**
 * lkl_start_kernel - boot
 * @fmt: kernel command line, as for printf. "mem=64M" sets the size of the
 *	memory arena (default 64M), "loglevel=N" what reaches ops->print
 *
 * Returns when pid 1 runs.
 */
int lkl_start_kernel(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));

/** lkl_is_running - 1 between a successful boot and halt or panic */
int lkl_is_running(void);

/**
 * lkl_syscall - a system call in the library's kernel
 * @no: number in the host architecture's own table
 * @params: six arguments
 */
long lkl_syscall(long no, long *params);

/**
 * lkl_sys_halt - shut the kernel down
 *
 * Blocked calls of other threads return -ENODEV. Threads, descriptors and
 * memory are given back. -EDEADLK when called from inside a system call.
 */
long lkl_sys_halt(void);

/** lkl_cleanup - forget the operations of lkl_init(); last call of all */
void lkl_cleanup(void);

/** lkl_strerror - text for an error number, either sign */
const char *lkl_strerror(int err);

/**
 * lkl_self - the calling thread, for lkl_interrupt(); NULL when nothing runs
 */
void *lkl_self(void);

/**
 * lkl_interrupt - the thread's call says EINTR if it waits, or is going to
 *
 * May be called from a signal handler, also one that interrupted the library.
 * When the thread is not in a call, its next one that would wait says EINTR,
 * unless it makes a call or two before that do not wait.
 */
void lkl_interrupt(void *thread);

/**
 * lkl_host_watch - watch a descriptor of the host, edge-triggered, for EPOLLIN
 * @fn: called on any thread whenever it has become readable; must not call the
 *	library. What it returns, unless NULL, is interrupted as by
 *	lkl_interrupt(). This is how a thread waits for the stack and for the
 *	host at once
 *
 * For the life of the kernel; closing the descriptor ends it. Threaded mode.
 */
int lkl_host_watch(int fd, void *(*fn)(void *arg), void *arg);

/**
 * lkl_epoll_watch - have @fn called whenever the stack's epoll @epfd becomes ready
 *
 * On any thread, inside the kernel: it must neither wait nor call the library.
 * For the life of the kernel. Threaded mode.
 */
int lkl_epoll_watch(int epfd, void (*fn)(void *arg), void *arg);

/**
 * lkl_set_spin - how long a thread that would sleep looks before it does
 *
 * At first 50. It does so where the process may use more than one processor and
 * its waits are that short. 0: never. Threaded mode.
 */
void lkl_set_spin(unsigned int usec);

/* Network devices */

struct lkl_netdev;

/* @offload bits of lkl_netdev_args and lkl_netdev_tap_create(): virtio-net
 * feature numbers, as in upstream LKL. */
#define LKL_OFFLOAD_CSUM	(1u << 0)	/* peer takes unfinished checksums */
#define LKL_OFFLOAD_GUEST_CSUM	(1u << 1)	/* we take unfinished checksums */
#define LKL_OFFLOAD_GUEST_TSO4	(1u << 7)	/* we take TSO frames */
#define LKL_OFFLOAD_GUEST_TSO6	(1u << 8)
#define LKL_OFFLOAD_HOST_TSO4	(1u << 11)	/* peer takes TSO frames */
#define LKL_OFFLOAD_HOST_TSO6	(1u << 12)
#define LKL_OFFLOAD_HOST_BIG	(1u << 16)	/* peer takes TSO frames above 64 KiB, see below */
#define LKL_OFFLOAD_MRG_RXBUF	(1u << 15)	/* accepted, has no meaning here */
#define LKL_OFFLOAD_ALL		(LKL_OFFLOAD_CSUM | LKL_OFFLOAD_GUEST_CSUM | \
				 LKL_OFFLOAD_GUEST_TSO4 | LKL_OFFLOAD_GUEST_TSO6 | \
				 LKL_OFFLOAD_HOST_TSO4 | LKL_OFFLOAD_HOST_TSO6)

/**
 * struct lkl_netdev_args - how to add a device
 * @mac: six bytes, or NULL for an address at random
 * @offload: LKL_OFFLOAD_* bits; limits what the device was created with, 0
 *	leaves it alone
 */
struct lkl_netdev_args {
	void *mac;
	unsigned int offload;
};

/* Flags of lkl_netdev_fd_create() */
#define LKL_NETDEV_VNET_HDR	1
#define LKL_NETDEV_OFFLOAD	2
#define LKL_NETDEV_RAWIP	4
#define LKL_NETDEV_BIG		8

/* Size of the header before each frame with LKL_NETDEV_VNET_HDR: struct
 * virtio_net_hdr_v1 (<linux/virtio_net.h>), num_buffers included. On a tap it
 * is set with TUNSETVNETHDRSZ. A packet socket has the size that it was given. */
#define LKL_VNET_HDR_LEN	12

/**
 * lkl_netdev_fd_create - a device on a descriptor that exists
 * @fd: a tap or tun, a packet socket (AF_PACKET) that is bound to a device, or
 *	another SOCK_DGRAM or SOCK_SEQPACKET socket (one frame per read and
 *	write); made non-blocking, and owned by the device from then on
 * @flags: LKL_NETDEV_VNET_HDR: a header of LKL_VNET_HDR_LEN bytes is before
 *	every frame. LKL_NETDEV_OFFLOAD: the peer takes TSO4, TSO6 and
 *	checksum offload, both ways (needs LKL_NETDEV_VNET_HDR); on a tap
 *	TUNSETOFFLOAD is set accordingly, also to 0. LKL_NETDEV_RAWIP: a
 *	device without link layer, each frame is an IPv4 or IPv6 packet; goes
 *	without saying for a tun and for a packet socket of type SOCK_DGRAM.
 *	LKL_NETDEV_BIG: see LKL_OFFLOAD_HOST_BIG
 *
 * NULL with errno set on failure; the descriptor is then still the caller's.
 */
struct lkl_netdev *lkl_netdev_fd_create(int fd, int flags);

/**
 * lkl_netdev_tap_create - a device on a tap interface, created if absent
 * @ifname: the host's name for it
 * @offload: LKL_OFFLOAD_* bits
 *
 * With no offload a thread of the host's reads the tap, where it has that (Linux 5.12)
 * and CAP_SYS_ADMIN allows it; a persistent tap keeps its attribute `threaded`, which
 * means something for who attaches with IFF_NAPI alone.
 *
 * LKL_OFFLOAD_HOST_BIG, with LKL_OFFLOAD_HOST_TSO4 and on a tap or tun of Linux
 * 6.6 or later, makes TCP over IPv4 send up to 256 KiB at once ("BIG TCP"). For
 * connections that end on the host itself: where it forwards them to a device that
 * takes 64 KiB, it cuts such frames into packets by itself.
 */
struct lkl_netdev *lkl_netdev_tap_create(const char *ifname, int offload);

/**
 * lkl_netdev_add - give the device to the kernel, before or after boot
 *
 * Devices become eth0, eth1, ... in the order of adding. Returns the id >= 0.
 */
int lkl_netdev_add(struct lkl_netdev *nd, struct lkl_netdev_args *args);

/**
 * lkl_netdev_prepare - take from the host now what devices may want of it later
 *
 * For a process that is about to give up the right to: without this, a burst of
 * frames is then written frame by frame.
 */
void lkl_netdev_prepare(void);

/** lkl_netdev_remove - take the device out of the kernel */
void lkl_netdev_remove(int id);

/** lkl_netdev_free - close the descriptor and free the device, once removed */
void lkl_netdev_free(struct lkl_netdev *nd);

/** lkl_netdev_get_ifindex - interface index for a device id */
int lkl_netdev_get_ifindex(int id);

/* Small things every user needs. Addresses are in network byte order. */
int lkl_if_up(int ifindex);
int lkl_if_down(int ifindex);
int lkl_if_set_mtu(int ifindex, int mtu);
int lkl_if_set_ipv4(int ifindex, unsigned int addr, unsigned int netmask_len);
int lkl_if_set_ipv6(int ifindex, void *addr, unsigned int netprefix_len);
int lkl_set_ipv4_gateway(unsigned int addr);
int lkl_set_ipv6_gateway(void *addr);

/** lkl_sysctl - write @value to /proc/sys/@path; dots or slashes, mounts /proc */
int lkl_sysctl(const char *path, const char *value);

/** lkl_mount_fs - mount a file system type ("proc", "sysfs") at /@fstype;
 * 1 when it was there already */
int lkl_mount_fs(char *fstype);

/* Loop mode */

/**
 * lkl_loop_init - choose loop mode; after lkl_init(), before lkl_start_kernel()
 * @epfd: the caller's epoll: each device descriptor is added to it with
 *	EPOLLIN|EPOLLOUT|EPOLLET|EPOLLRDHUP and data.u64 = @tag | device id
 * @tag: the low 16 bits are zero
 *
 * From lkl_start_kernel() on only that thread may call the library.
 */
int lkl_loop_init(int epfd, uint64_t tag);

/** lkl_loop_event - hand back an event of a device; cheap, runs nothing */
void lkl_loop_event(uint64_t data, uint32_t events);

/**
 * lkl_loop_step - one turn: timers that are due, frames of ready devices up to
 * a budget, then the kernel until it is idle
 *
 * Returns nanoseconds until the next kernel timer, 0 when there is more to do
 * at once, -1 when no timer is armed, -EIO when the kernel is dead. (-EIO is
 * not -1.)
 */
long long lkl_loop_step(void);

/**
 * lkl_loop_watch - set @flag to 1 whenever the epoll file @epfd of the stack
 * becomes ready
 *
 * For the life of the kernel; the caller clears the flag before asking.
 */
int lkl_loop_watch(int epfd, int *flag);

struct iovec;

/**
 * lkl_loop_refs - where the bytes lie that a receive on the stream @fd would
 * return next
 * @iov: room for @max pieces
 * @len: no more bytes than that
 *
 * They are not taken: a receive of as many with MSG_TRUNC does that. Until then,
 * or the next call of or into the library, they stay where they are.
 *
 * Returns how many pieces there are, 0 for nothing, or a negative errno:
 * -EOPNOTSUPP where only an ordinary receive will do (urgent data).
 */
int lkl_loop_refs(int fd, struct iovec *iov, int max, unsigned long len);

/* For lkl_loop_load() */
#define LKL_LOAD_EASY	0	/* the loop has time to spare */
#define LKL_LOAD_FULL	1	/* it has not: another thread may write its frames to taps */
#define LKL_LOAD_RUSH	2	/* nor has it, and it is known that the thread helps */

/**
 * lkl_loop_load - say whether the loop has time to spare
 * @load: LKL_LOAD_*
 */
void lkl_loop_load(int load);

/** lkl_loop_blocked - how many system calls had to wait inside the kernel */
unsigned long lkl_loop_blocked(void);

/** lkl_loop_set_limit - such a call says EINTR after @ms (default 3000) */
void lkl_loop_set_limit(unsigned int ms);

#ifdef __cplusplus
}
#endif

#endif
