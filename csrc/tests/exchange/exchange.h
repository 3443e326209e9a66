/* SPDX-License-Identifier: GPL-2.0-only */
/* Exchange what a call uses while it is made; see main.c. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "../rnd.h"

/**
 * struct kind - what is exchanged
 * @set_up: prepares it
 * @call: makes a call, in thread A
 * @exchange: exchanges something, in thread B
 * @own_files: B is a thread with other descriptors, so lklhost does not stop it
 */
struct kind {
	const char *name;
	void (*set_up)(void);
	void (*call)(void);
	void (*exchange)(void);
	bool own_files;
};

extern const struct kind descriptors, memory, channel, instructions, loop;

/**
 * struct count - what all workers have done
 * @received: descriptors that arrived
 */
struct count {
	uint64_t calls, exchanges, messages, received, killed;
};

extern struct count *count;

/* main.c */
void add(uint64_t *counter);
void tell(int fd);
void escaped(const char *how);
void local_address(void *addr);
int outside_connect(void);
const char *outside_path(void);
void receive(int fd, bool several);

#endif
