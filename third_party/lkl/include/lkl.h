/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * liblkl: the Linux kernel's network stack as a library.
 *
 * System-call numbers, structures and constants are those of the host
 * architecture (<sys/syscall.h>, <linux/...>), so programs use their ordinary
 * headers. Every function returns 0 or a positive value, or a negative errno.
 *
 * Threaded mode (the default): any thread may call the library. The first call
 * of a thread creates a task for it in the kernel. All tasks share descriptors,
 * working directory and the credentials of pid 1 (root). A calling thread needs
 * 64 KiB of stack.
 *
 * Loop mode (lkl_loop_init()): one thread drives everything. The library makes
 * no thread, timer or event descriptor of its own. The exception is a thread
 * that writes frames, and the descriptor it signals, once lkl_loop_load()
 * allows it.
 *
 * A system call from a signal handler that interrupted the same thread inside
 * the library returns -EDEADLK. After fork() every call in the child returns
 * -ENODEV. After a panic or a halt every call returns -EIO or -ENODEV.
 */
#ifndef LKL_H
#define LKL_H

#include <stdint.h>
#include <lkl_host.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * lkl_init - register the host operations
 * @ops: kept by reference; must stay valid
 *
 * This must be the first call. A process can boot the library once; to boot
 * again, load another copy (dlmopen) or start another process.
 */
int lkl_init(struct lkl_host_operations *ops);

/**
 * lkl_start_kernel - boot the kernel
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
 * lkl_syscall - make a system call in the library's kernel
 * @no: number in the host architecture's table
 * @params: six arguments
 */
long lkl_syscall(long no, long *params);

/**
 * lkl_sys_halt - shut the kernel down
 *
 * Blocked calls of other threads return -ENODEV. Threads, descriptors and
 * memory are released. Returns -EDEADLK inside a system call.
 */
long lkl_sys_halt(void);

/** lkl_cleanup - forget the operations of lkl_init(); must be the last call */
void lkl_cleanup(void);

/** lkl_strerror - text for an error number of either sign */
const char *lkl_strerror(int err);

/**
 * lkl_self - handle of the calling thread, for lkl_interrupt(); NULL if no
 * kernel runs
 */
void *lkl_self(void);

/**
 * lkl_interrupt - let a call of the thread that waits, or is about to, return
 * EINTR
 *
 * May be called from a signal handler, also from one that interrupted the
 * library. If the thread is not in a call, its next call that would wait
 * returns EINTR, unless the thread first makes a call or two that do not wait.
 */
void lkl_interrupt(void *thread);

/**
 * lkl_host_watch - watch a descriptor of the host, edge-triggered, for EPOLLIN
 * @fn: called on any thread when the descriptor becomes readable; must not call
 *	the library. It may return a thread, which is then interrupted as by
 *	lkl_interrupt(), or NULL. This lets a thread wait for the stack and for
 *	the host at once
 *
 * Lasts for the life of the kernel, or until the descriptor is closed. Threaded
 * mode.
 */
int lkl_host_watch(int fd, void *(*fn)(void *arg), void *arg);

/**
 * lkl_epoll_watch - call @fn whenever the stack's epoll @epfd becomes ready
 *
 * @fn is called on any thread, inside the kernel: it must neither wait nor call
 *	the library. Lasts for the life of the kernel. Threaded mode.
 */
int lkl_epoll_watch(int epfd, void (*fn)(void *arg), void *arg);

/**
 * lkl_set_spin - set how long a thread polls before it sleeps
 *
 * The default is 50. A thread polls only if the process may use more than one
 * processor and its waits are that short. 0 disables polling. Threaded mode.
 */
void lkl_set_spin(unsigned int usec);

/**
 * lkl_set_coalesce - let frames gather for up to @usec, to save CPU time
 *
 * The default is 0: each frame wakes the process. Frames gather only while data
 * flows in one direction, as in a download. lkl_loop_step() and lkl_loop_rest()
 * return the end of this time as a deadline.
 */
void lkl_set_coalesce(unsigned int usec);

/** lkl_holding - whether frames gather now: none will wake the process */
int lkl_holding(void);

