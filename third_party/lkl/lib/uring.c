// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes several frames to a descriptor with one call into the host's kernel.
 *
 * Theory of operation
 *
 * A write to a tap runs the host's receive path and wakes the receiver. The
 * host then schedules the receiver when the write returns, so a burst causes a
 * context switch for each frame. If one io_uring_enter() writes all frames,
 * there is one switch for the burst. Each write has RWF_NOWAIT, so all are
 * done, in order, when the call returns: nothing is in flight between two
 * calls.
 *
 * The ring is made at first use, or earlier by lkl_netdev_prepare(). It can
 * only write (IORING_REGISTER_RESTRICTIONS), so it cannot bypass a seccomp
 * filter of the process. Any thread that owns the kernel's CPU may use it, so
 * it is bound to no thread. The target descriptor is not registered: a ring is
 * torn down some time after its process and would keep a tap busy until then.
 *
 * If the host has no io_uring or forbids it, the caller writes frame by frame.
 * That is the case with engine preload, which forbids io_uring to the process.
 */
#include "uring.h"
#include "host_call.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <unistd.h>

#ifndef RWF_NOWAIT
#define RWF_NOWAIT	8
#endif

#define ENTRIES		64
#define LATE_S		5	/* limit for writes that the host does not do at once */

static enum { UNTRIED, READY, REFUSED } state;
static int ring = -1;

/* Mapped memory: head, tail and mask of both queues, and their entries */
static struct {
	char *queues;
	unsigned long queues_len, sqes_len;
	unsigned int *sq_head, *sq_tail, *cq_head, *cq_tail;
	unsigned int sq_mask, cq_mask;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
} m;

/* Does not use mmap(), see host_pages(). */
static void *map(unsigned long len, unsigned long offset)
{
#ifdef SYS_mmap2
	const long nr = SYS_mmap2;

	offset >>= 12;
#else
	const long nr = SYS_mmap;
#endif
	long p = host_call(nr, 0, len, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, ring, offset);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

static void unmap(void *p, unsigned long len)
{
	if (p)
		host_call(SYS_munmap, (long)p, len, 0, 0, 0, 0);
}

/**
 * uring_stop - free the ring; the next burst may make it again
 */
void uring_stop(void)
{
	unmap(m.queues, m.queues_len);
	unmap(m.sqe, m.sqes_len);
	m.queues = NULL;
	m.sqe = NULL;
	if (ring >= 0)
		close(ring);
	ring = -1;
	state = UNTRIED;
}

static void refuse(void)
{
	uring_stop();
	state = REFUSED;
}

/* Restricts what the ring may do; it was made disabled. */
static int restrict_ring(void)
{
	struct io_uring_restriction r[] = {
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITE },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITEV },
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED },
	};

	return syscall(SYS_io_uring_register, ring,
		       IORING_REGISTER_RESTRICTIONS, r,
		       sizeof(r) / sizeof(r[0])) ||
	       syscall(SYS_io_uring_register, ring,
		       IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

static void start(void)
{
	struct io_uring_params p = { .flags = IORING_SETUP_R_DISABLED };
	unsigned int *array, i;

	/*
	 * Through the C library, so that engine preload sees the call and
	 * refuses it.
	 */
	ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
	if (ring < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP) ||
	    !(p.features & IORING_FEAT_EXT_ARG) || restrict_ring()) {
		refuse();
		return;
	}
	m.queues_len = p.sq_off.array + p.sq_entries * sizeof(*array);
	if (m.queues_len < p.cq_off.cqes + p.cq_entries * sizeof(*m.cqe))
		m.queues_len = p.cq_off.cqes + p.cq_entries * sizeof(*m.cqe);
	m.sqes_len = p.sq_entries * sizeof(*m.sqe);
	m.queues = map(m.queues_len, IORING_OFF_SQ_RING);
	m.sqe = map(m.sqes_len, IORING_OFF_SQES);
	if (!m.queues || !m.sqe) {
		refuse();
		return;
	}
	m.sq_head = (void *)(m.queues + p.sq_off.head);
	m.sq_tail = (void *)(m.queues + p.sq_off.tail);
	m.cq_head = (void *)(m.queues + p.cq_off.head);
	m.cq_tail = (void *)(m.queues + p.cq_off.tail);
	m.sq_mask = *(unsigned int *)(m.queues + p.sq_off.ring_mask);
	m.cq_mask = *(unsigned int *)(m.queues + p.cq_off.ring_mask);
	m.cqe = (void *)(m.queues + p.cq_off.cqes);
	array = (void *)(m.queues + p.sq_off.array);
	for (i = 0; i < p.sq_entries; i++)
		array[i] = i;
	state = READY;
}

