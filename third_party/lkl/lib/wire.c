// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices whose frames go through memory that is shared with other stacks.
 *
 * Theory of operation
 *
 * A wire joins any number of ends, which are devices of different processes.
 * Each two ends share two rings, one for each direction, and a socket pair, the
 * bell. Together the ends work as a switch: an end learns which peer has which
 * Ethernet address, and writes a frame into the ring of that peer, or into all
 * rings if the address is a multicast address or unknown.
 *
 * A ring has one writer and one reader. Its memory is mapped twice in a row, so
 * that a frame at its end is contiguous. The writer moves @head, the reader
 * moves @tail. A reader that has found all its rings empty sets @asleep in each
 * of them, and a writer that finds it set clears it and rings the bell. A
 * writer that finds no room sets @full, and the reader rings the bell once half
 * of the ring is free. While both sides are busy, no frame needs a system call.
 *
 * With one peer, a frame that finds no room waits, as on a cable with flow
 * control. With several peers it is dropped, as a switch drops it: one slow
 * peer must not stop the others.
 *
 * The peer is not trusted. It may write anything into the shared memory at any
 * time. So each value is read once and checked, the own position is private,
 * and a frame is copied before it is parsed. The memory is sealed, so a
 * peer cannot shrink it. A peer that breaks the rules is dropped. A bell is a
 * socket and is always used with MSG_DONTWAIT, so a peer cannot make us wait.
 *
 * The descriptor of the device is an epoll with the bells. A peer that has
 * ended closes its end of the bell. The device has a carrier as long as it has
 * a peer.
 *
 * All functions but wire_new() and wire_free() are called by the owner of the
 * kernel's CPU.
 */
#include "wire.h"
#include "host_call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#ifndef F_GET_SEALS
#define F_GET_SEALS	1034
#define F_SEAL_SHRINK	2
#endif

#define PEERS		63
#define RING		LKL_WIRE_RING
#define CTL_SIZE	LKL_WIRE_CTL
#define MEM_SIZE	LKL_WIRE_MEM
#define RECORD		64	/* alignment of records */
#define HDR		LKL_VNET_HDR_LEN
#define ETH_LEN		14
#define FRAME_MAX	(HDR + 65536 + 64)
#define ADDRESSES	1024	/* a power of two */
#define TURN		64	/* frames from one peer before the next peer */
#define RINGS		64	/* of a bell, answered at once */

/**
 * struct ring_ctl - the shared state of a ring
 * @head: bytes written; by the writer
 * @full: the writer waits for room
 * @tail: bytes read; by the reader
 * @asleep: the reader waits for frames
 */
struct ring_ctl {
	uint32_t head;
	uint32_t full;
	uint32_t unused1[14];
	uint32_t tail;
	uint32_t asleep;
	uint32_t unused2[14];
};

/**
 * struct ring - a ring as one side uses it
 * @ctl: its shared state
 * @data: its memory, 2 * RING
 * @at: own position: head of a writer, tail of a reader
 */
struct ring {
	struct ring_ctl *ctl;
	char *data;
	uint32_t at;
};

/**
 * struct peer - another end of the wire
 * @bell: the socket; -1: this entry is free
 * @ctls: the mapped memory with both states
 * @in: the peer writes
 * @out: the peer reads
 * @ring: its bell is to be rung
 */
struct peer {
	int bell;
	void *ctls;
	struct ring in, out;
	int ring;
};

/**
 * struct address - where an Ethernet address is
 * @mac: the address
 * @peer: index; 0 if the entry is free, else one more than the index
 */
struct address {
	unsigned char mac[6];
	unsigned char peer;
};

/**
 * struct wire - an end of a wire
 * @epfd: the bells; owned by the device
 * @n: number of peers
 * @last: entries from here on are free
 * @turn: the peer whose frames are read
 * @turn_left: number of frames before it is the next peer's turn
 * @armed: @asleep is set in the rings
 * @rung: there are bells to ring
 */
struct wire {
	int epfd;
	int n, last;
	int turn, turn_left;
	int armed, rung;
	struct peer peer[PEERS];
	struct address address[ADDRESSES];
};

