// SPDX-License-Identifier: GPL-2.0-only
/*
 * Wires: kernels joined by shared memory, and ends that write nonsense into it.
 */
#include "tap.h"

#include <net/if.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#define TOTAL	(100L << 20)
#define FRAME	64
#define FLAGS	(LKL_NETDEV_WIRE | LKL_NETDEV_VNET_HDR | LKL_NETDEV_OFFLOAD)

/* As in lib/wire.c */
struct ring_ctl {
	uint32_t head, full, unused1[14];
	uint32_t tail, asleep, unused2[14];
};

static int memory(unsigned long size, int seals)
{
	int mem = memfd_create("wire", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (mem < 0 || ftruncate(mem, size) ||
	    (seals && fcntl(mem, F_ADD_SEALS, seals)))
		return -1;
	return mem;
}

static void hello(int from, int mem, unsigned int magic, unsigned int side)
{
	struct lkl_wire_hello h = { magic, side };
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} ctl = { .h = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			 .cmsg_len = CMSG_LEN(sizeof(int)) } };
	struct iovec iov = { &h, sizeof(h) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (mem >= 0) {
		memcpy(CMSG_DATA(&ctl.h), &mem, sizeof(mem));
		m.msg_control = &ctl;
		m.msg_controllen = sizeof(ctl);
	}
	if (sendmsg(from, &m, 0) < 0)
		perror("sendmsg");
}

/* A bell whose two halves have said hello; returns the memory */
static int bell(int sv[2])
{
	int mem = memory(LKL_WIRE_MEM, F_SEAL_SHRINK);

	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv);
	hello(sv[0], mem, LKL_WIRE_MAGIC, 0);
	hello(sv[1], mem, LKL_WIRE_MAGIC, 1);
	return mem;
}

static int end_of_wire(const char *ip)
{
	int id = lkl_netdev_add(lkl_netdev_fd_create(epoll_create1(EPOLL_CLOEXEC), FLAGS), NULL);
	int ifindex = lkl_netdev_get_ifindex(id);

	lkl_if_set_ipv4(ifindex, inet_addr(ip), 24);
	lkl_if_up(ifindex);
	return id;
}

static int running(int id)
{
	struct ifreq ifr = { 0 };
	long s = L3(socket, AF_INET, SOCK_DGRAM, 0), ret;

	ifr.ifr_ifindex = lkl_netdev_get_ifindex(id);
	L3(ioctl, s, 0x8910 /* SIOCGIFNAME */, &ifr);
	ret = L3(ioctl, s, 0x8913 /* SIOCGIFFLAGS */, &ifr);
	L1(close, s);
	return !ret && ifr.ifr_flags & IFF_RUNNING;
}

static int becomes(int id, int want)
{
	uint64_t end = now_ns() + (uint64_t)slow(5e9);

	while (running(id) != want && now_ns() < end)
		usleep(1000);
	return running(id) == want;
}

static void pattern(unsigned char *p, long n, unsigned long at)
{
	long i;

	for (i = 0; i < n; i++)
		p[i] = (at + i) * 2654435761u >> 13;
}

static unsigned char buf[65536], want[65536];

/* Stays until the gate closes, because a kernel that halts sends nothing more. */
static int receiver(const char *ip, int gate)
{
	long s = llisten(ip, 9000, 0), a, n, at = 0;
	char byte;

	if (s < 0)
		return 2;
	a = L4(accept4, s, 0, 0, 0);
	while ((n = L3(read, a, buf, sizeof(buf))) > 0) {
		pattern(want, n, at);
		if (memcmp(buf, want, n))
			return 3;
		at += n;
	}
	L3(write, a, "x", 1);
	if (read(gate, &byte, 1))
		return 8;
	lkl_sys_halt();
	return at == TOTAL ? 0 : 4;
}