/** lkl_holds - how often frames have gathered */
unsigned long lkl_holds(void);

/* Network devices */

struct lkl_netdev;

/* @offload bits of lkl_netdev_args and lkl_netdev_tap_create(): virtio-net
 * feature numbers, as in upstream LKL. */
#define LKL_OFFLOAD_CSUM	(1u << 0)	/* peer accepts unfinished checksums */
#define LKL_OFFLOAD_GUEST_CSUM	(1u << 1)	/* we accept unfinished checksums */
#define LKL_OFFLOAD_GUEST_TSO4	(1u << 7)	/* we accept TSO frames */
#define LKL_OFFLOAD_GUEST_TSO6	(1u << 8)
#define LKL_OFFLOAD_HOST_TSO4	(1u << 11)	/* peer accepts TSO frames */
#define LKL_OFFLOAD_HOST_TSO6	(1u << 12)
#define LKL_OFFLOAD_HOST_BIG	(1u << 16)	/* peer accepts TSO frames above 64 KiB, see below */
#define LKL_OFFLOAD_MRG_RXBUF	(1u << 15)	/* accepted, but has no effect */
#define LKL_OFFLOAD_ALL		(LKL_OFFLOAD_CSUM | LKL_OFFLOAD_GUEST_CSUM | \
				 LKL_OFFLOAD_GUEST_TSO4 | LKL_OFFLOAD_GUEST_TSO6 | \
				 LKL_OFFLOAD_HOST_TSO4 | LKL_OFFLOAD_HOST_TSO6)

/**
 * struct lkl_netdev_args - how to add a device
 * @mac: six bytes, or NULL for a random address
 * @offload: LKL_OFFLOAD_* bits; limits the offloads that the device was created
 *	with; 0 does not change them
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
#define LKL_NETDEV_WIRE		16
#define LKL_NETDEV_VNET10	32

/*
 * Size of the header before each frame with LKL_NETDEV_VNET_HDR: struct
 * virtio_net_hdr_v1 (<linux/virtio_net.h>), including num_buffers. A tap sets
 * it with TUNSETVNETHDRSZ. A packet socket keeps the size that it was given. With
 * LKL_NETDEV_VNET10, the header is struct virtio_net_hdr of ten bytes.
 */
#define LKL_VNET_HDR_LEN	12

/*
 * A wire joins devices of several processes. Each two of them share a memory
 * and a SOCK_SEQPACKET socket pair. The first message of each socket is a struct
 * lkl_wire_hello with the descriptor of the memory: LKL_WIRE_MEM bytes of a
 * memfd with F_SEAL_SHRINK, all zero. See lib/wire.c.
 */
#define LKL_WIRE_MAGIC		0x31726977u	/* "wir1" */
#define LKL_WIRE_CTL		65536ul		/* for the state of each ring */
#define LKL_WIRE_RING		(2ul << 20)
#define LKL_WIRE_MEM		(2 * (LKL_WIRE_CTL + LKL_WIRE_RING))

/**
 * struct lkl_wire_hello - the first message
 * @magic: LKL_WIRE_MAGIC
 * @side: 0 or 1; the other device has the other one
 */
struct lkl_wire_hello {
	unsigned int magic;
	unsigned int side;
};

/**
 * struct lkl_wire_handover - the first message of a device that takes another one's place
 *
 * It has two descriptors: the memory, and the bell to use from then on. The other end need
 * not know of it.
 *
 * @hello: as before
 * @read, @written: where the predecessor was in the rings
 */
struct lkl_wire_handover {
	struct lkl_wire_hello hello;
	unsigned int read, written;
};

