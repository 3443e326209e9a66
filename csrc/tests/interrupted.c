// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that return a descriptor, and are interrupted by signals at all stages:
 * no descriptor is lost, and each connection is accepted once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>

#include "conform.h"

#define SOCKETS	10000
#define CONNECTIONS 3000
#define DELAY_MAX_US 100	/* a call takes about 20 us */
#define FDS_MAX	1024

#define LIMIT_S 5	/* for an accepted connection that nobody serves */

static int port;
static char seen[CONNECTIONS];

/** nothing - signal handler */
static void nothing(int sig)
{
	(void)sig;
}

/**
 * signal_soon - send this process one SIGALRM within DELAY_MAX_US
 *
 * With one signal for each call, no call is interrupted for ever.
 */
static void signal_soon(int i)
{
	struct itimerval it = { .it_value.tv_usec = 1 + i * 37 % DELAY_MAX_US };

	setitimer(ITIMER_REAL, &it, NULL);
}

/** signals - set the handler, or with @flags -1 end the signals */
static void signals(int flags)
{
	struct sigaction sa = { .sa_handler = flags < 0 ? SIG_IGN : nothing,
				.sa_flags = flags < 0 ? 0 : flags };

	sigaction(SIGALRM, &sa, NULL);
}

/** count_fds - count the open descriptors */
static int count_fds(void)
{
	int fd, n = 0;

	for (fd = 0; fd < FDS_MAX; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/** kinds - create and close sockets of several kinds */
static void kinds(int flags)
{
	static const int kind[][2] = { { AF_INET, SOCK_STREAM }, { AF_INET6, SOCK_DGRAM },
				       { AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC } };
	int i, fd, before = count_fds(), bad = 0;

	signals(flags);
	for (i = 0; i < SOCKETS; i++) {
		signal_soon(i);
		do
			fd = socket(kind[i % 3][0], kind[i % 3][1], 0);
		while (fd < 0 && errno == EINTR);
		if (fd >= FDS_MAX || fd < 0)
			bad++;
		close(fd);
	}
	signals(-1);
	say("sockets that failed", bad);
	say("descriptors left by socket()", count_fds() - before);
}

/**
 * client - connect until the server has served CONNECTIONS, and send the number
 * of each; returns how many it did not serve
 */
static void *client(void *arg)
{
	struct timeval limit = { .tv_sec = LIMIT_S };
	struct sockaddr_storage ss;
	socklen_t len = lo(&ss, AF_INET, port);
	uintptr_t lost = 0;
	uint32_t i;

	(void)arg;
	for (i = 0; i < CONNECTIONS;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		char c;

		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		if (connect(fd, (struct sockaddr *)&ss, len) ||
		    write(fd, &i, sizeof(i)) != sizeof(i))
			say("client", -1);
		if (read(fd, &c, 1) == 0)
			i++;
		else
			lost++;
		close(fd);
	}
	return (void *)lost;
}

/** accepts - accept the connections of a client */
static void accepts(int flags)
{
	struct sockaddr_storage ss;
	socklen_t len = lo(&ss, AF_INET, 0);
	int lis = socket(AF_INET, SOCK_STREAM, 0), before, i, n = 0, bad = 0;
	void *lost;
	sigset_t alarm;
	pthread_t t;

	memset(seen, 0, sizeof(seen));
	bind(lis, (struct sockaddr *)&ss, len);
	listen(lis, 100);
	port = port_of(lis);
	before = count_fds();
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	pthread_create(&t, NULL, client, NULL);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	signals(flags);
	while (n < CONNECTIONS) {
		uint32_t number = 0;
		int fd;

		signal_soon(n);
		len = sizeof(ss);
		do
			fd = accept(lis, (struct sockaddr *)&ss, &len);
		while (fd < 0 && errno == EINTR);
		n++;
		bad += ss.ss_family != AF_INET || len != sizeof(struct sockaddr_in);
		while (read(fd, &number, sizeof(number)) < 0 && errno == EINTR)
			;
		if (number < CONNECTIONS)
			seen[number]++;
		close(fd);
	}
	signals(-1);
	pthread_join(t, &lost);
	for (i = 0; i < CONNECTIONS; i++)
		bad += seen[i] != 1;
	say("connections that failed", bad);
	say("connections that nobody served", (long)(uintptr_t)lost);
	say("descriptors left by accept()", count_fds() - before);
	close(lis);
}

int main(void)
{
	int flags;

	for (flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		printf("%s SA_RESTART\n", flags ? "with" : "without");
		kinds(flags);
		accepts(flags);
	}
	return 0;
}
