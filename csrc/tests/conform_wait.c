// SPDX-License-Identifier: GPL-2.0-only
/*
 * Like conform.c, for calls that wait: each blocking call of each kind of socket,
 * with each event that may end it, and the poll bits afterwards. Then the poll
 * bits of each state, and the options that an accepted socket inherits.
 *
 * Each case runs in a process of its own, BATCH at a time, because many cases
 * only wait. Arguments are lines of the output: only their cases are run.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "conform.h"

#define BATCH		96
#define TEXT		512
#define CASE_S		15
#define WAITS_MS	1000	/* a call that has not ended after it waits on */

enum kind { TCP, TCP_FULL, LISTENER, CONNECTING, UDP, UDP_CONNECTED, RAW, NETLINK, PACKET };

static const char *const kinds[] = { "tcp", "tcp, full", "listener", "connecting", "udp",
				     "connected udp", "raw", "netlink", "packet" };

/**
 * struct scene - the sockets of a case
 * @fd: the socket on which the call waits
 * @peer: its peer, or a listener whose queue is full
 * @out: what the case prints
 */
static struct scene {
	enum kind kind;
	int fd, peer, port;
	char *out;
} sc;

/* The call that waits. */
static struct waiter {
	long (*call)(int fd);
	long ret;
	int err;
	bool ended;
	sem_t begins;
	pid_t tid;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
} w = { .lock = PTHREAD_MUTEX_INITIALIZER };

static char buf[1 << 16];

/** put - append to the output of the case */
__attribute__((format(printf, 1, 2)))
static void put(const char *format, ...)
{
	size_t len = strlen(sc.out);
	va_list ap;

	va_start(ap, format);
	vsnprintf(sc.out + len, TEXT - len, format, ap);
	va_end(ap);
}

/** put_bits - append the poll bits of @fd */
static void put_bits(int fd)
{
	static const struct {
		short bit;
		const char *name;
	} names[] = { { POLLIN, "IN" }, { POLLOUT, "OUT" }, { POLLPRI, "PRI" }, { POLLRDHUP, "RDHUP" },
		      { POLLHUP, "HUP" }, { POLLERR, "ERR" }, { POLLNVAL, "NVAL" } };
	struct pollfd p = { fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0 };
	size_t i;

	poll(&p, 1, 0);
	put(" [");
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (p.revents & names[i].bit)
			put(" %s", names[i].name);
	put(" ]");
}

/** name_of - make the address of the scene's peer */
static socklen_t name_of(struct sockaddr_storage *ss)
{
	return lo(ss, AF_INET, sc.port);
}

/* The calls. */

static long do_read(int fd)
{
	return read(fd, buf, 10);
}

static struct iovec iov = { buf, 10 }, one = { buf, 1 };

static long do_readv(int fd)
{
	return readv(fd, &iov, 1);
}

static long do_splice(int fd)
{
	int pipes[2];

	return pipe(pipes) ? -1 : splice(fd, NULL, pipes[1], NULL, 10, 0);
}

static long do_recv(int fd)
{
	return recv(fd, buf, 10, 0);
}

static long do_peek(int fd)
{
	return recv(fd, buf, 10, MSG_PEEK);
}

static long do_waitall(int fd)
{
	return recv(fd, buf, 2, MSG_WAITALL);
}

static long do_recvfrom(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return recvfrom(fd, buf, 10, 0, (struct sockaddr *)&ss, &len);
}

static long do_recvfrom_all(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return recvfrom(fd, buf, 2, MSG_WAITALL, (struct sockaddr *)&ss, &len);
}

static long do_recvmsg(int fd)
{
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	return recvmsg(fd, &mh, 0);
}

static long do_recvmsg_name(int fd)
{
	struct sockaddr_storage ss;
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &ss, .msg_namelen = sizeof(ss) };

	return recvmsg(fd, &mh, 0);
}

static long do_recvmmsg(int fd)
{
	struct mmsghdr mm[2] = { { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } },
				 { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } } };

	return recvmmsg(fd, mm, 2, MSG_WAITFORONE, NULL);
}

static long do_poll(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLRDHUP, 0 };

	return poll(&p, 1, -1);
}