static int sender(const char *ip)
{
	uint64_t end = now_ns() + (uint64_t)slow(10e9), t;
	long s, n, at;
	char x;

	while ((s = lconnect(ip, 9000, 0)) < 0 && now_ns() < end)
		usleep(10000);
	t = now_ns();
	for (at = 0; at < TOTAL; at += n) {
		n = TOTAL - at < (long)sizeof(buf) ? TOTAL - at : (long)sizeof(buf);
		pattern(buf, n, at);
		n = L3(write, s, buf, n);
		if (n <= 0)
			return 5;
	}
	L2(shutdown, s, SHUT_WR);
	n = L3(read, s, &x, 1);
	printf("# %.2f Gbit/s\n", at * 8.0 / (now_ns() - t));
	fflush(stdout);
	lkl_sys_halt();
	return n == 1 ? 0 : 6;
}

/* @n kernels on one wire; the first sends to the last. */
static void kernels(int n, const char *what)
{
	static int sv[8][8][2];
	char ip[8][16], byte;
	pid_t pid[8];
	int gate[2], i, j, status, good = 1;

	if (pipe(gate))		/* it is closed when the sender has ended */
		return;

	for (i = 0; i < n; i++) {
		snprintf(ip[i], sizeof(ip[i]), "10.71.0.%d", i + 1);
		for (j = i + 1; j < n; j++)
			close(bell(sv[i][j]));
	}
	for (i = 0; i < n; i++) {
		pid[i] = fork_tied();
		if (pid[i])
			continue;
		alarm(slow(60));
		boot("mem=64M loglevel=0");
		int id = end_of_wire(ip[i]);

		for (j = 0; j < n; j++)
			for (int k = j + 1; k < n; k++) {
				if (i == j)
					lkl_netdev_wire_join(id, dup(sv[j][k][0]));
				if (i == k)
					lkl_netdev_wire_join(id, dup(sv[j][k][1]));
				close(sv[j][k][0]);
				close(sv[j][k][1]);
			}
		if (i == 0)
			_exit(sender(ip[n - 1]));
		close(gate[1]);
		if (i == n - 1)
			_exit(receiver(ip[i], gate[0]));
		/* The others receive only flooded frames. */
		good = becomes(id, 1);
		_exit(read(gate[0], &byte, 1) == 0 && good ? 0 : 7);
	}
	for (i = 0; i < n; i++)
		for (j = i + 1; j < n; j++) {
			close(sv[i][j][0]);
			close(sv[i][j][1]);
		}
	for (i = 0; i < n; i++) {
		/* the sender, the receiver, then the others */
		j = i == 0 ? 0 : i == 1 ? n - 1 : i - 1;
		if (i == 1)
			close(gate[1]);
		waitpid(pid[j], &status, 0);
		if (status)
			printf("# kernel %d: status %#x\n", j, status);
		good = good && !status;
	}
	close(gate[0]);
	ok(good, "%s: 100 MB, all bytes right", what);
}

/* A first message of a handover, whose descriptors are both @fd */
static int hand_over(int id, int fd, unsigned int read, unsigned int written)
{
	struct lkl_wire_handover h = { { LKL_WIRE_MAGIC, 0 }, read, written };
	int sv[2], fds[2] = { fd, fd }, ret;
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(fds))];
	} ctl = { .h = { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			 .cmsg_len = CMSG_LEN(sizeof(fds)) } };
	struct iovec iov = { &h, sizeof(h) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = &ctl, .msg_controllen = sizeof(ctl) };

	memcpy(CMSG_DATA(&ctl.h), fds, sizeof(fds));
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	if (sendmsg(sv[0], &m, 0) < 0)
		perror("sendmsg");
	close(sv[0]);
	ret = lkl_netdev_wire_join(id, sv[1]);
	if (ret)
		close(sv[1]);
	close(fd);
	return ret;
}

static int join_with(int id, int mem, unsigned int magic, unsigned int side)
{
	int sv[2], ret;

	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	hello(sv[0], mem, magic, side);
	ret = lkl_netdev_wire_join(id, sv[1]);
	if (ret)
		close(sv[1]);
	close(sv[0]);
	if (mem >= 0)
		close(mem);
	return ret;
}

