// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random arguments: descriptors, lengths, pointers, addresses.
 *
 * Theory of operation
 *
 * The calls write to a separate arena, so that a wrong length cannot change the
 * fuzzer's own data. An unmapped page follows the arena. Next to it are a
 * read-only page, an inaccessible page, and pages that one thread keeps mapping
 * and unmapping.
 *
 * Most arguments are of the right kind: a call with only wrong arguments fails
 * at once and tests little code.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "fuzz.h"

#define PAGE		4096ul
#define GOOD		(256 * 1024ul)	/* readable and writable */
#define TROUBLED	(16 * PAGE)	/* sometimes mapped, sometimes not */

static char *good, *readonly, *nothing, *troubled;
/* Not in the arena: another thread could change it to a name in the file system. */
static __thread char name[128];
__thread uint64_t rnd_state;

/** one_in - true once in @n times */
bool one_in(uint64_t n)
{
	return !below(n);
}

/** args_init - make the arena */
int args_init(void)
{
	size_t len = GOOD + PAGE + PAGE + PAGE + TROUBLED + PAGE;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return -1;
	good = p;
	nothing = p + GOOD;
	readonly = nothing + PAGE;
	troubled = readonly + 2 * PAGE;
	return mprotect(nothing, PAGE, PROT_NONE) ||
	       mprotect(readonly, PAGE, PROT_READ) ||
	       munmap(readonly + PAGE, PAGE) ||
	       munmap(troubled + TROUBLED, PAGE);
}

