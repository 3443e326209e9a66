// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random messages: vectors, ancillary data, descriptors in flight, netlink.
 */
#define _GNU_SOURCE
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "fuzz.h"

#define VECS	8
#define MESSAGES 6

/** any_flags - return flags of send and recv; never those that wait for a whole buffer */
static int any_flags(void)
{
	int flags = one_in(2) ? MSG_DONTWAIT : 0;

	if (one_in(3))
		flags |= 1 << below(31);
	if (one_in(20))
		flags = (int)rnd();
	return flags;
}

/** any_iov - return a vector in mapped memory */
static struct iovec *any_iov(size_t *n)
{
	struct iovec *iov = good_mem(VECS * sizeof(*iov));
	size_t i;

	*n = below(VECS);
	for (i = 0; i < *n; i++) {
		uint64_t len = any_len();

		iov[i].iov_base = any_buf(len);
		iov[i].iov_len = len;
	}
	if (one_in(16))
		*n = any_len();
	return one_in(16) ? any_ptr() : iov;
}

/** any_control - return ancillary data, mostly with a well-formed header */
static void *any_control(size_t *len)
{
	static const int levels[] = { SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6,
				      IPPROTO_UDP, 263, 284 };
	char *p = good_mem(1024);
	struct cmsghdr cm;

	*len = below(300);
	fill(p, 1024);
	cm.cmsg_len = one_in(4) ? any_len() : CMSG_LEN(below(64));
	cm.cmsg_level = levels[below(6)];
	cm.cmsg_type = any_int();
	memcpy(p, &cm, sizeof(cm));
	if (one_in(16))
		*len = any_len();
	return one_in(12) ? any_ptr() : p;
}

/** any_msg - fill the struct msghdr at @mh, which is mapped */
static void any_msg(struct msghdr *mh)
{
	size_t n, len;
	uint32_t namelen = 0;

	memset(mh, 0, sizeof(*mh));
	mh->msg_iov = any_iov(&n);
	mh->msg_iovlen = n;
	if (one_in(2)) {
		mh->msg_name = any_name(&namelen);
		mh->msg_namelen = namelen;
	}
	if (one_in(3)) {
		mh->msg_control = any_control(&len);
		mh->msg_controllen = len;
	}
	mh->msg_flags = any_int();
}

/** op_msg - sendmsg or recvmsg */
static long op_msg(long nr)
{
	struct msghdr *mh = good_mem(sizeof(*mh));

	any_msg(mh);
	return CALL(nr, any_fd(), one_in(16) ? any_ptr() : mh, any_flags());
}

/** op_sendmsg - sendmsg(2) */
long op_sendmsg(void)
{
	return op_msg(SYS_sendmsg);
}

/** op_recvmsg - recvmsg(2) */
long op_recvmsg(void)
{
	return op_msg(SYS_recvmsg);
}

/** op_mmsg - sendmmsg or recvmmsg */
static long op_mmsg(long nr)
{
	struct mmsghdr *mm = good_mem(MESSAGES * sizeof(*mm));
	struct timespec *ts = good_mem(sizeof(*ts));
	size_t n = below(MESSAGES + 1), i;

	for (i = 0; i < n; i++) {
		any_msg(&mm[i].msg_hdr);
		mm[i].msg_len = (unsigned int)rnd();
	}
	ts->tv_sec = one_in(4) ? (time_t)rnd() : 0;
	ts->tv_nsec = one_in(4) ? (long)rnd() : (long)below(30000000);
	if (one_in(16))
		n = any_len();
	return CALL(nr, any_fd(), one_in(16) ? any_ptr() : mm, n, any_flags(),
		    one_in(2) ? NULL : one_in(8) ? any_ptr() : ts);
}

/** op_sendmmsg - sendmmsg(2) */
long op_sendmmsg(void)
{
	return op_mmsg(SYS_sendmmsg);
}

/** op_recvmmsg - recvmmsg(2) */
long op_recvmmsg(void)
{
	return op_mmsg(SYS_recvmmsg);
}

/** op_pass_fds - send descriptors in SCM_RIGHTS over any descriptor */
long op_pass_fds(void)
{
	struct msghdr *mh = good_mem(sizeof(*mh));
	struct iovec *iov = good_mem(sizeof(*iov));
	size_t n = 1 + below(4), i;
	char *p = good_mem(64);
	struct cmsghdr cm = { .cmsg_len = CMSG_LEN(n * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS };

	memcpy(p, &cm, sizeof(cm));
	for (i = 0; i < n; i++) {
		int fd = any_fd();

		memcpy(p + CMSG_LEN(i * sizeof(int)), &fd, sizeof(fd));
	}
	iov->iov_base = good_mem(8);
	iov->iov_len = 1;
	memset(mh, 0, sizeof(*mh));
	mh->msg_iov = iov;
	mh->msg_iovlen = 1;
	mh->msg_control = p;
	mh->msg_controllen = CMSG_SPACE(n * sizeof(int));
	return CALL(SYS_sendmsg, any_fd(), mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/**
 * op_netlink - send a netlink query with a valid header
 *
 * It sends no requests that change the stack's devices or addresses, because the
 * stack must still work afterwards.
 */
long op_netlink(void)
{
	struct sockaddr_nl *nl = good_mem(sizeof(*nl));
	size_t len = sizeof(struct nlmsghdr) + below(200);
	char *p = good_mem(512);
	struct nlmsghdr nh = {
		.nlmsg_len = one_in(6) ? (uint32_t)any_len() : (uint32_t)len,
		/* RTM_GET*: the third of every four */
		.nlmsg_type = (uint16_t)(one_in(6) ? below(24) :
					 18 + 4 * below(30)),
		.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | (rnd() & 0x304)),
		.nlmsg_seq = (uint32_t)rnd(),
	};

	/* SOCK_DIAG_BY_FAMILY is 20; in rtnetlink, this number adds an address. */
	if (nh.nlmsg_type >= 16 && (nh.nlmsg_type & 3) != 2)
		nh.nlmsg_type = 20;
	fill(p, 512);
	memcpy(p, &nh, sizeof(nh));
	memset(nl, 0, sizeof(*nl));
	nl->nl_family = AF_NETLINK;
	return CALL(SYS_sendto, any_fd(), p, len, MSG_DONTWAIT, nl, sizeof(*nl));
}