static void *map(void *addr, unsigned long size, int prot, int flags, int fd,
		 unsigned long offset)
{
#ifdef SYS_mmap2	/* does not use mmap(), see host_pages() */
	const long nr = SYS_mmap2;

	offset >>= 12;
#else
	const long nr = SYS_mmap;
#endif
	long p = host_call(nr, (long)addr, size, prot, flags, fd, offset);

	return p < 0 && p > -4096 ? NULL : (void *)p;
}

static void unmap(void *p, unsigned long size)
{
	if (p)
		host_call(SYS_munmap, (long)p, size, 0, 0, 0, 0);
}

/* Maps a ring twice in a row. A child of fork() does not get it. */
static char *map_ring(int mem, int side)
{
	char *p = map(NULL, 2 * RING, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int i;

	for (i = 0; p && i < 2; i++) {
		if (!map(p + i * RING, RING, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, mem,
			 2 * CTL_SIZE + side * RING)) {
			unmap(p, 2 * RING);
			p = NULL;
		}
	}
	if (p)
		host_call(SYS_madvise, (long)p, 2 * RING, MADV_DONTFORK, 0, 0, 0);
	return p;
}

static void release(struct peer *p)
{
	unmap(p->in.data, 2 * RING);
	unmap(p->out.data, 2 * RING);
	unmap(p->ctls, 2 * CTL_SIZE);
	memset(p, 0, sizeof(*p));
	p->bell = -1;
}

/**
 * wire_new - an end without peers
 * @epfd: an empty epoll
 */
struct wire *wire_new(int epfd)
{
	struct wire *w = calloc(1, sizeof(*w));
	int i;

	if (!w)
		return NULL;
	w->epfd = epfd;
	for (i = 0; i < PEERS; i++)
		w->peer[i].bell = -1;
	return w;
}

static void forget(struct wire *w, int i)
{
	int a;

	close(w->peer[i].bell);		/* leaves the epoll, too */
	release(&w->peer[i]);
	for (a = 0; a < ADDRESSES; a++)
		if (w->address[a].peer == i + 1)
			w->address[a].peer = 0;
	w->n--;
	while (w->last && w->peer[w->last - 1].bell < 0)
		w->last--;
	if (w->turn >= w->last)
		w->turn = 0;
}

/**
 * wire_free - leave the wire
 */
void wire_free(struct wire *w)
{
	int i;

	if (!w)
		return;
	for (i = 0; i < PEERS; i++)
		if (w->peer[i].bell >= 0)
			forget(w, i);
	free(w);
}

/*
 * Receives the first message of a bell: which side of the memory is ours, with
 * its descriptor. With that of a handover, *@bell becomes the predecessor's.
 */
static int receive_memory(int *bell, struct lkl_wire_handover *first)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} ctl;
	struct iovec iov = { first, sizeof(*first) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &ctl, .msg_controllen = sizeof(ctl),
	};
	struct cmsghdr *c;
	int fd[2], fds, i;
	long n = host_call(SYS_recvmsg, *bell, (long)&m,
			   MSG_DONTWAIT | MSG_CMSG_CLOEXEC, 0, 0, 0);

	if (n < 0)
		return (int)n;
	c = CMSG_FIRSTHDR(&m);
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return -EBADMSG;
	fds = c->cmsg_len == CMSG_LEN(sizeof(fd)) ? 2 : 1;
	memcpy(fd, CMSG_DATA(c), (size_t)fds * sizeof(int));
	if (n != (long)(fds == 2 ? sizeof(*first) : sizeof(first->hello)) ||
	    first->hello.magic != LKL_WIRE_MAGIC || first->hello.side > 1 ||
	    first->read % RECORD || first->written % RECORD) {
		for (i = 0; i < fds; i++)
			host_call(SYS_close, fd[i], 0, 0, 0, 0, 0);
		return -EBADMSG;
	}
	if (fds == 2)
		*bell = fd[1];
	return fd[0];
}

/* The memory must not shrink, or an access would raise SIGBUS. */
static int memory_ok(int mem)
{
	long seals = host_call(SYS_fcntl, mem, F_GET_SEALS, 0, 0, 0, 0);

	return seals >= 0 && seals & F_SEAL_SHRINK &&
	       host_call(SYS_lseek, mem, 0, 2 /* SEEK_END */, 0, 0, 0) >= (long)MEM_SIZE;
}

