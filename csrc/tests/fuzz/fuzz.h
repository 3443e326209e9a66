/* SPDX-License-Identifier: GPL-2.0-only */
/* The fuzzer of the target's system calls; see main.c. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../rnd.h"

#define WORKERS		3	/* processes */
#define THREADS		3	/* of each process */
#define FD_LIMIT	192	/* RLIMIT_NOFILE of a worker */
#define OPS_MAX		80

/**
 * struct slot - what a thread is doing, for the watchdog
 * @calls: calls made so far
 * @tid: thread id, 0: none
 * @nr, @args: number and arguments of the current call
 */
struct slot {
	_Atomic uint64_t calls;
	_Atomic pid_t tid;
	_Atomic long nr;
	_Atomic long args[6];
};

/**
 * struct shared - memory that all processes of the fuzzer share
 * @slot: the slots of all threads
 * @made, @good: calls by operation, and those that did not fail
 * @killed: number of processes that were killed early by SIGKILL
 */
struct shared {
	struct slot slot[WORKERS][THREADS];
	_Atomic uint64_t made[OPS_MAX], good[OPS_MAX];
	_Atomic uint64_t killed;
};

extern struct shared *shared;

/* args.c: arguments made of random numbers */
bool one_in(uint64_t n);
int args_init(void);
void args_trouble(void);
void *good_mem(size_t len);
void *any_ptr(void);
void *any_buf(size_t len);
uint64_t any_len(void);
int any_fd(void);
int any_int(void);
uint32_t any_addr(void *buf);
void *any_name(uint32_t *len);
void fill(void *buf, size_t len);

/* ops.c, msgs.c: the calls */
long call(long nr, long a, long b, long c, long d, long e, long f);
void op_random(struct slot *slot);
void op_plain(struct slot *slot);
const char *op_name(int op);
int op_count(void);
void ops_forking(bool yes);
long op_sendmsg(void);
long op_recvmsg(void);
long op_sendmmsg(void);
long op_recvmmsg(void);
long op_pass_fds(void);
long op_netlink(void);

#define CALL(nr, ...)	CALL_(nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(nr, a, b, c, d, e, f, ...) \
	call(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#endif
