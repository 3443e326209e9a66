/* SPDX-License-Identifier: GPL-2.0-only */
/* lklhost's side of a lane (include/lane.h): what lane.c and lane_tx.c share. */
#ifndef LKLHOST_LANE_END_H
#define LKLHOST_LANE_END_H

#include <stdbool.h>
#include <stdint.h>

#include "conn.h"
#include "lane.h"
#include "list.h"

/* What the program may change at any time is read once, and stored like this. */
#define LOAD(p)		__atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define STORE(p, v)	__atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#define FENCE()		__atomic_thread_fence(__ATOMIC_SEQ_CST)

/**
 * struct lane_end - what lklhost knows of a lane
 * @conn: whose it is
 * @page, @tx: the shared memory, its ring
 * @fd: of it
 * @all: in the list of all
 * @wait: in the list of those that the loop looks at; @looks: how often it has
 * @bad: the program has written what cannot be
 *
 * @tail: as tx_tail, which the program could change
 * @idle: tx_idle is set
 * @off: tx_off is set
 * @have_bell: the bell's byte @bell is read, and its place is @bell_at
 */
struct lane_end {
	struct conn *conn;
	struct lane *page;
	char *tx;
	int fd;
	struct list all, wait;
	unsigned int looks;
	bool bad;

	uint32_t tail;
	bool idle, off, have_bell;
	char bell;
	uint32_t bell_at;
};

/* lane_tx.c */
bool lane_tx_work(const struct lane_end *le);
void lane_tx_rest(struct lane_end *le);
void lane_tx_wake(struct lane_end *le);

#endif
