// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiting for descriptors of two kernels at once, threads with small stacks,
 * and signals: cases that only the preload engine can handle incorrectly.
 * Without the engine, all descriptors belong to the host, and the output is the
 * same.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/timerfd.h>
#include <fcntl.h>
#include <setjmp.h>

#include <sys/syscall.h>

#include "conform.h"

#define SIDES	2

/* Volatile, so that the compiler does not use the value. */
static void *volatile nowhere = (void *)8;

static int host_fd, sock_fd, peer_fd;

/** fresh - make an eventfd of the host and a connected socket of the stack */
static void fresh(void)
{
	int sv[2];

	host_fd = eventfd(0, EFD_NONBLOCK);
	tcp_pair(AF_INET, sv);
	sock_fd = sv[0];
	peer_fd = sv[1];
}

static void done(void)
{
	close(host_fd);
	close(sock_fd);
	close(peer_fd);
}

/** feed - make one side ready */
static void feed(int side)
{
	uint64_t one = 1;

	if (side ? write(peer_fd, "x", 1) != 1 : write(host_fd, &one, 8) != 8)
		say("feed", -1);
}

/** eat - make the side unready again */
static void eat(int side)
{
	uint64_t n;

	if (side ? read(sock_fd, &n, 1) != 1 : read(host_fd, &n, 8) != 8)
		say("eat", -1);
}

/** late - a thread that feeds a side after a while */
static void *late(void *arg)
{
	msleep(60);
	feed(*(int *)arg);
	return NULL;
}

static const int sides[SIDES] = { 0, 1 };
static const char *const names[SIDES] = { "host", "stack" };

/** feed_later - start a thread that feeds @side while the caller waits */
static pthread_t feed_later(int side)
{
	pthread_t t;

	pthread_create(&t, NULL, late, (void *)&sides[side]);
	return t;
}

/** polls - poll and select on both sides, ready before and while waiting */
static void polls(void)
{
	struct pollfd p[3];
	struct timeval tv;
	fd_set r, w, e;
	pthread_t t;
	int side, n;

	printf("# poll and select\n");
	fresh();
	for (side = 0; side < SIDES; side++) {
		p[0] = (struct pollfd){ .fd = host_fd, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = sock_fd, .events = POLLIN };
		p[2] = (struct pollfd){ .fd = -1, .events = POLLIN };
		printf("%s: nothing %d\n", names[side], poll(p, 3, 20));
		feed(side);
		printf("ready before: %d", poll(p, 3, -1));
		printf(" %x %x %x\n", p[0].revents, p[1].revents, p[2].revents);
		eat(side);
		t = feed_later(side);
		printf("ready later: %d", poll(p, 3, LIMIT_MS));
		printf(" %x %x\n", p[0].revents, p[1].revents);
		pthread_join(t, NULL);
		eat(side);
		p[2].fd = host_fd;	/* twice */
		p[2].events = POLLOUT;
		printf("twice: %d", poll(p, 3, LIMIT_MS));
		printf(" %x %x %x\n", p[0].revents, p[1].revents, p[2].revents);
		FD_ZERO(&r);
		FD_ZERO(&w);
		FD_ZERO(&e);
		FD_SET(host_fd, &r);
		FD_SET(sock_fd, &r);
		FD_SET(sock_fd, &e);
		tv = (struct timeval){ 0, 20000 };
		n = select(FD_SETSIZE, &r, &w, &e, &tv);
		printf("select: nothing %d %d %d left %d\n", n, FD_ISSET(host_fd, &r), FD_ISSET(sock_fd, &r), (int)tv.tv_sec);
		FD_SET(host_fd, &r);
		FD_SET(sock_fd, &r);
		FD_SET(sock_fd, &w);
		t = feed_later(side);
		FD_CLR(sock_fd, &w);
		n = select(FD_SETSIZE, &r, &w, &e, NULL);
		printf("select: %d %d %d\n", n, FD_ISSET(host_fd, &r), FD_ISSET(sock_fd, &r));
		pthread_join(t, NULL);
		FD_SET(sock_fd, &w);
		FD_SET(host_fd, &w);
		n = select(FD_SETSIZE, NULL, &w, NULL, NULL);
		printf("writable: %d %d %d\n", n, FD_ISSET(host_fd, &w), FD_ISSET(sock_fd, &w));
		eat(side);
	}
	FD_ZERO(&r);
	FD_SET(sock_fd, &r);
	FD_SET(60, &r);
	say("select, closed descriptor", select(61, &r, NULL, NULL, NULL));
	p[2].fd = 60;
	printf("poll, closed descriptor: %d", poll(p, 3, -1));
	printf(" %x\n", p[2].revents);
	say("poll, bad pointer", poll(nowhere, 2, 0));
	done();
}

