// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which socket has a lane, by inode number.
 *
 * Theory of operation
 *
 * A descriptor's number says nothing: it is closed, duplicated and passed on by
 * calls that the library does not see. So each large operation asks fstat() for
 * the inode, and looks it up in sets of four entries. An entry is changed by who
 * has made it E_BUSY, and its lane unmapped only while nobody uses it: a user
 * counts himself first and looks at the state then, who unmaps does it the other
 * way round.
 *
 * A socket that was closed is not noticed, so entries without a lane are taken
 * for others when they are wanted; those of a lane say so themselves (@gone).
 */
#define _GNU_SOURCE
#include <linux/sockios.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "internal.h"

#define SETS	256
#define WAYS	4
#define ASK_AT	2	/* large operations before lklhost is asked */
#define ASK_AGAIN 16	/* and before it is asked again, where it was too early */

uint32_t lanes, bell_weight;
bool many_cpus;
static struct entry table[SETS][WAYS];
static uint32_t next_victim;

/** sock_ino - the inode number of a socket, 0: it is none */
uint64_t sock_ino(int fd)
{
	struct stat st;

	if (RAW(fstat, fd, &st) || !S_ISSOCK(st.st_mode))
		return 0;
	return (uint64_t)st.st_ino;
}

/** set_of - where @ino is, if anywhere */
static struct entry *set_of(uint64_t ino)
{
	return table[(ino * 0x9e3779b97f4a7c15ull) >> 56];
}

/**
 * lane_get - the entry of a socket that has a lane, in use until lane_put()
 *
 * NULL: it has none.
 */
struct entry *lane_get(uint64_t ino)
{
	struct entry *e = set_of(ino);
	int i;

	for (i = 0; i < WAYS; i++, e++) {
		if (load(&e->ino) != ino || load(&e->state) != E_LANE)
			continue;
		__atomic_fetch_add(&e->users, 1, __ATOMIC_SEQ_CST);
		if (load(&e->state) == E_LANE && load(&e->ino) == ino &&
		    !load(&e->lane->gone))
			return e;
		lane_put(e);
	}
	return NULL;
}

/** lane_put - the reverse */
void lane_put(struct entry *e)
{
	__atomic_fetch_sub(&e->users, 1, __ATOMIC_RELEASE);
}

/** sweep - unmap the lanes of connections that are closed */
static void sweep(void)
{
	int i;

	for (i = 0; i < SETS * WAYS && load(&lanes); i++) {
		struct entry *e = &table[i / WAYS][i % WAYS];

		if (load(&e->state) != E_LANE || !swap(&e->state, E_LANE, E_BUSY))
			continue;
		if (!load(&e->lane->gone) || load(&e->users)) {
			store(&e->state, E_LANE);
			continue;
		}
		RAW(munmap, e->lane, LANE_SIZE);
		__atomic_fetch_sub(&lanes, 1, __ATOMIC_RELAXED);
		e->lane = NULL;
		store(&e->ino, 0);
		store(&e->state, E_FREE);
	}
}

/** claim - make an entry E_BUSY if it is in @state; it is about @ino then */
static bool claim(struct entry *e, uint32_t state, uint64_t ino)
{
	if (!swap(&e->state, state, E_BUSY))
		return false;
	e->seen = 0;
	e->vain = 0;
	store(&e->ino, ino);
	return true;
}

/** entry_for - @ino's entry, without a lane and E_BUSY; NULL: not now, or never */
static struct entry *entry_for(uint64_t ino)
{
	struct entry *set = set_of(ino);
	uint32_t i, n;

	for (i = 0; i < WAYS; i++) {
		if (load(&set[i].ino) == ino && load(&set[i].state) != E_FREE)
			return swap(&set[i].state, E_SEEN, E_BUSY) ? &set[i] :
								     NULL;
	}
	for (i = 0; i < WAYS; i++) {
		if (claim(&set[i], E_FREE, ino))
			return &set[i];
	}
	n = __atomic_fetch_add(&next_victim, 1, __ATOMIC_RELAXED);
	for (i = 0; i < WAYS; i++) {
		struct entry *e = &set[(n + i) % WAYS];

		if (claim(e, E_SEEN, ino) || claim(e, E_NEVER, ino))
			return e;
	}
	return NULL;
}

/** learn - once: the weight of a byte, and how many processors there are */
static void learn(void)
{
	static uint32_t done;
	uint64_t set[16] = { 0 };
	unsigned int i, n = 0;
	int sv[2], weight = 0;

	if (!swap(&done, 0, 1))
		return;
	if (RAW(sched_getaffinity, 0, sizeof(set), set) > 0) {
		for (i = 0; i < sizeof(set) / sizeof(set[0]); i++)
			n += (unsigned int)__builtin_popcountll(set[i]);
	}
	many_cpus = n > 1;
	if (RAW(socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return;
	if (RAW(sendto, sv[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == 1)
		weight = carrier_left(sv[0]);
	if (weight > 0)
		store(&bell_weight, (uint32_t)weight);
	RAW(close, sv[0]);
	RAW(close, sv[1]);
}

/** attach - ask lklhost; the state that the entry has then */
static uint32_t attach(struct entry *e, int fd)
{
	long mem, ret = RAW(ioctl, fd, LANE_CALL(LANE_ATTACH), 0);

	if (ret == -EAGAIN || ret == -EINTR) {
		e->seen = (uint32_t)(ASK_AT - ASK_AGAIN);
		return E_SEEN;
	}
	if (ret < 0)
		return E_NEVER;
	mem = RAW(mmap, NULL, LANE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, ret,
		  0);
	RAW(close, ret);
	if (mem < 0 && mem > -4096)
		return E_NEVER;
	learn();
	e->lane = (struct lane *)mem;
	__atomic_fetch_add(&lanes, 1, __ATOMIC_RELAXED);
	return E_LANE;
}

/** lane_note - a large write to a socket that has no lane */
void lane_note(int fd, uint64_t ino)
{
	struct entry *e = entry_for(ino);
	uint32_t state = E_SEEN;

	if (!e)
		return;
	if ((int32_t)++e->seen >= ASK_AT) {
		sweep();
		state = attach(e, fd);
	}
	store(&e->state, state);
}
