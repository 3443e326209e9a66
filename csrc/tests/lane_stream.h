/* SPDX-License-Identifier: GPL-2.0-only */
/* Streams that are checked byte by byte, for the parts of lane_mix. */
#ifndef LANE_STREAM_H
#define LANE_STREAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "conform.h"
#include "lane_bytes.h"
#include "rnd.h"

#define MOST	(1u << 20)
#define MB	(1u << 20)
#define TIME	100		/* seconds for all */

enum how { BLOCK, POLL, SELECT, LEVEL, EDGE };

/**
 * struct stream - one direction of a connection
 * @raw: of 100 calls so many are made without the C library
 * @pos: bytes so far
 * @err: what ended it, 0: all is there
 */
struct stream {
	int fd;
	enum how how;
	int raw;
	bool reads;
	uint32_t seed;
	uint64_t pos, total;
	int err;
	int epfd;
};
extern char rest[4096];		/* the other program, lane_rest */
extern volatile int alarms;	/* signals that came, of every() */

void die(const char *what, const struct stream *s, int64_t at);
size_t some_size(void);
void wait_fd(struct stream *s);
void *run_stream(void *arg);
void every(int us);
pthread_t writer(struct stream *s, int fd, uint32_t seed, uint64_t total);
void end_status(const char *name, pid_t pid);
void read_on(struct stream *s, uint64_t to);

/* Parts: lane_fds.c, lane_ends.c, lane_writers.c */
void in_turns(void);
void moved(void);
void given_away(bool rights);
void ends(void);
void burst(void);
void killed(bool reader);
void limits(void);
void two_writers(void);
void from_handler(void);

#endif
