// SPDX-License-Identifier: GPL-2.0-only
/*
 * The thread that writes to taps for a saturated loop: its frames arrive
 * complete and in order, lent memory comes back, and the thread ends.
 */
#include "onloop.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/*
 * Finds the thread by its name, 0 if there is none; an emulator has threads of
 * its own
 */
static int writer_tid(void)
{
	DIR *d = opendir("/proc/self/task");
	char path[300], name[16];
	struct dirent *e;
	int tid = 0;
	FILE *f;

	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(name, sizeof(name), f) && !strcmp(name, "lkl-writer\n"))
			tid = atoi(e->d_name);
		fclose(f);
	}
	closedir(d);
	return tid;
}

/*
 * Its CPU time in ns; clock_getcpuclockid(3) makes such a clock for a process
 */
static uint64_t writer_ns(void)
{
	int tid = writer_tid();
	struct timespec ts;

	if (!tid || clock_gettime((clockid_t)((~(unsigned int)tid << 3) | 6), &ts))
		return 0;
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/*
 * Sends datagrams until the thread is busy; 0: it never is, -1: one cannot be
 * sent
 */
static int busy_writer(long s, unsigned int *seq)
{
	uint64_t begin = now_ns(), was;
	int i;

	do {
		was = writer_ns();
		for (i = 0; i < 50; i++)
			if (!datagram_send(s, (*seq)++, ALL))
				return -1;
		turn(0);
		if (was && writer_ns() - was > MS / 100)
			return 1;
	} while (now_ns() - begin < slow(8e9));
	return 0;
}

/*
 * Sends 200 MB, and more until frames have gone all ways: by the thread, and as
 * a trial by the loop. Both show in the thread's CPU time, in parts of 10 ms.
 * On an emulated CPU the parts are longer, because 10 ms have at most one frame
 * and no trial ends them.
 */
static int stream_all(int trials)
{
	uint64_t t = now_ns(), at = 0, then = 0, ns, slept;
	uint64_t length = trials ? 10 * MS : (uint64_t)slow(10 * MS);
	int by_thread = 0, by_loop = 0, tries;
	long s = stream_open();

	if (s < 0)
		return 1;
	while (at < 200 << 20 ||
	       ((!by_thread || (trials && !by_loop)) && now_ns() - t < slow(6e9))) {
		uint64_t part = now_ns();

		while (now_ns() - part < length)
			if (stream_send(s, &at, 65536))
				return 2;
		ns = writer_ns();
		if (ns - then > MS)
			by_thread++;
		else if (ns - then < MS / 100)
			by_loop++;
		then = ns;
	}
	printf("# %llu MB; %llu ms by the thread %d times, by the loop %d times\n",
	       (unsigned long long)at >> 20, (unsigned long long)(length / MS),
	       by_thread, by_loop);
	if (stream_close(s, at))
		return 3;
	if (!by_thread || (trials ? !by_loop : by_loop > by_thread))
		return 4;
	/* Now it has nothing to do. */
	for (tries = 0, slept = 0; tries < 10 && !slept; tries++) {
		ns = writer_ns();
		turns(100);
		slept = writer_ns() - ns < MS;
	}
	return slept ? 0 : 5;
}

static int large_stream(void)
{
	return stream_all(0);
}

static int stream(void)
{
	return stream_all(1);
}

/*
 * How many of ten parts of 100 ms have the thread writing; negative: no stream
 */
static int parts_by_thread(long s, uint64_t *at)
{
	int i, by_thread = 0;

	for (i = 0; i < 10; i++) {
		uint64_t part = now_ns(), was = writer_ns();

		while (now_ns() - part < 100 * MS)
			if (stream_send(s, at, 65536))
				return -1;
		by_thread += writer_ns() - was > MS / 10;
	}
	return by_thread;
}

/*
 * In a rush the thread writes all frames from the first on; before and after,
 * none.
 */
static int rush(void)
{
	uint64_t at = 0;
	long s = stream_open();
	int before, then, after;

	if (s < 0)
		return 1;
	lkl_loop_load(LKL_LOAD_EASY);
	before = parts_by_thread(s, &at);
	lkl_loop_load(LKL_LOAD_RUSH);
	then = parts_by_thread(s, &at);
	lkl_loop_load(LKL_LOAD_EASY);
	after = parts_by_thread(s, &at);
	printf("# %llu MB; parts by the thread: %d, %d, %d\n",
	       (unsigned long long)at >> 20, before, then, after);
	if (before || then != 10 || after > 1)
		return 2;
	return stream_close(s, at) ? 3 : 0;
}

/* Packets sent by the device: the tenth number of its line in /proc/net/dev */
static unsigned long long tx_packets(void)
{
	unsigned long long v[10] = { 0 };
	char buf[4096], *p;

	if (lread_file("/proc/net/dev", buf, sizeof(buf)) < 0)
		return 0;
	p = strstr(buf, "eth0:");
	if (p)
		sscanf(p + 5, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu", v, v + 1,
		       v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9);
	return v[9];
}

/* A packet socket that counts outgoing packets of all devices */
static long watch_open(void)
{
	struct sock_filter outgoing[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 1),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog f = { 4, outgoing };
	long s = L3(socket, AF_PACKET, SOCK_RAW, 0);
	struct sockaddr_ll sll = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };

	if (s < 0 || L5(setsockopt, s, SOL_SOCKET, SO_ATTACH_FILTER, &f, sizeof(f)) ||
	    L3(bind, s, &sll, sizeof(sll)))
		return -1;
	return s;
}

