// SPDX-License-Identifier: GPL-2.0-only
/*
 * The connections of the gateway, until they are relays.
 *
 * Theory of operation
 *
 * The stack's kernel holds each SYN of the other stack (drivers/gateway.c) and
 * reports it here. lklrun is asked to connect, because only lklrun knows what is
 * permitted, and only it can make sockets. Its answer goes to the kernel as a
 * verdict. A permitted connection appears at the listener, where its addresses and
 * ports say which socket of the host waits for it. The other stack may have given
 * up meanwhile, so a socket waits for a limited time.
 *
 * When lklrun shuts its side of the socket down, the other stack has ended: what it
 * has sent is still passed on, and then this process ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "gateway/gateway.h"
#include "gateway/relay.h"
#include "shared/gateway_proto.h"
#include "stack/stack.h"

#define BUCKETS		1024
#define BACKLOG		4096
#define PORT		1		/* any: the kernel finds the listener without it */
#define WAIT_NS		10000000000ull	/* for a connection that was permitted */
#define DRAIN_POLL_NS	5000000ull
#define KEY		offsetof(struct lkl_gateway_ask, src)
#define KEY_SIZE	(offsetof(struct lkl_gateway_ask, pad) - KEY)
#define TURN		64		/* messages of a turn */

/**
 * struct dial - a connection that is not a relay yet
 * @by_id, @by_key: in the buckets of its id and its addresses
 * @waiting: in the list of those that wait for the listener
 * @id: in messages; @ask.id is the kernel's
 * @fd: the host's socket, -1: lklrun has not answered
 * @ends: lklrun has ended it
 * @until: end of the wait
 */
struct dial {
	struct list by_id, by_key, waiting;
	struct lkl_gateway_ask ask;
	uint64_t id, until;
	int fd;
	bool ends;
};

static struct list by_id[BUCKETS], by_key[BUCKETS];
static struct list waiting = LIST_INIT(waiting);
static uint64_t last_id;
static int held = -1, listener = -1;
static struct stack_src held_src, listener_src;
static struct source lklrun;
static struct work asks_work;

static void expire(struct timer *t);
static void drain(struct timer *t);
static struct timer expire_timer = TIMER_INIT(expire_timer, expire);
static struct timer drain_timer = TIMER_INIT(drain_timer, drain);

/** key_of - the bucket of addresses and ports */
static struct list *key_of(const struct lkl_gateway_ask *a)
{
	const uint8_t *p = (const uint8_t *)a + KEY;
	uint32_t h = 2166136261u;	/* FNV-1a */
	size_t i;

	for (i = 0; i < KEY_SIZE; i++)
		h = (h ^ p[i]) * 16777619u;
	return &by_key[(h ^ h >> 16) % BUCKETS];
}

static bool same(const struct lkl_gateway_ask *a, const struct lkl_gateway_ask *b)
{
	return !memcmp((const uint8_t *)a + KEY, (const uint8_t *)b + KEY, KEY_SIZE);
}

/** find - find a permitted connection by its addresses */
static struct dial *find(const struct lkl_gateway_ask *a)
{
	struct list *pos;

	list_for_each(pos, key_of(a)) {
		struct dial *d = container_of(pos, struct dial, by_key);

		if (d->fd >= 0 && same(&d->ask, a))
			return d;
	}
	return NULL;
}

static void forget(struct dial *d)
{
	list_del(&d->by_id);
	list_del(&d->by_key);
	list_del(&d->waiting);
	free(d);
}

/** give_up - end a connection that the other stack does not want any more */
static void give_up(struct dial *d)
{
	relay_reset_sockets(-1, d->fd);
	tell_of(GATEWAY_ENDED, d->id, GATEWAY_RESET);
	forget(d);
}

/** verdict - tell the kernel what becomes of a SYN; returns a negative errno */
static long verdict(const struct dial *d, uint32_t what, uint8_t type, uint8_t code)
{
	const struct lkl_gateway_answer a = {
		.id = d->ask.id, .verdict = what, .listener = listener,
		.type = type, .code = code,
	};
	long n = ST(SYS_write, held, &a, sizeof(a), 0, 0, 0);

	return n < 0 ? n : 0;
}

