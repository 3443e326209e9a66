// SPDX-License-Identifier: GPL-2.0-only
/* Bad pointers, a panic, and faults outside the library. */
#include "nl.h"

#include <linux/if_ether.h>
#include <linux/if_tunnel.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <netinet/ip6.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/uio.h>

static sigjmp_buf env;
static volatile int foreign, panics;
static char last_lines[8192];

static void on_segv(int sig)
{
	(void)sig;
	foreign++;
	siglongjmp(env, 1);
}

static void keep_print(const char *s, int len)
{
	size_t have = strlen(last_lines);

	if (have + len < sizeof(last_lines)) {
		memcpy(last_lines + have, s, len);
		last_lines[have + len] = 0;
	}
}

static void count_panic(void)
{
	panics++;
}

static void jump_panic(void)
{
	panics++;
	siglongjmp(env, 1);
}

static void *blocked(void *arg)
{
	struct timespec ts = { 1000, 0 };

	*(long *)arg = lcall(SYS_nanosleep, (long)&ts, 0, 0, 0, 0, 0);
	return NULL;
}

/*
 * Panics a kernel in a process of its own; @jump: the callback calls longjmp()
 */
static int panic_child(int jump)
{
	int status, good;
	pid_t pid = fork();

	if (!pid) {
		long ret, fd, other = 0;
		pthread_t th;

		alarm(20);
		quiet_ops.print = keep_print;
		quiet_ops.panic = jump ? jump_panic : count_panic;
		boot("mem=64M loglevel=4");
		lkl_mount_fs("proc");
		pthread_create(&th, NULL, blocked, &other);
		fd = lopen("/proc/sysrq-trigger", O_WRONLY, 0);
		ret = 0;
		if (!sigsetjmp(env, 1))
			ret = L3(write, fd, "c", 1);
		good = panics == 1 && (jump || ret == -EIO) &&
		       strstr(last_lines, "Kernel panic") && !lkl_is_running() &&
		       L0(getpid) == -EIO;
		pthread_join(th, NULL);
		good = good && other == -EIO;
		if (!good)
			printf("# panics %d ret %ld other %ld fd %ld\n%s", panics, ret,
			       other, fd, last_lines);
		good = good && lkl_sys_halt() == 0;
		_exit(!good);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

static unsigned int sum16(const void *data, unsigned int len, unsigned int sum)
{
	const unsigned char *p = data;
	unsigned int i;

	for (i = 0; i < len; i++)
		sum += i & 1 ? p[i] : p[i] << 8;
	return sum;
}

static unsigned int fold(unsigned int sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
}

static void gre_ends(struct nlmsg *m)
{
	nl_u32(m, IFLA_GRE_LOCAL, inet_addr("10.7.0.2"));
	nl_u32(m, IFLA_GRE_REMOTE, inet_addr("10.7.0.1"));
}

/*
 * An IPv6 datagram in Ethernet in GRE in Ethernet: its header is at an odd
 * multiple of 2, where not every CPU can load words.
 */
static long unaligned(void)
{
	struct in6_addr ours = { .s6_addr = { 0xfd, [15] = 2 } };
	struct in6_addr theirs = { .s6_addr = { 0xfd, [15] = 1 } };
	struct {
		struct ethhdr eth;
		struct iphdr ip;
		uint16_t gre[2];
		struct ethhdr eth6;
		struct ip6_hdr ip6;
		struct udphdr udp;
		char data[2];
	} __attribute__((packed)) frame = {
		.eth = { .h_dest = "\xff\xff\xff\xff\xff", .h_proto = htons(ETH_P_IP) },
		.ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_GRE,
			.tot_len = htons(sizeof(frame) - ETH_HLEN),
			.saddr = inet_addr("10.7.0.1"), .daddr = inet_addr("10.7.0.2") },
		.gre = { 0, htons(ETH_P_TEB) },
		.eth6 = { .h_dest = "\xff\xff\xff\xff\xff", .h_proto = htons(ETH_P_IPV6) },
		.ip6 = { .ip6_flow = htonl(6 << 28), .ip6_plen = htons(10),
			 .ip6_nxt = IPPROTO_UDP, .ip6_hlim = 64,
			 .ip6_src = theirs, .ip6_dst = ours },
		.udp = { .source = htons(8), .dest = htons(7), .len = htons(10) },
		.data = "x",
	};
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(7) };
	struct timeval tv = { 0, 100000 };
	int sv[2], dev, gre, i;
	char buf[8];
	long s, n;

	/* the sixth byte, for which a string has no room */
	frame.eth.h_dest[5] = frame.eth6.h_dest[5] = 0xff;
	frame.ip.check = htons(fold(sum16(&frame.ip, 20, 0)));
	/* the pseudo header has addresses, length and protocol */
	n = sum16(&frame.ip6.ip6_src, 32, 10 + IPPROTO_UDP);
	frame.udp.check = htons(fold(sum16(&frame.udp, 10, n)));

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv))
		return -errno;
	dev = lkl_netdev_get_ifindex(lkl_netdev_add(lkl_netdev_fd_create(sv[0], 0), NULL));
	lkl_if_set_ipv4(dev, inet_addr("10.7.0.2"), 24);
	n = lkl_if_up(dev);
	if (!n)
		n = link_add("gt0", "gretap", gre_ends, 0);
	gre = dev + 1;	/* the index of the next device */
	if (!n)
		n = lkl_if_up(gre);
	if (!n)
		n = lkl_if_set_ipv6(gre, &ours, 64);
	if (n)
		return n;

	s = L3(socket, AF_INET6, SOCK_DGRAM, 0);
	L5(setsockopt, s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	n = L3(bind, s, &any, sizeof(any));
	for (i = 0; !n && i < 50; i++) {
		if (write(sv[1], &frame, sizeof(frame)) < 0)
			return -errno;
		n = L3(read, s, buf, sizeof(buf));
		if (n == -EAGAIN)
			n = 0;
	}
	return n;
}

