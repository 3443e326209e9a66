// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes the mirror with frames from the packet sockets of the target and of
 * the stack, with a virtio-net header and ancillary data (packet(7)).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "fuzz.h"

static ssize_t fuzz_recvmsg(int fd, struct msghdr *mh, int flags);
static ssize_t fuzz_sendto(int fd, const void *buf, size_t len, int flags,
			   const struct sockaddr *to, socklen_t tolen);

#define recvmsg fuzz_recvmsg
#define sendto fuzz_sendto
#include "mirror/frames.c"

bool __wrap_links_has(int ifindex);

static struct input *input;
volatile uint8_t fuzz_sink;	/* forces the bytes to be read */
static unsigned int waiting;	/* number of frames to receive */

/** __wrap_links_has - the mirror has the devices with odd numbers */
bool __wrap_links_has(int ifindex)
{
	return ifindex & 1;
}

/** beside - write the ancillary data of a frame: none, or struct tpacket_auxdata */
static void beside(struct msghdr *mh)
{
	struct cmsghdr *cm = CMSG_FIRSTHDR(mh);
	struct tpacket_auxdata aux = { .tp_status = get8(input) };

	if (!(aux.tp_status & 2)) {
		mh->msg_controllen = 0;
		return;
	}
	aux.tp_vlan_tci = get16(input);
	aux.tp_vlan_tpid = get16(input);
	cm->cmsg_level = SOL_PACKET;
	cm->cmsg_type = PACKET_AUXDATA;
	cm->cmsg_len = CMSG_LEN(sizeof(aux));
	memcpy(CMSG_DATA(cm), &aux, sizeof(aux));
}

/** fuzz_recvmsg - return the next frame */
static ssize_t fuzz_recvmsg(int fd, struct msghdr *mh, int flags)
{
	struct sockaddr_ll *ll = mh->msg_name;
	size_t got, n, i;
	const uint8_t *p;

	(void)fd;
	(void)flags;
	if (!waiting) {
		errno = EAGAIN;
		return -1;
	}
	waiting--;
	memset(ll, 0, sizeof(*ll));
	ll->sll_family = AF_PACKET;
	ll->sll_ifindex = 1 + get8(input);
	ll->sll_pkttype = get8(input) % 8;
	fill(input, &ll->sll_protocol, 2);
	beside(mh);
	p = next_bytes(input, get16(input) % 2048, &got);
	for (i = n = 0; i < mh->msg_iovlen && n < got; i++) {
		size_t part = mh->msg_iov[i].iov_len;

		if (part > got - n)
			part = got - n;
		memcpy(mh->msg_iov[i].iov_base, p + n, part);
		n += part;
	}
	return (ssize_t)got;
}

/** goes_out - read all bytes of a sent frame */
static long goes_out(const uint8_t *p, size_t len)
{

	if (len > MIRROR_BUF)
		abort();
	while (len)
		fuzz_sink ^= p[--len];
	return fake_result();
}

/** fuzz_sendto - send a frame to the target's packet sockets */
static ssize_t fuzz_sendto(int fd, const void *buf, size_t len, int flags,
			   const struct sockaddr *to, socklen_t tolen)
{
	(void)fd;
	(void)flags;
	(void)to;
	(void)tolen;
	return goes_out(buf, len);
}

/** packets - the stack's calls on its packet socket */
static long packets(long nr, const long *a)
{
	ssize_t n;

	switch (nr) {
	case SYS_recvmsg:
		n = fuzz_recvmsg((int)a[0], (struct msghdr *)a[1], 0);
		return n < 0 ? -EAGAIN : n;
	case SYS_sendto:
		return goes_out((const uint8_t *)a[1], (size_t)a[2]);
	}
	return FAKE_NEXT;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	static bool started;

	if (!started) {
		fuzz_loop_start();
		fake_more = packets;
	}
	started = true;
	input = &in;
	fake_start(NULL);
	frames_start();
	fake_start(&in);
	while (left(&in)) {
		uint8_t from = get8(&in);

		waiting = 1 + (from >> 4);
		if (from % 3 == 0)
			from_near(&near, 0);
		else if (from % 3 == 1)
			from_far(&far, 0);
		else
			pull(&work);
	}
	fake_end();
	frames_stop();
	return 0;
}
