/* SPDX-License-Identifier: GPL-2.0-only */
/* What poll(), select() and epoll_wait() share: poller.c. */
#ifndef PRELOAD_POLLER_H
#define PRELOAD_POLLER_H

#include <poll.h>
#include <stdint.h>
#include <time.h>

#include "internal.h"

/**
 * struct poller - how a thread waits for the host while it sleeps in the stack
 * @epfd: the host's epoll that the library watches
 * @state: IDLE, ARMED, FIRED
 * @thread: the library's handle of whom it wakes
 * @next_free: list of those without a thread
 * @busy: in use; a signal handler takes another
 * @kept: a descriptor that stays in @epfd, -1: none; @kept_gen says which
 */
struct poller {
	int epfd;
	int state;
	void *thread;
	int next_free;
	bool busy;
	int kept;
	unsigned int kept_gen;
};

#define DEADLINE_NOW	0
#define DEADLINE_NEVER	INT64_MAX

#define FEW		32	/* descriptors that need no memory of their own */

/**
 * struct sets - what is polled, sorted by kernel
 * @user: as the program has it, @n of them
 * @st, @ho: the stack's and the host's, each with its place in @user
 */
struct sets {
	struct pollfd *user, *st, *ho;
	int *st_at, *ho_at;
	int n, nst, nho;
	void *mem;
	size_t mem_len;
	struct pollfd few[3 * FEW];
	int few_at[2 * FEW];
};

int sets_init(struct sets *s, int n) HIDDEN;
void sets_free(struct sets *s) HIDDEN;
void sets_sort(struct sets *s) HIDDEN;
long sets_wait(struct sets *s, int64_t deadline) HIDDEN;

struct poller *poller_take(void) HIDDEN;
void poller_release(struct poller *p) HIDDEN;
void poller_arm(struct poller *p) HIDDEN;
bool poller_fired(const struct poller *p) HIDDEN;
void poller_disarm(struct poller *p) HIDDEN;
int poller_add(struct poller *p, int fd, uint32_t events) HIDDEN;
void poller_del(struct poller *p, int fd) HIDDEN;
int poller_keep(struct poller *p, int fd, unsigned int gen) HIDDEN;
int64_t deadline_in(int64_t ns) HIDDEN;
struct timespec *time_left(int64_t deadline, struct timespec *ts) HIDDEN;
int64_t time_read(const void *user, int64_t *ns) HIDDEN;
int mask_push(const void *user, uint64_t *old) HIDDEN;
void mask_pop(const uint64_t *old) HIDDEN;

#endif