/** ep_wait - call epoll_wait() and print the events, sorted by data */
static void ep_wait(const char *name, int ep, int ms)
{
	struct epoll_event ev[8];
	int i, n = epoll_wait(ep, ev, 8, ms);
	uint64_t seen = 0;

	for (i = 0; i < n; i++)
		seen |= ev[i].events << (ev[i].data.u32 * 8);
	printf("%s: %d %llx\n", name, n, (unsigned long long)seen);
}

static void ep_ctl(const char *name, int ep, int op, int fd, uint32_t events, uint32_t data)
{
	struct epoll_event ev = { .events = events, .data.u32 = data };

	say(name, epoll_ctl(ep, op, fd, &ev));
}

/** epolls - epoll with members of both kernels, edge-triggered, one-shot and nested */
static void epolls(void)
{
	int ep = epoll_create1(0), outer = epoll_create1(0), side, d;
	pthread_t t;

	printf("# epoll\n");
	fresh();
	ep_ctl("del of what is not there", ep, EPOLL_CTL_DEL, sock_fd, 0, 0);
	ep_ctl("mod of what is not there", ep, EPOLL_CTL_MOD, sock_fd, 0, 0);
	ep_ctl("no epoll", host_fd, EPOLL_CTL_ADD, sock_fd, EPOLLIN, 0);
	ep_ctl("add", ep, EPOLL_CTL_ADD, host_fd, EPOLLIN, 0);
	ep_ctl("add", ep, EPOLL_CTL_ADD, sock_fd, EPOLLIN, 1);
	ep_ctl("again", ep, EPOLL_CTL_ADD, sock_fd, EPOLLIN, 1);
	ep_ctl("outer", outer, EPOLL_CTL_ADD, ep, EPOLLIN, 2);
	for (side = 0; side < SIDES; side++) {
		printf("%s\n", names[side]);
		ep_wait("nothing", ep, 20);
		ep_wait("nothing, outer", outer, 20);
		feed(side);
		ep_wait("before", ep, -1);
		ep_wait("level", ep, -1);
		d = epoll_wait(outer, &(struct epoll_event){ 0 }, 1, -1);
		printf("outer: %d\n", d);
		eat(side);
		t = feed_later(side);
		ep_wait("later", ep, LIMIT_MS);
		pthread_join(t, NULL);
		eat(side);
		t = feed_later(side);
		d = epoll_wait(outer, &(struct epoll_event){ 0 }, 1, LIMIT_MS);
		printf("outer, later: %d\n", d);
		pthread_join(t, NULL);
		eat(side);
	}
	ep_ctl("edge", ep, EPOLL_CTL_MOD, host_fd, EPOLLIN | EPOLLET, 0);
	ep_ctl("edge", ep, EPOLL_CTL_MOD, sock_fd, EPOLLIN | EPOLLET, 1);
	for (side = 0; side < SIDES; side++) {
		feed(side);
		ep_wait("edge", ep, LIMIT_MS);
		ep_wait("no edge", ep, 20);
		eat(side);
	}
	ep_ctl("one-shot", ep, EPOLL_CTL_MOD, host_fd, EPOLLIN | EPOLLONESHOT, 0);
	ep_ctl("one-shot", ep, EPOLL_CTL_MOD, sock_fd, EPOLLIN | EPOLLONESHOT, 1);
	feed(0);
	feed(1);
	msleep(20);
	ep_wait("both", ep, LIMIT_MS);
	ep_wait("no more", ep, 20);
	eat(0);
	eat(1);
	ep_ctl("both", ep, EPOLL_CTL_MOD, sock_fd, EPOLLIN | EPOLLOUT, 1);
	ep_wait("writable", ep, LIMIT_MS);
	d = dup(ep);
	close(ep);
	ep_wait("by a duplicate", d, LIMIT_MS);
	ep_ctl("del", d, EPOLL_CTL_DEL, sock_fd, 0, 0);
	ep_wait("gone", d, 20);
	ep_ctl("add", d, EPOLL_CTL_ADD, sock_fd, EPOLLIN | EPOLLOUT, 1);
	close(sock_fd);
	ep_wait("closed", d, 20);
	close(d);
	close(outer);
	close(host_fd);
	close(peer_fd);
}

