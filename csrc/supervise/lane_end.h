/* SPDX-License-Identifier: GPL-2.0-only */
/* lklhost's side of a lane (include/lane.h): what lane.c, lane_tx.c, lane_rx.c share. */
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
 * @page, @tx, @rx: the shared memory, its rings
 * @fd: of it
 * @all: in the list of all
 * @wait: in the list of those that the loop looks at; @looks: how often it has
 * @bad: the program has written what cannot be
 *
 * @tail: as tx_tail, which the program could change
 * @idle: tx_idle is set
 * @off: tx_off is set
 * @have_bell: the bell's byte @bell is read, and its place is @bell_at
 *
 * @offered: a batch is on offer, as far as known
 * @clock: in the list of those whose time is watched: with a batch on offer, or
 *	that wait for an empty carrier to offer one
 * @since: when that began or the batch was touched last, ns; @seen: rx_off then
 * @len: as rx_len, @seq: as rx_seq
 * @rx_bell: the bell's byte
 * @draining: it waits for an empty carrier
 * @waits: rx_waits is set
 * @pause: for how long no batch is offered after one was taken back, ns
 * @pause_end: until when, 0: now
 */
struct lane_end {
	struct conn *conn;
	struct lane *page;
	char *tx, *rx;
	int fd;
	struct list all, wait;
	unsigned int looks;
	bool bad;

	uint32_t tail;
	bool idle, off, have_bell;
	char bell;
	uint32_t bell_at;

	bool offered, draining, waits;
	struct list clock;
	uint64_t since;
	uint32_t seen, len, seq;
	char rx_bell;
	uint64_t pause, pause_end;
};

/* lane.c */
void lane_watch_time(struct lane_end *le);

/* lane_tx.c */
bool lane_tx_work(const struct lane_end *le);
void lane_tx_rest(struct lane_end *le);
void lane_tx_wake(struct lane_end *le);

/* lane_rx.c */
bool lane_rx_work(const struct lane_end *le);
void lane_rx_rest(struct lane_end *le);
void lane_rx_wake(struct lane_end *le);
bool lane_rx_time(struct lane_end *le, uint64_t now);
void lane_rx_drop(struct lane_end *le);

#endif