static long do_ppoll(int fd)
{
	struct pollfd p = { fd, POLLIN | POLLRDHUP, 0 };

	return ppoll(&p, 1, NULL, &(sigset_t){ 0 });
}

static long do_poll_out(int fd)
{
	struct pollfd p = { fd, POLLOUT, 0 };

	return poll(&p, 1, -1);
}

/** select_on - wait by select() or pselect() */
static long select_on(int fd, bool mask)
{
	fd_set in, pri;

	FD_ZERO(&in);
	FD_ZERO(&pri);
	FD_SET(fd, &in);
	FD_SET(fd, &pri);
	return mask ? pselect(fd + 1, &in, NULL, &pri, NULL, &(sigset_t){ 0 }) : select(fd + 1, &in, NULL, &pri, NULL);
}

static long do_select(int fd)
{
	return select_on(fd, false);
}

static long do_pselect(int fd)
{
	return select_on(fd, true);
}

static long do_epoll(int fd)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET };
	int ep = epoll_create1(0), n;

	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	if (sc.kind == CONNECTING)
		epoll_wait(ep, &ev, 1, 0);
	n = epoll_wait(ep, &ev, 1, -1);
	return n;
}

static long do_accept(int fd)
{
	return accept(fd, NULL, NULL) < 0 ? -1 : 0;
}

static long do_accept4(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	return accept4(fd, (struct sockaddr *)&ss, &len, SOCK_CLOEXEC) < 0 ? -1 : 0;
}

static long do_connect(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = name_of(&ss);

	return connect(fd, (struct sockaddr *)&ss, len);
}

static long do_write(int fd)
{
	return write(fd, buf, 1);
}

static long do_writev(int fd)
{
	return writev(fd, &one, 1);
}

static long do_splice_out(int fd)
{
	int pipes[2];

	return pipe(pipes) || write(pipes[1], buf, 1) != 1 ? -1 : splice(pipes[0], NULL, fd, NULL, 1, 0);
}

static long do_sendfile(int fd)
{
	int file = memfd_create("file", 0);

	return ftruncate(file, 1) ? -1 : sendfile(fd, file, NULL, 1);
}

static long do_send(int fd)
{
	return send(fd, buf, 1, 0);
}

static long do_sendto(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = name_of(&ss);

	return sendto(fd, buf, 1, 0, (struct sockaddr *)&ss, len);
}

static long do_sendmsg(int fd)
{
	struct msghdr mh = { .msg_iov = &one, .msg_iovlen = 1 };

	return sendmsg(fd, &mh, 0);
}

static long do_sendmmsg(int fd)
{
	struct mmsghdr mm[2] = { { .msg_hdr = { .msg_iov = &one, .msg_iovlen = 1 } },
				 { .msg_hdr = { .msg_iov = &one, .msg_iovlen = 1 } } };

	return sendmmsg(fd, mm, 2, 0);
}

#define RECEIVES	(1 << TCP | 1 << UDP | 1 << UDP_CONNECTED | 1 << RAW | 1 << NETLINK)
#define READS		(RECEIVES | 1 << PACKET)
#define POLLS		(READS | 1 << LISTENER)

static const struct {
	const char *name;
	long (*call)(int fd);
	unsigned int kinds;
} calls[] = {
	{ "read", do_read, READS },
	{ "readv", do_readv, READS },
	{ "splice", do_splice, READS },
	{ "recv", do_recv, READS },
	{ "recv MSG_PEEK", do_peek, RECEIVES },
	{ "recv MSG_WAITALL", do_waitall, 1 << TCP },
	{ "recvfrom", do_recvfrom, RECEIVES },
	{ "recvfrom MSG_WAITALL", do_recvfrom_all, 1 << TCP },
	{ "recvmsg", do_recvmsg, READS },
	{ "recvmsg with a name", do_recvmsg_name, RECEIVES },
	{ "recvmmsg", do_recvmmsg, RECEIVES },
	{ "poll", do_poll, POLLS },
	{ "ppoll", do_ppoll, POLLS },
	{ "select", do_select, POLLS },
	{ "pselect", do_pselect, POLLS },
	{ "epoll", do_epoll, POLLS },
	{ "accept", do_accept, 1 << LISTENER },
	{ "accept4", do_accept4, 1 << LISTENER },
	{ "connect", do_connect, 1 << CONNECTING },
	{ "write", do_write, 1 << TCP_FULL },
	{ "writev", do_writev, 1 << TCP_FULL },
	{ "splice from a pipe", do_splice_out, 1 << TCP_FULL },
	{ "sendfile", do_sendfile, 1 << TCP_FULL },
	{ "send", do_send, 1 << TCP_FULL },
	{ "sendto", do_sendto, 1 << TCP_FULL },
	{ "sendmsg", do_sendmsg, 1 << TCP_FULL },
	{ "sendmmsg", do_sendmmsg, 1 << TCP_FULL },
	{ "poll POLLOUT", do_poll_out, 1 << TCP_FULL },
};