/**
 * lkl_netdev_fd_create - make a device on an existing descriptor
 * @fd: a tap or tun, a packet socket (AF_PACKET) that is bound to a device, or
 *	another SOCK_DGRAM or SOCK_SEQPACKET socket (one frame per read and
 *	write); becomes non-blocking, and is owned by the device from then on
 * @flags: LKL_NETDEV_VNET_HDR: every frame has a header of LKL_VNET_HDR_LEN
 *	bytes. LKL_NETDEV_OFFLOAD: the peer accepts TSO4, TSO6 and
 *	checksum offload, both ways (needs LKL_NETDEV_VNET_HDR); on a tap
 *	TUNSETOFFLOAD is set accordingly, also to 0. LKL_NETDEV_RAWIP: a
 *	device without link layer, each frame is an IPv4 or IPv6 packet; implied
 *	for a tun and for a packet socket of type SOCK_DGRAM.
 *	LKL_NETDEV_BIG: see LKL_OFFLOAD_HOST_BIG. LKL_NETDEV_WIRE: the device
 *	is an end of a wire, and @fd an epoll without descriptors (needs
 *	LKL_NETDEV_VNET_HDR, excludes LKL_NETDEV_RAWIP and LKL_NETDEV_BIG).
 *	LKL_NETDEV_VNET10: as LKL_NETDEV_VNET_HDR, with a shorter header; for
 *	other sockets than packet sockets
 *
 * Returns NULL with errno set on failure; the caller then still owns the
 * descriptor.
 */
struct lkl_netdev *lkl_netdev_fd_create(int fd, int flags);

/**
 * lkl_netdev_tap_create - make a device on a tap interface, created if absent
 * @ifname: the host's name for it
 * @offload: LKL_OFFLOAD_* bits
 *
 * Without offloads a kernel thread of the host reads the tap, if the host
 * supports that (Linux 5.12) and CAP_SYS_ADMIN allows it. A persistent tap
 * keeps its attribute `threaded`, which affects only users that attach with
 * IFF_NAPI.
 *
 * LKL_OFFLOAD_HOST_BIG needs LKL_OFFLOAD_HOST_TSO4 and a tap or tun of Linux
 * 6.6 or later. TCP over IPv4 then sends up to 256 KiB at once ("BIG TCP"). It
 * is meant for connections that end on the host itself: when the host forwards
 * such frames to a device that accepts 64 KiB, it segments them in software.
 */
struct lkl_netdev *lkl_netdev_tap_create(const char *ifname, int offload);

/**
 * lkl_netdev_add - give the device to the kernel, before or after boot
 *
 * Devices become eth0, eth1, ... in the order in which they are added. Returns
 * the id >= 0.
 */
int lkl_netdev_add(struct lkl_netdev *nd, struct lkl_netdev_args *args);

/**
 * lkl_netdev_prepare - acquire host resources now that devices may need later
 *
 * For a process that is about to give up the privilege to do so. Without this
 * call, a burst is then written frame by frame.
 */
void lkl_netdev_prepare(void);

/**
 * lkl_netdev_wire_join - join a device with LKL_NETDEV_WIRE to another one
 * @id: of the device
 * @bell: the socket, which the device owns from then on
 *
 * Returns 0 or a negative errno: the caller then still owns the socket. When
 * the other device ends, this one leaves it by itself.
 */
int lkl_netdev_wire_join(int id, int bell);

/** lkl_netdev_remove - remove the device from the kernel */
void lkl_netdev_remove(int id);

/** lkl_netdev_free - close the descriptor and free the device, once removed */
void lkl_netdev_free(struct lkl_netdev *nd);

/** lkl_netdev_get_ifindex - interface index for a device id */
int lkl_netdev_get_ifindex(int id);

/* Helpers that every user needs. Addresses are in network byte order. */
int lkl_if_up(int ifindex);
int lkl_if_down(int ifindex);
int lkl_if_set_mtu(int ifindex, int mtu);
int lkl_if_set_ipv4(int ifindex, unsigned int addr, unsigned int netmask_len);
int lkl_if_set_ipv6(int ifindex, void *addr, unsigned int netprefix_len);
int lkl_set_ipv4_gateway(unsigned int addr);
int lkl_set_ipv6_gateway(void *addr);

/** lkl_sysctl - write @value to /proc/sys/@path; dots or slashes, mounts /proc */
int lkl_sysctl(const char *path, const char *value);

/**
 * lkl_mount_fs - mount a file system type ("proc", "sysfs") at /@fstype
 *
 * Returns 1 if it was mounted already.
 */