/** args_trouble - unmap, map or protect a part of the troubled pages */
void args_trouble(void)
{
	char *p = troubled + below(TROUBLED / PAGE) * PAGE;
	size_t len = (size_t)(troubled + TROUBLED - p);

	switch (below(3)) {
	case 0:
		munmap(p, len);
		break;
	case 1:
		mprotect(p, PAGE, one_in(2) ? PROT_NONE : PROT_READ);
		break;
	default:
		mmap(troubled, TROUBLED, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
}

/** good_mem - return @len mapped bytes, at most the arena; aligned to 8 */
void *good_mem(size_t len)
{
	if (len >= GOOD)
		return good;
	return good + (below(GOOD - len + 1) & ~7ul);
}

/** fill - write random bytes, many of them zero */
void fill(void *buf, size_t len)
{
	unsigned char *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = one_in(2) ? 0 : (unsigned char)rnd();
}

/** any_ptr - return a pointer, mostly a bad one */
void *any_ptr(void)
{
	switch (below(12)) {
	case 0:
		return NULL;
	case 1:
		return (void *)1;
	case 2:
		return nothing;
	case 3:
		return readonly + below(PAGE);
	case 4:
		return readonly + PAGE - below(64);
	case 5:
		return nothing - below(128);
	case 6:
		return (void *)0xffff888000000000ul;	/* an address of the kernel */
	case 7:
		return (void *)(0x8000000000000000ul | rnd());
	case 8:
		return (void *)~below(4096);
	case 9:
		return (void *)(0x00007fffffffffffull - below(8192));
	default:
		return troubled + below(TROUBLED);
	}
}

/** any_buf - return a buffer for @len bytes, mostly a good one */
void *any_buf(size_t len)
{
	return one_in(8) ? any_ptr() : good_mem(len);
}

/** any_len - return a length: mostly small, sometimes absurd */
uint64_t any_len(void)
{
	static const uint64_t odd[] = {
		0, 1, 3, 8, 16, 28, 110, 127, 128, 129, 4095, 4096, 4097, 65507,
		65535, 65536, 65537, 131072, 131073, 262144, INT_MAX,
		(uint64_t)INT_MAX + 1, UINT_MAX, 1ull << 32, 1ull << 40,
		LONG_MAX, ULONG_MAX, ULONG_MAX - 7,
	};

	switch (below(4)) {
	case 0:
		return odd[below(sizeof(odd) / sizeof(odd[0]))];
	case 1:
		return below(100000);
	default:
		return below(200);
	}
}

/** any_fd - return a descriptor, mostly an open one */
int any_fd(void)
{
	static const int odd[] = { -1, -100, INT_MAX, INT_MIN, 1 << 20, 2000 };

	if (one_in(20))
		return odd[below(sizeof(odd) / sizeof(odd[0]))];
	return (int)below(one_in(3) ? FD_LIMIT : FD_LIMIT / 4);
}

/** any_int - return a small number, a power of two, or any number */
int any_int(void)
{
	switch (below(4)) {
	case 0:
		return (int)rnd();
	case 1:
		return (int)(1u << below(32));
	case 2:
		return -(int)below(3);
	default:
		return (int)below(100);
	}
}

/** any_port - return one of a few ports, so that connects find listeners */
static uint16_t any_port(void)
{
	return htons(one_in(12) ? (uint16_t)rnd() : (uint16_t)(7000 + below(6)));
}

/** inet4 - write an AF_INET address */
static uint32_t inet4(void *buf)
{
	static const uint32_t hosts[] = { INADDR_LOOPBACK, INADDR_LOOPBACK,
		INADDR_LOOPBACK, INADDR_ANY, INADDR_BROADCAST, 0xe0000001,
		0x0a000001, 0x7f000002 };
	struct sockaddr_in *in = buf;

	in->sin_family = AF_INET;
	in->sin_port = any_port();
	in->sin_addr.s_addr = htonl(hosts[below(8)]);
	return sizeof(*in);
}

/** inet6 - write an AF_INET6 address */
static uint32_t inet6(void *buf)
{
	static const struct in6_addr hosts[] = {
		IN6ADDR_LOOPBACK_INIT, IN6ADDR_LOOPBACK_INIT, IN6ADDR_ANY_INIT,
		{ .s6_addr = { [10] = 255, [11] = 255, [12] = 127, [15] = 1 } },
		{ .s6_addr = { 0xfe, 0x80, [15] = 1 } },
		{ .s6_addr = { 0xff, 2, [15] = 1 } },
	};
	struct sockaddr_in6 *in = buf;

	in->sin6_family = AF_INET6;
	in->sin6_port = any_port();
	in->sin6_addr = hosts[below(6)];
	in->sin6_scope_id = one_in(3) ? (uint32_t)below(4) : 0;
	return sizeof(*in);
}

/**
 * any_addr - write a socket address to @buf (128 bytes); returns its length
 *
 * An AF_UNIX address is abstract, so that no file is created.
 */
uint32_t any_addr(void *buf)
{
	struct sockaddr_un *un = buf;
	struct sockaddr_nl *nl = buf;
	struct sockaddr_ll *ll = buf;

	memset(buf, 0, 128);
	switch (below(16)) {
	case 0:
		un->sun_family = AF_UNIX;
		fill(un->sun_path + 1, 20);
		return (uint32_t)(2 + below(22));
	case 1:
		nl->nl_family = AF_NETLINK;
		nl->nl_pid = (uint32_t)below(2) * (uint32_t)rnd();
		nl->nl_groups = (uint32_t)below(8);
		return sizeof(*nl);
	case 2:
		ll->sll_family = AF_PACKET;
		ll->sll_protocol = htons(3);
		ll->sll_ifindex = (int)below(4);
		ll->sll_halen = (unsigned char)below(30);
		return sizeof(*ll);
	case 3:	/* AF_UNSPEC */
		return 16;
	case 4:
		fill(buf, 128);
		un->sun_family = (sa_family_t)(2 + below(44));
		return 128;
	case 5:
	case 6:
	case 7:
	case 8:
		return inet6(buf);
	default:
		return inet4(buf);
	}
}

/** any_name - return an address in any memory, and a length that mostly fits */
void *any_name(uint32_t *len)
{
	*len = any_addr(name);
	if (one_in(8))
		*len = one_in(2) ? (uint32_t)any_len() : (uint32_t)below(130);
	return one_in(8) ? any_ptr() : name;
}
