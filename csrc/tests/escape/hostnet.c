// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attempts to reach destinations that --host-net does not name. ESCAPE_CHOSEN
 * is a port of the host's loopback that the run may use, by TCP and UDP. It may
 * use no other port.
 *
 * The target cannot tell where its bytes went, so these attempts print "tried". The
 * test's listeners report what arrived.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "escape.h"

#define TRIES	400

/** loopback - make an address of the host's loopback */
static struct sockaddr_in loopback(const char *port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)number(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

/** hosted - make a datagram socket of the host by connecting it to the chosen port */
static int hosted(void)
{
	struct sockaddr_in in = loopback("CHOSEN");
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	return connect(fd, (struct sockaddr *)&in, sizeof(in)) ? -1 : fd;
}

/** unspecified - send to an address without a family, which Linux treats as IPv4 */
static const char *unspecified(const struct attempt *at)
{
	struct sockaddr_in in = loopback("UDP");
	int fd = hosted();

	(void)at;
	if (fd < 0)
		return failure(errno);
	in.sin_family = AF_UNSPEC;
	sendto(fd, "unspec", 6, 0, (struct sockaddr *)&in, sizeof(in));
	return "tried";
}

/** second - give the second message of sendmmsg() another destination */
static const char *second(const struct attempt *at)
{
	struct sockaddr_in to[2] = { loopback("CHOSEN"), loopback("UDP") };
	struct iovec iov = { "second", 6 };
	struct mmsghdr m[2];
	int fd = hosted(), i;

	(void)at;
	if (fd < 0)
		return failure(errno);
	memset(m, 0, sizeof(m));
	for (i = 0; i < 2; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_name = &to[i],
						.msg_namelen = sizeof(to[i]),
						.msg_iov = &iov, .msg_iovlen = 1 };
	sendmmsg(fd, m, 2, 0);
	return "tried";
}

static struct sockaddr_in raced;
static volatile bool stop;

/** exchange - thread that alternates the port in the address that lklhost checks */
static void *exchange(void *arg)
{
	uint16_t chosen = loopback("CHOSEN").sin_port;
	uint16_t other = loopback(arg).sin_port;

	while (!stop) {
		*(volatile uint16_t *)&raced.sin_port = chosen;
		*(volatile uint16_t *)&raced.sin_port = other;
	}
	return NULL;
}

/** race_udp - send while the address changes */
static void race_udp(void)
{
	int i, fd = hosted();

	for (i = 0; i < TRIES; i++)
		sendto(fd, "race", 4, MSG_DONTWAIT, (struct sockaddr *)&raced,
		       sizeof(raced));
	close(fd);
}

/** race_connect - connect new sockets while the address changes */
static void race_connect(int type)
{
	int i, fd;

	for (i = 0; i < TRIES; i++) {
		fd = socket(AF_INET, type | SOCK_NONBLOCK, 0);
		if (!connect(fd, (struct sockaddr *)&raced, sizeof(raced)) &&
		    type == SOCK_DGRAM && send(fd, "race", 4, 0) < 0)
			errno = 0;	/* refused, or full */
		close(fd);
	}
}

/** race - change an address during a call; @a: type of the socket; @b: use connect() */
static const char *race(const struct attempt *at)
{
	char *port = at->a == SOCK_STREAM ? "TCP" : "UDP";
	pthread_t thread;

	raced = loopback("CHOSEN");
	pthread_create(&thread, NULL, exchange, port);
	if (at->b)
		race_connect((int)at->a);
	else
		race_udp();
	stop = true;
	pthread_join(thread, NULL);
	return "tried";
}

const struct attempt hostnet_attempts[] = {
	{ "hostnet-unspecified", unspecified, 0, 0 },
	{ "hostnet-second-message", second, 0, 0 },
	{ "hostnet-race-sendto", race, SOCK_DGRAM, 0 },
	{ "hostnet-race-udp", race, SOCK_DGRAM, 1 },
	{ "hostnet-race-tcp", race, SOCK_STREAM, 1 },
	{ NULL, NULL, 0, 0 },
};
