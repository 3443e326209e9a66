/* SPDX-License-Identifier: GPL-2.0-only */
/* A client of lanes (include/lane.h) for tests: as simple as the rules allow. */
#ifndef LANES_H
#define LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lane.h"
#include "rnd.h"
#include "tap.h"

#define LIMIT_MS 10000

/**
 * struct end - one end of a connection
 * @fd: the socket
 * @l: its lane, NULL: none
 * @in, @out: bytes of the stream so far
 * @by_lane: of the latter, those that went through the ring
 */
struct end {
	int fd;
	struct lane *l;
	uint64_t in, out, by_lane;
};

/* lanes_client.c */
void pair(struct end *a, struct end *b);
void shut(struct end *a, struct end *b);
int attach(int fd);
bool lane_open(struct end *e);
void lane_close(struct end *e);
int outq(int fd);
size_t ring_put(struct end *e, const char *buf, size_t n);
bool ring_lock(struct lane *l);
void ring_publish(struct lane *l, const char *buf, size_t n);
long get(struct end *e, char *buf, size_t n);
void fill(uint64_t at, char *buf, size_t n);
bool check(uint64_t at, const char *buf, size_t n);
bool send_all(struct end *e, size_t n);
bool receive_all(struct end *e, size_t n);

#endif