/** ask - ask lklrun for a connection */
static void ask(const struct lkl_gateway_ask *a)
{
	struct dial *d = calloc(1, sizeof(*d)), *old = find(a);
	struct gateway_msg m = { .kind = GATEWAY_ASK };

	if (old)
		give_up(old);
	if (!d) {
		struct dial none = { .ask = *a };

		verdict(&none, LKL_GATEWAY_DROP, 0, 0);
		return;
	}
	d->ask = *a;
	d->id = m.id = ++last_id;
	d->fd = -1;
	list_init(&d->waiting);
	list_add_tail(&d->by_id, &by_id[d->id % BUCKETS]);
	list_add_tail(&d->by_key, key_of(a));
	memcpy(m.src, a->src, sizeof(m.src));
	memcpy(m.dst, a->dst, sizeof(m.dst));
	m.sport = a->sport;
	m.dport = a->dport;
	tell(&m);
}

/** asks_read - read SYNs of the kernel; those that lklrun cannot take stay there */
static void asks_read(struct work *w)
{
	struct lkl_gateway_ask a;
	int i;

	for (i = 0; i < TURN && !tell_waits(); i++) {
		if (ST(SYS_read, held, &a, sizeof(a), 0, 0, 0) != sizeof(a))
			return;
		ask(&a);
	}
	if (!tell_waits())
		work_queue(w);
}

static void held_event(struct stack_src *src, uint32_t events)
{
	(void)src;
	(void)events;
	work_queue(&asks_work);
}

/** address - the form that the kernel's messages have */
static void address(const struct sockaddr_in6 *from, uint8_t *addr, uint16_t *port)
{
	memcpy(addr, &from->sin6_addr, 16);
	*port = from->sin6_port;
}

