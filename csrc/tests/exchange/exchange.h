/* SPDX-License-Identifier: GPL-2.0-only */
/* Exchange what a call uses while it is made; see main.c. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "../rnd.h"

/**
 * struct kind - what is exchanged
 * @set_up: prepares it
 * @call: makes a call, in thread A
 * @exchange: exchanges something, in thread B
 * @flags: of clone(2) for B; 0: a thread or a process, with the same descriptors
 */
struct kind {
	const char *name;
	void (*set_up)(void);
	void (*call)(void);
	void (*exchange)(void);
	int flags;
};

#define THREAD		(CLONE_SIGHAND | CLONE_THREAD)
#define OWN_FILES	THREAD	/* lklhost does not stop B */

extern const struct kind descriptors, memory, channel, instructions, loop,
			 sections, dispatch, execs, shared_execs, vforks,
			 signals, filters;

/**
 * struct count - what all workers have done
 * @received: descriptors that arrived
 * @executed: workers that have executed the program again
 * @ended: workers that have ended
 */
struct count {
	uint64_t calls, exchanges, messages, received, killed, executed, ended;
};

#define EXECUTED	7	/* exit status of these */

extern struct count *count;

/* main.c */
void add(uint64_t *counter);
void tell(int fd);
void escaped(const char *how);
void local_address(void *addr);
int outside_connect(void);
const char *outside_path(void);
void receive(int fd, bool several);
void execute(void);

#endif