/* The events. */

/** own_address - make a loopback address that only this case uses */
static socklen_t own_address(struct sockaddr_storage *ss)
{
	socklen_t len = lo(ss, AF_INET, 0);

	((struct sockaddr_in *)ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK + 0x10000 + (uint32_t)getpid());
	return len;
}

/** feed - let a call succeed that still waits */
static void feed(void)
{
	struct {
		struct nlmsghdr nh;
		struct rtgenmsg gen;
	} ask = { { sizeof(ask), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { AF_UNSPEC } };
	char icmp[8] = { 8, 0, (char)0xf7, (char)0xff };
	struct sockaddr_storage ss;
	socklen_t len = name_of(&ss);
	int i;

	switch (sc.kind) {
	case TCP:
		send(sc.peer, "x", 1, MSG_NOSIGNAL);
		break;
	case TCP_FULL:
		for (i = 0; i < 100; i++) {
			while (recv(sc.peer, buf, sizeof(buf), MSG_DONTWAIT) > 0)
				;
			msleep(5);
		}
		break;
	case UDP:
	case UDP_CONNECTED:
		sendto(sc.peer, "x", 1, 0, (struct sockaddr *)&ss, len);
		break;
	case LISTENER:
		i = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(i, (struct sockaddr *)&ss, len);
		break;
	case RAW:
		len = own_address(&ss);
		sendto(sc.peer, icmp, 8, 0, (struct sockaddr *)&ss, len);
		break;
	case NETLINK:
		send(sc.fd, &ask, sizeof(ask), 0);
		break;
	default:
		break;
	}
}

static void ev_none(void)
{
}

static void ev_shut_rd(void)
{
	shutdown(sc.fd, SHUT_RD);
}

static void ev_shut_wr(void)
{
	shutdown(sc.fd, SHUT_WR);
}

static void ev_shut_both(void)
{
	shutdown(sc.fd, SHUT_RDWR);
}

static void ev_close(void)
{
	close(sc.fd);
	sc.fd = -1;
	msleep(50);
	feed();
}

static void ev_dup2(void)
{
	dup2(STDIN_FILENO, sc.fd);
	sc.fd = -1;
	msleep(50);
	feed();
}

static void ev_nonblock(void)
{
	fcntl(sc.fd, F_SETFL, O_NONBLOCK);
	msleep(50);
	feed();
}

static void ev_signal(void)
{
	pthread_kill(w.thread, SIGUSR1);
}

static void ev_restart(void)
{
	pthread_kill(w.thread, SIGUSR2);
	msleep(200);
	feed();
}

static void ev_fin(void)
{
	shutdown(sc.peer, SHUT_WR);
}

static void ev_peer_close(void)
{
	close(sc.peer);
}

static void ev_reset(void)
{
	struct linger now = { 1, 0 };

	setsockopt(sc.peer, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(sc.peer);
}

static void ev_disconnect(void)
{
	struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };

	connect(sc.fd, (struct sockaddr *)&ss, sizeof(ss));
}

/** device - make and change, or remove, the device that only this case uses */
static void device(uint16_t type, unsigned int flags)
{
	struct {
		struct nlmsghdr nh;
		struct ifinfomsg info;
		struct nlattr name_attr;
		char name[IFNAMSIZ];
		struct nlattr info_attr, kind_attr;
		char kind[8];
	} ask = { { sizeof(ask), type, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0 },
		  { .ifi_flags = flags, .ifi_change = IFF_UP }, { NLA_HDRLEN + IFNAMSIZ, IFLA_IFNAME }, "",
		  { 2 * NLA_HDRLEN + 8, IFLA_LINKINFO }, { NLA_HDRLEN + 7, IFLA_INFO_KIND }, "bridge" };
	struct {
		struct nlmsghdr nh;
		struct nlmsgerr err;
	} answer = { .err.error = 1 };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	snprintf(ask.name, sizeof(ask.name), "w%d", getpid());
	send(fd, &ask, sizeof(ask), 0);
	recv(fd, &answer, sizeof(answer), 0);
	if (answer.err.error)
		put(" device %d", answer.err.error);
	close(fd);
}

/** bind_device - bind the socket to a device that is up */
static void bind_device(void)
{
	struct sockaddr_ll ll = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ARP) };
	char name[IFNAMSIZ];

	device(RTM_NEWLINK, IFF_UP);
	snprintf(name, sizeof(name), "w%d", getpid());
	ll.sll_ifindex = (int)if_nametoindex(name);
	if (sc.kind == PACKET ? bind(sc.fd, (struct sockaddr *)&ll, sizeof(ll)) :
	    setsockopt(sc.fd, SOL_SOCKET, SO_BINDTODEVICE, name, sizeof(name)))
		put(" bind %s", strerrorname_np(errno));
}

