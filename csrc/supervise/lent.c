// SPDX-License-Identifier: GPL-2.0-only
/*
 * Received bytes that go into a carrier without being copied.
 *
 * Theory of operation
 *
 * The pages that a frame was read into are lent to the carrier, by vmsplice() into
 * a pipe and splice() from there, and the target's read copies out of them. The
 * stack's socket is told at once that the bytes are taken, so that window and
 * queues are as ever; what keeps the pages is a reference of ours, lkl_loop_lend().
 *
 * SIOCOUTQ on our end says when they have been read. The host counts there all
 * packets that lie in the carrier, each with its bytes and something on top, until
 * its last byte is out, and they are read in order. As long as a piece lies there
 * so does all that was sent after it, and the count is more than those bytes. So a
 * piece after which no less was sent has been read. That is asked when more is to
 * be sent, and by a timer, so that a target that reads no more does not keep the
 * stack's memory.
 *
 * A page may live on where SIOCOUTQ does not see it: with a process whose calls do
 * not come to us, or in a pipe into which the target splices. Before the call by which
 * it gets there goes on, nothing is lent to that carrier any more, for good, and the
 * stack's memory gets copies of the pages that are out (swap_pages()), so that the
 * carrier has the old ones to itself: lent_passes(). So it does when our end is
 * closed before all has been read. A target that splices once does so often, from
 * many threads: then no carrier is lent anything any more, lent_stop(), and its next
 * splices need not be looked at.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lent.h"

#define PIECES		128		/* that are out of one connection */
#define PIPE_SIZE	(1 << 20)	/* bytes of the pipe: a page for each */
#define WORTH		16384		/* bytes; less is cheaper copied */
#define PIECE_WORTH	4096		/* on average: each keeps 32 KiB (drivers/rx.c) */
#define RESTS		64		/* attempts that are left out after one in vain */
#define SHARE		16		/* of the stack's memory may be out, one in so many */
#define LOOK_MS		50
#define MS		1000000ull

/*
 * What the carrier of a stream holds where the target may run on another processor
 * than we: more than it reads while we wake up. (The host doubles it.) On one
 * processor it would only be more than the cache holds.
 */
#define ROOMY		(1 << 20)
#define ROOMY_MAX	16		/* carriers */

/**
 * struct lent - what is out of a connection
 * @conn: whose
 * @link: in the list of all
 * @never: nothing is to be lent
 * @roomy: its carrier is one of ROOMY_MAX
 * @rests: attempts that are not to be made
 * @first: the oldest of @n pieces
 * @piece: where it lies, and conn->bytes_in behind its last byte
 */
struct lent {
	struct conn *conn;
	struct list link;
	bool never, roomy;
	unsigned int rests;
	unsigned int first, n;
	struct {
		struct iovec iov;
		uint64_t end;
	} piece[PIECES];
};

static struct list lenders = LIST_INIT(lenders);
static int feed[2] = { -1, -1 };	/* the pipe, empty between calls */
static int sink = -1;			/* /dev/null */
static bool off;			/* nothing can be lent */
static bool stopped;			/* and nothing is out, see lent_stop() */
static uint64_t out, most;		/* bytes that are out, and may be */
static unsigned int roomy;
static void look(struct timer *t);
static struct timer timer = TIMER_INIT(timer, look);

/** lent_init - what lending takes; where that is not to be had everything is copied */
void lent_init(void)
{
	off = true;
	if (pipe2(feed, O_CLOEXEC | O_NONBLOCK))
		return;
	sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
	off = sink < 0 || fcntl(feed[1], F_SETPIPE_SZ, PIPE_SIZE) < 0;
}

/** may_lend - some more bytes */
static bool may_lend(void)
{
	struct sysinfo info;

	if (!most && !off) {
		memset(&info, 0, sizeof(info));
		off = ST(SYS_sysinfo, &info, 0, 0, 0, 0, 0) != 0;
		most = (uint64_t)info.totalram * (info.mem_unit ? info.mem_unit : 1) / SHARE;
	}
	return !off && out < most;
}

/** give_back - the oldest @n pieces */
static void give_back(struct lent *l, unsigned int n)
{
	struct iovec iov[PIECES];
	unsigned int i;

	for (i = 0; i < n; i++) {
		iov[i] = l->piece[(l->first + i) % PIECES].iov;
		out -= iov[i].iov_len;
	}
	l->first = (l->first + n) % PIECES;
	l->n -= n;
	st_return(iov, (int)n);
}

/** reap - give back what the target has read */
static void reap(struct lent *l)
{
	unsigned int n;
	int queued;

	if (!l->n || ioctl(l->conn->csrc.fd, SIOCOUTQ, &queued))
		return;
	for (n = 0; n < l->n; n++) {
		uint64_t end = l->piece[(l->first + n) % PIECES].end;

		if (l->conn->bytes_in - end < (uint64_t)queued)
			break;
	}
	if (n)
		give_back(l, n);
}

/** look - of connections on which nothing follows */
static void look(struct timer *t)
{
	struct list *pos, *tmp;
	bool more = false;

	list_for_each_safe(pos, tmp, &lenders) {
		struct lent *l = container_of(pos, struct lent, link);

		reap(l);
		more |= l->n > 0;
	}
	if (more)
		timer_arm(t, now_ns() + LOOK_MS * MS);
}

