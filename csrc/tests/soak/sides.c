// SPDX-License-Identifier: GPL-2.0-only
/*
 * Both sides of the soak test: forking servers, and clients whose connections
 * end in every way.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soak.h"

#define FICKLE_NS	2000000		/* time with a listener, and time without */
#define FICKLE_TRIES	5000
#define DATAGRAM	1200

static const uint32_t sizes[] = { 0, 1, 7, 100, 5000, 70000, 400000, 1500000 };

/** any_size - return a random length of a stream */
static uint32_t any_size(void)
{
	return sizes[below(sizeof(sizes) / sizeof(sizes[0]))];
}

/** serve - serve one connection, and end it as its client requested */
static void serve(int fd)
{
	struct hello h;
	int64_t n;

	if (recv_all(fd, &h, sizeof(h)) != 1)
		return;		/* the client closed first */
	if (h.mode >= MODES) {
		wrong("a client asks for the mode %u", h.mode);
		return;
	}
	n = recv_stream(fd, h.seed, h.mode == SERVER_RESETS ? h.len / 2 : h.len);
	if (h.mode == SERVER_RESETS) {
		reset_on_close(fd);
		return;
	}
	if (n < (int64_t)h.len) {
		if (h.mode == ANSWER || h.mode == HALF_CLOSE)
			wrong("a server got %lld of %u bytes: %s", (long long)n,
			      h.len, n < 0 ? strerror(errno) : "the end");
		return;
	}
	if (h.mode == HALF_CLOSE && recv_end(fd))
		wrong("a server did not see the end of its client: %s",
		      strerror(errno));
	if (send_stream(fd, ~h.seed, h.len) &&
	    (h.mode == ANSWER || h.mode == HALF_CLOSE))
		wrong("a server's answer: %s", strerror(errno));
}

/** apart - serve in a child */
static void apart(int lis, int fd)
{
	pid_t pid = fork();

	if (pid < 0) {
		wrong("fork: %s", strerror(errno));
		return;
	}
	if (pid)
		return;
	place = -1;
	close(lis);
	serve(fd);
	close(fd);
	_exit(0);
}

/** accept_one - accept a connection and serve it, every third time in a child */
static void accept_one(int lis)
{
	int fd = AGAIN(accept(lis, NULL, NULL));

	if (fd < 0) {
		if (errno != EAGAIN && errno != ECONNABORTED)
			wrong("accept: %s", strerror(errno));
		return;
	}
	step();
	if (below(3) == 0)
		apart(lis, fd);
	else
		serve(fd);
	close(fd);
	step();
}

/** server - main function of a server */
void server(int lis)
{
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		accept_one(lis);
		step();
	}
}

/** pause_ns - sleep, to let other processes run */
static void pause_ns(long ns)
{
	const struct timespec ts = { 0, ns };

	nanosleep(&ts, NULL);
}

/**
 * listen_again - listen on the fickle server's port again
 *
 * A child that has not closed its copy yet keeps the port in use.
 */