static void ev_down(void)
{
	device(RTM_NEWLINK, 0);
}

static void ev_gone(void)
{
	device(RTM_DELLINK, 0);
}

#define STREAMS		(1 << TCP | 1 << TCP_FULL)
#define BOUND		(1 << UDP | 1 << RAW | 1 << PACKET)
#define ALL_KINDS	(RECEIVES | 1 << TCP_FULL | 1 << LISTENER | 1 << CONNECTING)

static const struct event {
	const char *name;
	void (*happen)(void);
	unsigned int kinds;
	bool timed;
} all_events[] = {
	{ "data", feed, ALL_KINDS & ~(1 << CONNECTING), false },
	{ "time-out", ev_none, ALL_KINDS, true },
	{ "SHUT_RD", ev_shut_rd, ALL_KINDS & ~(1 << NETLINK), false },
	{ "SHUT_WR", ev_shut_wr, ALL_KINDS & ~(1 << NETLINK), false },
	{ "SHUT_RDWR", ev_shut_both, ALL_KINDS & ~(1 << NETLINK), false },
	{ "close", ev_close, ALL_KINDS & ~(1 << NETLINK), false },
	{ "dup2", ev_dup2, ALL_KINDS & ~(1 << NETLINK), false },
	{ "O_NONBLOCK", ev_nonblock, ALL_KINDS, false },
	{ "signal", ev_signal, ALL_KINDS | 1 << PACKET, false },
	{ "signal, restarted", ev_restart, ALL_KINDS, false },
	{ "FIN", ev_fin, STREAMS, false },
	{ "peer closes", ev_peer_close, STREAMS, false },
	{ "reset", ev_reset, STREAMS, false },
	{ "disconnect", ev_disconnect, STREAMS | 1 << CONNECTING | 1 << UDP_CONNECTED, false },
	{ "device down", ev_down, BOUND, false },
	{ "device gone", ev_gone, BOUND, false },
};

/** on_signal - signal handler */
static void on_signal(int sig)
{
	(void)sig;
}

/** wait_thread - main function of the thread that makes the call */
static void *wait_thread(void *arg)
{
	long ret;
	int err;

	w.tid = gettid();
	sem_post(&w.begins);
	ret = w.call((int)(intptr_t)arg);
	err = errno;
	pthread_mutex_lock(&w.lock);
	w.ret = ret;
	w.err = err;
	w.ended = true;
	pthread_cond_signal(&w.cond);
	pthread_mutex_unlock(&w.lock);
	return NULL;
}

/** ends - whether the call ends within @ms */
static bool ends(int ms)
{
	struct timespec at;
	bool ended;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec += ms / 1000;
	at.tv_nsec += ms % 1000 * 1000000L;
	if (at.tv_nsec >= 1000000000) {
		at.tv_sec++;
		at.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&w.lock);
	while (!w.ended && !pthread_cond_timedwait(&w.cond, &w.lock, &at))
		;
	ended = w.ended;
	pthread_mutex_unlock(&w.lock);
	return ended;
}

