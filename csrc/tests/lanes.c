// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes of lklhost (include/lane.h), as a target with a client of its own. It is
 * static: LD_PRELOAD is nothing to it.
 *
 *	lanes		all tests
 *	lanes none	where there shall be no lanes
 *	lanes on FD OUT	what follows an exec
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lanes.h"

#define STORE(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define LOAD(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define MUCH (24u << 20)
#define LANES_MAX 256

static char big[1 << 20];

/** struct job - for a thread */
struct job {
	struct end *e;
	size_t n;
	bool good;
};

static void *sender(void *arg)
{
	struct job *j = arg;

	j->good = send_all(j->e, j->n);
	return NULL;
}

static void *receiver(void *arg)
{
	struct job *j = arg;

	j->good = receive_all(j->e, j->n);
	return NULL;
}

/** streams - bytes both ways at once, by one lane or two */
static void streams(const char *name, bool both)
{
	struct end a, b, a_in, b_in;
	struct job j[4];
	pthread_t t[4];
	bool good = true;
	int i;

	pair(&a, &b);
	if (!lane_open(&a) || (both && !lane_open(&b)))
		return;
	a_in = a;
	b_in = b;
	j[0] = (struct job){ &a, MUCH, false };
	j[1] = (struct job){ &b_in, MUCH, false };
	j[2] = (struct job){ &b, MUCH, false };
	j[3] = (struct job){ &a_in, MUCH, false };
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i % 2 ? receiver : sender, &j[i]);
	for (i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		good &= j[i].good;
	}
	ok(good, "%s: every byte in its place, both ways", name);
	ok(a.by_lane > MUCH / 4, "%s: %llu of %u bytes sent by it", name,
	   (unsigned long long)a.by_lane, MUCH);
	shut(&a, &b);
}

/** bells - what is written in between, one after the other */
static void bells(void)
{
	struct end a, b;
	bool good = true;
	int i;

	pair(&a, &b);
	if (!lane_open(&a))
		return;
	for (i = 0; i < 2000 && good; i++) {
		size_t n = rnd() % 40000 + 2, done = 0, w;

		fill(a.out, big, n + 5);
		while (done < n) {
			done += ring_put(&a, big + done, n - done);
			if (done < n && write(a.fd, big + done, 1) == 1)
				done++;
		}
		w = (size_t)write(a.fd, big + n, i % 6);
		a.out += n + w;
		if (i % 3 == 0)
			good = receive_all(&b, a.out - b.in);
		if (i % 7 == 0)
			usleep(rnd() % 300);	/* so that it rests now and then */
	}
	good = good && receive_all(&b, a.out - b.in);
	ok(good, "large and small writes in turns: in order");
	shut(&a, &b);
}

/** full - nobody reads: the ring fills, then the carrier; nothing is lost */
static void full(void)
{
	struct end a, b;
	struct pollfd p;
	ssize_t w;
	int i;

	pair(&a, &b);
	if (!lane_open(&a))
		return;
	for (i = 0; i < 1000; i++) {
		size_t n;

		fill(a.out, big, 200000);
		n = ring_put(&a, big, 200000);
		a.out += n;
		if (!n) {
			w = send(a.fd, big, 200000, MSG_DONTWAIT);
			if (w < 0) {
				p = (struct pollfd){ a.fd, POLLOUT, 0 };
				if (!poll(&p, 1, 200))
					break;
			}
			a.out += w > 0 ? (uint64_t)w : 0;
		}
	}
	ok(i < 1000 && a.out > LANE_TX_SIZE, "a writer without a reader is stopped, after %llu bytes",
	   (unsigned long long)a.out);
	ok(a.l->tx_head != LOAD(a.l->tx_tail), "the ring holds some of it");
	ok(receive_all(&b, a.out), "and all of it arrives");
	close(a.fd);
	ok(get(&b, big, 1) == 0, "then the end");
	shut(&b, &a);
}

/** killed - a writer dies in the middle: what it published arrives */
static void killed(bool alone)
{
	struct end a, b;
	pid_t pid;
	int i;

	pair(&a, &b);
	fill(0, big, 100010);
	if (!lane_open(&a))
		return;
	pid = fork();
	if (!pid) {
		close(b.fd);
		for (i = 0; i < LIMIT_MS && !LOAD(a.l->tx_idle); i++)
			usleep(1000);
		ring_lock(a.l);
		ring_publish(a.l, big, 100000);
		STORE(a.l->tx_idle, 0);
		STORE(a.l->tx_bell, (uint64_t)a.l->tx_head);
		kill(getpid(), SIGKILL);
	}
	if (alone)
		close(a.fd);
	waitpid(pid, NULL, 0);
	if (alone) {
		ok(receive_all(&b, 100000), "a writer killed before its bell: what it published arrives");
		ok(get(&b, big, 1) == 0, "and then the end");
		lane_close(&a);
	} else {
		ok(!ring_put(&a, big, 10), "the ring of a killed writer is nobody's");
		ok(write(a.fd, big + 100000, 10) == 10 && receive_all(&b, 100010),
		   "who writes to the carrier comes behind what was in it");
	}
	close(alone ? b.fd : a.fd);
	if (!alone)
		shut(&b, &a);
}

