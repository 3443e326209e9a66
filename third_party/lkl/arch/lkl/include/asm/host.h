/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between the kernel and the host library. Both include this
 * file, so it uses only plain C.
 *
 * The library calls lklk_*(), always as owner of the CPU. The kernel calls
 * lklh_*().
 */
#ifndef _ASM_LKL_HOST_H
#define _ASM_LKL_HOST_H

/* Bits of lkl_irq_pending, set by any thread with the lklh atomics */
#define LKL_IRQ_TIMER	1u	/* the deadline has passed */
#define LKL_IRQ_REQ	2u	/* the request list is not empty */
#define LKL_IRQ_NET	4u	/* a device has events */

/* Bits of lkl_hthread.req */
#define LKL_REQ_ENTER	1u	/* wants to run its task */
#define LKL_REQ_NEW	2u	/* wants a task */
#define LKL_REQ_INTR	4u	/* its blocked call must return EINTR */

/**
 * struct lkl_hthread - a host thread as the kernel sees it
 * @anchor: saved stack pointer on the thread's own stack, where the thread
 *	continues when it stops running floating contexts
 * @unwind: saved stack pointer of its entry into the kernel, used to leave when
 *	the kernel is dead
 * @last_anchor: where it continues after the end of its task
 * @task: its task, or NULL
 * @parked: its task is back in user mode and off the run queue
 * @error: why it got no task
 * @calls: number of calls, and that number at the last tick
 * @granted: futex word: this thread owns the CPU
 * @req: LKL_REQ_*, while on the request list
 * @queued: on the request list
 * @req_next: next entry of the request list
 */
struct lkl_hthread {
	void *anchor;
	void *unwind;
	void *last_anchor;
	void *task;
	int parked;
	int error;
	unsigned int calls;
	unsigned int calls_tick;

	unsigned int granted;
	unsigned int req;
	unsigned int queued;
	struct lkl_hthread *req_next;
};

/**
 * struct lkl_boot - parameters of the boot
 */
struct lkl_boot {
	const char *cmdline;
	unsigned long mem_start;
	unsigned long mem_end;
	void *(*memcpy)(void *, const void *, __SIZE_TYPE__);
	void *(*memmove)(void *, const void *, __SIZE_TYPE__);
	void *(*memset)(void *, int, __SIZE_TYPE__);
	int (*memcmp)(const void *, const void *, __SIZE_TYPE__);
	__SIZE_TYPE__ (*strlen)(const char *);
	void (*print)(const char *, int);
};

/* Why the kernel is dead */
#define LKL_DEAD_HALT	1
#define LKL_DEAD_PANIC	2

/* Kernel side */

/* Runs the boot until the first idle; the caller is the first owner. */
void lklk_boot(struct lkl_hthread *me, const struct lkl_boot *boot);

/*
 * Handles pending interrupts, then runs floating contexts until idle. Returns
 * what to do with the CPU: NULL: idle, release it; @me: the caller's task
 * continues; another thread: grant it the CPU.
 */
struct lkl_hthread *lklk_run(struct lkl_hthread *me);

/* Whether lklk_run() has anything to do. */
int lklk_has_work(void);

/*
 * Stops the tick, as the host is about to sleep. First parks @me's task if it
 * is current. Returns the same as lklk_run().
 */
struct lkl_hthread *lklk_rest(struct lkl_hthread *me);

/* Whether lklk_rest() has anything to do. */
int lklk_ticks(const struct lkl_hthread *me);

/* Makes a system call; lklk_run() has made @me current, or it still is. */
long lklk_syscall(struct lkl_hthread *me, long no, const long *params);

/* Calls a function of the kernel in @me's task, like a system call. */
long lklk_call(struct lkl_hthread *me, long (*fn)(void *), void *arg);

/* Whether @me's task is still current since the last call. */
int lklk_is_current(const struct lkl_hthread *me);

/* Must come first after a grant to a thread that is not inside a call. */
void lklk_resume(struct lkl_hthread *me);

/*
 * After a call: does the pending work at the exit to user mode. Parks the task
 * if others want to run; otherwise the task stays current. Returns the same as
 * lklk_run().
 */
struct lkl_hthread *lklk_leave(struct lkl_hthread *me);

/* Ends @me's task. Returns the same as lklk_run(). */
struct lkl_hthread *lklk_exit(struct lkl_hthread *me);

/* After the death of the kernel: leaves through @me->unwind. */
void lklk_unwind(struct lkl_hthread *me);

/* Reboots in an orderly manner; returns the errno on failure. */
long lklk_halt(struct lkl_hthread *me);

/* Handles a memory fault at @pc. 1: continue at *@pc with *@sp; 0: not ours. */
int lklk_fault(unsigned long addr, unsigned long *pc, unsigned long *sp,
	       unsigned long *args);

int lklk_booted(void);
int lklk_watch(int epfd, int *flag);

/* Both sides */
extern unsigned int lkl_irq_pending;
extern int lkl_dead;
extern unsigned int lkl_net_sent;	/* total number of frames written to devices */