static int listen_again(void)
{
	struct sockaddr_in6 a = shared->addr[FICKLE];
	int one = 1, tries, lis;

	lis = AGAIN(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
	AGAIN(setsockopt(lis, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	for (tries = 0; tries < FICKLE_TRIES; tries++) {
		if (!AGAIN(bind(lis, (struct sockaddr *)&a, sizeof(a))) &&
		    !AGAIN(listen(lis, 8)))
			return lis;
		if (errno != EADDRINUSE)
			break;
		pause_ns(FICKLE_NS);
	}
	wrong("the listener that comes again: %s", strerror(errno));
	close(lis);
	return -1;
}

/**
 * fickle_server - main function of a server that repeatedly closes and reopens
 * its listener
 *
 * When it closes the listener, connections in its queue are reset, and later
 * ones are refused.
 */
void fickle_server(void)
{
	int lis;

	signal(SIGCHLD, SIG_IGN);
	while ((lis = listen_again()) >= 0) {
		uint64_t i;

		for (i = below(4); i; i--) {
			accept_one(lis);
			pause_ns(FICKLE_NS / 4);
		}
		close(lis);
		pause_ns(FICKLE_NS);
		step();
	}
}

/** udp_server - main function of the UDP server, which echoes datagrams */
void udp_server(int fd)
{
	static char buf[65536];

	for (;;) {
		struct sockaddr_in6 from;
		socklen_t len = sizeof(from);
		ssize_t n = recvfrom(fd, buf, sizeof(buf), 0,
				     (struct sockaddr *)&from, &len);

		if (n >= 0)
			sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from,
			       len);
		step();
	}
}

/**
 * datagram_right - check a datagram that the socket with the seed @mine
 * received
 *
 * A datagram begins with its seed. A late one may belong to an earlier socket
 * on this port that did not wait for it. Its bytes must be correct, too, and
 * that socket must be closed.
 */
static void datagram_right(const unsigned char *buf, uint64_t mine)
{
	uint64_t seed;
	int i;

	memcpy(&seed, buf, sizeof(seed));
	if (bytes_check(buf + sizeof(seed), DATAGRAM - sizeof(seed), seed, 0))
		wrong("that was a datagram");
	else if (seed == mine)
		shared->datagrams++;
	else
		shared->late++;
	for (i = 0; i < PLACES; i++)
		if (i != place && shared->place[i].seed == seed)
			wrong("a datagram came to process %d instead of %d",
			      place, i);
}

/** datagrams - exchange some datagrams; those that arrive must be correct */
static void datagrams(void)
{
	struct timeval tv = { 0, 200000 };
	int fd = AGAIN(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)), i;
	unsigned char buf[DATAGRAM];
	uint64_t seed = rnd();

	shared->place[place].seed = seed;
	AGAIN(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	if (AGAIN(connect(fd, (struct sockaddr *)&shared->addr[UDP_SERVER],
			  sizeof(struct sockaddr_in6))))
		wrong("connect of a datagram socket: %s", strerror(errno));
	for (i = 0; i < 20; i++) {
		memcpy(buf, &seed, sizeof(seed));
		bytes_make(buf + sizeof(seed), sizeof(buf) - sizeof(seed), seed,
			   0);
		if (send(fd, buf, sizeof(buf), 0) != sizeof(buf))
			continue;
		memset(buf, 0, sizeof(buf));
		if (recv(fd, buf, sizeof(buf), 0) != sizeof(buf))
			continue;
		datagram_right(buf, seed);
		step();
	}
	shared->place[place].seed = 0;
	close(fd);
}

/** fine - whether the error in errno is expected */
static bool fine(enum mode mode, int to)
{
	switch (errno) {
	case ECONNRESET:
	case EPIPE:
		return mode == SERVER_RESETS || to == FICKLE;
	}
	return false;
}

/** converse - use an open connection; true if it ended as expected */
static bool converse(int fd, int to, enum mode mode)
{
	struct hello h = { rnd(), any_size(), mode };
	int64_t n;

	if (AGAIN(send(fd, &h, sizeof(h), MSG_NOSIGNAL)) != sizeof(h) ||
	    send_stream(fd, h.seed, mode == CLIENT_RESETS ? h.len / 2 : h.len))
		return fine(mode, to);
	if (mode == CLIENT_RESETS) {
		reset_on_close(fd);
		return true;
	}
	if (mode == HALF_CLOSE && AGAIN(shutdown(fd, SHUT_WR)) && !fine(mode, to))
		return false;
	n = recv_stream(fd, ~h.seed, mode == LEAVES ? h.len / 3 : h.len);
	if (n < 0)
		return fine(mode, to);
	if (mode == LEAVES)
		return true;
	if (mode == SERVER_RESETS)
		return n == 0;		/* an answer of no bytes, then the end */
	if (n < (int64_t)h.len) {
		errno = 0;
		return false;
	}
	return mode != ANSWER || !recv_end(fd) || fine(mode, to);
}

/** talk - make one connection in one mode */
static void talk(int to, enum mode mode)
{
	int fd = dial(&shared->addr[to]);

	if (fd < 0) {
		if (to == FICKLE && (errno == ECONNREFUSED ||
				     errno == ECONNRESET))
			shared->refused++;
		else
			wrong("connect to server %d: %s", to, strerror(errno));
		return;
	}
	if (!converse(fd, to, mode))
		wrong("mode %d with server %d: %s", mode, to,
		      errno ? strerror(errno) : "bytes are missing, or too many");
	close(fd);
	shared->done[mode]++;
}

/** doomed - let a child make a connection, and kill it while it transfers data */
static void doomed(int to)
{
	pid_t pid = fork();

	if (pid < 0) {
		wrong("fork: %s", strerror(errno));
		return;
	}
	if (!pid) {
		int fd = dial(&shared->addr[to]);

		place = -1;
		for (;;) {
			struct hello h = { rnd(), any_size(), KILLED };

			if (AGAIN(send(fd, &h, sizeof(h), MSG_NOSIGNAL)) < 0 ||
			    send_stream(fd, h.seed, h.len))
				break;
			recv_stream(fd, ~h.seed, h.len);
			close(fd);
			fd = dial(&shared->addr[to]);
		}
		_exit(0);
	}
	pause_ns((long)below(20000000));
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	shared->done[KILLED]++;
}

/** client - make one connection after the other until the test ends */
void client(void)
{
	while (!shared->over) {
		int to = (int)below(below(8) ? SERVERS : SERVERS + 1);
		enum mode mode = (enum mode)below(MODES);

		if (mode == KILLED)
			doomed(to);
		else
			talk(to, mode);
		if (!below(20))
			datagrams();
		step();
	}
}
