// SPDX-License-Identifier: GPL-2.0-only
/* The functions of struct catch_ops, of the way in which this run catches calls. */
#define _GNU_SOURCE
#include <errno.h>

#include "engine/call/call.h"
#include "engine/call/catch.h"
#include "engine/call/nofile.h"

const struct call_ops *call_ops;
static const struct catch_ops *way;
static bool (*keep_answer)(const struct call *c, const int64_t *ret);

/** call_set_way - set how this run catches calls */
void call_set_way(const struct catch_ops *ops)
{
	way = ops;
}

/**
 * catch_set_keep_answer - set a function that keeps the answers to some calls
 * @fn: returns whether it keeps the answer to a call; @ret is the answer, or NULL
 */
void catch_set_keep_answer(bool (*fn)(const struct call *c, const int64_t *ret))
{
	keep_answer = fn;
}

/** call_valid - whether the caller still waits for the answer */
bool call_valid(const struct call *c)
{
	return way->valid(c);
}

/** catch_answer - answer a call; returns false if the caller no longer waits */
bool catch_answer(const struct call *c, int64_t ret)
{
	return (keep_answer && keep_answer(c, &ret)) || way->answer(c, ret);
}

/**
 * call_addfd_send - answer the call with a descriptor
 * @fd: our descriptor, which stays open
 *
 * Returns the descriptor's number in the caller, or a negative errno if the
 * caller is gone or has no free descriptor. On error, the call is not answered.
 * If a signal has interrupted the call, this succeeds and sets @c->left.
 */
int call_addfd_send(struct call *c, int fd, bool cloexec)
{
	if (keep_answer && keep_answer(c, NULL)) {
		int ret = call_addfd(c, fd, cloexec);

		if (ret >= 0)
			catch_answer(c, ret);
		return ret;
	}
	return way->addfd_send(c, fd, cloexec);
}

/**
 * call_addfd - add a descriptor to the caller
 *
 * Returns its number in the caller, or a negative errno.
 */
int call_addfd(const struct call *c, int fd, bool cloexec)
{
	return way->addfd(c, fd, -1, cloexec);
}

#define LIMIT_TRIES 100

/**
 * call_addfd_replace - replace a descriptor of the caller
 * @fd: our descriptor, which stays open
 * @newfd: number of the replaced descriptor in the caller
 *
 * This does not answer the call. The number may be above the caller's limit, if
 * the caller has lowered it. The soft limit is then raised for this moment.
 */
int call_addfd_replace(struct call *c, int fd, int newfd, bool cloexec)
{
	int ret = way->addfd(c, fd, newfd, cloexec);
	struct nofile limit = { 0 };
	int i;

	/*
	 * While the caller waits, its pid is its own. Another thread of it can
	 * lower the limit again.
	 */
	for (i = 0; i < LIMIT_TRIES && ret == -EBADF && call_valid(c) &&
	     !nofile_raise(&limit, c->pid, (rlim_t)newfd + 1); i++)
		ret = way->addfd(c, fd, newfd, cloexec);
	nofile_restore(&limit);
	return ret < 0 ? ret : 0;
}

/** call_getfd - duplicate a descriptor of the caller, or return a negative errno */
int call_getfd(const struct call *c, int fd)
{
	return way->getfd(c, fd);
}