static volatile int caught;
static sigjmp_buf jump;

static void on_usr1(int sig)
{
	(void)sig;
	caught++;
}

/** on_usr2 - signal handler that calls longjmp() */
static void on_usr2(int sig)
{
	(void)sig;
	siglongjmp(jump, 1);
}

/** on_send - signal handler that uses a socket */
static void on_send(int sig)
{
	(void)sig;
	caught++;
	if (write(peer_fd, "h", 1) != 1)
		say("write in a handler", -1);
}

static void handle(int sig, void (*fn)(int), int flags)
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = flags };

	sigaction(sig, &sa, NULL);
}

/**
 * struct shots - a thread that sends signals to another until told to stop
 */
struct shots {
	pthread_t to;
	int sig;
	volatile int stop;
};

static void *shoot(void *arg)
{
	struct shots *s = arg;

	while (!s->stop) {
		pthread_kill(s->to, s->sig);
		msleep(1);
	}
	return NULL;
}

/** handlers - signals while a thread is in a call of the stack */
static void handlers(void)
{
	struct shots s = { .to = pthread_self(), .sig = SIGUSR1 };
	struct pollfd p[2];
	sigset_t set, old;
	char buf[4096];
	pthread_t t;
	struct timespec ts = { 0, 300000000 };
	long i, n, got = 0;
	static volatile int jumps;

	printf("# signals\n");
	fresh();
	handle(SIGUSR1, on_usr1, 0);
	pthread_create(&t, NULL, shoot, &s);
	say("recv", recv(sock_fd, buf, 1, 0));
	p[0] = (struct pollfd){ .fd = host_fd, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = sock_fd, .events = POLLIN };
	say("poll", poll(p, 2, LIMIT_MS));
	s.stop = 1;
	pthread_join(t, NULL);

	/* Restarted calls: every byte arrives although a signal comes every millisecond. */
	handle(SIGUSR1, on_usr1, SA_RESTART);
	s.stop = 0;
	pthread_create(&t, NULL, shoot, &s);
	for (i = 0; i < 2000; i++) {
		n = send(peer_fd, buf, sizeof(buf), 0);
		if (n != (long)sizeof(buf))
			say("send", n);
		for (got = 0; got < (long)sizeof(buf); got += n) {
			n = recv(sock_fd, buf, sizeof(buf), 0);
			if (n <= 0) {
				say("recv", n);
				break;
			}
		}
	}
	s.stop = 1;
	pthread_join(t, NULL);
	printf("after a storm: %ld, handlers ran: %d\n", got, caught > 1);

	/* The handler itself makes calls in the stack. */
	handle(SIGUSR1, on_send, SA_RESTART);
	caught = 0;
	s.stop = 0;
	pthread_create(&t, NULL, shoot, &s);
	for (i = 0; i < 100; i++)
		if (recv(sock_fd, buf, 1, 0) != 1)
			say("recv", -1);
	s.stop = 1;
	pthread_join(t, NULL);
	printf("calls from handlers: %d\n", caught >= 100);

	handle(SIGUSR2, on_usr2, 0);
	s.sig = SIGUSR2;
	s.stop = 0;
	while (recv(sock_fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	pthread_create(&t, NULL, shoot, &s);
	sigsetjmp(jump, 1);
	if (jumps++ < 50) {
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		recv(sock_fd, buf, 1, 0);
	}
	s.stop = 1;
	pthread_join(t, NULL);
	printf("jumps: %d\n", jumps > 50);
	handle(SIGUSR2, SIG_IGN, 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);

	/* A signal mask for the duration of the wait. */
	caught = 0;
	handle(SIGUSR1, on_usr1, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	pthread_kill(pthread_self(), SIGUSR1);
	say("ppoll, blocked", ppoll(p, 2, &(struct timespec){ 0, 20000000 }, &set));
	printf("handlers: %d\n", caught);
	say("ppoll, let in", ppoll(p, 2, &ts, &old));
	printf("handlers: %d\n", caught);
	pthread_kill(pthread_self(), SIGUSR1);
	say("ppoll, let in, the stack's alone", ppoll(p + 1, 1, &ts, &old));
	printf("handlers: %d\n", caught);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	done();
}

/** brief - thread that makes and closes one socket */
static void *brief(void *arg)
{
	(void)arg;
	close(socket(AF_INET, SOCK_DGRAM, 0));
	return NULL;
}

/** under_fire - threads get signals while they make their first call */
static void under_fire(void)
{
	pthread_t t[2];
	int i, j;

	handle(SIGUSR1, on_usr1, 0);
	for (i = 0; i < 300; i++) {
		for (j = 0; j < 2; j++)
			pthread_create(&t[j], NULL, brief, NULL);
		for (j = 0; j < 20; j++)
			pthread_kill(t[j % 2], SIGUSR1);
		for (j = 0; j < 2; j++)
			pthread_join(t[j], NULL);
	}
	printf("threads under fire: %d\n", i);
}

static sigjmp_buf fault;

static void on_segv(int sig, siginfo_t *si, void *ctx)
{
	(void)sig;
	(void)ctx;
	siglongjmp(fault, si->si_addr == nowhere ? 1 : 2);
}

/** faults - a program's own SIGSEGV, and bad pointers */
static void faults(void)
{
	struct sigaction sa = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO }, old;
	int ret;

	printf("# faults\n");
	fresh();
	sigaction(SIGSEGV, &sa, &old);
	printf("default before: %d\n", old.sa_handler == SIG_DFL);
	ret = sigsetjmp(fault, 1);
	if (!ret)
		*(volatile int *)nowhere = 1;
	printf("handled: %d\n", ret);
	say("send, bad pointer", send(peer_fd, nowhere, 100, 0));
	feed(1);
	say("recv, bad pointer", recv(sock_fd, nowhere, 100, 0));
	/* Not musl's recvmsg(), which would read the pointer itself. */
	say("recvmsg, bad pointer", (int)syscall(SYS_recvmsg, sock_fd, nowhere, 0));
	say("connect, bad pointer", connect(sock_fd, nowhere, 16));
	sigaction(SIGSEGV, NULL, &old);
	printf("still ours: %d\n", old.sa_sigaction == on_segv);
	sa.sa_handler = SIG_DFL;
	sigaction(SIGSEGV, &sa, NULL);
	done();
}

static volatile long pings;

/** ping - thread with a small stack that makes round trips on its own pair of sockets */
static void *ping(void *arg)
{
	int sv[2], i, *in = arg;
	struct pollfd p[2];
	char c;

	tcp_pair(AF_INET, sv);
	for (i = 0; i < 200; i++) {
		if (write(sv[0], "a", 1) != 1 || read(sv[1], &c, 1) != 1)
			break;
		p[0] = (struct pollfd){ .fd = *in, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = sv[0], .events = POLLIN };
		if (write(sv[1], "b", 1) != 1 || poll(p, 2, LIMIT_MS) != 1 || read(sv[0], &c, 1) != 1)
			break;
	}
	close(sv[0]);
	close(sv[1]);
	__atomic_fetch_add(&pings, i, __ATOMIC_SEQ_CST);
	return NULL;
}

/** blocked - thread that blocks in a call until it is cancelled */
static void *blocked(void *arg)
{
	char c;

	recv(*(int *)arg, &c, 1, 0);
	return NULL;
}

static void *blocked_on_host(void *arg)
{
	char c;

	if (read(*(int *)arg, &c, 1) < 0)
		return NULL;
	return arg;
}

static void threads(void)
{
	int ev = eventfd(0, 0), i, sv[2], host[2];
	pthread_attr_t attr;
	pthread_t t[16];
	void *ret;

	printf("# threads\n");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN);
	for (i = 0; i < 16; i++)
		pthread_create(&t[i], &attr, ping, &ev);
	for (i = 0; i < 16; i++)
		pthread_join(t[i], NULL);
	printf("round trips: %ld\n", pings);
	close(ev);
	tcp_pair(AF_INET, sv);
	if (pipe(host))
		say("pipe", -1);
	for (i = 0; i < 6; i++) {
		pthread_create(&t[0], NULL, i < 3 ? blocked : blocked_on_host, i < 3 ? &sv[0] : &host[0]);
		msleep(20);
		pthread_cancel(t[0]);
		pthread_join(t[0], &ret);
		printf("cancelled: %d\n", ret == PTHREAD_CANCELED);
	}
	close(host[0]);
	close(host[1]);
	say("write", write(sv[1], "x", 1));
	blocked(&sv[0]);
	close(sv[0]);
	close(sv[1]);
}

/** stdio - use a stdio stream on a socket, and close it by fclose() */
static void stdio(void)
{
	int sv[2], n;
	char line[64] = "";
	FILE *f, *g;

	printf("# stdio\n");
	tcp_pair(AF_INET, sv);
	f = fdopen(sv[0], "w");
	g = fdopen(sv[1], "r");
	fprintf(f, "a line of %d words\n", 5);
	fflush(f);
	printf("%s", fgets(line, sizeof(line), g));
	fclose(f);
	n = fgetc(g);
	printf("end: %d %d\n", n == EOF, feof(g) != 0);
	fclose(g);
}

/** ranges - close_range and dup2 over descriptors of both kernels */
static void ranges(void)
{
	int d, e;

	printf("# ranges\n");
	fresh();
	d = dup(sock_fd);
	say("dup2, socket over host", dup2(sock_fd, host_fd) - host_fd);
	say("write", write(peer_fd, "ab", 2));
	say("read by the copy", read(host_fd, &e, 1));
	say("read by the other", read(d, &e, 1));
	e = eventfd(0, 0);
	say("dup2, host over socket", dup2(e, d) - d);
	say("not a socket", getsockopt(d, SOL_SOCKET, SO_TYPE, &e, &(socklen_t){ 4 }));
	say("fcntl", fcntl(sock_fd, F_DUPFD, 100) - 100);
	say("close_range", close_range(50, 5000, 0));
	say("closed", getsockopt(100, SOL_SOCKET, SO_TYPE, &e, &(socklen_t){ 4 }));
	close(sock_fd);
	close(host_fd);
	say("end", read(peer_fd, &e, 1));
	close(peer_fd);
	close(d);
}

/** main - run all tests in order */
int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	polls();
	epolls();
	handlers();
	under_fire();
	faults();
	threads();
	stdio();
	ranges();
	return 0;
}