int lkl_mount_fs(char *fstype);

/* Loop mode */

/**
 * lkl_loop_init - choose loop mode; after lkl_init(), before lkl_start_kernel()
 * @epfd: the caller's epoll: each device descriptor is added to it with
 *	EPOLLIN|EPOLLOUT|EPOLLET|EPOLLRDHUP and data.u64 = @tag | device id
 * @tag: its low 16 bits must be zero
 *
 * From lkl_start_kernel() on only that thread may call the library.
 */
int lkl_loop_init(int epfd, uint64_t tag);

/**
 * lkl_set_virtual - replace the host's clocks and random numbers; after
 * lkl_loop_init(), before lkl_start_kernel()
 * @now: CLOCK_MONOTONIC in nanoseconds, not 0. The caller advances it, at most
 *	to the next timer that lkl_loop_rest() announces. A call that has to wait
 *	in the kernel advances it to the kernel's next timer
 * @real: CLOCK_REALTIME less CLOCK_MONOTONIC
 * @seed: of the kernel's random numbers
 *
 * Two kernels with the same seed that get the same calls and frames at the same
 * times then do the same. This requires equal addresses: no address space layout
 * randomization (personality(2)). The instruction rdtsc traps in this process,
 * and returns @now to the kernel. Only on x86-64 with glibc: otherwise
 * -EOPNOTSUPP.
 */
int lkl_set_virtual(unsigned long long *now, unsigned long long real,
		    unsigned long long seed);

/** lkl_loop_event - report an event of a device; cheap, runs nothing */
void lkl_loop_event(uint64_t data, uint32_t events);

/**
 * lkl_loop_step - make one turn: expired timers, frames of ready devices up to
 * a budget, then the kernel until it is idle
 *
 * Returns the nanoseconds until the next kernel timer, 0 if there is more to do
 * at once, -1 if no timer is armed, -EIO if the kernel is dead. (-EIO is not
 * -1.)
 */
long long lkl_loop_step(void);

/**
 * lkl_loop_rest - stop the kernel's tick, because the caller is about to sleep
 *
 * Without it, the tick runs for a few milliseconds after the last frame or
 * call. The next step starts it again. If the caller only polls, this is not
 * worthwhile.
 *
 * Returns the same as lkl_loop_step(). 0 also means that there may be new
 * events.
 */
long long lkl_loop_rest(void);

/**
 * lkl_loop_watch - set @flag to 1 whenever the stack's epoll @epfd becomes
 * ready
 *
 * Lasts for the life of the kernel. The caller clears the flag before it polls
 * the epoll.
 */
int lkl_loop_watch(int epfd, int *flag);

struct iovec;

/**
 * lkl_loop_refs - list the memory of the next bytes that a receive on the
 * stream
 * @fd would return
 * @iov: room for @max pieces
 * @len: upper limit in bytes
 *
 * The bytes are not consumed: a receive of as many bytes with MSG_TRUNC does
 * that. Until then, or until the next call of or into the library, they stay in
 * place.
 *
 * Returns the number of pieces, 0 if there is no data, or a negative errno:
 * -EOPNOTSUPP if an ordinary receive is required (urgent data).
 */
int lkl_loop_refs(int fd, struct iovec *iov, int max, unsigned long len);

/* For lkl_loop_load() */
#define LKL_LOAD_EASY	0	/* the loop has time to spare */
#define LKL_LOAD_FULL	1	/* no time to spare: another thread may write its frames to taps */
#define LKL_LOAD_RUSH	2	/* the same, and the thread is known to help */

/**
 * lkl_loop_load - report whether the loop has time to spare
 * @load: LKL_LOAD_*
 */
void lkl_loop_load(int load);

/** lkl_loop_blocked - number of system calls that had to wait inside the kernel */
unsigned long lkl_loop_blocked(void);

/** lkl_loop_set_limit - such a call returns EINTR after @ms (default 3000) */
void lkl_loop_set_limit(unsigned int ms);

#ifdef __cplusplus
}
#endif

#endif
