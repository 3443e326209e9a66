/* SPDX-License-Identifier: GPL-2.0-only */
/* Tests of calls that keep received bytes by reference; see main.c. */
#ifndef BYTES_H
#define BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../rnd.h"

#define KB		1024u
#define MB		(1024u * KB)
#define HELD		(256 * KB)	/* bytes kept by reference while others arrive */

/* How received bytes leave a connection. */
enum way {
	WAY_READ,	/* read(), for comparison */
	WAY_SENDFILE,	/* sendfile() into a pipe */
	WAY_SPLICE,	/* splice() into a pipe */
	WAY_TEE,	/* sendfile(), then tee(); both pipes are read */
	WAY_RELAY,	/* sendfile(), then splice() into a unix socket, read from there */
	WAY_VMSPLICE,	/* sendfile(), then vmsplice() from the pipe */
	WAY_EXCHANGE,	/* splice() from a descriptor that another thread exchanges */
	WAYS,
};

/**
 * struct stream - one direction of a connection
 * @fd: descriptor of our end; O_NONBLOCK if it receives
 * @seed: determines its bytes
 * @pos: number of bytes transferred so far
 */
struct stream {
	int fd;
	uint64_t seed, pos;
};

/**
 * struct hold - bytes that have left a connection and have not been read
 * @pipe, @copy, @relay: descriptors that hold them, depending on the way
 * @slot, @idle: a descriptor that another thread exchanges, and the one it
 *	exchanges it with
 * @pos: position of the first byte; @len: number of bytes
 */
struct hold {
	enum way way;
	int pipe[2], copy[2], relay[2];
	int slot, idle[2];
	uint64_t pos;
	size_t len;
};

extern const char *const way_names[WAYS];

/* stream.c */
void die(const char *what, uint64_t at) __attribute__((noreturn));
void fill(char *buf, uint64_t seed, uint64_t pos, size_t n);
void check(const char *what, const char *buf, uint64_t seed, uint64_t pos,
	   size_t n);
void tcp_pair(int sv[2]);
void readable(int fd);
void take(const char *what, struct stream *s, size_t n);
bool put(int fd, const char *buf, size_t n);
void *sender(void *stream);

/* hold.c */
void hold_open(struct hold *h, enum way way);
void hold_close(struct hold *h);
void hold_take(struct hold *h, struct stream *s, size_t most);
void hold_check(struct hold *h, struct stream *s);

/* main.c */
void begin(struct stream *to, uint64_t seed, void *(*fn)(void *));

/* zerocopy.c */
int zerocopy(void);

/* outside.c */
void given(const char *path, bool taken);
int outside(const char *path);

/* soak.c */
int soak(uint64_t seed, unsigned int seconds);

#endif