static int join(struct peer *p, int bell)
{
	struct lkl_wire_handover first = { .read = 0 };
	const struct lkl_wire_hello *hello = &first.hello;
	struct ring_ctl *ctl;
	int own = bell, mem = receive_memory(&own, &first), ret = -EBADMSG;

	if (mem < 0)
		return mem;
	if (!memory_ok(mem))
		goto out;
	ret = -ENOMEM;
	p->ctls = map(NULL, 2 * CTL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
		      mem, 0);
	p->out.data = map_ring(mem, (int)hello->side);
	p->in.data = map_ring(mem, !hello->side);
	if (!p->ctls || !p->out.data || !p->in.data) {
		release(p);
		goto out;
	}
	host_call(SYS_madvise, (long)p->ctls, 2 * CTL_SIZE, MADV_DONTFORK, 0, 0, 0);
	ctl = (void *)((char *)p->ctls + hello->side * CTL_SIZE);
	p->out.ctl = ctl;
	ctl = (void *)((char *)p->ctls + !hello->side * CTL_SIZE);
	p->in.ctl = ctl;
	p->in.at = first.read;
	p->out.at = first.written;
	p->bell = own;
	ret = 0;
out:
	host_call(SYS_close, mem, 0, 0, 0, 0, 0);
	if (ret && own != bell)
		host_call(SYS_close, own, 0, 0, 0, 0, 0);
	return ret;
}

/**
 * wire_add - join another end
 * @bell: a socket, which the wire then owns, with a struct lkl_wire_hello or
 *	struct lkl_wire_handover
 */
int wire_add(struct wire *w, int bell)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	int i, own, ret;

	for (i = 0; i < PEERS && w->peer[i].bell >= 0; i++)
		;
	if (i == PEERS)
		return -ENOSPC;
	ret = join(&w->peer[i], bell);
	if (ret)
		return ret;
	own = w->peer[i].bell;
	ev.data.u32 = (uint32_t)i;
	if (epoll_ctl(w->epfd, EPOLL_CTL_ADD, own, &ev)) {
		ret = -errno;
		release(&w->peer[i]);
		if (own != bell)
			close(own);
		return ret;
	}
	if (own != bell)
		close(bell);
	/* The first frame must ring. */
	__atomic_store_n(&w->peer[i].in.ctl->asleep, 1, __ATOMIC_SEQ_CST);
	w->n++;
	if (i >= w->last)
		w->last = i + 1;
	return 0;
}

/*
 * Empties a bell. Returns whether the peer is there.
 * @more: set if the peer may have rung more often than it is answered in a turn
 */
static int answer(struct peer *p, int *more)
{
	char byte[8];
	long n;
	int i;

	for (i = 0; i < RINGS; i++) {
		n = host_call(SYS_recvfrom, p->bell, (long)byte, sizeof(byte),
			      MSG_DONTWAIT, 0, 0);
		if (n == 0)
			return 0;
		if (n < 0)
			return n == -EAGAIN || n == -EINTR;
	}
	*more = 1;
	return 1;
}

/**
 * wire_events - handle the bells
 * @more: set if it must be called again soon, else left as it is
 *
 * Returns LKL_NETEV_*, which may report frames and room that are not there.
 */
unsigned int wire_events(struct wire *w, int *more)
{
	struct epoll_event ev[16];
	int i, n;

	do {
		n = (int)host_call(SYS_epoll_pwait, w->epfd, (long)ev, 16, 0, 0, 0);
		for (i = 0; i < n; i++) {
			int at = (int)ev[i].data.u32;

			if (w->peer[at].bell >= 0 && !answer(&w->peer[at], more))
				forget(w, at);
		}
	} while (n == 16 && !*more);
	return w->n ? LKL_NETEV_RX | LKL_NETEV_TX : LKL_NETEV_HUP;
}

static void ring_bell(struct peer *p)
{
	host_call(SYS_sendto, p->bell, (long)"", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
		  0, 0);
}

static int empty(const struct ring *r)
{
	return __atomic_load_n(&r->ctl->head, __ATOMIC_SEQ_CST) == r->at;
}

