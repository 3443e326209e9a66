/* SPDX-License-Identifier: GPL-2.0-only */
/* The soak test of the stack's connections; see main.c. */
#ifndef SOAK_H
#define SOAK_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../rnd.h"

#define SERVERS		4
#define FICKLE		SERVERS		/* index of the fickle server */
#define UDP_SERVER	(SERVERS + 1)
#define PLACES		(SERVERS + 2 + 16)	/* including the clients */

/* How a connection ends. */
enum mode {
	ANSWER,		/* complete transfer in both directions */
	HALF_CLOSE,	/* the client shuts its side before it reads */
	SERVER_RESETS,	/* the server closes with SO_LINGER 0 during the transfer */
	CLIENT_RESETS,
	LEAVES,		/* the client closes with data unread */
	KILLED,		/* the client dies by SIGKILL */
	MODES,
};

/**
 * struct hello - first message of a client
 * @seed: seed of the following bytes, and of the answer
 * @len: number of bytes in each direction
 */
struct hello {
	uint64_t seed;
	uint32_t len;
	uint32_t mode;
};

/**
 * struct place - a process of the soak, for signals and the watchdog
 * @pid: 0: none
 * @steps: incremented while the process makes progress
 * @seed: seed of the datagrams of its open socket, 0: none
 */
struct place {
	_Atomic pid_t pid;
	_Atomic uint64_t steps, seed;
};

/**
 * struct shared - memory that all processes share
 * @addr: address of each server, AF_INET or AF_INET6
 * @done: number of completed connections by mode, as counted by clients
 */
struct shared {
	struct place place[PLACES];
	struct sockaddr_in6 addr[SERVERS + 2];
	_Atomic uint64_t done[MODES];
	_Atomic uint64_t bytes, signals, interrupted, refused, datagrams, late, wrong;
	_Atomic bool over;
};

extern struct shared *shared;
extern int place;		/* index of this process, -1: none */

/* stream.c: bytes that depend on their position, and calls that continue after EINTR */
void step(void);
void bytes_make(unsigned char *buf, size_t len, uint64_t seed, uint64_t at);
int bytes_check(const unsigned char *buf, size_t len, uint64_t seed,
		uint64_t at);
bool again(void);
int send_stream(int fd, uint64_t seed, uint64_t len);
int64_t recv_stream(int fd, uint64_t seed, uint64_t len);
int recv_all(int fd, void *buf, size_t len);
int recv_end(int fd);
int dial(const struct sockaddr_in6 *to);
void reset_on_close(int fd);
void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Make a call, and repeat it if a signal has interrupted it. */
#define AGAIN(call) ({							\
	int again_ret;							\
									\
	do {								\
		again_ret = (int)(call);				\
	} while (again_ret < 0 && again());				\
	again_ret;							\
})

void server(int lis);
void fickle_server(void);
void udp_server(int fd);
void client(void);

#endif