/** lend - into the carrier @fd; bytes, or a negative errno */
static ssize_t lend(int fd, const struct iovec *iov, unsigned int n)
{
	ssize_t in = vmsplice(feed[1], iov, n, SPLICE_F_NONBLOCK), done = 0, m = 0;
	int err;

	if (in < 0)
		return -errno;
	while (done < in) {
		m = splice(feed[0], NULL, fd, NULL, (size_t)(in - done), SPLICE_F_NONBLOCK);
		if (m <= 0)
			break;
		done += m;
	}
	err = m < 0 ? errno : EAGAIN;
	for (in -= done; in > 0; in -= m) {
		m = splice(feed[0], NULL, sink, NULL, (size_t)in, SPLICE_F_NONBLOCK);
		if (m <= 0) {
			off = true;	/* it would come before what is next */
			break;
		}
	}
	return done ? done : -err;
}

/** record - the first @len bytes of @iov are out; what is not goes back */
static void record(struct lent *l, struct iovec *iov, unsigned int n, size_t len)
{
	uint64_t end = l->conn->bytes_in;
	unsigned int i;

	conn_stats.lent += len;
	for (i = 0; i < n && len; i++) {
		unsigned int at = (l->first + l->n++) % PIECES;

		if (iov[i].iov_len > len)
			iov[i].iov_len = len;
		len -= iov[i].iov_len;
		end += iov[i].iov_len;
		out += iov[i].iov_len;
		l->piece[at].iov = iov[i];
		l->piece[at].end = end;
	}
	st_return(iov + i, (int)(n - i));
	if (l->n && list_empty(&timer.link))
		timer_arm(&timer, now_ns() + LOOK_MS * MS);
}

/** lender - the connection's record; NULL without memory */
static struct lent *lender(struct conn *conn)
{
	struct lent *l = conn->lent;

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	/* splice() does not wait for room if the file says so, whatever its flags. */
	fcntl(conn->csrc.fd, F_SETFL, fcntl(conn->csrc.fd, F_GETFL) | O_NONBLOCK);
	l->conn = conn;
	list_add_tail(&l->link, &lenders);
	conn->lent = l;
	return l;
}

/** make_room - in the carrier */
static void make_room(struct lent *l)
{
	if (l->roomy || l->conn->rcvbuf || roomy == ROOMY_MAX || loop_processors() < 2)
		return;
	l->roomy = true;
	roomy++;
	carrier_roomy(l->conn->csrc.fd, ROOMY);
}

/**
 * lent_put - lend what the stack has next for the target
 * @offered: how many bytes were
 *
 * The caller takes what went from the stack's socket, and counts it in
 * conn->bytes_in.
 *
 * Returns bytes that the carrier took, 0 when they are not to be lent, or a
 * negative errno of the carrier's.
 */
ssize_t lent_put(struct conn *conn, size_t *offered)
{
	struct iovec iov[PIECES];
	struct lent *l;
	size_t len = 0;
	ssize_t put;
	int i, n;

	if (!may_lend())
		return 0;
	l = lender(conn);
	if (!l || l->never)
		return 0;
	if (l->rests) {
		l->rests--;
		return 0;
	}
	reap(l);
	if (l->n > PIECES / 2)
		return 0;
	n = st_lend(conn->sfd, iov, (int)(PIECES - l->n), SHARED_SIZE);
	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (len < WORTH || len / (unsigned int)n < PIECE_WORTH) {
		st_return(iov, n);
		if (len >= WORTH)
			l->rests = RESTS;
		return 0;
	}
	if (!l->n)
		make_room(l);
	*offered = len;
	put = lend(conn->csrc.fd, iov, (unsigned int)n);
	record(l, iov, (unsigned int)n, put > 0 ? (size_t)put : 0);
	return put;
}

/** swap_pages - the stack's memory there gets other pages, with the same bytes */
static int swap_pages(const struct iovec *iov)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	uintptr_t from = (uintptr_t)iov->iov_base & ~page;
	size_t len = (((uintptr_t)iov->iov_base + iov->iov_len + page) & ~page) - from;
	void *copy = mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return -errno;
	memcpy(copy, (void *)from, len);
	if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) ==
	    (void *)from)
		return 0;
	munmap(copy, len);
	return -errno;
}

/**
 * recall - what is out is the carrier's alone from now on
 *
 * What cannot be swapped is never given back: lost memory, but no wrong byte.
 */
static void recall(struct lent *l)
{
	unsigned int i;
	bool bad = false;

	reap(l);
	for (i = 0; i < l->n; i++)
		bad |= swap_pages(&l->piece[(l->first + i) % PIECES].iov) != 0;
	if (!bad)
		give_back(l, l->n);
	l->n = 0;
}

/** lent_drop - our end of the carrier is about to be closed */
void lent_drop(struct conn *conn)
{
	struct lent *l = conn->lent;

	if (!l)
		return;
	recall(l);
	list_del(&l->link);
	roomy -= l->roomy;
	free(l);
	conn->lent = NULL;
}

/** never - nothing is to be lent to that carrier; what is out is its own */
static void never(struct lent *l)
{
	if (!l->never)
		recall(l);
	l->never = true;
}

/**
 * lent_never - the carrier's pages may get to where nobody tells when they are
 * done with
 *
 * Returns false without the memory to know that later.
 */
bool lent_never(struct conn *conn)
{
	struct lent *l = lender(conn);

	if (l)
		never(l);
	return l != NULL;
}

/** lent_stop - the same for all carriers, those to come too */
void lent_stop(void)
{
	struct list *pos;

	list_for_each(pos, &lenders)
		never(container_of(pos, struct lent, link));
	off = stopped = true;
}

/** lent_stopped - whether that was said */
bool lent_stopped(void)
{
	return stopped;
}
