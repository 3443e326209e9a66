// SPDX-License-Identifier: GPL-2.0-only
/*
 * A soak test: servers that fork, clients whose connections end in every
 * possible way, and constant signals. Every byte is checked.
 *
 *	soak SEED SECONDS [CLIENTS]
 *
 * Theory of operation
 *
 * Each server and client is a process with an entry in shared memory. One
 * process sends SIGUSR1 a thousand times a second to random other processes.
 * The handler restarts calls in half of them. A process that makes no progress
 * for STUCK_S is stuck. Each error is printed as a line and counted. The last
 * lines are the statistics. The exit status is 0 only if there were no errors.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soak.h"

#define STUCK_S		60
#define SIGNAL_NS	1000000
#define FIRST_PORT	7000

struct shared *shared;
int place = -1;

static int clients = 6;

/** now_s - CLOCK_MONOTONIC, seconds */
static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/** nothing - signal handler that does nothing */
static void nothing(int sig)
{
	(void)sig;
}

/** start - fork a process for the entry @i; returns 0 in the child */
static pid_t start(int i, uint64_t seed)
{
	struct sigaction sa = { .sa_handler = nothing,
				.sa_flags = i & 1 ? SA_RESTART : 0 };
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(2);
	}
	if (pid) {
		if (i >= 0)
			shared->place[i].pid = pid;
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigaction(SIGUSR1, &sa, NULL);
	rnd_seed(seed * 1000 + (uint64_t)i);
	place = i;
	return 0;
}

/** signaller - send SIGUSR1 to one process after the other */
static void signaller(void)
{
	struct timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!shared->over) {
		pid_t pid = shared->place[below((uint64_t)(UDP_SERVER + 1 +
							   clients))].pid;

		if (pid && !kill(pid, SIGUSR1))
			shared->signals++;
		next.tv_nsec += SIGNAL_NS;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	_exit(0);
}

/** bound - make a socket on a loopback address, and store the address in shared->addr */
static int bound(int i, int type)
{
	struct sockaddr_in6 *a = &shared->addr[i];
	socklen_t len = sizeof(*a);
	int one = 1, fd;

	/*
	 * A fixed port: a client could get an ephemeral one while the fickle
	 * server is not listening.
	 */
	a->sin6_port = htons((uint16_t)(FIRST_PORT + i));
	a->sin6_family = i < SERVERS && i % 2 ? AF_INET : AF_INET6;
	if (a->sin6_family == AF_INET)
		((struct sockaddr_in *)a)->sin_addr.s_addr =
			htonl(INADDR_LOOPBACK);
	else
		a->sin6_addr = in6addr_loopback;
	fd = socket(a->sin6_family, type, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)a, a->sin6_family == AF_INET ?
		 sizeof(struct sockaddr_in) : sizeof(*a)) ||
	    (type == SOCK_STREAM && listen(fd, 64)) ||
	    getsockname(fd, (struct sockaddr *)a, &len)) {
		perror("a server's socket");
		exit(2);
	}
	return fd;
}

/** everybody - start all processes */
static void everybody(uint64_t seed)
{
	int i, fd;

	for (i = 0; i < SERVERS; i++) {
		fd = bound(i, SOCK_STREAM);
		if (!start(i, seed))
			server(fd);
		close(fd);
	}
	close(bound(FICKLE, SOCK_STREAM));
	if (!start(FICKLE, seed)) {
		fickle_server();
		_exit(1);
	}
	fd = bound(UDP_SERVER, SOCK_DGRAM);
	if (!start(UDP_SERVER, seed))
		udp_server(fd);
	close(fd);
	for (i = 0; i < clients; i++)
		if (!start(UDP_SERVER + 1 + i, seed)) {
			client();
			_exit(0);
		}
}

/** watch - watch the processes until @end; false if one hangs or has ended */
static bool watch(double end)
{
	const struct timespec ts = { 0, 50000000 };
	uint64_t steps[PLACES] = { 0 };
	double since[PLACES];
	int i, n = UDP_SERVER + 1 + clients;

	for (i = 0; i < n; i++)
		since[i] = now_s();
	while (now_s() < end && !shared->wrong) {
		nanosleep(&ts, NULL);
		for (i = 0; i < n; i++) {
			/* A datagram may be lost, and no process sends it again. */
			if (steps[i] != shared->place[i].steps ||
			    i == UDP_SERVER) {
				steps[i] = shared->place[i].steps;
				since[i] = now_s();
			}
			if (waitpid(shared->place[i].pid, NULL, WNOHANG)) {
				wrong("process %d has ended", i);
				return false;
			}
			if (now_s() - since[i] > STUCK_S) {
				wrong("process %d (pid %d) is stuck", i,
				      shared->place[i].pid);
				return false;
			}
		}
	}
	return true;
}

/** finish - let the clients finish, and kill all others */
static void finish(void)
{
	const struct timespec ts = { 0, 10000000 };
	double end = now_s() + STUCK_S;
	int i, n = UDP_SERVER + 1 + clients;

	shared->over = true;
	for (i = UDP_SERVER + 1; i < n; i++) {
		while (!shared->wrong && !waitpid(shared->place[i].pid, NULL,
						  WNOHANG)) {
			if (now_s() > end)
				wrong("process %d (pid %d) does not end", i,
				      shared->place[i].pid);
			nanosleep(&ts, NULL);
		}
	}
	for (i = 0; i < n; i++)
		kill(shared->place[i].pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

/** report - print the statistics */
static void report(double seconds)
{
	static const char *const names[MODES] = {
		"answered", "half-closed", "reset by the server",
		"reset by the client", "left with data unread", "killed",
	};
	uint64_t all = 0;
	int i;

	for (i = 0; i < MODES; i++)
		all += shared->done[i];
	printf("%.0f seconds: %llu connections, %.2f GB sent and checked\n",
	       seconds, (unsigned long long)all, (double)shared->bytes / 1e9);
	for (i = 0; i < MODES; i++)
		printf("%10llu %s\n", (unsigned long long)shared->done[i],
		       names[i]);
	printf("%10llu refused by the listener that comes and goes\n"
	       "%10llu datagrams there and back, %llu late ones\n"
	       "%10llu signals, %llu calls interrupted\n"
	       "%10llu wrong\n",
	       (unsigned long long)shared->refused,
	       (unsigned long long)shared->datagrams,
	       (unsigned long long)shared->late,
	       (unsigned long long)shared->signals,
	       (unsigned long long)shared->interrupted,
	       (unsigned long long)shared->wrong);
}

/** main - see above */
int main(int argc, char **argv)
{
	uint64_t seed;
	double began;
	pid_t pid;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "soak SEED SECONDS [CLIENTS]\n");
		return 2;
	}
	seed = strtoull(argv[1], NULL, 0);
	if (argc == 4)
		clients = atoi(argv[3]);
	if (clients < 1 || clients > PLACES - UDP_SERVER - 1) {
		fprintf(stderr, "soak: %s: 1 to %d clients\n", argv[3],
			PLACES - UDP_SERVER - 1);
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	printf("seed %llu\n", (unsigned long long)seed);
	signal(SIGUSR1, nothing);	/* before any process installs its own handler */
	began = now_s();
	everybody(seed);
	pid = start(-1, seed);
	if (!pid)
		signaller();
	watch(began + strtod(argv[2], NULL));
	finish();
	report(now_s() - began);
	return shared->wrong != 0;
}