/** waits - wait until the thread waits in its call; returns false if it has ended */
static bool waits(void)
{
	char path[64], text[256], *state;
	int i, idle = 0, fd;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", w.tid);
	for (i = 0; i < LIMIT_MS / 20 && idle < 12 && !ends(20); i++) {
		fd = open(path, O_RDONLY);
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[n > 0 ? n : 0] = '\0';
		state = strstr(text, ") ");
		/* Sleeping, or stopped by its tracer (engine trace). */
		idle = state && (state[2] == 'S' || state[2] == 't') ? idle + 1 : 0;
	}
	return !w.ended;
}

/** fill - send until nothing more is accepted for a while */
static void fill(int fd)
{
	int idle;

	for (idle = 0; idle < 60; msleep(10), idle++)
		while (send(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0 || send(fd, buf, 1, MSG_DONTWAIT) > 0)
			idle = 0;
}

/** bound - make a socket with a loopback address */
static int bound(int type, int proto)
{
	struct sockaddr_storage ss;
	socklen_t len = lo(&ss, AF_INET, 0);
	int fd = socket(AF_INET, type, proto);

	bind(fd, (struct sockaddr *)&ss, len);
	return fd;
}

/** full_listener - make a listener that drops further connection requests */
static int full_listener(int *port)
{
	struct sockaddr_storage ss;
	int l = listener(AF_INET, 0, port), i, fd;
	socklen_t len = lo(&ss, AF_INET, *port);
	struct pollfd p = { .events = POLLOUT };

	listen(l, 0);
	for (i = 0; i < 8; i++) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fd, (struct sockaddr *)&ss, len);
		p.fd = fd;
		if (poll(&p, 1, 100) < 1) {
			close(fd);
			break;
		}
	}
	return l;
}

