// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzzes how the stack library handles a packet socket's message and its
 * ancillary data (packet(7)).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "fuzz.h"
#include "host_call.h"

static long fuzz_host_call(long nr, long a, long b, long c, long d, long e,
			   long f);

#define host_call fuzz_host_call
#include "../../../../third_party/lkl/lib/packet.c"

static struct input *input;

/** beside - write no ancillary data, or one message of it */
static void beside(struct msghdr *mh)
{
	struct cmsghdr *cm = CMSG_FIRSTHDR(mh);
	struct tpacket_auxdata aux;
	uint8_t how = get8(input);

	if (how % 4 == 0) {
		mh->msg_controllen = 0;
		return;
	}
	fill(input, &aux, sizeof(aux));
	cm->cmsg_level = SOL_PACKET;
	cm->cmsg_type = how % 4 == 1 ? 0 : PACKET_AUXDATA;
	cm->cmsg_len = CMSG_LEN(sizeof(aux));
	memcpy(CMSG_DATA(cm), &aux, sizeof(aux));
}

/** fuzz_host_call - recvmsg(2) on a packet socket; sendmsg(2) accepts everything */
static long fuzz_host_call(long nr, long a, long b, long c, long d, long e,
			   long f)
{
	struct msghdr *mh = (struct msghdr *)b;
	struct sockaddr_ll *from = mh->msg_name;
	size_t n, i, got, room = 0;
	const uint8_t *p;

	(void)a; (void)c; (void)d; (void)e; (void)f;
	for (i = 0; i < mh->msg_iovlen; i++)
		room += mh->msg_iov[i].iov_len;
	if (nr == SYS_sendmsg)
		return (long)room;
	if (get8(input) & 1)
		return -(long)get8(input);
	from->sll_pkttype = get8(input) % 8;
	beside(mh);
	p = next_bytes(input, get16(input), &got);
	mh->msg_flags = got > room ? MSG_TRUNC : 0;
	for (i = n = 0; i < mh->msg_iovlen && n < got; i++) {
		size_t part = mh->msg_iov[i].iov_len;

		part = part < got - n ? part : got - n;
		memcpy(mh->msg_iov[i].iov_base, p + n, part);
		n += part;
	}
	return (long)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct input in = { data, data + len };
	struct lkl_net_meta meta = { 0 };
	struct packet_socket ps = { .type = SOCK_RAW, .ifindex = 2 };
	uint8_t how = get8(&in);
	size_t room = get16(&in) % 4096;
	uint8_t *hdr = malloc(12), *buf = malloc(room + 1);
	struct lkl_iov iov[] = { { hdr, 12 }, { buf, room } };
	long n;

	input = &in;
	ps.vnet = how & 1 ? 12 : 0;
	n = packet_read(3, &ps, ps.vnet ? iov : iov + 1, ps.vnet ? 2 : 1,
			how & 2, &meta);
	if (n > (long)(room + 12) || meta.csum > LKL_CSUM_UNFINISHED)
		abort();
	packet_write(3, &ps, iov, 2, how & 4 ? 0x800 : 0);
	free(hdr);
	free(buf);
	return 0;
}