/**
 * uring_prepare - make the ring now, if the host supports it
 */
void uring_prepare(void)
{
	if (state == UNTRIED)
		start();
}

/* Takes available results; returns their number. */
static int reap(struct lkl_net_out *out)
{
	unsigned int head = *m.cq_head, n = 0;
	unsigned int tail = __atomic_load_n(m.cq_tail, __ATOMIC_ACQUIRE);

	for (; head != tail; head++, n++) {
		const struct io_uring_cqe *c = &m.cqe[head & m.cq_mask];

		out[c->user_data].ret = c->res;
	}
	__atomic_store_n(m.cq_head, head, __ATOMIC_RELEASE);
	return n;
}

/* @left writes are not done, although the host should not delay them: wait. */
static void wait_for(struct lkl_net_out *out, int left)
{
	struct __kernel_timespec ts = { .tv_sec = LATE_S };
	struct io_uring_getevents_arg arg = { .ts = (unsigned long)&ts };
	long ret;

	do {
		ret = host_call(SYS_io_uring_enter, ring, 0, left,
				IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
				(long)&arg, sizeof(arg));
		left -= reap(out);
	} while (left > 0 && (ret >= 0 || ret == -EINTR));
	refuse();
}

/**
 * uring_write - write frames, in order
 * @fd: the descriptor, which must be non-blocking
 * @out: the frames, whose results are set; -EINPROGRESS: the host still uses
 *	the
 *	memory, for an unknown time
 * @n: number of frames, at most LKL_NET_BURST
 *
 * Returns the number of frames with a result. The caller must write the others
 * in another way.
 */
int uring_write(int fd, struct lkl_net_out *out, int n)
{
	unsigned int tail;
	int i, done, got;
	long ret;

	if (state == UNTRIED)
		start();
	if (state != READY)
		return 0;
	tail = *m.sq_tail;
	for (i = 0; i < n; i++) {
		const struct lkl_iov *iov = out[i].iov;
		int one = out[i].cnt == 1;	/* no vector needed */

		m.sqe[(tail + i) & m.sq_mask] = (struct io_uring_sqe){
			.opcode = one ? IORING_OP_WRITE : IORING_OP_WRITEV,
			.fd = fd,
			.addr = (unsigned long)(one ? iov->base : iov),
			.len = one ? iov->len : (unsigned int)out[i].cnt,
			.rw_flags = RWF_NOWAIT,
			.user_data = i,
		};
		out[i].ret = -EINPROGRESS;
	}
	__atomic_store_n(m.sq_tail, tail + n, __ATOMIC_RELEASE);
	ret = host_call(SYS_io_uring_enter, ring, n, 0, 0, 0, 0);
	/*
	 * The host stops at a frame that it cannot start: the rest is not in
	 * the queue.
	 */
	done = (int)(__atomic_load_n(m.sq_head, __ATOMIC_ACQUIRE) - tail);
	__atomic_store_n(m.sq_tail, tail + done, __ATOMIC_RELEASE);
	got = reap(out);
	if (unlikely(got < done))
		wait_for(out, done - got);
	if (unlikely(ret == -EBADF || ret == -EOPNOTSUPP)) {
		/*
		 * The program has closed our descriptor, so it is not our ring
		 * any more.
		 */
		ring = -1;
		refuse();
	}
	/*
	 * The host cannot tell whether a write would block; nothing was
	 * written.
	 */
	if (unlikely(done && out[0].ret == -EOPNOTSUPP)) {
		refuse();
		return 0;
	}
	return done;
}