/* Lets the peers ring again. Returns whether there are frames nevertheless. */
static int arm(struct wire *w)
{
	int i, more = 0;

	w->armed = 1;
	for (i = 0; i < w->last; i++)
		if (w->peer[i].bell >= 0)
			publish(&w->peer[i].in.ctl->asleep, 1);
	for (i = 0; i < w->last; i++)
		if (w->peer[i].bell >= 0 && !empty(&w->peer[i].in))
			more = 1;
	return more;
}

static void disarm(struct wire *w)
{
	int i;

	w->armed = 0;
	for (i = 0; i < w->last; i++)
		if (w->peer[i].bell >= 0)
			__atomic_store_n(&w->peer[i].in.ctl->asleep, 0,
					 __ATOMIC_RELAXED);
}

/* Copies @len bytes out of a ring; returns 0 if there is not enough room. */
static int copy_out(const struct lkl_iov *iov, int cnt, const char *from,
		    unsigned long len)
{
	int i;

	for (i = 0; i < cnt && len; i++) {
		unsigned long n = iov[i].len < len ? iov[i].len : len;

		memcpy(iov[i].base, from, n);
		from += n;
		len -= n;
	}
	return !len;
}

/*
 * Reads the next frame of a ring. -EAGAIN: none; -EPROTO: the peer has written
 * nonsense
 */
static long get(struct peer *p, const struct lkl_iov *iov, int cnt)
{
	struct ring *r = &p->in;
	uint32_t used = __atomic_load_n(&r->ctl->head, __ATOMIC_ACQUIRE) - r->at;
	const char *from = r->data + r->at % RING;
	uint32_t len, size;
	int fits;

	if (!used)
		return -EAGAIN;
	if (used > RING || used % RECORD)
		return -EPROTO;
	len = __atomic_load_n((const uint32_t *)from, __ATOMIC_RELAXED);
	if (len < HDR + ETH_LEN || len > FRAME_MAX)
		return -EPROTO;
	size = (len + sizeof(len) + RECORD - 1) / RECORD * RECORD;
	if (size > used)
		return -EPROTO;
	fits = copy_out(iov, cnt, from + sizeof(len), len);
	r->at += size;
	publish(&r->ctl->tail, r->at);
	if (unlikely(__atomic_load_n(&r->ctl->full, __ATOMIC_SEQ_CST)) &&
	    used - size <= RING / 2 &&
	    __atomic_exchange_n(&r->ctl->full, 0, __ATOMIC_SEQ_CST))
		ring_bell(p);
	return fits ? (long)len : -EMSGSIZE;
}

static struct address *place_of(struct wire *w, const unsigned char *mac)
{
	uint32_t h = mac[5] | mac[4] << 8 | mac[3] << 16 | (uint32_t)mac[2] << 24;

	h ^= mac[1] ^ (uint32_t)mac[0] << 8;
	return &w->address[(h * 2654435761u >> 16) % ADDRESSES];
}

/* Remembers where an address is. @mac is private memory. */
static void learn(struct wire *w, const unsigned char *mac, int i)
{
	struct address *a = place_of(w, mac);

	if (mac[0] & 1)
		return;
	memcpy(a->mac, mac, sizeof(a->mac));
	a->peer = (unsigned char)(i + 1);
}

static void next_turn(struct wire *w)
{
	w->turn_left = TURN;
	if (++w->turn >= w->last)
		w->turn = 0;
}

/* Reads the next frame of any ring. */
static long get_any(struct wire *w, const struct lkl_iov *iov, int cnt)
{
	int tries;
	long n;

	for (tries = w->last; tries > 0; tries--) {
		struct peer *p = &w->peer[w->turn];

		n = p->bell < 0 ? -EAGAIN : get(p, iov, cnt);
		if (n == -EPROTO) {
			forget(w, w->turn);
			if (!w->n)
				return -EPIPE;
			continue;
		}
		if (n == -EAGAIN) {
			next_turn(w);
			continue;
		}
		if (w->n > 1 && n > 0)
			learn(w, (unsigned char *)iov[1].base + 6, w->turn);
		if (--w->turn_left <= 0)
			next_turn(w);
		return n;
	}
	return -EAGAIN;
}

/**
 * wire_read - read a frame
 * @iov: its first entry is for the virtio-net header, the second has room for
 *	an Ethernet header at least
 *
 * Returns its bytes, or -EAGAIN; -EBADMSG: a frame that is too large; -EPIPE: no
 * peer is left.
 */