static void refusals(int id)
{
	int sv[2], dummy;

	ok(lkl_netdev_wire_join(id + 1, 0) == -ENODEV, "no such device");
	ok(!lkl_netdev_fd_create(epoll_create1(0), LKL_NETDEV_WIRE) && errno == EINVAL,
	   "a wire needs the virtio-net header");
	ok(join_with(id, memory(LKL_WIRE_MEM, 0), LKL_WIRE_MAGIC, 0) == -EBADMSG,
	   "memory that can shrink is refused");
	ok(join_with(id, memory(LKL_WIRE_MEM - 4096, F_SEAL_SHRINK), LKL_WIRE_MAGIC, 0) == -EBADMSG,
	   "memory that is too small is refused");
	ok(join_with(id, open("/proc/self/exe", O_RDONLY), LKL_WIRE_MAGIC, 0) == -EBADMSG,
	   "a file is refused");
	ok(join_with(id, memory(LKL_WIRE_MEM, F_SEAL_SHRINK), 1, 0) == -EBADMSG,
	   "another version is refused");
	ok(join_with(id, memory(LKL_WIRE_MEM, F_SEAL_SHRINK), LKL_WIRE_MAGIC, 2) == -EBADMSG,
	   "a side that does not exist is refused");
	ok(join_with(id, -1, LKL_WIRE_MAGIC, 0) == -EBADMSG, "no memory is refused");
	ok(hand_over(id, memory(LKL_WIRE_MEM, F_SEAL_SHRINK), 32, 0) == -EBADMSG &&
	   hand_over(id, memory(LKL_WIRE_MEM, F_SEAL_SHRINK), 0, 1) == -EBADMSG,
	   "a handover in the middle of a record is refused");
	ok(hand_over(id, memory(LKL_WIRE_MEM, F_SEAL_SHRINK), 64, 64) == -EPERM,
	   "a handover whose bell is a file is refused");
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv);
	ok(lkl_netdev_wire_join(id, sv[1]) == -EAGAIN, "a bell without a message is refused");
	close(sv[0]);
	close(sv[1]);
	dummy = open("/dev/null", O_RDONLY);
	ok(lkl_netdev_wire_join(id, dummy) == -ENOTSOCK, "a descriptor that is no socket is refused");
	close(dummy);
	ok(!running(id), "none of these is a carrier");
}

/* Our side of a wire: side 1 of the memory */
struct mine {
	int bell;
	char *mem;
	struct ring_ctl *out, *in;
	unsigned char *to, *from;
};

