/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target of TestFinding03HostNet. It uses a socket with a destination of
 * --host-net, and tries to reach another destination that --host-net does not name.
 *
 *	finding03 udp|tcp|unspec|mmsg|options CHOSEN PORT FORBIDDEN PORT
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in good, bad;
static struct sockaddr_in name;		/* the calls point to it */
static volatile int stop;

/* swap - replace the address again and again */
static void *swap(void *arg)
{
	(void)arg;
	while (!stop) {
		memcpy((void *)&name, &good, sizeof(name));
		__sync_synchronize();
		memcpy((void *)&name, &bad, sizeof(name));
		__sync_synchronize();
	}
	return NULL;
}

/* hosted - create a datagram socket that uses the host's network */
static int hosted(void)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	if (sendto(s, "ok", 2, 0, (struct sockaddr *)&good, sizeof(good)) != 2)
		exit(3);
	return s;
}

static void race_udp(void)
{
	int i, s = hosted();

	for (i = 0; i < 3000; i++) {
		struct iovec iov = { "forbidden", 9 };
		struct msghdr mh = { .msg_name = (void *)&name, .msg_namelen = sizeof(name),
				     .msg_iov = &iov, .msg_iovlen = 1 };

		if (i % 3 == 0)
			sendto(s, "forbidden", 9, 0, (struct sockaddr *)&name, sizeof(name));
		else if (i % 3 == 1)
			sendmsg(s, &mh, 0);
		else if (!connect(s, (struct sockaddr *)&name, sizeof(name)))
			send(s, "connected", 9, 0);
	}
}

static void race_tcp(void)
{
	int i;

	for (i = 0; i < 1500; i++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		struct sockaddr none = { .sa_family = AF_UNSPEC };

		/* A socket of the host's network, which is unconnected again. */
		if (connect(s, (struct sockaddr *)&good, sizeof(good)))
			exit(4);
		connect(s, &none, sizeof(none));
		connect(s, (struct sockaddr *)&name, sizeof(name));
		close(s);
	}
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc != 6)
		return 2;
	good.sin_family = bad.sin_family = AF_INET;
	inet_pton(AF_INET, argv[2], &good.sin_addr);
	good.sin_port = htons((uint16_t)atoi(argv[3]));
	inet_pton(AF_INET, argv[4], &bad.sin_addr);
	bad.sin_port = htons((uint16_t)atoi(argv[5]));
	name = good;
	if (!strcmp(argv[1], "unspec")) {
		int s = hosted();

		bad.sin_family = AF_UNSPEC;
		sendto(s, "unspec", 6, 0, (struct sockaddr *)&bad, sizeof(bad));
	} else if (!strcmp(argv[1], "mmsg")) {
		int s = hosted();
		struct iovec iov = { "mmsg", 4 };
		struct mmsghdr m[2] = {
			{ .msg_hdr = { &good, sizeof(good), &iov, 1, NULL, 0, 0 } },
			{ .msg_hdr = { &bad, sizeof(bad), &iov, 1, NULL, 0, 0 } },
		};

		if (sendmmsg(s, m, 2, 0) < 1)
			return 5;
	} else if (!strcmp(argv[1], "options")) {
		/* A loose source route through the forbidden destination. */
		unsigned char lsrr[8] = { 131, 7, 4, 0, 0, 0, 0, 0 };
		int s = hosted();

		memcpy(lsrr + 3, &bad.sin_addr, 4);
		if (!setsockopt(s, IPPROTO_IP, IP_OPTIONS, lsrr, sizeof(lsrr)))
			return 6;
	} else {
		pthread_create(&t, NULL, swap, NULL);
		if (!strcmp(argv[1], "udp"))
			race_udp();
		else
			race_tcp();
		stop = 1;
		pthread_join(t, NULL);
	}
	puts("done");
	return 0;
}