long wire_read(struct wire *w, const struct lkl_iov *iov, int cnt)
{
	long n = get_any(w, iov, cnt);

	/*
	 * Armed rings must be armed again: a writer may have answered late, and
	 * rung for a frame that is read already.
	 */
	if (n == -EAGAIN && w->n && arm(w))
		n = get_any(w, iov, cnt);
	if (n > 0 && w->armed)
		disarm(w);
	return n == -EMSGSIZE ? -EBADMSG : n;
}

/* Whether a record fits; -EPROTO: the peer has written nonsense */
static int room(const struct ring *r, uint32_t size)
{
	uint32_t used = r->at - __atomic_load_n(&r->ctl->tail, __ATOMIC_ACQUIRE);

	return used > RING ? -EPROTO : RING - used >= size;
}

/* Writes a frame. -EAGAIN: no room; -EPROTO as above */
static long put(struct peer *p, const struct lkl_iov *iov, int cnt, uint32_t len,
		int wait)
{
	uint32_t size = (len + sizeof(len) + RECORD - 1) / RECORD * RECORD;
	struct ring *r = &p->out;
	char *to = r->data + r->at % RING;
	int i, fits = room(r, size);

	if (!fits && wait) {
		__atomic_store_n(&r->ctl->full, 1, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		fits = room(r, size);
	}
	if (fits <= 0)
		return fits ? fits : -EAGAIN;
	__atomic_store_n((uint32_t *)to, len, __ATOMIC_RELAXED);
	to += sizeof(len);
	for (i = 0; i < cnt; i++) {
		memcpy(to, iov[i].base, iov[i].len);
		to += iov[i].len;
	}
	r->at += size;
	publish(&r->ctl->head, r->at);
	p->ring = 1;
	return (long)len;
}

/* Writes a frame to peer @i, or drops the peer. */
static long put_to(struct wire *w, int i, const struct lkl_iov *iov, int cnt,
		   uint32_t len, int wait)
{
	long n = put(&w->peer[i], iov, cnt, len, wait);

	if (n == -EPROTO) {
		forget(w, i);
		return w->n ? -ENOBUFS : -EPIPE;
	}
	if (n > 0)
		w->rung = 1;
	return n;
}

/**
 * wire_write - write a frame; its reader learns of it with wire_flush()
 * @iov: as for wire_read()
 *
 * Returns its bytes; -EAGAIN: no room, wire_events() follows when there is;
 * -ENOBUFS: it is dropped; -EPIPE: there is no peer.
 */
long wire_write(struct wire *w, const struct lkl_iov *iov, int cnt)
{
	const unsigned char *to = iov[1].base;
	struct address *a;
	uint32_t len = 0;
	long n = 0;
	int i;

	for (i = 0; i < cnt; i++)
		len += iov[i].len;
	if (len > FRAME_MAX)
		return -EMSGSIZE;
	if (!w->n)
		return -EPIPE;
	if (w->n == 1)
		return put_to(w, w->last - 1, iov, cnt, len, 1);
	a = place_of(w, to);
	if (a->peer && !(to[0] & 1) && !memcmp(a->mac, to, sizeof(a->mac))) {
		n = put_to(w, a->peer - 1, iov, cnt, len, 0);
		return n == -EAGAIN ? -ENOBUFS : n;
	}
	for (i = 0; i < w->last; i++)
		if (w->peer[i].bell >= 0 && put_to(w, i, iov, cnt, len, 0) > 0)
			n = len;
	return n ? n : -ENOBUFS;
}

/**
 * wire_flush - ring the bells of readers that sleep
 */
void wire_flush(struct wire *w)
{
	int i;

	if (!w->rung)
		return;
	w->rung = 0;
	for (i = 0; i < w->last; i++) {
		struct peer *p = &w->peer[i];

		if (!p->ring)
			continue;
		p->ring = 0;
		if (__atomic_load_n(&p->out.ctl->asleep, __ATOMIC_SEQ_CST) &&
		    __atomic_exchange_n(&p->out.ctl->asleep, 0, __ATOMIC_SEQ_CST))
			ring_bell(p);
	}
}
