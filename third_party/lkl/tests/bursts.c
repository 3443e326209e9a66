// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frames that leave a tap as a list: complete and in order, with the host's
 * io_uring, where it is forbidden, and while the tap is set down and up.
 */
#include "ontap.h"

#include <poll.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define BURST_PORT	7373
#define BURST_SIZE	400	/* size of a datagram in a burst */

#ifndef UDP_SEGMENT
#define UDP_SEGMENT	103
#endif

static int burst_sockets(int *host, long *ours)
{
	struct sockaddr_in sa = addr4(HOST, BURST_PORT);
	int room = 8 << 20, size = BURST_SIZE;

	*host = socket(AF_INET, SOCK_DGRAM, 0);
	setsockopt(*host, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	*ours = L3(socket, AF_INET, SOCK_DGRAM, 0);
	L5(setsockopt, *ours, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	if (bind(*host, (struct sockaddr *)&sa, sizeof(sa)) || !echo(1) ||
	    L5(setsockopt, *ours, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)))
		return 1;
	return L3(connect, *ours, &sa, sizeof(sa)) ? 1 : 0;
}

/*
 * One call for @n datagrams, which the stack splits; they are numbered from
 * @seq on.
 */
static int send_burst(long s, unsigned int seq, int n)
{
	static unsigned char buf[128 * BURST_SIZE];
	int i;

	for (i = 0; i < n; i++) {
		memset(buf + i * BURST_SIZE, (int)(seq + i), BURST_SIZE);
		memcpy(buf + i * BURST_SIZE, &(unsigned int){ seq + i }, 4);
	}
	return L6(sendto, s, buf, (long)n * BURST_SIZE, 0, 0, 0) == (long)n * BURST_SIZE;
}

/*
 * The next datagram's number; -1: none within @ms, -2: the datagram is
 * incomplete
 */
static long next_of_burst(int s, int ms)
{
	struct pollfd p = { .fd = s, .events = POLLIN };
	unsigned char buf[BURST_SIZE + 1];
	unsigned int seq;
	int i;

	if (poll(&p, 1, ms) <= 0)
		return -1;
	if (recv(s, buf, sizeof(buf), 0) != BURST_SIZE)
		return -2;
	memcpy(&seq, buf, 4);
	for (i = 4; i < BURST_SIZE; i++)
		if (buf[i] != (unsigned char)seq)
			return -2;
	return seq;
}

static int ordered_bursts(void)
{
	unsigned int seq = 0, want = 0;
	int host, round, n;
	long ours;

	if (burst_sockets(&host, &ours))
		return 1;
	for (round = 0; round < 300; round++) {
		n = 1 + round * 7 % 120;
		if (!send_burst(ours, seq, n))
			return 2;
		for (seq += n; want < seq; want++) {
			long got = next_of_burst(host, slow(4000));

			if (got != want) {
				printf("# %ld instead of %u\n", got, want);
				return 3;
			}
		}
	}
	close(host);
	return 0;
}

static int host_gives_ring(void)
{
	unsigned char params[120] = { 0 };
	int fd = syscall(SYS_io_uring_setup, 1, params);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Datagrams sent as a list leave in order, with a ring if the host has one. */
static int bursts(int ifindex, int id)
{
	int gives = host_gives_ring(), ret = ordered_bursts();

	(void)ifindex;
	(void)id;
	return ret ? ret : has_ring() == gives ? 0 : 4;
}

/* The same if a filter forbids io_uring, as in a container */
static int bursts_refused(int ifindex, int id)
{
	struct sock_filter no[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = no };

	/* an emulated CPU has neither io_uring nor filters */
	if (!host_gives_ring())
		return bursts(ifindex, id);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 9;
	if (host_gives_ring())
		return 10;
	return bursts(ifindex, id);
}

/*
 * A tap that is set down during bursts: some are lost, the others are in order.
 */
static int bursts_down(int ifindex, int id)
{
	unsigned int seq = 0;
	long ours, got, last = -1;
	int host, i, status;
	uint64_t t;
	pid_t pid;

	(void)ifindex;
	(void)id;
	if (burst_sockets(&host, &ours))
		return 1;
	pid = fork_tied();
	if (!pid) {
		for (i = 0; i < 20; i++)
			sh("ip link set " DEV " down && ip link set " DEV " up");
		_exit(0);
	}
	t = now_ns();
	while (!waitpid(pid, &status, WNOHANG) && now_ns() - t < slow(30) * 1e9) {
		send_burst(ours, seq, 100);
		seq += 100;
		while ((got = next_of_burst(host, 0)) != -1) {
			if (got <= last)
				return 2;
			last = got;
		}
	}
	if (!wait_carrier(1))
		return 3;
	for (i = 0; i < 100 && last != (long)seq - 1; i++) {
		send_burst(ours, seq, 100);
		seq += 100;
		while ((got = next_of_burst(host, 100)) != -1) {
			if (got <= last)
				return 4;
			last = got;
		}
	}
	printf("# %u sent\n", seq);
	return last == (long)seq - 1 ? 0 : 5;
}

int main(void)
{
	static const int with[] = { 0, LKL_OFFLOAD_CSUM, LKL_OFFLOAD_ALL };
	pid_t pids[2];
	int i, ret, segments;

	start(120);
	peer_ip = HOST;
	if (own_netns() || sh("ip tuntap add " DEV " mode tap vnet_hdr && "
			      "ip addr add " HOST "/24 dev " DEV " && ip link set " DEV " up")) {
		skip("no namespace or no tap");
		return finish();
	}
	host_server(pids);
	/*
	 * The bursts consist of the segments of large datagrams. Before 6.11, the
	 * kernel segments UDP only for devices with checksum offload.
	 */
	segments = kernel_since(11);
	for (i = segments ? 0 : 1; i < 3; i++) {
		ret = with_kernel(with[i], bursts, "mem=64M loglevel=0");
		ok(ret == 0, "bursts in order, offload %#x: %d", with[i], ret);
	}
	ret = with_kernel(segments ? 0 : LKL_OFFLOAD_CSUM, bursts_refused, "mem=64M loglevel=0");
	ok(ret == 0, "bursts in order where io_uring is forbidden: %d", ret);
	ret = with_kernel(segments ? 0 : LKL_OFFLOAD_CSUM, bursts_down, "mem=64M loglevel=0");
	ok(ret == 0, "a tap set down and up while bursts leave: %d", ret);

	for (i = 0; i < 2; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return finish();
}