/* 1: it has seen as many packets as the device has counted, @before before */
static int watch_agrees(long s, unsigned long long before)
{
	struct tpacket_stats st = { 0 };
	unsigned int len = sizeof(st);
	unsigned long long now;

	L5(getsockopt, s, SOL_PACKET, PACKET_STATISTICS, &st, &len);
	L1(close, s);
	now = tx_packets();
	if (st.tp_packets != now - before)
		printf("# %u frames were seen, %llu were sent\n", st.tp_packets, now - before);
	return st.tp_packets == now - before;
}

/*
 * All arrive although nothing comes back, so none waits for an unrelated event.
 * The thread has more work than it can do, so its ring is often full.
 */
static int datagrams_all(enum kind kind, unsigned int in_flight)
{
	uint64_t t = now_ns();
	unsigned long long before;
	unsigned int seq = 0;
	pid_t pid;
	long s = datagrams_open(&pid, kind, SOCK_NONBLOCK), seen = watch_open();

	if (s < 0 || seen < 0)
		return 1;
	before = tx_packets();
	longest_wait = 0;
	while (now_ns() - t < 1500 * MS || seq < 5000) {
		if (!datagram_send(s, seq++, kind))
			return 2;
		if (seq % 8 == 0)
			turn(0);
		if (!arrived(seq, in_flight))
			return 3;
	}
	if (!arrived(seq, 0))
		return 4;
	printf("# %u in %llu ms, the longest wait was %llu ms\n", seq,
	       (unsigned long long)((now_ns() - t) / MS),
	       (unsigned long long)(longest_wait / MS));
	if (far_verdict(pid))
		return 5;
	if (longest_wait > slow(500e6))
		return 6;
	if (!watch_agrees(seen, before))
		return 9;
	return !writer_tid() ? 7 : given_back(s) ? 0 : 8;
}

static int datagrams(void)
{
	return datagrams_all(ALL, 300);
}

static int small_datagrams(void)
{
	return datagrams_all(COPIED, 2000);
}

/*
 * Calls that wait for memory lent to the thread: not for long, in one of 3
 * seconds
 */
