/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations shared by poll(), select() and epoll_wait(): poller.c. */
#ifndef PRELOAD_POLLER_H
#define PRELOAD_POLLER_H

#include <poll.h>
#include <stdint.h>
#include <time.h>

#include "engine/preload/internal.h"

/**
 * struct poller - lets a thread wait for the host while it sleeps in the stack
 * @epfd: the host's epoll that the library watches
 * @state: IDLE, ARMED, FIRED
 * @thread: the library's handle of the thread to wake
 * @next_free: list of pollers without a thread
 * @busy: in use; a signal handler takes another one
 * @kept: a descriptor that stays in @epfd, or -1; @kept_gen is its generation
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

#define FEW		32	/* descriptors that need no allocation */

/**
 * struct sets - polled descriptors, sorted by kernel
 * @user: the program's array, @n entries
 * @st, @ho: entries of the stack and of the host, each with its index in @user
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
void poller_leave(struct poller *p) HIDDEN;
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