/** set_scene - make the sockets of a case of an event; NULL: of none of the table */
static void set_scene(enum kind kind, const struct event *e)
{
	int sv[2] = { -1, -1 }, small = 1, size = 32768;
	struct sockaddr_storage ss;
	socklen_t len;

	sc.kind = kind;
	switch (kind) {
	case TCP:
	case TCP_FULL:
		tcp_pair(AF_INET, sv);
		sc.fd = sv[0];
		sc.peer = sv[1];
		if (kind == TCP)
			break;
		setsockopt(sc.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		setsockopt(sc.peer, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		fill(sc.fd);
		break;
	case LISTENER:
		sc.fd = listener(AF_INET, 0, &sc.port);
		break;
	case CONNECTING:
		sc.peer = full_listener(&sc.port);
		sc.fd = bound(SOCK_STREAM, 0);
		setsockopt(sc.fd, IPPROTO_TCP, TCP_SYNCNT, &small, sizeof(small));
		break;
	case UDP:
	case UDP_CONNECTED:
		sc.fd = bound(SOCK_DGRAM, 0);
		sc.peer = bound(SOCK_DGRAM, 0);
		sc.port = port_of(sc.fd);
		if (kind == UDP)
			break;
		len = lo(&ss, AF_INET, port_of(sc.peer));
		connect(sc.fd, (struct sockaddr *)&ss, len);
		break;
	case RAW:
		/* Raw sockets receive the packets of all cases that use the same address. */
		sc.peer = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
		sc.fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
		len = own_address(&ss);
		bind(sc.fd, (struct sockaddr *)&ss, len);
		msleep(50);
		while (recv(sc.fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		break;
	case NETLINK:
		sc.fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
		break;
	case PACKET:
		sc.fd = socket(AF_PACKET, SOCK_DGRAM, 0);
		break;
	}
	if (kind == PACKET || (e && (e->happen == ev_down || e->happen == ev_gone)))
		bind_device();
}

/**
 * put_result - append the result of the call
 * @any: it is a race which error the call returns
 */
static void put_result(bool any)
{
	if (w.ret < 0)
		put(" %s", any ? "error" : strerrorname_np(w.err));
	else
		put(" %ld", w.ret);
}

/** one_case - make a call, let an event happen, and tell the result */
static void one_case(enum kind kind, size_t call, const struct event *e)
{
	struct timeval tv = { 0, 600000 };
	struct sigaction sa = { .sa_handler = on_signal };

	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGUSR1, &sa, NULL);
	sa.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &sa, NULL);
	pthread_cond_init(&w.cond, NULL);
	set_scene(kind, e);
	if (e->timed) {
		setsockopt(sc.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		setsockopt(sc.fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	}
	if (calls[call].call == do_waitall || calls[call].call == do_recvfrom_all)
		feed();
	w.call = calls[call].call;
	sem_init(&w.begins, 0, 0);
	pthread_create(&w.thread, NULL, wait_thread, (void *)(intptr_t)sc.fd);
	sem_wait(&w.begins);
	if (!waits() && !e->timed)
		put(" at once:");
	e->happen();
	put(":");
	if (!ends(WAITS_MS)) {
		put(" waits, then");
		pthread_kill(w.thread, SIGUSR1);
		ends(WAITS_MS);
	}
	if (w.ended)
		put_result(e->happen == ev_disconnect);
	else
		put(" NEVER ENDS");
}

/** state_after - print the poll bits and SO_ERROR of a socket after an event */
static void state_after(enum kind kind, const struct event *e)
{
	socklen_t len = sizeof(int);
	int err = 0;

	set_scene(kind, e);
	if (kind == CONNECTING) {
		fcntl(sc.fd, F_SETFL, O_NONBLOCK);
		do_connect(sc.fd);
	}
	put_bits(sc.fd);
	e->happen();
	msleep(300);
	put_bits(sc.fd);
	if (!getsockopt(sc.fd, SOL_SOCKET, SO_ERROR, &err, &len))
		put(" SO_ERROR %s", err ? strerrorname_np(err) : "0");
	put_bits(sc.fd);
}

static char (*texts)[TEXT];
static unsigned int n_texts;
static char **only;	/* the arguments */

/** flush_batch - wait for the processes of a batch, and print their results */
static void flush_batch(void)
{
	unsigned int i;

	while (wait(NULL) > 0)
		;
	for (i = 0; i < n_texts; i++)
		puts(texts[i]);
	fflush(stdout);
	memset(texts, 0, BATCH * TEXT);
	n_texts = 0;
}

/** begin - start a process for a case; returns whether this is the process */
static bool begin(const char *a, const char *b, const char *c)
{
	char **line = only;

	if (n_texts == BATCH)
		flush_batch();
	sc.out = texts[n_texts];
	snprintf(sc.out, TEXT, "%s, %s, %s", a, b, c);
	while (*line && strncmp(*line, sc.out, strlen(sc.out)))
		line++;
	if (*only && !*line) {
		sc.out[0] = '\0';
		return false;
	}
	n_texts++;
	if (fork())
		return false;
	alarm(CASE_S);		/* the process ends then */
	return true;
}

/** states - the result of each event, and the poll bits after it */
static void states(void)
{
	size_t k, j;

	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (j = 0; j < sizeof(all_events) / sizeof(all_events[0]); j++) {
			void (*happen)(void) = all_events[j].happen;

			if (!(all_events[j].kinds & (1u << k)) || happen == ev_close || happen == ev_dup2 ||
			    happen == ev_signal || happen == ev_restart || happen == ev_none)
				continue;
			if (begin("bits", kinds[k], all_events[j].name)) {
				state_after((enum kind)k, &all_events[j]);
				_exit(0);
			}
		}
	flush_batch();
}

/** matrix - all calls with all events */
static void matrix(void)
{
	size_t i, k, j;

	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
			for (j = 0; j < sizeof(all_events) / sizeof(all_events[0]); j++) {
				if (!(calls[i].kinds & all_events[j].kinds & (1u << k)))
					continue;
				if (begin(kinds[k], calls[i].name, all_events[j].name)) {
					one_case((enum kind)k, i, &all_events[j]);
					_exit(0);
				}
			}
	flush_batch();
}

/** put_queue - print the poll bits, select, and the number of queued errors */
static void put_queue(const char *when)
{
	char ctl[512];
	struct timeval none = { 0, 0 };
	struct msghdr mh = { .msg_control = ctl };
	fd_set in, except;
	int n = 0;

	FD_ZERO(&in);
	FD_ZERO(&except);
	FD_SET(sc.fd, &in);
	FD_SET(sc.fd, &except);
	select(sc.fd + 1, &in, NULL, &except, &none);
	put(" %s:", when);
	put_bits(sc.fd);
	put(" select%s%s", FD_ISSET(sc.fd, &in) ? " in" : "", FD_ISSET(sc.fd, &except) ? " except" : "");
	while (mh.msg_controllen = sizeof(ctl), recvmsg(sc.fd, &mh, MSG_ERRQUEUE) >= 0)
		n++;
	put(" errors %d", n);
}

/**
 * queue - fill the error queue and look at the poll bits
 * @stamps: with transmit timestamps, otherwise with an ICMP error
 * @select: SO_SELECT_ERR_QUEUE is set
 */
static void queue(bool connected, bool stamps, int select)
{
	int on = stamps ? SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY : 1;
	struct pollfd p = { .events = 0 };
	struct sockaddr_storage ss;
	socklen_t len;

	set_scene(UDP, NULL);
	len = lo(&ss, AF_INET, port_of(sc.peer));
	p.fd = sc.fd;
	setsockopt(sc.fd, SOL_SOCKET, SO_SELECT_ERR_QUEUE, &select, sizeof(select));
	setsockopt(sc.fd, stamps ? SOL_SOCKET : IPPROTO_IP, stamps ? SO_TIMESTAMPING : IP_RECVERR, &on, sizeof(on));
	if (!stamps) {
		close(sc.peer);
		msleep(700);	/* see SWEEP_MS, conn.c */
	}
	if (connected)
		connect(sc.fd, (struct sockaddr *)&ss, len);
	sendto(sc.fd, "x", 1, 0, connected ? NULL : (struct sockaddr *)&ss, connected ? 0 : len);
	poll(&p, 1, LIMIT_MS);
	put_queue("full");
	put_queue("read");
	sendto(sc.fd, "xy", 2, 0, connected ? NULL : (struct sockaddr *)&ss, connected ? 0 : len);
	poll(&p, 1, LIMIT_MS);
	/* A program that does not read its queue finds no message, again and again. */
	put(" message %s", recvmsg(sc.fd, &(struct msghdr){ 0 }, MSG_DONTWAIT) < 0 ? strerrorname_np(errno) : "0");
	poll(&p, 1, LIMIT_MS);
	put_queue("again");
	put_queue("read");
}

/** queues - poll bits of error queues */
static void queues(void)
{
	int i;

	for (i = 0; i < 8; i++)
		if (begin(i & 1 ? "timestamps" : "errors", i & 2 ? "connected" : "unconnected",
			  i & 4 ? "SO_SELECT_ERR_QUEUE" : "")) {
			queue(i & 2, i & 1, i & 4);
			_exit(0);
		}
	flush_batch();
}

static const struct {
	const char *name;
	int level, opt, value;
} passed_on[] = {
	{ "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1 },
	{ "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 20000 },
	{ "SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 20000 },
	{ "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 3 },
	{ "SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3 },
	{ "SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL, 7 },
	{ "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1 },
	{ "SO_MARK", SOL_SOCKET, SO_MARK, 5 },
	{ "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1 },
	{ "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 33 },
	{ "TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 5000 },
	{ "TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4000 },
	{ "IP_TOS", IPPROTO_IP, IP_TOS, 16 },
	{ "IP_TTL", IPPROTO_IP, IP_TTL, 44 },
};

/** accept_one - connect to the scene's listener; sets the scene's sockets */
static void accept_one(int l)
{
	struct sockaddr_storage ss;
	socklen_t len = lo(&ss, AF_INET, port_of(l));

	sc.peer = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(sc.peer, (struct sockaddr *)&ss, len))
		put(" connect %s", strerrorname_np(errno));
	sc.fd = accept(l, NULL, NULL);
	if (sc.fd < 0)
		put(" accept %s", strerrorname_np(errno));
}

/** inherited - the options that an accepted socket inherits, and their effects */
static void inherited(void)
{
	struct timeval tv = { 0, 200000 };
	struct linger now = { 1, 0 };
	size_t i;
	int l, port;

	for (i = 0; i < sizeof(passed_on) / sizeof(passed_on[0]); i++)
		if (begin("inherited", passed_on[i].name, "")) {
			int value = -1;
			socklen_t len = sizeof(value);

			l = bound(SOCK_STREAM, 0);
			setsockopt(l, passed_on[i].level, passed_on[i].opt, &passed_on[i].value, len);
			listen(l, 8);
			accept_one(l);
			getsockopt(sc.fd, passed_on[i].level, passed_on[i].opt, &value, &len);
			put("%d", value);
			_exit(0);
		}
	if (begin("inherited", "timeouts", "")) {
		l = listener(AF_INET, 0, &port);
		setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		setsockopt(l, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
		accept_one(l);
		put("read %s", read(sc.fd, buf, 1) < 0 ? strerrorname_np(errno) : "");
		put(" recvfrom %s", do_recvfrom(sc.fd) < 0 ? strerrorname_np(errno) : "");
		while (write(sc.fd, buf, sizeof(buf)) > 0)
			;
		put(" write %s", strerrorname_np(errno));
		_exit(0);
	}
	if (begin("inherited", "SO_RCVLOWAT", "two of three bytes")) {
		int three = 3;

		l = listener(AF_INET, 0, &port);
		setsockopt(l, SOL_SOCKET, SO_RCVLOWAT, &three, sizeof(three));
		accept_one(l);
		send(sc.peer, "xy", 2, 0);
		msleep(100);
		put_bits(sc.fd);
		send(sc.peer, "z", 1, 0);
		put(" %zd", read(sc.fd, buf, 10));
		_exit(0);
	}
	if (begin("inherited", "SO_LINGER", "reset")) {
		l = listener(AF_INET, 0, &port);
		setsockopt(l, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		accept_one(l);
		close(sc.fd);
		put(" %s", read(sc.peer, buf, 1) < 0 ? strerrorname_np(errno) : "0");
		_exit(0);
	}
	flush_batch();
}

/** listen_again - listen after a shutdown of the listener, and of a new socket */
static void listen_again(void)
{
	static const char *const names[] = { "SHUT_RD", "SHUT_WR", "SHUT_RDWR" };
	int how, fresh, l, port;

	for (how = 0; how < 6; how++)
		if (begin("listen again", names[how % 3], how < 3 ? "listener" : "new socket")) {
			fresh = how >= 3;
			l = fresh ? bound(SOCK_STREAM, 0) : listener(AF_INET, 0, &port);
			shutdown(l, how % 3);
			put(" listen %d", listen(l, 4));
			put_bits(l);
			accept_one(l);
			put(" sent %zd", send(sc.peer, "x", 1, MSG_NOSIGNAL));
			if (!fresh)	/* otherwise the new socket is shut down too */
				put(" got %zd", read(sc.fd, buf, 10));
			_exit(0);
		}
	flush_batch();
}

/** killed - a process that waits in a call is killed, and its sockets are gone */
static void killed(void)
{
	struct sockaddr_storage ss;
	socklen_t len;
	pid_t pid;
	int i;

	for (i = 0; i < 4; i++)
		if (begin("killed", i & 2 ? "shared" : "alone", i & 1 ? "accept" : "recvfrom")) {
			set_scene(i & 1 ? LISTENER : TCP, NULL);
			pid = fork();
			if (!pid) {
				close(sc.peer);
				(i & 1 ? do_accept : do_recvfrom)(sc.fd);
				_exit(0);
			}
			if (!(i & 2))
				close(sc.fd);
			msleep(100);
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			if (!(i & 2) && (i & 1)) {
				len = name_of(&ss);
				sc.fd = socket(AF_INET, SOCK_STREAM, 0);
				put(" bind %d", bind(sc.fd, (struct sockaddr *)&ss, len));
			} else if (!(i & 2)) {
				put(" eof %zd", read(sc.peer, buf, 1));
			} else {
				feed();
				put(" %ld", (i & 1 ? do_accept : do_recvfrom)(sc.fd));
			}
			_exit(0);
		}
	flush_batch();
}

/** main - run all tests in order */
int main(int argc, char **argv)
{
	only = argv + !!argc;
	texts = mmap(NULL, BATCH * TEXT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (texts == MAP_FAILED)
		return 1;
	matrix();
	states();
	queues();
	inherited();
	listen_again();
	killed();
	return 0;
}