static int mine_join(struct mine *m, int id)
{
	int sv[2], mem = bell(sv), ret;
	struct lkl_wire_hello h;

	m->mem = mmap(NULL, LKL_WIRE_MEM, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	close(mem);
	m->bell = sv[0];
	m->in = (void *)m->mem;
	m->out = (void *)(m->mem + LKL_WIRE_CTL);
	m->from = (void *)(m->mem + 2 * LKL_WIRE_CTL);
	m->to = m->from + LKL_WIRE_RING;
	if (recv(sv[0], &h, sizeof(h), 0) != sizeof(h))	/* its descriptor is lost */
		return -1;
	ret = lkl_netdev_wire_join(id, sv[1]);
	return ret;
}

static void mine_leave(struct mine *m)
{
	close(m->bell);
	munmap(m->mem, LKL_WIRE_MEM);
}

static void ring(struct mine *m)
{
	send(m->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Whether the kernel's ARP request arrives, as at any good end */
static int hears(struct mine *m)
{
	struct sockaddr_in sa = addr4("10.72.0.2", 7);
	struct pollfd p = { .fd = m->bell, .events = POLLIN };
	long s = L3(socket, AF_INET, SOCK_DGRAM, 0);
	uint64_t end = now_ns() + (uint64_t)slow(5e9);
	char byte[8];

	L6(sendto, s, "x", 1, MSG_DONTWAIT, &sa, sizeof(sa));
	L1(close, s);
	while (now_ns() < end) {
		__atomic_store_n(&m->in->asleep, 1, __ATOMIC_SEQ_CST);
		while (m->in->tail != __atomic_load_n(&m->in->head, __ATOMIC_SEQ_CST)) {
			unsigned char *f = m->from + m->in->tail % LKL_WIRE_RING;
			uint32_t len;

			memcpy(&len, f, sizeof(len));
			m->in->tail += (len + 4 + FRAME - 1) / FRAME * FRAME;
			f += 4 + 12;	/* behind the virtio-net header */
			if (len >= 12 + 42 && f[12] == 8 && f[13] == 6)
				return 1;
		}
		poll(&p, 1, 100);
		recv(m->bell, byte, sizeof(byte), MSG_DONTWAIT);
	}
	return 0;
}

static uint32_t seed = 12345;

static uint32_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed;
}

/* Writes nonsense of several kinds. */
static void scribble(struct mine *m, int kind)
{
	uint32_t *len = (void *)m->to;
	unsigned int i;

	switch (kind % 7) {
	case 0:		/* a head that is too far, or odd */
		m->out->head = rnd();
		break;
	case 1:		/* lengths */
		*len = rnd() >> rnd() % 32;
		m->out->head = FRAME * (1 + rnd() % 64);
		break;
	case 2:		/* a tail that is ahead of the kernel's head */
		m->in->tail = rnd();
		break;
	case 3:		/* frames with random headers */
		for (i = 0; i < 64; i++) {
			len = (void *)(m->to + i * 2 * FRAME);
			*len = 12 + 14 + rnd() % 80;
			for (unsigned int j = 0; j < *len; j++)
				((unsigned char *)(len + 1))[j] = rnd() % 4 ? 0 : rnd();
		}
		m->out->head = 64 * 2 * FRAME;
		break;
	case 4:		/* the same, of large segments, that change meanwhile */
		*len = 12 + 60000;
		((unsigned char *)(len + 1))[1] = rnd() % 8;
		m->out->head = (60012 + 4 + FRAME - 1) / FRAME * FRAME;
		ring(m);
		for (i = 0; i < 20000; i++)
			m->to[rnd() % 60000] = rnd();
		break;
	case 5:		/* many bells */
		for (i = 0; i < 1000; i++)
			ring(m);
		break;
	case 6:		/* all of the state, again and again */
		for (i = 0; i < 2000; i++)
			((uint32_t *)m->mem)[rnd() % 32] = rnd();
		for (i = 0; i < 2000; i++)
			((uint32_t *)m->in)[rnd() % 32] = rnd();
		break;
	}
	ring(m);
}

/* A kernel with a bad end and a good one goes on, and so does the good end. */
static void nonsense(int id)
{
	struct mine good, bad;
	int i, alive = 1, there = 1;

	for (i = 0; i < 70 && alive && there; i++) {
		if (mine_join(&bad, id)) {
			there = 0;
			break;
		}
		scribble(&bad, i);
		usleep(500);
		scribble(&bad, i);
		alive = L0(getpid) == 1;
		mine_leave(&bad);
	}
	ok(alive, "the kernel goes on, whatever an end writes (%d rounds)", i);
	ok(there, "and takes new ends");
	ok(becomes(id, 0), "no end is left");
	ok(!mine_join(&good, id) && becomes(id, 1), "a good end");
	ok(hears(&good), "gets the kernel's frames");
	mine_leave(&good);
	ok(becomes(id, 0), "an end that leaves takes the carrier away");
}

int main(void)
{
	int id, i, fds;

	start(200);
	kernels(2, "two kernels");
	kernels(4, "four kernels");
	boot("mem=64M loglevel=0");
	id = end_of_wire("10.72.0.1");
	ok(!running(id), "no carrier without another end");
	refusals(id);
	fds = dup(0);
	close(fds);
	nonsense(id);
	i = dup(0);
	ok(i == fds, "no descriptor is left");
	close(i);
	lkl_netdev_remove(id);
	ok(lkl_sys_halt() == 0, "halt");
	return finish();
}