/** hostile - the page says what cannot be */
static void hostile(const char *name, void (*spoil)(struct end *e, struct end *peer))
{
	struct end a, b, c, d;
	int i;

	pair(&a, &b);
	if (!lane_open(&a))
		return;
	spoil(&a, &b);
	syscall(SYS_ioctl, a.fd, LANE_CALL(LANE_KICK), 0);
	for (i = 0; i < LIMIT_MS && send(b.fd, "x", 1, MSG_NOSIGNAL) == 1; i++)
		poll(NULL, 0, 1);
	ok(i < LIMIT_MS, "%s: the connection is reset", name);
	ok(LOAD(a.l->gone), "its lane is gone");
	shut(&a, &b);
	pair(&c, &d);
	ok(lane_open(&c) && send_all(&c, 100000) && receive_all(&d, 100000),
	   "others are not concerned");
	shut(&c, &d);
}

/** stuff - fill the ring until the stack takes no more, since the peer reads nothing */
static void stuff(struct end *e)
{
	int i;

	/* No bell of before is held: we ask for a look instead. */
	for (i = 0; i < 100; i++) {
		while (LANE_TX_SIZE - (e->l->tx_head - LOAD(e->l->tx_tail)) >= 60000) {
			fill(e->out, big, 50000);
			ring_publish(e->l, big, 50000);
			e->out += 50000;
			syscall(SYS_ioctl, e->fd, LANE_CALL(LANE_KICK), 0);
			i = 0;
		}
		poll(NULL, 0, 1);
	}
}

/** ring_bell - behind what is in the ring */
static void ring_bell(struct end *e)
{
	char byte;

	fill(e->out++, &byte, 1);
	STORE(e->l->tx_bell, (uint64_t)e->l->tx_head);
	send(e->fd, &byte, 1, MSG_NOSIGNAL);
}

/** bell_read - whether lklhost reads it */
static bool bell_read(struct end *e)
{
	int i;

	for (i = 0; i < LIMIT_MS && outq(e->fd); i++)
		poll(NULL, 0, 1);
	return i < LIMIT_MS;
}

/** two_bells - the second is rung while the stack takes nothing, the first not either */
static void two_bells(void)
{
	struct end a, b;

	pair(&a, &b);
	if (!lane_open(&a))
		return;
	stuff(&a);
	ring_bell(&a);
	ok(bell_read(&a), "a bell is read while the stack takes nothing");
	fill(a.out, big, 1000);
	ring_publish(a.l, big, 1000);
	a.out += 1000;
	ring_bell(&a);
	fill(a.out, big, 1000);
	ring_publish(a.l, big, 1000);
	a.out += 1000;
	ok(receive_all(&b, a.out), "a second one comes behind it, and before what follows");
	shut(&a, &b);
}

static void spoil_head(struct end *e, struct end *peer)
{
	(void)peer;
	STORE(e->l->tx_head, e->l->tx_tail + LANE_TX_SIZE + 1);
}

static void spoil_bell(struct end *e, struct end *peer)
{
	(void)peer;
	STORE(e->l->tx_bell, (uint64_t)e->l->tx_head + 1);
}

/** spoil_back - what was before a bell is taken back, which then has no place */
static void spoil_back(struct end *e, struct end *peer)
{
	int i;

	stuff(e);
	ring_bell(e);
	ok(bell_read(e), "the bell is read while the stack takes nothing");
	STORE(e->l->tx_head, LOAD(e->l->tx_tail));
	for (i = 0; i < LIMIT_MS && !LOAD(e->l->gone); i++) {
		while (recv(peer->fd, big, sizeof(big), MSG_DONTWAIT) > 0)
			;
		poll(NULL, 0, 1);
	}
}

static bool stop;

/** scribbler - a thread that writes anything anywhere */
static void *scribbler(void *arg)
{
	struct lane *l = arg;

	while (!LOAD(stop)) {
		uint32_t *p = (uint32_t *)l + rnd() % (sizeof(*l) / 4);

		STORE(*p, rnd() % 4 ? rnd() % 3 : rnd() % 2 ? rnd() : l->tx_tail + rnd() % 1000);
	}
	return NULL;
}

