// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lanes of lklhost (include/lane.h), as a target with a client of its own. It is
 * static: LD_PRELOAD is nothing to it.
 *
 *	lanes		all tests
 *	lanes none	where there shall be no lanes
 *	lanes on FD IN LEFT	what follows an exec
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

/** streams - bytes both ways at once, with lanes as asked for */
static void streams(const char *name, bool lane_a, bool lane_b, uint32_t want)
{
	struct end a, b, a_in, b_in;
	struct job j[4];
	pthread_t t[4];
	bool good = true;
	int i;

	pair(&a, &b);
	if ((lane_a && !lane_open(&a)) || (lane_b && !lane_open(&b)))
		return;
	a_in = a;
	b_in = b;
	a_in.want = b_in.want = want;
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
	if (lane_a) {
		ok(a.by_lane > MUCH / 4, "%s: %llu of %u bytes sent by the lane",
		   name, (unsigned long long)a.by_lane, MUCH);
		printf("# %s: %llu received by it\n", name,
		       (unsigned long long)(a_in.by_lane + b_in.by_lane));
	}
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

/** untaken - a batch that its reader does not know of */
static void untaken(void)
{
	struct end a, b;

	pair(&a, &b);
	if (!lane_open(&b))
		return;
	if (!batch(&a, &b, 200000))
		return;
	lane_close(&b);
	ok(receive_all(&b, 200000), "a batch goes by the carrier when nobody takes it");
	shut(&a, &b);
}

/** asked_back - LANE_BACK, and calls that lklhost answers itself */
static void asked_back(bool call)
{
	struct iovec iov = { big, 100000 };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct end a, b;
	long n;

	pair(&a, &b);
	if (!lane_open(&b))
		return;
	if (!batch(&a, &b, 100000))
		return;
	if (call)
		n = recvmsg(b.fd, &mh, 0);
	else if (syscall(SYS_ioctl, b.fd, LANE_CALL(LANE_BACK), 0))
		n = -1;
	else
		n = recv(b.fd, big, sizeof(big), 0);
	ok(n > 20000, "%s has more than the bell: %ld", call ? "recvmsg" : "LANE_BACK: recv", n);
	ok(n > 0 && check(b.in, big, (size_t)n), "which is right");
	b.in += (uint64_t)n;
	ok(receive_all(&b, a.out - b.in), "and so is the rest");
	shut(&a, &b);
}

/** ended - the end of the stream behind a batch */
static void ended(bool reset)
{
	struct linger l = { 1, 0 };
	struct end a, b;
	long n;

	pair(&a, &b);
	if (!lane_open(&b))
		return;
	if (!batch(&a, &b, 150000))
		return;
	if (reset)
		setsockopt(a.fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(a.fd);
	poll(NULL, 0, 5);
	ok(receive_all(&b, reset ? LOAD(b.l->rx_len) + 1 : 150000), "a batch is whole, though the peer has %s",
	   reset ? "reset" : "closed");
	do
		n = get(&b, big, sizeof(big));
	while (reset && n > 0);
	ok(reset ? n < 0 && errno == ECONNRESET : n == 0, "then %s",
	   n < 0 ? strerrorname_np(errno) : "the end");
	lane_close(&b);
	close(b.fd);
}

/** closed - with a batch that nobody took: unread data, for the peer a reset */
static void closed(void)
{
	struct end a, b;
	char c;

	pair(&a, &b);
	if (!lane_open(&b))
		return;
	if (!batch(&a, &b, 150000) || read(b.fd, &c, 1) != 1)
		return;
	lane_close(&b);
	close(b.fd);
	ok(get(&a, big, 1) < 0 && errno == ECONNRESET, "closing with a batch not taken resets");
	close(a.fd);
}

/** hostile - the page says what cannot be */
static void hostile(const char *name, void (*spoil)(struct end *e))
{
	struct end a, b, c, d;
	int i;

	pair(&a, &b);
	if (!lane_open(&a))
		return;
	if (!batch(&b, &a, 150000))
		return;
	spoil(&a);
	syscall(SYS_ioctl, a.fd, LANE_CALL(LANE_BACK), 0);
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

static void spoil_head(struct end *e)
{
	STORE(e->l->tx_head, e->l->tx_tail + LANE_TX_SIZE + 1);
}

static void spoil_bell(struct end *e)
{
	STORE(e->l->tx_bell, (uint64_t)e->l->tx_head + 1);
}

static void spoil_state(struct end *e)
{
	STORE(e->l->rx_state, 77);
}

static void spoil_off(struct end *e)
{
	STORE(e->l->rx_off, e->l->rx_len + 1);
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
			syscall(SYS_ioctl, a.fd, LANE_CALL(k % 2 ? LANE_KICK : LANE_BACK), 0);
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
	char fd[16], in[16], left[16], ready;
	struct end a, b;
	int status = -1;
	pid_t pid;

	pair(&a, &b);
	if (!lane_open(&b))
		return;
	if (!batch(&a, &b, 150000) || read(b.fd, &ready, 1) != 1)
		return;
	b.in += 1 + ring_take(&b, big, 1000);
	snprintf(fd, sizeof(fd), "%d", b.fd);
	snprintf(in, sizeof(in), "%d", (int)b.in);
	snprintf(left, sizeof(left), "%d", (int)(a.out - b.in));
	b.l->rx_enter = 4711;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		execl(self, self, "on", fd, in, left, NULL);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	ok(status == 0, "a program behind an exec goes on with the same lane");
	shut(&a, &b);
}

/** on - what follows the exec */
static int on(int fd, int in, int left)
{
	struct end b = { .fd = fd, .in = (uint64_t)in };

	return !(lane_open(&b) && b.l->rx_enter == 4711 &&
		 receive_all(&b, (size_t)left));
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

/** low_water - SO_RCVLOWAT: no bell that would not wake the reader */
static void low_water(void)
{
	struct end a, b;
	int n = 50000;

	pair(&a, &b);
	if (!lane_open(&b))
		return;
	STORE(b.l->rx_want, LANE_RX_SIZE);
	setsockopt(b.fd, SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n));
	fill(0, big, 100000);
	ok(write(a.fd, big, 100000) == 100000 && recv(b.fd, big, 60000, 0) >= n,
	   "SO_RCVLOWAT is heeded");
	shut(&a, &b);
}

/** main - see the top */
int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 5)
		return on(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	if (argc == 2) {
		refused(-ENOTTY);
		return tap_end();
	}
	refused(0);
	bells();
	streams("a lane that sends", true, false, 0);
	streams("a lane", true, false, LANE_RX_SIZE + 1);
	streams("two lanes", true, true, LANE_RX_SIZE + 1);
	streams("two lanes, small batches", true, true, LANE_MIN);
	full();
	killed(true);
	killed(false);
	untaken();
	asked_back(false);
	asked_back(true);
	ended(false);
	ended(true);
	closed();
	low_water();
	hostile("tx_head", spoil_head);
	hostile("tx_bell", spoil_bell);
	hostile("rx_state", spoil_state);
	hostile("rx_off", spoil_off);
	disorder();
	execed(argv[0]);
	many();
	return tap_end();
}