static int blocking(void)
{
	unsigned int seq = 0, tries;
	unsigned long n, prompt = 0;
	int room = 8192;
	pid_t pid;
	long s = datagrams_open(&pid, LENT, 0);

	if (s < 0 || L5(setsockopt, s, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)))
		return 1;
	for (tries = 0; tries < 3 && !prompt; tries++) {
		uint64_t t = now_ns();

		n = lkl_loop_blocked();
		longest_wait = 0;
		while (now_ns() - t < slow(1e9))
			if (!datagram_send(s, seq++, LENT))
				return 2;
		n = lkl_loop_blocked() - n;
		printf("# %lu calls waited, the longest %llu ms\n", n,
		       (unsigned long long)(longest_wait / MS));
		if (longest_wait < slow(50e6))
			prompt = n;
		if (!arrived(seq, 0))
			return 3;
	}
	if (!prompt)
		return 4;
	return far_verdict(pid) ? 5 : given_back(s) ? 0 : 6;
}

/*
 * Sends what a stream and a datagram socket accept, until the carrier is as
 * wanted
 */
static int load_until(int on, long s, uint64_t *at, long u, unsigned int *seq)
{
	static unsigned char buf[LARGE_MAX];
	uint64_t begin = now_ns();
	int i, k;
	long n;

	do {
		for (i = 0; i < 20; i++) {
			make(buf, 8192, *at);
			n = L3(write, s, buf, 8192);
			*at += n > 0 ? n : 0;
			n = size_of(*seq, ALL);
			memcpy(buf, seq, 4);
			for (k = 4; k < n; k++)
				buf[k] = *seq + k;
			*seq += L3(write, u, buf, n) == n;
			turn(0);
		}
		if (carrier() == on)
			return 1;
	} while (now_ns() - begin < slow(5e9));
	return 0;
}

/* The tap is set down and up under load. */
static int down(void)
{
	pid_t pid;
	long s = stream_open(), u = datagrams_open(&pid, ALL, SOCK_NONBLOCK);
	unsigned int seq = 0, had;
	uint64_t at = 0;
	int i;

	if (s < 0 || u < 0 || stream_send(s, &at, 1 << 20))
		return 1;
	for (i = 0; i < 5; i++) {
		if (busy_writer(u, &seq) <= 0)
			return 9;
		sh("ip link set " DEV " down");
		if (!load_until(0, s, &at, u, &seq))
			return 2;
		sh("ip link set " DEV " up");
		if (!load_until(1, s, &at, u, &seq))
			return 3;
	}
	printf("# %u datagrams, %llu MB\n", seq, (unsigned long long)at >> 20);
	if (stream_send(s, &at, 20 << 20) || stream_close(s, at))
		return 4;
	if (!given_back(u))
		return 5;
	turns(50);
	had = far->got;
	for (i = 0; i < 1000; i++)
		if (!datagram_send(u, seq++, ALL) || !arrived(had + i + 1, 200))
			return 6;
	if (!arrived(had + i, 0) || !given_back(u))
		return 7;
	return far_verdict(pid) ? 8 : 0;
}

/* The device is removed under load, and returns all lent memory. */
static int removed(void)
{
	unsigned int seq = 0, had = 0;
	uint64_t t, longest = 0;
	pid_t pid;
	long s = datagrams_open(&pid, ALL, SOCK_NONBLOCK);
	int i, k;

	if (s < 0)
		return 1;
	for (i = 0; i < 20; i++) {
		if (busy_writer(s, &seq) <= 0)
			return 3;
		for (k = 0; k < 300 + 37 * i; k++)
			if (!datagram_send(s, seq++, ALL))
				return 2;
		t = now_ns();
		lkl_netdev_remove(dev_id);
		t = now_ns() - t;
		longest = t > longest ? t : longest;
		lkl_netdev_free(dev);
		if (!given_back(s))
			return 4;
		if (attach_dev(LKL_OFFLOAD_ALL))
			return 5;
		if (far->got == had)
			return 6;
		had = far->got;
	}
	printf("# the longest removal took %llu ms\n", (unsigned long long)(longest / MS));
	return far_verdict(pid) ? 7 : longest < slow(3e9) ? 0 : 8;
}