int main(void)
{
	struct iovec iov[2];
	char *page, buf[100000];
	/* volatile, or the compiler detects the error */
	void *volatile bad = (void *)0x10, *volatile none;
	long host_page = sysconf(_SC_PAGESIZE);
	int fds[2];
	long s, n;

	start(60);
	ok(panic_child(0), "a panic calls back, every thread gets EIO");
	ok(panic_child(1), "the callback may longjmp out");

	signal(SIGSEGV, on_segv);
	boot("mem=64M loglevel=0");

	page = mmap(NULL, 2 * host_page, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	none = page + host_page;
	mprotect(none, host_page, PROT_NONE);

	ok(L2(clock_gettime, 0, bad) == -EFAULT, "bad pointer, 16 bytes out");
	ok(L1(uname, none) == -EFAULT, "bad pointer, 390 bytes out");
	ok(lopen(bad, O_RDONLY, 0) == -EFAULT, "bad path");
	L2(pipe2, fds, 0);
	ok(L3(write, fds[1], bad, 10) == -EFAULT, "bad pointer, 10 bytes in");
	ok(L3(write, fds[1], none, 4000) == -EFAULT, "bad pointer, 4000 bytes in");
	ok(L2(pipe2, bad, 0) == -EFAULT, "bad array");
	L4(socketpair, AF_UNIX, SOCK_STREAM, 0, fds);
	ok(L3(write, fds[0], bad, 100000) == -EFAULT, "bad pointer, 100000 bytes in");
	ok(lopen(memset(page + host_page - 6, 'x', 6), O_RDONLY, 0) == -EFAULT,
	   "a string that runs off its page");
	iov[0].iov_base = page;
	iov[0].iov_len = 100;
	iov[1].iov_base = none;
	iov[1].iov_len = 100;
	n = L3(writev, fds[0], iov, 2);
	ok(n == -EFAULT || n == 100, "half a bad writev says %ld", n);
	L3(write, fds[0], "hello", 5);
	ok(L3(read, fds[1], none, 5) == -EFAULT, "bad pointer to read to");
	s = L3(socket, AF_INET, SOCK_STREAM, 0);
	ok(L3(connect, s, bad, 16) == -EFAULT, "bad address");
	n = 4;
	ok(L5(getsockopt, s, SOL_SOCKET, SO_TYPE, bad, &n) == -EFAULT, "bad option");
	ok(L3(sendmsg, s, bad, 0) == -EFAULT, "bad msghdr");
	/* what a socket accepts without a reader, also on a 32-bit CPU */
	ok(L3(write, fds[0], buf, 100000) > 0 && L0(getpid) == 1,
	   "good ones still work");

	n = unaligned();
	ok(n == 2 && L0(getpid) == 1, "an IP header that is not aligned: %ld", n);

	if (!sigsetjmp(env, 1))
		*(volatile char *)bad = 1;
	ok(foreign == 1, "a fault of the program goes to the program's handler");
	ok(L0(getpid) == 1, "and the stack does not mind");
	lkl_sys_halt();
	if (!sigsetjmp(env, 1))
		*(volatile char *)bad = 1;
	ok(foreign == 2, "after halt the handler is the program's again");
	return finish();
}