/* Host side */
unsigned long long lklh_mono(void);
unsigned long long lklh_real(void);
int lklh_virtual(void);
unsigned int lklh_irq_take(void);
void lklh_irq_raise(unsigned int bits);
/* The next thread on the request list, and its requests; NULL if empty */
struct lkl_hthread *lklh_next_request(unsigned int *bits);
/*
 * On @me's anchor: passes the CPU on as *@next says, and waits for the grant.
 */
void lklh_wait(struct lkl_hthread *me, struct lkl_hthread *next);
/* Refuses a task to a thread; @me->error says why. */
void lklh_refuse(struct lkl_hthread *t);
void lklh_set_deadline(unsigned long long mono_ns);
void lklh_getrandom(void *buf, unsigned long len);
void lklh_panic(void);
struct lkl_hthread *lklh_self(void);

/* Network devices: see drivers/net.c and lib/netdev.c */
struct lkl_iov {
	void *base;
	unsigned long len;
};

#define LKL_NET_VNET	1u	/* header before each frame */
#define LKL_NET_CSUM	2u	/* peer accepts unfinished checksums */
#define LKL_NET_TSO4	4u
#define LKL_NET_TSO6	8u
#define LKL_NET_RXCSUM	16u	/* peer may send unfinished checksums */
#define LKL_NET_GRO	32u	/* peer may send TSO frames */
#define LKL_NET_RAWIP	64u	/* no link layer: a frame is an IP packet */
#define LKL_NET_VNET10	128u	/* the header is 10 bytes, not 12 */
#define LKL_NET_BIG	256u	/* peer accepts IPv4 TSO frames above 64 KiB */

#define LKL_NETEV_RX	1u
#define LKL_NETEV_TX	2u
#define LKL_NETEV_HUP	4u
#define LKL_NETEV_MANY	8u	/* with _RX: acknowledgements have gathered */

/**
 * struct lkl_net_meta - properties of a frame in addition to its bytes
 * @csum: state of its transport checksum, LKL_CSUM_*
 * @vlan_proto: Ethernet type of the VLAN tag that was removed, or 0
 * @vlan_tci: that tag
 */
struct lkl_net_meta {
	unsigned short csum;
	unsigned short vlan_proto;
	unsigned short vlan_tci;
};

#define LKL_CSUM_UNKNOWN	0
#define LKL_CSUM_VALID		1
#define LKL_CSUM_UNFINISHED	2

/* The memory of the next bytes of a stream socket: drivers/refs.c */
long lklk_refs(int fd, struct lkl_iov *iov, int max, unsigned long len);

/* Add and remove a device, in the context of the calling task. */
int lklk_net_add(int id, const unsigned char *mac, unsigned int flags);
void lklk_net_remove(int id);
int lklk_net_ifindex(int id);

/*
 * Read or write one frame of device @id. Return its bytes, or a negative errno:
 * -EAGAIN: no frame, or no room; -EBADMSG: a frame that cannot be used;
 * -ENOMSG: a frame for others. @proto is the packet's Ethernet type. Never
 * block.
 */
long lklh_net_read(int id, const struct lkl_iov *iov, int cnt,
		   struct lkl_net_meta *meta);
long lklh_net_write(int id, const struct lkl_iov *iov, int cnt,
		    unsigned short proto);

/**
 * struct lkl_net_out - one frame of a burst
 * @iov: its memory
 * @cnt: of @iov
 * @proto: the packet's Ethernet type
 * @ret: as for lklh_net_write(); -EINPROGRESS: its memory must not be reused
 */
struct lkl_net_out {
	const struct lkl_iov *iov;
	int cnt;
	unsigned short proto;
	int ret;
};

/*
 * Writes up to LKL_NET_BURST frames in order; continues after a frame that
 * fails.
 */
void lklh_net_write_burst(int id, struct lkl_net_out *out, int n);
#define LKL_NET_BURST	48

/*
 * Lets another thread write the frame. LKL_NETQ_NO: the caller must write it;
 * _COPIED: its memory is free; _KEPT: its memory is free once
 * lklh_net_written() returns @frame, except the virtio-net header, the first of
 * @iov, which is copied; _FULL: no room, LKL_IRQ_NET follows when there is.
 */
int lklh_net_queue(int id, const struct lkl_iov *iov, int cnt, void *frame);
/*
 * Returns the next frame that was kept or could not be written (@ret: a
 * negative errno; @frame: NULL if it was copied). 0: none
 */
int lklh_net_written(int *id, void **frame, int *ret);
/* Takes the LKL_NETEV_* bits of device @id. */
unsigned int lklh_net_events(int id);
/*
 * Device @id has more frames but the budget is used up: post an event for the
 * next turn.
 */
void lklh_net_more(int id);
/* The current state of device @id: checks again whether it is up. */
unsigned int lklh_net_poll(int id);

#define LKL_NETQ_NO	0
#define LKL_NETQ_COPIED	1
#define LKL_NETQ_KEPT	2
#define LKL_NETQ_FULL	3
#define LKL_NETQ_IOVS	20	/* at most, for one frame */

#define LKL_NET_MAX	64

#endif
