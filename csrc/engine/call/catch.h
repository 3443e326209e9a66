/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How lklhost catches the target's calls: by seccomp notification (engine
 * supervise), or by ptrace(2) (engine trace). Everything else is the same.
 */
#ifndef LKLHOST_CATCH_H
#define LKLHOST_CATCH_H

#include <stdbool.h>
#include <stdint.h>

struct call;

/* The result of call_native(), see native.h. */
#define CALL_NATIVE	(INT64_MIN)

/**
 * struct catch_ops - what the engine asks of the caller of a call
 * @valid: whether the caller still waits for the answer
 * @answer: answers with a result, a negative errno or CALL_NATIVE; false if the
 *	caller no longer waits
 * @addfd: adds our descriptor @fd to the caller, under the number @newfd unless
 *	that is negative; returns its number there or a negative errno
 * @addfd_send: does the same and answers the call with the number; on error,
 *	the call is not answered
 * @getfd: duplicates a descriptor of the caller, or returns a negative errno
 */
struct catch_ops {
	bool (*valid)(const struct call *c);
	bool (*answer)(const struct call *c, int64_t ret);
	int (*addfd)(const struct call *c, int fd, int newfd, bool cloexec);
	int (*addfd_send)(struct call *c, int fd, bool cloexec);
	int (*getfd)(const struct call *c, int fd);
};

extern const struct catch_ops catch_by_notify, catch_by_trace;

/* catch.c */
void call_set_way(const struct catch_ops *ops);
void catch_set_keep_answer(bool (*fn)(const struct call *c, const int64_t *ret));
bool catch_answer(const struct call *c, int64_t ret);

/* backend_seccomp.c */
void call_probe(int fd);

/* backend_ptrace.c */
void by_trace_start(void);
void by_trace_stop(void);

#endif
