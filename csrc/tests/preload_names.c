// SPDX-License-Identifier: GPL-2.0-only
/*
 * Name resolution: the C library's resolver queries a server on the stack's
 * 127.0.0.1, which is listed in /etc/resolv.conf. The program runs like
 * preload_mix.
 */
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "conform.h"

#define THREADS	8

/** answer - answer one query: 10.1.2.3 for type A, no records for other types */
static size_t answer(uint8_t *q, size_t n)
{
	static const uint8_t rr[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 3 };
	size_t at = 12;
	int type;

	while (at < n && q[at])
		at += q[at] + 1U;
	at += 5;		/* length of the root name, type, class */
	if (at > n)
		return 0;
	type = q[at - 4] << 8 | q[at - 3];
	q[2] = 0x84;
	q[3] = 0;
	memset(q + 6, 0, 6);
	if (type == 1) {
		q[7] = 1;
		memcpy(q + at, rr, sizeof(rr));
		at += sizeof(rr);
	}
	return at;
}

/** server - thread that serves UDP port 53 */
static void *server(void *arg)
{
	uint8_t buf[512];
	int fd = *(int *)arg;
	struct sockaddr_storage from;
	socklen_t len;
	ssize_t n;

	for (;;) {
		len = sizeof(from);
		n = recvfrom(fd, buf, sizeof(buf) - 16, 0, (struct sockaddr *)&from, &len);
		if (n <= 0)
			return NULL;
		n = (ssize_t)answer(buf, (size_t)n);
		if (n)
			sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len);
	}
}

/**
 * struct look - a name lookup
 * @family: AF_*
 * @text: the address, or why there is none
 */
struct look {
	int family;
	char text[64];
};

/** look_up - thread that calls getaddrinfo() */
static void *look_up(void *arg)
{
	struct look *l = arg;
	struct addrinfo hints = { .ai_family = l->family, .ai_socktype = SOCK_STREAM }, *ai;
	int err = getaddrinfo("host.test", "80", &hints, &ai);

	if (err) {
		snprintf(l->text, sizeof(l->text), "%s", gai_strerror(err));
		return NULL;
	}
	getnameinfo(ai->ai_addr, ai->ai_addrlen, l->text, sizeof(l->text), NULL, 0, NI_NUMERICHOST);
	freeaddrinfo(ai);
	return NULL;
}

/** main - run all tests in order */
int main(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), i, n = 0;
	struct sockaddr_storage ss;
	struct if_nameindex *ni;
	struct ifaddrs *ifa, *p;
	struct hostent *h;
	pthread_t t[THREADS], srv;
	char name[IF_NAMESIZE];
	struct look look[THREADS] = { { .family = AF_INET } };

	setvbuf(stdout, NULL, _IOLBF, 0);
	say("bind", bind(fd, (struct sockaddr *)&ss, lo(&ss, AF_INET, 53)));
	pthread_create(&srv, NULL, server, &fd);
	look_up(&look[0]);
	printf("%s\n", look[0].text);
	for (i = 1; i < THREADS; i++)
		pthread_create(&t[i], NULL, look_up, &look[i]);
	for (i = 1; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		n += !strcmp(look[i].text, "10.1.2.3");
	}
	printf("at once: %d\n", n);
	h = gethostbyname("other.test");
	printf("gethostbyname: %d\n", h ? (uint8_t)h->h_addr_list[0][3] : -1);
	ni = if_nameindex();
	for (i = 0; ni[i].if_index; i++)
		printf("interface %u %s\n", ni[i].if_index, ni[i].if_name);
	if_freenameindex(ni);
	printf("if_indextoname: %s\n", if_indextoname(1, name));
	for (i = 0; i < 300; i++) {	/* the resolver closes its socket each time */
		if (getifaddrs(&ifa))
			say("getifaddrs", -1);
		for (n = 0, p = ifa; p; p = p->ifa_next)
			n++;
		freeifaddrs(ifa);
	}
	printf("addresses: %d\n", n);
	i = socket(AF_INET, SOCK_STREAM, 0);
	say("descriptors in use", i - fd);
	return 0;
}