/** disorder - traffic while the page is spoilt all the time, again and again */
static void disorder(void)
{
	struct end a, b;
	int i, k;

	for (i = 0; i < 50; i++) {
		pthread_t t;

		pair(&a, &b);
		if (!lane_open(&a))
			return;
		STORE(stop, false);
		pthread_create(&t, NULL, scribbler, a.l);
		for (k = 0; k < 20; k++) {
			send(a.fd, big, 50000, MSG_DONTWAIT | MSG_NOSIGNAL);
			send(b.fd, big, 50000, MSG_DONTWAIT | MSG_NOSIGNAL);
			syscall(SYS_ioctl, a.fd, LANE_CALL(LANE_KICK), 0);
			recv(b.fd, big, sizeof(big), MSG_DONTWAIT);
			recv(a.fd, big, sizeof(big), MSG_DONTWAIT);
		}
		STORE(stop, true);
		pthread_join(t, NULL);
		shut(&a, &b);
	}
	ok(true, "pages in disorder");
}

/** execed - the program behind an exec finds the same lane */
static void execed(char *self)
{
	char fd[16], out[16];
	struct end a, b;
	int status = -1;
	pid_t pid;

	pair(&a, &b);
	if (!lane_open(&a) || !send_all(&a, 100000))
		return;
	snprintf(fd, sizeof(fd), "%d", a.fd);
	snprintf(out, sizeof(out), "%d", (int)a.out);
	memcpy((char *)a.l + LANE_TX_AT - 4, "same", 4);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		execl(self, self, "on", fd, out, NULL);
		_exit(1);
	}
	ok(receive_all(&b, 200000), "what is sent on both sides of an exec arrives");
	waitpid(pid, &status, 0);
	ok(status == 0, "by the same lane");
	shut(&a, &b);
}

/** on - what follows the exec */
static int on(int fd, int out)
{
	struct end a = { .fd = fd, .out = (uint64_t)out };

	return !(lane_open(&a) && !memcmp((char *)a.l + LANE_TX_AT - 4, "same", 4) &&
		 send_all(&a, 100000));
}

/** many - 256 lanes, and one more */
static void many(void)
{
	static struct end a[LANES_MAX + 1], b[LANES_MAX + 1];
	int i, k, fd = 0, n = 0;

	for (i = 0; i <= LANES_MAX; i++) {
		pair(&a[i], &b[i]);
		/* The lane of a test before may not be gone yet. */
		for (k = 0; k < LIMIT_MS; k++) {
			fd = attach(a[i].fd);
			if (fd != -ENOSPC || i == LANES_MAX)
				break;
			poll(NULL, 0, 1);
		}
		if (fd >= 0) {
			n++;
			close(fd);
		}
	}
	ok(n == LANES_MAX && fd == -ENOSPC, "%d lanes, then %s", n, strerrorname_np(-fd));
	shut(&a[0], &b[0]);
	for (i = 0; i < LIMIT_MS && attach(a[LANES_MAX].fd) < 0; i++)
		poll(NULL, 0, 1);
	ok(i < LIMIT_MS, "one that is closed makes room");
	for (i = 1; i <= LANES_MAX; i++)
		shut(&a[i], &b[i]);
}

/** refused - what has no lane */
static void refused(int want)
{
	int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
	int sv[2], ret;
	struct end a, b;

	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	if (want) {
		pair(&a, &b);
		ret = attach(a.fd);
		ok(ret == want, "without --lane: %s", strerrorname_np(-ret));
		shut(&a, &b);
	} else {
		ret = attach(udp);
		ok(ret == -EOPNOTSUPP, "UDP: %s", strerrorname_np(-ret));
		ret = attach(tcp);
		ok(ret == -EAGAIN, "not connected: %s", strerrorname_np(-ret));
		listen(tcp, 1);
		ret = attach(tcp);
		ok(ret == -EOPNOTSUPP, "listening: %s", strerrorname_np(-ret));
		ret = attach(sv[0]);
		ok(ret == -ENOTTY, "no carrier: %s", strerrorname_np(-ret));
	}
	close(tcp);
	close(udp);
	close(sv[0]);
	close(sv[1]);
}

/** main - see the top */
int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 4)
		return on(atoi(argv[2]), atoi(argv[3]));
	if (argc == 2) {
		refused(-ENOTTY);
		return tap_end();
	}
	refused(0);
	bells();
	streams("a lane", false);
	streams("two lanes", true);
	full();
	two_bells();
	killed(true);
	killed(false);
	hostile("tx_head", spoil_head);
	hostile("tx_bell", spoil_bell);
	hostile("tx_head behind a bell", spoil_back);
	disorder();
	execed(argv[0]);
	many();
	return tap_end();
}