/* Halt under load: it ends, and frees the thread and its descriptors. */
static int halted(void)
{
	unsigned int seq = 0, i;
	uint64_t t, took;
	pid_t pid;
	long s = datagrams_open(&pid, ALL, SOCK_NONBLOCK);
	int fds, busy;

	if (s < 0)
		return 1;
	busy = busy_writer(s, &seq);
	if (busy <= 0)
		return busy ? 8 : 2;
	for (i = 0; i < 300; i++)
		if (!datagram_send(s, seq++, ALL))
			return 3;
	fds = entries("/proc/self/fd");
	t = now_ns();
	if (lkl_sys_halt())
		return 4;
	took = now_ns() - t;
	/* under an emulator a joined thread disappears a little later */
	while (writer_tid() && now_ns() - t < slow(1e9))
		;
	/* the tap, and the thread's eventfd */
	if (writer_tid() || entries("/proc/self/fd") != fds - 2)
		return 5;
	printf("# halt took %llu ms\n", (unsigned long long)(took / MS));
	return far_verdict(pid) ? 6 : took < slow(3e9) ? 0 : 7;
}

/*
 * fork() while the thread writes: the child has no stack, the parent continues.
 */
static int forks(void)
{
	uint64_t at = 0;
	long s = stream_open();
	int i, status;
	pid_t pid;

	if (s < 0)
		return 1;
	for (i = 0; i < 30; i++) {
		uint64_t begin = now_ns(), was;

		do {
			was = writer_ns();
			if (stream_send(s, &at, 1 << 20))
				return 2;
			if (now_ns() - begin > slow(8e9))
				return 3;
		} while (!was || writer_ns() - was < MS / 100);
		pid = fork_tied();
		if (!pid)
			_exit(lkl_loop_step() == -EIO && !writer_tid() ? 0 : 1);
		if (stream_send(s, &at, 1 << 20))
			return 4;
		waitpid(pid, &status, 0);
		if (status)
			return 5;
	}
	return stream_close(s, at) ? 6 : 0;
}

static const struct {
	int (*fn)(void);
	int offload, one_cpu;
	const char *what;
} cases[] = {
	{ large_stream, LKL_OFFLOAD_ALL, 0, "200 MB in large frames, then it sleeps" },
	{ stream, 0, 0, "200 MB in small frames, then it sleeps" },
	{ rush, LKL_OFFLOAD_ALL, 0, "in a rush the thread writes, and at no other time" },
	{ large_stream, LKL_OFFLOAD_ALL, 1, "200 MB on one processor, then it sleeps" },
	{ datagrams, LKL_OFFLOAD_ALL, 0, "datagrams of all sizes" },
	{ small_datagrams, LKL_OFFLOAD_ALL, 0, "small datagrams" },
	{ datagrams, LKL_OFFLOAD_ALL, 1, "datagrams of all sizes on one processor" },
	{ small_datagrams, 0, 1, "small datagrams on one processor" },
	{ blocking, LKL_OFFLOAD_ALL, 0, "calls that wait for lent memory" },
	{ down, LKL_OFFLOAD_ALL, 0, "the tap set down and up" },
	{ removed, LKL_OFFLOAD_ALL, 0, "the device removed and added" },
	{ halted, LKL_OFFLOAD_ALL, 0, "halt" },
	{ forks, LKL_OFFLOAD_ALL, 0, "fork" },
};

int main(void)
{
	unsigned int i;
	pid_t pids[2];
	int ret;

	start(200);
	peer_ip = HOST;
	far = mmap(NULL, sizeof(*far), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		   -1, 0);
	if (far == MAP_FAILED || own_netns() ||
	    sh("ip tuntap add " DEV " mode tap vnet_hdr && "
	       "ip addr add " HOST "/24 dev " DEV " && ip link set " DEV " up")) {
		ok(0, "a namespace with a tap (needs root)");
		return finish();
	}
	host_server(pids);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ret = with_loop(cases[i].offload, cases[i].fn, cases[i].one_cpu);
		ok(ret == 0, "%s: %d", cases[i].what, ret);
	}
	for (i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return finish();
}