/** listener_event - join new connections to the sockets that wait for them */
static void listener_event(struct stack_src *src, uint32_t events)
{
	(void)src;
	(void)events;
	for (;;) {
		struct sockaddr_in6 from = { 0 }, to = { 0 };
		struct lkl_gateway_ask a = { 0 };
		socklen_t flen = sizeof(from), tlen = sizeof(to);
		struct dial *d;
		int fd, sfd;
		uint64_t id;
		bool ends;

		sfd = (int)st_accept4(listener, &from, &flen, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (sfd == -ECONNABORTED)
			continue;
		if (sfd < 0)
			return;
		st_getsockname(sfd, &to, &tlen);
		address(&from, a.src, &a.sport);
		address(&to, a.dst, &a.dport);
		d = find(&a);
		if (!d) {
			relay_reset_sockets(sfd, -1);
			continue;
		}
		fd = d->fd;
		id = d->id;
		ends = d->ends;
		forget(d);
		if (relay_start(sfd, fd, id))
			tell_of(GATEWAY_ENDED, id, GATEWAY_RESET);
		else if (ends)
			relay_end(id, false);
	}
}

/** expire - end the connections that the other stack gave up */
static void expire(struct timer *t)
{
	while (!list_empty(&waiting)) {
		struct dial *d = container_of(waiting.next, struct dial, waiting);

		if (d->until > now_ns()) {
			timer_arm(t, d->until);
			return;
		}
		give_up(d);
	}
}

/** dial_of - the connection with an id, if it is no relay yet */
static struct dial *dial_of(uint64_t id)
{
	struct list *pos;

	list_for_each(pos, &by_id[id % BUCKETS])
		if (container_of(pos, struct dial, by_id)->id == id)
			return container_of(pos, struct dial, by_id);
	return NULL;
}

/** lklrun_ends - lklrun ends its side of a connection, of which it may not know the end yet */
static void lklrun_ends(uint64_t id, bool reset)
{
	struct dial *d = dial_of(id);

	if (!d)
		relay_end(id, reset);
	else if (d->fd >= 0 && reset)
		give_up(d);
	else if (d->fd >= 0)
		d->ends = true;
}

/** answer - handle lklrun's answer, with the socket @fd or -1 */
static void answer(const struct gateway_msg *m, int fd)
{
	struct dial *d = dial_of(m->id);

	if (!d || d->fd >= 0 || (m->verdict != GATEWAY_ACCEPT && fd >= 0)) {
		log_line("gateway: an answer that fits no question");
		if (fd >= 0)
			close(fd);
		return;
	}
	if (fd < 0 && m->verdict == GATEWAY_ACCEPT) {	/* too many descriptors */
		verdict(d, LKL_GATEWAY_DROP, 0, 0);
		give_up(d);
		return;
	}
	if (fd < 0) {
		verdict(d, m->verdict, m->type, m->code);
		forget(d);
		return;
	}
	d->fd = fd;
	d->until = now_ns() + WAIT_NS;
	list_add_tail(&d->waiting, &waiting);
	if (list_empty(&expire_timer.link))
		timer_arm(&expire_timer, d->until);
	if (verdict(d, LKL_GATEWAY_ACCEPT, 0, 0))
		give_up(d);
}

/** drain - end this process once all data of the other stack are passed on */
static void drain(struct timer *t)
{
	if (relay_drain())
		_exit(0);
	timer_arm(t, now_ns() + DRAIN_POLL_NS);
}

/** lklrun_event - handle lklrun's messages, or its end of the socket */
static void lklrun_event(struct source *src, uint32_t events)
{
	int i;

	if ((events & EPOLLOUT) && tell_rest())
		work_queue(&asks_work);
	for (i = 0; i < TURN; i++) {
		int fds[FD_PASS_MAX], fd = -1;
		struct gateway_msg m;
		unsigned int n;
		ssize_t len = fd_pass_recv(src->fd, &m, sizeof(m), fds, &n);

		if (len == -EAGAIN)
			return;
		if (n)
			fd = fds[--n];
		while (n)
			close(fds[--n]);
		if (len == sizeof(m) && m.kind == GATEWAY_ANSWER) {
			answer(&m, fd);
			continue;
		}
		if (len == sizeof(m) && m.kind == GATEWAY_ENTER) {
			enter(&m, fd);
			continue;
		}
		if (len == sizeof(m) && m.kind == GATEWAY_REPLACE && m.verdict == GATEWAY_ACCEPT) {
			relay_replace(m.id, fd);
			continue;
		}
		if (fd >= 0)
			close(fd);
		if (len == sizeof(m) && m.kind == GATEWAY_REPLACE)
			relay_hold(m.id);
		if (len == sizeof(m) && m.kind == GATEWAY_CANCEL)
			enter_cancel(m.id);
		if (len == sizeof(m) && m.kind == GATEWAY_END)
			lklrun_ends(m.id, m.verdict == GATEWAY_RESET);
		if (len <= 0) {
			loop_del(src);
			drain(&drain_timer);
			return;
		}
	}
}

/** listen_any - create the listener, which takes connections to all addresses */
static int listen_any(void)
{
	const struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	const int on = 1, off = 0;
	long fd = st_socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	long ret = fd;

	if (fd >= 0)
		ret = st_setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (ret >= 0)
		ret = st_setsockopt(fd, SOL_IPV6, IPV6_TRANSPARENT, &on, sizeof(on));
	if (ret >= 0)	/* the other stack has decided how its data are cut */
		ret = st_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (ret >= 0)
		ret = st_bind(fd, &any, sizeof(any));
	if (ret >= 0)
		ret = st_listen(fd, BACKLOG);
	return ret < 0 ? (int)ret : (int)fd;
}

int gateway_serve(int fd)
{
	size_t i;
	int ret;

	for (i = 0; i < BUCKETS; i++) {
		list_init(&by_id[i]);
		list_init(&by_key[i]);
	}
	work_init(&asks_work, asks_read);
	listener = listen_any();
	if (listener < 0)
		return listener;
	held = (int)ST(SYS_openat, AT_FDCWD, "/proc/lkl_gateway", O_RDWR | O_CLOEXEC, 0, 0, 0);
	if (held < 0)
		return held;
	held_src.fn = held_event;
	listener_src.fn = listener_event;
	ret = st_watch(held, &held_src, EPOLLIN);
	if (!ret)
		ret = st_watch(listener, &listener_src, EPOLLIN);
	lklrun = (struct source){ lklrun_event, fd };
	if (!ret && fcntl(fd, F_SETFL, O_NONBLOCK))
		ret = -errno;
	tell_start(&lklrun);
	if (!ret)
		ret = loop_add(&lklrun, EPOLLIN);
	return ret ? ret : gateway_seal();
}
